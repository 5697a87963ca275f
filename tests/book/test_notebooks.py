"""Every notebook of the course is stored as it should be: run, in order, complete, and explained where it is exempt."""

import re
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import notebooks  # noqa: E402

EXEMPT = {"nbval-ignore-output", "nbval-skip", "raises-exception"}
MACHINE_PATH = re.compile(r"(?<![\w./])/(?:home|root|tmp|usr|opt|Users|content)/")
PATHS = notebooks.all_notebooks()
each = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def texts(cell):
    for output in cell.outputs:
        yield output.get("text", "")
        yield from (v for k, v in output.get("data", {}).items() if k.startswith("text/"))


def complaints(notebook: nbformat.NotebookNode) -> list[str]:
    """What is wrong with a stored notebook; empty when nothing is."""
    found, cells = [], code_cells(notebook)
    counts = [c.execution_count for c in cells]
    if None in counts:
        found.append(f"{counts.count(None)} cells are stored without having been run: nbval would not compare them")
    elif counts != list(range(1, len(cells) + 1)):
        found.append("the cells were not run once each, from top to bottom")
    if not any(c.outputs for c in cells):
        found.append("no cell has an output")
    for index, cell in enumerate(cells):
        name = f"the cell that begins {cell.source.splitlines()[0]!r}"
        tags = set(cell.metadata.get("tags", ()))
        written = "\n".join(texts(cell))
        if any(o.output_type == "error" for o in cell.outputs) and "raises-exception" not in tags:
            found.append(f"{name} stores an error")
        if any(o.get("name") == "stderr" for o in cell.outputs):
            found.append(f"{name} stores a warning or a progress bar")
        if tags & EXEMPT and not cell.metadata.get("reason"):
            found.append(f"{name} is exempt ({', '.join(tags & EXEMPT)}) without a `reason` in its metadata")
        if "≈" in written and not any("check." in c.source for c in cells[index : index + 2]):
            found.append(f"{name} prints ≈ without a check in it or in the next cell")
        if MACHINE_PATH.search(written):
            found.append(f"{name} prints a path of one machine")
        pictures = [o for o in cell.outputs if "image/png" in o.get("data", {})]
        if pictures and not cell.metadata.get("mystnb", {}).get("image", {}).get("alt"):
            found.append(f"{name} draws a picture without a text alternative: use plot.figure")
        if len(pictures) > 1:
            found.append(f"{name} draws {len(pictures)} pictures: a cell has room for the alternative of one")
        if any("image/svg+xml" in o.get("data", {}) for o in cell.outputs):
            found.append(f"{name} draws an SVG, which differs on every run: use plot.figure")
        if len(cell.source.splitlines()) > 30:
            found.append(f"{name} has {len(cell.source.splitlines())} lines: a cell holds one thought")
        if long := [line for line in cell.source.splitlines() if len(line) > 98]:
            found.append(f"{name} has a line wider than the page: {long[0].strip()[:60]}…")
    return found


def test_there_are_notebooks():
    assert PATHS


@each
def test_the_notebook_is_stored_as_it_should_be(path):
    assert complaints(notebooks.read(path)) == []


@each
def test_the_notebook_is_in_normal_form(path):
    assert notebooks.dump(notebooks.normalize(notebooks.read(path))) == path.read_text(), "run `make notebook NB=…`"


@each
def test_the_setup_cell_and_the_colab_badge_are_the_generated_ones(path):
    notebook = notebooks.read(path)
    for tag, source in (("setup", notebooks.setup_source(notebook)), ("badge", notebooks.badge_source(path))):
        assert [c.source for c in notebooks.tagged(notebook, tag)] == [source], "run `make setup-cells`"


@each
def test_the_recorded_run_is_within_its_budget(path):
    recorded = notebooks.read(path).metadata["lrm"]
    assert recorded["seconds"] <= 120
    assert recorded["peak_mb"] <= 2000


@each
def test_the_file_is_small(path):
    assert path.stat().st_size < 700_000


def test_every_notebook_is_in_the_table_of_contents():
    def files(node):
        if isinstance(node, dict):
            yield from ([node["file"]] if "file" in node else [])
            node = list(node.values())
        if isinstance(node, list):
            for child in node:
                yield from files(child)

    listed = set(files(yaml.safe_load((ROOT / "_toc.yml").read_text())))
    assert {p.relative_to(ROOT).with_suffix("").as_posix() for p in PATHS} <= listed


def test_exemptions_are_rare():
    """At most three a notebook; each needs a reason, and `make test` lists them all at its end."""
    exempt = [set(cell.metadata.get("tags", ())) & EXEMPT for path in PATHS for cell in notebooks.read(path).cells]
    assert sum(map(bool, exempt)) <= 3 * len(PATHS)


def test_the_address_has_one_home():
    """Outside `_config.yml` and what is generated from it, the repository's address stands nowhere."""
    url = notebooks.repository()[0].removeprefix("https://")
    generated = {"_config.yml", "CITATION.cff", "README.md", "CHANGELOG.md"}
    sources = [p for pattern in ("*.md", "*.toml", "*.py") for p in ROOT.glob(pattern)]
    sources += [p for folder in ("lrm_utils", "tools", "tests") for p in (ROOT / folder).rglob("*.py")]
    assert [p.name for p in sources if url in p.read_text() and p.name not in generated] == []
