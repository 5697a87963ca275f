"""Draws the book's diagrams as SVG text: the map of models, the three layers, the logo. It owns no chapter's numbers.

The drawings are set inline into the pages, so they take their colors from the stylesheet (light and dark), their text
can be selected, and a node links to its chapter as soon as `_toc.yml` lists that chapter. Each diagram is drawn twice,
wide and for a phone, from the same description. Equal input gives equal bytes.

    python tools/figures.py            # rewrite _static/figures/*.svg and the logo, favicon and badge in _static
    python tools/figures.py --check    # change nothing; exit 1 if a file differs from what the code draws
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent

# Fallbacks for a file opened on its own; in the book the variables of _static/lrm.css decide.
STYLE = """
.lrm-svg{font-family:inherit}
.lrm-svg text{fill:var(--pst-color-text-base,#222)}
.lrm-svg .quiet{fill:var(--lrm-quiet,#55616d)}
.lrm-svg .name{font-weight:600}
.lrm-svg .box{fill:var(--pst-color-background,#fff);stroke-width:1.5}
.lrm-svg .idea{stroke-dasharray:4 3}
.lrm-svg .edge{fill:none;stroke-width:1.5}
.lrm-svg .layer{fill:var(--lrm-soft,#f5f7fa);stroke-width:1.5}
.lrm-svg a:hover .box,.lrm-svg a:focus .box{stroke-width:3}
.lrm-svg a .name{text-decoration:underline;text-underline-offset:2px}
"""
COLORS = {"count": "#b35900", "predict": "#0072b2", "attend": "#00795c", "pretrain": "#a34580", "plain": "#6b7c8d"}
for _name, _color in COLORS.items():
    STYLE += f".lrm-svg .s-{_name}{{stroke:var(--lrm-{_name},{_color})}}\n"
    STYLE += f".lrm-svg .f-{_name}{{fill:var(--lrm-{_name},{_color})}}\n"


def chapter_pages(toc: Path = ROOT / "_toc.yml") -> dict[int, str]:
    """The address of each chapter that exists, by number, relative to the root of the book."""
    listed = re.findall(r"chapters/(\d\d)(_\w+)/index", str(yaml.safe_load(toc.read_text(encoding="utf-8"))))
    return {int(number): f"chapters/{number}{topic}/index.html" for number, topic in listed}


def number(value: float) -> str:
    """A coordinate with at most one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, size: float, classes: str = "", anchor: str = "middle") -> str:
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}" text-anchor="{anchor}"'
        f"{f' class={classes!r}' if classes else ''}>{escape(content)}</text>"
    ).replace("'", '"')


def rect(x: float, y: float, width: float, height: float, radius: float, classes: str) -> str:
    x, y, width, height = (number(value) for value in (x, y, width, height))
    return f'<rect class="{classes}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"/>'


def linked(drawing: str, chapter: int, pages: dict[int, str]) -> str:
    """`drawing` as a link to its chapter, if that chapter exists."""
    if chapter not in pages:
        return drawing
    return f'<a href="{pages[chapter]}">{drawing}</a>'


def rounded(points: list[tuple[float, float]], radius: float) -> str:
    """A path through `points` along horizontal and vertical lines, with its corners rounded."""
    points = [p for i, p in enumerate(points) if i == 0 or p != points[i - 1]]
    path = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for (x0, y0), (x, y), (x1, y1) in zip(points, points[1:], points[2:], strict=False):
        before, after = abs(x - x0) + abs(y - y0), abs(x1 - x) + abs(y1 - y)
        r = min(radius, before / 2, after / 2)
        start = (x - r * (x - x0) / before, y - r * (y - y0) / before)
        end = (x + r * (x1 - x) / after, y + r * (y1 - y) / after)
        path.append(f"L{number(start[0])} {number(start[1])}Q{number(x)} {number(y)} {number(end[0])} {number(end[1])}")
    path.append(f"L{number(points[-1][0])} {number(points[-1][1])}")
    return "".join(path)


def document(name: str, width: float, height: float, title: str, desc: str, body: list[str]) -> str:
    """A whole SVG: a title and a description for readers who hear the page, then the drawing."""
    size = f"0 0 {number(width)} {number(height)}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lrm-svg" viewBox="{size}" width="{number(width)}" '
        f'role="group" aria-labelledby="{name}-title {name}-desc">'
    )
    label = f'<title id="{name}-title">{escape(title)}</title>\n<desc id="{name}-desc">{escape(desc)}</desc>'
    return "\n".join([head, label, f"<style>{STYLE}</style>", *body, "</svg>"]) + "\n"


# --- The map of models ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    name: str
    family: str
    row: int
    column: float
    chapter: int | None = None  # None: an idea or a model we use but do not build
    short: str = ""  # on a phone; a model we do not build has no chapter to name and may use two lines


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    leave: float = 0.0  # where the line leaves and enters, in halves of a node's width
    enter: float = 0.0
    channel: float | None = None  # a column between the columns, for lines that pass other nodes
    early: bool = False  # turn right below the source instead of right above the target
    level: float = 0.5  # how deep in the gap between two rows it runs, so that two lines can share a gap
    side: bool = False  # leave through the right side of the source


YEARS = [
    "1948",
    "1954",
    "1975",
    "1990",
    "1994",
    "1999",
    "2003",
    "2010",
    "2013",
    "2014",
    "2015",
    "2016",
    "2017",
    "2018",
    "2019",
    "",
    "2020",
]
NODES = {
    "ngram": Node("n-grams", "predict", 0, 2, 1),
    "dist": Node("distributional\nhypothesis", "count", 1, 1, None, "words by\ntheir company"),
    "vsm": Node("vector space\nmodel", "count", 2, 0),
    "lsa": Node("LSA", "count", 3, 0, 1),
    "pmi": Node("PMI of words", "count", 3, 1, 1, "PMI"),
    "ppmi": Node("PPMI vectors", "count", 4, 1, 1, "PPMI"),
    "plsa": Node("PLSA", "count", 5, 0, 1),
    "lda": Node("LDA", "count", 6, 0, 1),
    "nnlm": Node("NNLM", "predict", 6, 2, 1),
    "rnnlm": Node("RNN LM", "predict", 7, 3),
    "word2vec": Node("word2vec", "predict", 8, 2, 2),
    "paragraph": Node("paragraph vectors", "predict", 9, 0, 2, "paragraph v."),
    "glove": Node("GloVe", "count", 9, 1, 3),  # a fit to counts, although it is trained like a network
    "seq2seq": Node("seq2seq", "attend", 9, 3, 5),
    "skip": Node("Skip-Thoughts", "predict", 10, 0, 2, "Skip-Th."),
    "semi": Node("semi-supervised\nsequence learning", "pretrain", 10, 2, None, "pretrained\nLSTM"),
    "attention": Node("attention", "attend", 10, 3, 5),
    "bpe": Node("BPE", "plain", 11, 2, 4),
    "cove": Node("CoVe", "pretrain", 12, 1, 5),
    "fasttext": Node("fastText", "predict", 12, 2, 4),
    "transformer": Node("Transformer", "attend", 12, 3, 6),
    "quick": Node("Quick-Thoughts", "predict", 13, 0, 2, "Quick-Th."),
    "elmo": Node("ELMo", "pretrain", 13, 1, 7),
    "ulmfit": Node("ULMFiT", "pretrain", 13, 2, 8),
    "gpt": Node("GPT", "pretrain", 13, 3, 9),
    "bert": Node("BERT", "pretrain", 14, 2, 10),
    "ernie": Node("ERNIE", "pretrain", 15, 0, 10),
    "xlnet": Node("XLNet", "pretrain", 15, 1, 10),
    "unilm": Node("UniLM", "pretrain", 15, 2, 10),
    "t5": Node("T5", "pretrain", 16, 3, 10),
}
EDGES = [
    Edge("dist", "pmi"),
    Edge("vsm", "lsa"),
    Edge("lsa", "plsa"),
    Edge("plsa", "lda"),
    Edge("pmi", "ppmi"),
    Edge("ngram", "nnlm"),
    Edge("nnlm", "word2vec"),
    Edge("nnlm", "rnnlm", 0.5),
    Edge("ppmi", "glove"),
    Edge("word2vec", "glove", 0, 0.5),
    Edge("word2vec", "paragraph"),
    Edge("word2vec", "skip", 0, 0.5, 0.5, level=0.3),
    Edge("word2vec", "fasttext", 0, -0.5, 1.5),
    Edge("seq2seq", "skip", -0.5, 0.5, level=0.3),
    Edge("skip", "quick"),
    Edge("rnnlm", "seq2seq"),
    Edge("rnnlm", "semi", -0.5, 0.5, 2.5, level=0.7),
    Edge("seq2seq", "semi", -0.5, 0.5, level=0.7),
    Edge("seq2seq", "attention"),
    Edge("attention", "transformer"),
    Edge("bpe", "transformer", 0.5, -0.5),
    Edge("glove", "cove"),
    Edge("attention", "cove", -0.5, 0.5, early=True),
    Edge("cove", "elmo"),
    Edge("rnnlm", "elmo", 0.5, 0.5, 3.5, level=0.3),
    Edge("semi", "ulmfit", 0, 0.5, 2.5, level=0.7, side=True),
    Edge("semi", "gpt", 0, -0.5, 2.5, level=0.7, side=True),
    Edge("transformer", "gpt"),
    Edge("ulmfit", "gpt"),
    Edge("elmo", "bert", 0, -0.5),
    Edge("gpt", "bert", 0, 0.5),
    Edge("bert", "ernie"),
    Edge("bert", "xlnet"),
    Edge("bert", "unilm"),
    Edge("bert", "t5", early=True),
]
FAMILIES = {
    "count": "counting",
    "predict": "predicting",
    "plain": "splitting",
    "attend": "attending",
    "pretrain": "pretraining",
}


@dataclass(frozen=True)
class Grid:
    """The measures of the map: where rows and columns lie, and how large a box and its text are."""

    gutter: float
    margin: float
    column: float
    box: float
    height: float
    gap: float
    name_size: float
    small: float

    @property
    def pitch(self) -> float:
        return self.height + self.gap

    def center(self, column: float) -> float:
        return self.gutter + (column + 0.5) * self.column

    def top(self, row: int) -> float:
        return 4 + row * self.pitch

    def route(self, edge: Edge) -> list[tuple[float, float]]:
        """The corners of a line, from its source to its target."""
        a, b = NODES[edge.source], NODES[edge.target]
        if a.row == b.row:
            y = self.top(a.row) + self.height / 2
            return [(self.center(a.column) + self.box / 2, y), (self.center(b.column) - self.box / 2, y)]
        x0 = self.center(a.column) + edge.leave * self.box / 2
        x1 = self.center(b.column) + edge.enter * self.box / 2
        y0, y1 = self.top(a.row) + self.height, self.top(b.row)
        first, last = y0 + self.gap / 2, y1 - self.gap * (1 - edge.level)
        if edge.channel is not None:
            lane = self.center(edge.channel)
            start = [(x0, y0), (x0, first), (lane, first)]
            if edge.side:
                y = self.top(a.row) + self.height / 2
                start = [(self.center(a.column) + self.box / 2, y), (lane, y)]
            return [*start, (lane, last), (x1, last), (x1, y1)]
        if x0 == x1:
            return [(x0, y0), (x1, y1)]
        bend = first if edge.early else last
        return [(x0, y0), (x0, bend), (x1, bend), (x1, y1)]


WIDE = Grid(gutter=46, margin=20, column=170, box=144, height=40, gap=22, name_size=14.5, small=11.5)
PHONE = Grid(gutter=28, margin=4, column=85.5, box=76, height=34, gap=18, name_size=11.5, small=9.5)


def model_map(narrow: bool, pages: dict[int, str]) -> str:
    """Time runs down, one row a year with something new; a line says that the lower model builds on the upper one."""
    grid = PHONE if narrow else WIDE
    lines, heads = [], []
    for edge in EDGES:
        color = NODES[edge.target].family
        points = grid.route(edge)
        lines.append(f'<path class="edge s-{color}" d="{rounded(points, 7)}"/>')
        x, y = points[-1]
        dx, dy = (1, 0) if points[-2][1] == y else (0, 1)
        back, side = 5.5, 3.2
        heads.append(
            f'<path class="head f-{color}" d="M{number(x)} {number(y)}'
            f"L{number(x - back * dx - side * dy)} {number(y - back * dy - side * dx)}"
            f'L{number(x - back * dx + side * dy)} {number(y - back * dy + side * dx)}Z"/>'
        )

    body = []
    box, height, size, small = grid.box, grid.height, grid.name_size, grid.small
    for row, year in enumerate(YEARS):
        if year:
            body.append(text(0, grid.top(row) + height / 2 + small * 0.36, year, small, "quiet", "start"))
    body += lines + heads
    for node in NODES.values():
        middle, y = grid.center(node.column), grid.top(node.row)
        label = (node.short or node.name) if narrow else node.name
        drawn = rect(middle - box / 2, y, box, height, 7, f"box s-{node.family}" + ("" if node.chapter else " idea"))
        if node.chapter is None:
            rows = label.split("\n")
            size_here = size if len(rows) == 1 else size * 0.93
            start = y + height / 2 + size_here * 0.36 - (len(rows) - 1) * size_here * 0.57
            for i, part in enumerate(rows):
                drawn += text(middle, start + i * size_here * 1.14, part, size_here)
            body.append(drawn)
            continue
        drawn += text(middle, y + height * 0.44, label, size, "name")
        drawn += text(middle, y + height * 0.82, f"chapter {node.chapter}", small, "quiet")
        body.append(linked(drawn, node.chapter, pages))

    x = grid.center(3) - box / 2  # the legend, in the empty corner
    for i, (family, label) in enumerate(FAMILIES.items()):
        y = 14 + i * (size + 8)
        body.append(rect(x, y - 9, 10, 10, 2, f"f-{family}") + text(x + 16, y, label, size, "", "start"))

    def spoken(key: str) -> str:
        return NODES[key].name.replace("\n", " ")

    desc = "Time runs down from 1948 to 2020. " + " ".join(
        f"{spoken(a)} leads to {', '.join(spoken(e.target) for e in EDGES if e.source == a)}."
        for a in NODES
        if any(e.source == a for e in EDGES)
    )
    name = "map-narrow" if narrow else "map"
    width, end = grid.gutter + 4 * grid.column + grid.margin, 8 + len(YEARS) * grid.pitch - grid.gap
    return document(name, width, end, "The map of models", desc, body)


# --- The three layers -----------------------------------------------------------------------------------------------

LAYERS = [  # from the top of the drawing, which is the end of the computation
    ("Task model", "turns the states into an answer", ("one answer", "for the sentence"), (11,)),
    ("Encoder", "lets every position read its context", ("a state for", "each position"), (5, 6, 7, 8, 9, 10)),
    ("Embedding", "gives each token a vector of its own", ("a vector for", "each token"), (1, 2, 3, 4)),
]
SENTENCE = ["the", "crane", "lifts", "the", "beam"]
FAMILY_OF = {1: "count", 2: "predict", 3: "count", 4: "plain"} | dict.fromkeys((5, 6), "attend")
FAMILY_OF |= dict.fromkeys((7, 8, 9, 10), "pretrain") | {11: "plain"}


def three_layers(narrow: bool, pages: dict[int, str]) -> str:
    """A sentence enters below, an answer leaves above; each layer names the chapters that replace it."""
    left, box, height, gap, words = (4, 366, 92, 26, 13.5) if narrow else (130, 592, 70, 28, 14.5)
    chip, top = 26, 42
    body = [text(left + box / 2, 14, "here, “crane” is a machine", words)]

    def arrow(x: float, start: float, end: float) -> str:
        line = f'<path class="edge s-plain" d="M{number(x)} {number(start)}L{number(x)} {number(end)}"/>'
        return line + f'<path class="f-plain" d="M{number(x)} {number(end)}l-3.2 5.5h6.4Z"/>'

    body.append(arrow(left + box / 2, top, 22))
    for i, (name, what, gives, chapters) in enumerate(LAYERS):
        y = top + i * (height + gap)
        body.append(rect(left, y, box, height, 9, "layer s-plain"))
        body.append(text(left + 18, y + 28, name, 16, "name", "start"))
        body.append(text(left + 18, y + 48, what, 13, "quiet", "start"))
        label = "chapters" if len(chapters) > 1 else "chapter"
        chip_y = y + 60 if narrow else y + height / 2 - 11
        x = left + 76 if narrow else left + box - 14 - len(chapters) * (chip + 6)
        body.append(text(x - 6, chip_y + 15.5, label, 12, "quiet", "end"))
        for j, chapter in enumerate(chapters):
            mark = rect(x + j * (chip + 6), chip_y, chip, 22, 11, f"box s-{FAMILY_OF[chapter]}")
            mark += text(x + j * (chip + 6) + chip / 2, chip_y + 15.5, str(chapter), 12.5, "name")
            body.append(linked(mark, chapter, pages))
        body += [arrow(left + box * (k + 0.5) / 5, y + height + gap, y + height) for k in range(5)]
        if not narrow:
            body += [text(left - 16, y + height / 2 - 3 + 17 * k, gives[k], 12.5, "quiet", "end") for k in (0, 1)]
    bottom = top + 3 * (height + gap) + 14
    body += [text(left + box * (k + 0.5) / 5, bottom, word, words) for k, word in enumerate(SENTENCE)]
    desc = "A sentence enters below and an answer leaves above. " + " ".join(
        f"{name}: {what}; replaced in {'chapters' if len(chapters) > 1 else 'chapter'} {', '.join(map(str, chapters))}."
        for name, what, _, chapters in reversed(LAYERS)
    )
    title = "The three layers of every system in the course"
    return document("layers-narrow" if narrow else "layers", left + box + 4, bottom + 8, title, desc, body)


# --- The logo -------------------------------------------------------------------------------------------------------

PATTERN = ["4210", "2431", "1342", "0124"]  # a small symmetric table of counts: what the course starts from
SHADES = ["#2f6596", "#4a83b5", "#7fb2dc", "#bcd9f0", "#f0b556"]


def logo(size: int) -> str:
    cells = "".join(
        f'<rect x="{5 + 5.7 * column:.1f}" y="{5 + 5.7 * row:.1f}" width="4.9" height="4.9" rx="1" '
        f'fill="{SHADES[int(value)]}"/>'
        for row, values in enumerate(PATTERN)
        for column, value in enumerate(values)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" width="{size}" height="{size}">'
        f"<title>Language Representation Models</title>"
        f'<rect width="32" height="32" rx="7" fill="#1f4e79"/>{cells}</svg>\n'
    )


def badge() -> str:
    """The button at the top of each notebook. It is a picture of its own there, so its colors are fixed."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 24" width="128" height="24" role="img">'
        '<title>Open in Colab</title><rect width="128" height="24" rx="5" fill="#1f4e79"/>'
        '<path d="M11 6.5v11l9-5.5Z" fill="#f0b556"/>'
        '<text x="29" y="16.3" font-family="Verdana,DejaVu Sans,sans-serif" font-size="12" fill="#fff" '
        'textLength="88" lengthAdjust="spacingAndGlyphs">Open in Colab</text></svg>\n'
    )


def drawings() -> dict[str, str]:
    """Every file this program owns, by its path from the root of the repository."""
    pages = chapter_pages()
    return {
        "_static/figures/map.svg": model_map(narrow=False, pages=pages),
        "_static/figures/map-narrow.svg": model_map(narrow=True, pages=pages),
        "_static/figures/layers.svg": three_layers(narrow=False, pages=pages),
        "_static/figures/layers-narrow.svg": three_layers(narrow=True, pages=pages),
        "_static/logo.svg": logo(64),
        "_static/favicon.svg": logo(32),
        "_static/open-in-colab.svg": badge(),
    }


def outdated(root: Path = ROOT) -> list[str]:
    """The files that are missing or differ from what the code draws."""
    return [
        name
        for name, content in drawings().items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != content
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a file is out of date")
    if parser.parse_args().check:
        stale = outdated()
        sys.exit(f"out of date, run python tools/figures.py: {', '.join(stale)}" if stale else 0)
    for name, content in drawings().items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(content, encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
