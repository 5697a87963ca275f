"""The drawings in the repository are what tools/figures.py draws, sound SVG whose links lead somewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import figures  # noqa: E402

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
        columns = [node.column] if node.span == 1 else [node.column - 0.5, node.column + 0.5]
        for column in columns:
            assert (node.row, column) not in taken, f"{key} stands on {taken.get((node.row, column))}"
            taken[node.row, column] = key


def test_descent_on_the_map_never_runs_backward_in_time() -> None:
    for edge in figures.EDGES:
        assert figures.NODES[edge.source].row <= figures.NODES[edge.target].row, f"{edge.source} after {edge.target}"


def test_links_lead_to_chapters_that_exist() -> None:
    links = set(re.findall(r'href="([^"]+)"', "".join(figures.drawings().values())))
    assert links, "chapter 1 exists, so its nodes should be links"
    for link in links:
        assert (ROOT / link).with_suffix(".md").is_file(), f"{link} has no source page"
