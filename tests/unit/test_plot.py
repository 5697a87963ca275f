"""Figures are shown once, fine enough, with a text alternative."""

import base64
import io

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from lrm_utils import plot

ALT = "A picture that is described well enough for the test."


@pytest.fixture
def shown(monkeypatch):
    displayed = []
    monkeypatch.setattr(plot, "display", lambda data, raw, metadata: displayed.append((data, metadata["image/png"])))
    return displayed


def draw_all():
    plot.curve(
        {"train": [3, 2, 1], "valid": [3, 2.5, 2]}, "t", ALT, x="step", y="loss", baselines={"unigram": 2.0}, smooth=2
    )
    plot.bars({"gold": 1.0, "silver": -2.0}, "t", ALT, x="PMI", highlight=["gold"])
    plot.heatmap(np.eye(3), list("abc"), ["x", "yy", "zzzz"], "t", ALT, values=".1f")
    plot.heatmap(np.eye(3) - 0.5, list("abc"), list("xyz"), "t", ALT, center=0.0)
    plot.words(np.random.default_rng(0).normal(size=(9, 2)), list("abcdefghi"), "t", ALT, groups={"vowels": ["a", "e"]})
    plot.boxes({"text": (0, 0), "model": (1, 0), "answer": (1, 1)}, [("text", "model"), ("model", "answer")], "t", ALT)
    with plot.figure("two", ALT, columns=2, x="x", y="y") as (left, right):
        left.plot([1, 2])
        right.plot([2, 1])


def test_every_kind_of_figure_is_shown_once_at_twice_the_resolution_with_its_alternative(shown):
    draw_all()
    assert len(shown) == 7
    for data, meta in shown:
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
        assert picture.width == pytest.approx(2 * meta["width"], abs=2)
        assert picture.height == pytest.approx(2 * meta["height"], abs=2)
        assert meta["alt"] == ALT
        assert data["text/plain"] == f"[figure: {ALT}]"
    assert not plt.get_fignums(), "a figure was left open"


def test_a_figure_needs_an_alternative_worth_the_name(shown):
    with pytest.raises(ValueError, match="too short to stand for a picture"), plot.figure("t", "plot"):
        pass
    assert not shown


def test_a_figure_that_fails_is_closed_and_not_shown(shown):
    with pytest.raises(ZeroDivisionError), plot.figure("t", ALT):
        _ = 1 / 0
    assert not shown
    assert not plt.get_fignums()


def test_labels_of_words_avoid_each_other(monkeypatch, shown):
    boxes, original = [], plot._label

    def label_and_measure(ax, *rest):
        original(ax, *rest)
        boxes.extend(text.get_window_extent(ax.figure.canvas.get_renderer()) for text in ax.texts)

    monkeypatch.setattr(plot, "_label", label_and_measure)
    points = np.repeat(np.random.default_rng(0).normal(size=(6, 2)), 2, axis=0)  # two words at every point
    plot.words(points, [f"word{i}" for i in range(12)], "t", ALT)
    assert len(boxes) == 12
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize("columns", [1, 2])
def test_a_title_too_long_for_the_figure_goes_on_in_the_next_line(monkeypatch, columns):
    drawn = []
    monkeypatch.setattr(plot, "_show", lambda fig, alt: drawn.append((fig.canvas.draw(), fig)[1]))
    for title in ("short", "a finding that takes many words " * 4):
        with plot.figure(title, ALT, columns=columns):
            pass
    for fig, lines in zip(drawn, (1, 2), strict=True):
        title = fig.axes[0].get_title(loc="left") if columns == 1 else fig.get_suptitle()
        assert title.count("\n") + 1 >= lines and (lines > 1 or "\n" not in title)
        for text in fig.findobj(Text):
            assert text.get_window_extent().x1 <= fig.bbox.x1 + 1


def test_a_curve_with_any_title_keeps_its_label_inside_the_picture(monkeypatch):
    drawn = []
    monkeypatch.setattr(plot, "_show", lambda fig, alt: drawn.append((fig.canvas.draw(), fig)[1]))
    for title in ("short", "a finding that takes many words " * 4):
        plot.curve({"loss": [3, 2, 1]}, title, ALT, x="step", y="loss per word")
    for fig in drawn:
        assert fig.axes[0].yaxis.label.get_window_extent().x0 >= 0
