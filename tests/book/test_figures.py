"""The drawings in the repository are what tools/figures.py draws, sound SVG whose links lead somewhere."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import figures
import pytest

ROOT = Path(__file__).resolve().parents[2]

DRAWINGS = sorted(figures.drawings())
SVG = "{http://www.w3.org/2000/svg}"


def test_committed_drawings_are_what_the_code_draws() -> None:
    assert figures.outdated() == [], "run python tools/figures.py and commit the result"


@pytest.mark.parametrize("name", DRAWINGS)
def test_an_edited_or_missing_drawing_is_noticed(name: str, tmp_path: Path) -> None:
    for drawing, content in figures.drawings().items():
        (tmp_path / drawing).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / drawing).write_text(content, encoding="utf-8")
    assert figures.outdated(tmp_path) == []
    (tmp_path / name).write_text(figures.drawings()[name].replace("</svg>", "<!-- by hand --></svg>"), encoding="utf-8")
    assert figures.outdated(tmp_path) == [name]
    (tmp_path / name).unlink()
    assert figures.outdated(tmp_path) == [name]


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_sound_and_says_what_it_shows(name: str) -> None:
    root = ElementTree.fromstring(figures.drawings()[name])
    assert root.find(f"{SVG}title").text
    if "figures/" in name:
        assert len(root.find(f"{SVG}desc").text) > 100


def test_nothing_overlaps_on_the_map() -> None:
    taken: dict[tuple[int, float], str] = {}
    for key, node in figures.NODES.items():
        assert (node.row, node.column) not in taken, f"{key} stands on {taken.get((node.row, node.column))}"
        taken[node.row, node.column] = key


def pieces(edge: figures.Edge, grid: figures.Grid) -> list[tuple[float, float, float, float]]:
    """The straight pieces of a line, each as left, top, right, bottom."""
    corners = grid.route(edge)
    return [(min(x, u), min(y, v), max(x, u), max(y, v)) for (x, y), (u, v) in zip(corners, corners[1:], strict=False)]


@pytest.mark.parametrize("grid", [figures.WIDE, figures.PHONE], ids=["wide", "phone"])
def test_no_line_on_the_map_runs_through_a_box(grid: figures.Grid) -> None:
    for edge in figures.EDGES:
        for left, top, right, bottom in pieces(edge, grid):
            for key, node in figures.NODES.items():
                x, y = grid.center(node.column), grid.top(node.row)
                beside = right <= x - grid.box / 2 or left >= x + grid.box / 2
                assert beside or bottom <= y or top >= y + grid.height, f"{edge.source} to {edge.target} crosses {key}"


@pytest.mark.parametrize("grid", [figures.WIDE, figures.PHONE], ids=["wide", "phone"])
def test_lines_on_the_map_merge_only_where_they_share_an_end(grid: figures.Grid) -> None:
    for a, b in combinations(figures.EDGES, 2):
        if a.source == b.source or a.target == b.target:
            continue
        for one in pieces(a, grid):
            for other in pieces(b, grid):
                width = min(one[2], other[2]) - max(one[0], other[0])
                height = min(one[3], other[3]) - max(one[1], other[1])
                # Crossing at a right angle is fine (0 by 0); running along each other closer than 3 units is not.
                along = (width > 0 and -3 < height <= 0) or (height > 0 and -3 < width <= 0)
                assert not along, f"{a.source} to {a.target} runs along {b.source} to {b.target}"


def test_descent_on_the_map_never_runs_backward_in_time() -> None:
    for edge in figures.EDGES:
        assert figures.NODES[edge.source].row <= figures.NODES[edge.target].row, f"{edge.source} after {edge.target}"


def test_links_lead_to_chapters_that_exist() -> None:
    links = set(re.findall(r'href="([^"]+)"', "".join(figures.drawings().values())))
    assert links, "chapter 1 exists, so its nodes should be links"
    for link in links:
        assert (ROOT / link).with_suffix(".md").is_file(), f"{link} has no source page"
