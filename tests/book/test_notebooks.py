"""Every notebook of the course is stored as it should be: run, in order, complete, and explained where it is exempt."""

import notebooks
import pytest
import yaml
from notebooks import EXEMPT, ROOT, complaints

PATHS = notebooks.all_notebooks()
each = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)


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
def test_no_text_holds_a_tab(path):
    """A `\\t` in a string that should have been raw turns `\\top` into a tab and `op`."""
    assert [c.id for c in notebooks.read(path).cells if c.cell_type == "markdown" and "\t" in c.source] == []


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
