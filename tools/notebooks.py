"""Keep the notebooks of the course alike: run them, normalize them, and write their generated cells.

    python tools/notebooks.py run chapters/…/01_x.ipynb …    execute from the top, record seconds and memory, normalize
    python tools/notebooks.py normalize [NOTEBOOK …]          rewrite files in the one stored form (all by default)
    python tools/notebooks.py setup                           rewrite the setup cell and Colab badge of every notebook

The repository address has one home, `repository` in `_config.yml`; after changing it, `setup` rewrites the rest.
"""

import argparse
import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import yaml
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_CELL_METADATA = ("tags", "reason")
EXEMPT = {"nbval-ignore-output", "nbval-skip", "raises-exception"}
MACHINE_PATH = re.compile(r"(?<![\w./])/(?:home|root|tmp|usr|opt|Users|content)/")
PEAK_MEMORY = "import resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"

SETUP = """\
import importlib.util
import sys

if "google.colab" in sys.modules and importlib.util.find_spec("lrm_utils") is None:
    %pip install -q "lrm-utils{extra} @ git+{url}"
{extras}
import lrm_utils as lrm
from lrm_utils import check, plot

lrm.start(seed=0)"""


def all_notebooks(root: Path = ROOT) -> list[Path]:
    """Every notebook of the course, in reading order."""
    return sorted(p for p in (root / "chapters").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


def repository(root: Path = ROOT) -> tuple[str, str]:
    """The address of the course and its branch, from `_config.yml`."""
    settings = yaml.safe_load((root / "_config.yml").read_text())["repository"]
    return settings["url"].rstrip("/"), settings["branch"]


def setup_source(notebook: nbformat.NotebookNode, root: Path = ROOT) -> str:
    """The setup cell; `lrm.nodeps` in a notebook's metadata names data packages to install without dependencies.

    `lrm.extra` names an extra of `lrm-utils`, such as `serve`.
    """
    asked = notebook.metadata.get("lrm", {})
    extras = "".join(f"    %pip install -q --no-deps {p}\n" for p in asked.get("nodeps", ()))
    extra = f"[{asked['extra']}]" if "extra" in asked else ""
    return SETUP.format(url=repository(root)[0], extra=extra, extras=extras)


def badge_source(path: Path, root: Path = ROOT) -> str:
    """The line that opens a notebook on Colab; the picture is the book's own, so that no page asks another host."""
    url, branch = repository(root)
    place = path.resolve().relative_to(root).as_posix()
    up = "../" * place.count("/")
    address = (
        f"https://colab.research.google.com/github/{url.removeprefix('https://github.com/')}/blob/{branch}/{place}"
    )
    return f"[![Open in Colab]({up}_static/open-in-colab.svg)]({address})"


def tagged(notebook: nbformat.NotebookNode, tag: str) -> list[nbformat.NotebookNode]:
    """The cells that carry a tag."""
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", ())]


def write_generated_cells(notebook: nbformat.NotebookNode, path: Path, root: Path = ROOT) -> None:
    """Give a notebook its badge and setup cell, right below the title."""
    for tag, kind, source in (
        ("setup", "code", setup_source(notebook, root)),
        ("badge", "markdown", badge_source(path, root)),
    ):
        cells = tagged(notebook, tag)
        if not cells:
            cell = nbformat.v4.new_code_cell() if kind == "code" else nbformat.v4.new_markdown_cell()
            cell.metadata["tags"] = [tag, "hide-input"] if kind == "code" else [tag]
            notebook.cells.insert(1, cell)
            cells = [cell]
        cells[0].source = source


def normalize(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The one stored form: no editor's traces, counts from 1, ids that stay, alternatives where the book finds them."""
    recorded = notebook.metadata.get("lrm", {})
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}, "lrm": recorded}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: set[str] = set()
    counts = [c.execution_count for c in notebook.cells if c.cell_type == "code" and c.execution_count is not None]
    in_order, count = counts == sorted(counts), 0  # what was run out of order keeps its numbers, and is refused later
    for cell in notebook.cells:
        cell.source = cell.source.strip("\n")
        cell.metadata = {k: cell.metadata[k] for k in KEPT_CELL_METADATA if cell.metadata.get(k)}
        identity = cell.get("id") or ""
        if not identity or identity in seen:
            identity = hashlib.sha256((cell.source + str(len(seen))).encode()).hexdigest()[:8]
        cell.id = identity
        seen.add(identity)
        if cell.cell_type != "code":
            continue
        if in_order and cell.execution_count is not None:
            count += 1
            cell.execution_count = count
        cell.metadata.pop("mystnb", None)
        cell.outputs = _merge_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
            if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
                cell.metadata["mystnb"] = {"image": {"alt": alt}}  # where myst-nb looks for it
    return notebook


def _merge_streams(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join neighboring pieces of one stream: where they were cut depends on the machine's speed."""
    merged: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The cells with code in them."""
    return [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]


def texts(cell: nbformat.NotebookNode) -> Iterator[str]:
    """What a cell wrote, as text."""
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
        long = [line for line in cell.source.splitlines() if len(line) > 98]
        if long and "setup" not in tags:  # that one is generated, and hidden
            found.append(f"{name} has a line wider than the page: {long[0].strip()[:60]}…")
    return found


def read(path: Path) -> nbformat.NotebookNode:
    """Read a notebook."""
    return nbformat.read(path, as_version=4)


def dump(notebook: nbformat.NotebookNode) -> str:
    """The text of a notebook's file."""
    return nbformat.writes(notebook, indent=1) + "\n"


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Store a notebook beside its place, then move it there in one go."""
    partial = path.with_suffix(".partial")
    partial.write_text(dump(notebook))
    os.replace(partial, path)


def execute(path: Path, timeout: int = 600) -> None:
    """Run a notebook from the top on one thread; store it only when every cell succeeds."""
    os.environ.update(OMP_NUM_THREADS="1", LRM_THREADS="1", LRM_PROGRESS="0")
    os.environ.pop("OPENAI_API_KEY", None)  # what is stored was said by the model of the course
    notebook = read(path)
    write_generated_cells(notebook, path)
    client = NotebookClient(
        notebook, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    )
    begin = time.monotonic()
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        seconds = time.monotonic() - begin
        notebook.cells.append(nbformat.v4.new_code_cell(PEAK_MEMORY))
        client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1, store_history=False)
    peak = int(notebook.cells.pop().outputs[0].text)
    recorded = dict(notebook.metadata.get("lrm", {}))
    notebook.metadata["lrm"] = recorded | {"seconds": round(seconds), "peak_mb": peak}
    write(normalize(notebook), path)
    for line in complaints(notebook):
        print(f"still to mend: {line}")
    print(f"{path.name}: {seconds:.0f} s, {peak:,} MB")


def main() -> None:
    """Read the command line and act."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "normalize", "setup"))
    parser.add_argument("notebooks", nargs="*", type=Path)
    options = parser.parse_args()
    paths = options.notebooks or all_notebooks()
    if options.command == "run" and not options.notebooks:
        sys.exit("name the notebook to run: make notebook NB=chapters/…/01_x.ipynb")
    for path in paths:
        if not path.exists():
            sys.exit(f"there is no notebook {path}")
        if options.command == "run":
            execute(path)
            continue
        notebook = read(path)
        if options.command == "setup":
            write_generated_cells(notebook, path)
        write(normalize(notebook), path)


if __name__ == "__main__":
    main()
