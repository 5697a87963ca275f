"""Every kind of figure in the book, in one style (`lrm.mplstyle`), each with a title that states the finding.

All are drawn through `figure`, which insists on a text alternative for readers who cannot see the picture, and shows a
PNG at twice the screen's resolution. It owns no numbers: a figure draws what the chapter computed.
"""

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, TwoSlopeNorm
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from PIL import Image

STYLE = Path(__file__).with_name("lrm.mplstyle")
BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
YELLOW, SKY, GRAY = "#E69F00", "#56B4E9", "#555555"


def use_style() -> None:
    """Apply the book's style to every figure that follows."""
    plt.style.use(STYLE)


@contextmanager
def figure(
    title: str,
    alt: str,
    *,
    x: str = "",
    y: str = "",
    columns: int = 1,
    size: tuple[float, float] = (7.2, 3.6),
    **options,
) -> Iterator[Axes | np.ndarray]:
    """Draw inside `with plot.figure("Gold moves next to silver", alt="…") as ax:`; the picture is shown at the end.

    The title states what is to be seen, `alt` describes the picture to those who cannot see it, `x` and `y` label the
    axes with units. With `columns` above 1 it yields an array of axes; `options` go to `plt.subplots`.
    """
    if len(alt) < 20:
        raise ValueError(f"alt={alt!r} is too short to stand for a picture: say what it shows and what stands out")
    with plt.style.context(STYLE):
        fig, axes = plt.subplots(1, columns, figsize=size, **options)
        try:
            yield axes
            for ax in np.atleast_1d(axes):
                ax.set_xlabel(ax.get_xlabel() or x)
                ax.set_ylabel(ax.get_ylabel() or y)
            if columns == 1:
                shown = axes.set_title(title)
            else:
                shown = fig.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
            _break_lines(shown)
            _show(fig, alt)
        finally:
            plt.close(fig)


def _break_lines(title: Text) -> None:
    """Let a title that is wider than its figure go on in the next line. (Matplotlib's own `wrap` upsets the layout.)"""
    fig, lines = title.figure, [""]
    fig.canvas.draw()
    for word in title.get_text().split():
        longer = f"{lines[-1]} {word}".strip()
        title.set_text(longer)
        if lines[-1] and title.get_window_extent().x1 > fig.bbox.x1:
            lines.append(word)
        else:
            lines[-1] = longer
    title.set_text("\n".join(lines))


def _show(fig, alt: str) -> None:
    """Display a PNG that is twice as fine as it is large, with its text alternative."""
    drawn, buffer = io.BytesIO(), io.BytesIO()
    fig.savefig(drawn, format="png", dpi=2 * fig.dpi)
    palette = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    palette.save(buffer, format="png", optimize=True)  # 256 colors: a third of the size, and no eye sees it
    width, height = (round(inches * fig.dpi) for inches in fig.get_size_inches())
    data = {"image/png": base64.b64encode(buffer.getvalue()).decode(), "text/plain": f"[figure: {alt}]"}
    display(data, raw=True, metadata={"image/png": {"width": width, "height": height, "alt": alt}})


def curve(
    series: Mapping[str, Sequence[float]],
    title: str,
    alt: str,
    *,
    x: str,
    y: str,
    smooth: int = 1,
    baselines: Mapping[str, float] | None = None,
    log: bool = False,
) -> None:
    """Lines over steps, each labeled at its end; `smooth` draws a running mean, `baselines` are dashed levels."""
    with figure(title, alt, x=x, y=y) as ax:
        ends = []
        for (name, values), color in zip(series.items(), cycle([BLUE, ORANGE, GREEN, PINK, YELLOW, SKY]), strict=False):
            values = np.asarray(values, float)
            steps = np.arange(len(values)) + 1
            if smooth > 1 and len(values) > smooth:
                ax.plot(steps, values, color=color, alpha=0.2, linewidth=1)
                values, steps = np.convolve(values, np.ones(smooth) / smooth, "valid"), steps[smooth - 1 :]
            ax.plot(steps, values, color=color)
            ends.append((steps[-1], values[-1], name, color))
        for name, level in (baselines or {}).items():
            ax.axhline(level, color=GRAY, linestyle="--", linewidth=1)
            ax.annotate(name, (1, level), color=GRAY, va="bottom", xycoords=("axes fraction", "data"), ha="right")
        if log:
            ax.set_yscale("log")
        ax.grid(axis="y")
        ax.figure.canvas.draw()
        previous = -np.inf
        for step, value, name, color in sorted(ends, key=lambda end: end[1]):  # labels from the bottom up, kept apart
            height = ax.transData.transform((step, value))[1]
            previous = max(height, previous + 16)
            lift = (previous - height) * 72 / ax.figure.dpi
            ax.annotate(name, (step, value), (6, lift), textcoords="offset points", color=color, va="center")


def bars(
    values: Mapping[str, float], title: str, alt: str, *, x: str, highlight: Sequence[str] = (), decimals: int = 2
) -> None:
    """Horizontal bars from top to bottom, each with its value; the highlighted ones in orange."""
    names, lengths = list(values), list(values.values())
    with figure(title, alt, x=x, size=(7.2, 0.9 + 0.32 * len(names))) as ax:
        drawn = ax.barh(names, lengths, color=[ORANGE if n in highlight else BLUE for n in names], height=0.72)
        ax.bar_label(drawn, fmt=lambda v: f"{v:,.{decimals}f}", padding=4, color="#333333")
        ax.invert_yaxis()
        ax.margins(x=0.12)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(min(lengths) < 0)


def heatmap(
    matrix: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    alt: str,
    *,
    x: str = "",
    y: str = "",
    values: str | None = None,
    center: float | None = None,
    size: tuple[float, float] | None = None,
) -> None:
    """A matrix as colored cells; `values` (such as ".2f") writes them in, `center` makes two colors meet there."""
    matrix = np.asarray(matrix, float)
    low, high = np.nanmin(matrix), np.nanmax(matrix)
    norm, cmap = Normalize(low, high), "Blues"
    if center is not None:
        reach = max(high - center, center - low, 1e-9)
        norm, cmap = TwoSlopeNorm(center, center - reach, center + reach), "RdBu_r"
    with figure(title, alt, x=x, y=y, size=size or (1.8 + 0.55 * len(columns), 1.2 + 0.38 * len(rows))) as ax:
        image = ax.imshow(matrix, cmap=cmap, norm=norm, aspect="auto")
        ax.set_xticks(range(len(columns)), columns, rotation=45 if max(map(len, columns)) > 3 else 0, ha="right")
        ax.set_yticks(range(len(rows)), rows)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if values is None:
            ax.figure.colorbar(image, ax=ax, shrink=0.9)
            return
        for i, j in np.ndindex(*matrix.shape):
            dark = abs(norm(matrix[i, j]) - (0.5 if center is not None else 0)) > (0.35 if center is not None else 0.6)
            ax.text(j, i, format(matrix[i, j], values), ha="center", va="center", color="white" if dark else "#222222")


def words(
    points: np.ndarray,
    labels: Sequence[str],
    title: str,
    alt: str,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    x: str = "",
    y: str = "",
) -> None:
    """A map of words at two-dimensional points; the words of a group share a color, and labels avoid each other."""
    points = np.asarray(points, float)
    color = {
        word: c
        for (_, group), c in zip((groups or {}).items(), cycle([BLUE, ORANGE, GREEN, PINK, YELLOW]), strict=False)
        for word in group
    }
    with figure(title, alt, x=x, y=y, size=(7.2, 5.2)) as ax:
        ax.scatter(*points.T, s=16, c=[color.get(w, GRAY) for w in labels])
        ax.margins(0.08)
        ax.set_xticks([])
        ax.set_yticks([])
        _label(ax, points, labels, [color.get(w, GRAY) for w in labels])
        for name, group in (groups or {}).items():
            ax.scatter([], [], c=color[group[0]], s=16, label=name)
        if groups:
            ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def _label(ax: Axes, points: np.ndarray, labels: Sequence[str], colors: Sequence[str]) -> None:
    """Write each label beside its point, at the first of eight places where it covers no other label."""
    fig = ax.figure
    fig.canvas.draw()
    renderer, taken = fig.canvas.get_renderer(), []
    places = [(5, 0), (-5, 0), (0, 6), (0, -6), (5, 7), (-5, 7), (5, -7), (-5, -7)]
    for point, label, color in zip(points, labels, colors, strict=True):
        for dx, dy in places:
            text = ax.annotate(
                label,
                point,
                (dx, dy),
                textcoords="offset points",
                color=color,
                fontsize=9.5,
                ha="left" if dx > 0 else "right" if dx < 0 else "center",
                va="bottom" if dy > 0 else "top" if dy < 0 else "center",
            )
            box = text.get_window_extent(renderer)
            if not any(box.overlaps(other) for other in taken) or (dx, dy) == places[-1]:
                taken.append(box)
                break
            text.remove()


def boxes(
    labels: Mapping[str, tuple[float, float]],
    arrows: Sequence[tuple[str, str]],
    title: str,
    alt: str,
    *,
    colors: Mapping[str, str] | None = None,
    size: tuple[float, float] = (7.2, 2.4),
) -> None:
    """An architecture as boxes at grid positions (column, row), joined by arrows; row 0 is at the bottom."""
    with figure(title, alt, size=size) as ax:
        for label, (column, row) in labels.items():
            face = (colors or {}).get(label, BLUE)
            ax.add_patch(
                FancyBboxPatch(
                    (column - 0.42, row - 0.3),
                    0.84,
                    0.6,
                    boxstyle="round,pad=0,rounding_size=0.08",
                    facecolor=(face, 0.14),
                    edgecolor=face,
                    linewidth=1.2,
                )
            )
            ax.text(column, row, label, ha="center", va="center", fontsize=10)
        for start, end in arrows:
            (x0, y0), (x1, y1) = labels[start], labels[end]
            flat = abs(x1 - x0) > abs(y1 - y0)
            reach = (0.44 * np.sign(x1 - x0), 0) if flat else (0, 0.32 * np.sign(y1 - y0))
            ax.annotate(
                "",
                (x1 - reach[0], y1 - reach[1]),
                (x0 + reach[0], y0 + reach[1]),
                arrowprops={"arrowstyle": "-|>", "color": GRAY, "linewidth": 1.2},
            )
        columns, rows = zip(*labels.values(), strict=True)
        ax.set_xlim(min(columns) - 0.6, max(columns) + 0.6)
        ax.set_ylim(min(rows) - 0.5, max(rows) + 0.5)
        ax.axis("off")
