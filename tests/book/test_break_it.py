"""Break the course on purpose, in a copy, and see that it is noticed. Each test is named after the damage."""

import os
import shutil
import subprocess
import sys

import export
import nbformat
import notebooks
import pytest
from notebooks import ROOT, complaints

FIRST = notebooks.all_notebooks()[0]


def stored_cell(source: str, printed: str) -> nbformat.NotebookNode:
    """A cell as it is stored after a run that printed something."""
    output = nbformat.v4.new_output("stream", name="stdout", text=printed + "\n")
    return nbformat.v4.new_code_cell(source, execution_count=1, outputs=[output])


def test_a_stored_output_edited_by_hand_is_refused(tmp_path):
    """nbval as `make test` calls it: of three stored outputs, only the one that was tampered with fails."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        stored_cell("print('2 + 2 =', 2 + 2)", "2 + 2 = 4"),
        stored_cell("print('3 + 3 =', 3 + 3)", "3 + 3 = 7"),
        stored_cell("import time; print('loss ≈', time.perf_counter())", "loss ≈ 0.5"),
    ]
    path = tmp_path / "edited.ipynb"
    nbformat.write(notebook, path)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env", str(path)]
    command += ["--nbval-sanitize-with", str(ROOT / "tests/nbval.cfg"), "--rootdir", str(tmp_path), "-c", os.devnull]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1
    assert "1 failed, 2 passed" in run.stdout
    assert "3 + 3 = 7" in run.stdout


def test_a_notebook_stripped_of_outputs_is_refused():
    notebook = notebooks.read(FIRST)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    found = "\n".join(complaints(notebook))
    assert "stored without having been run" in found
    assert "no cell has an output" in found


def test_a_notebook_run_out_of_order_is_refused():
    notebook = notebooks.read(FIRST)
    first, second, *_ = (c for c in notebook.cells if c.cell_type == "code")
    first.execution_count, second.execution_count = second.execution_count, first.execution_count
    assert "from top to bottom" in "\n".join(complaints(notebook))


def test_an_approximate_number_without_a_check_is_refused():
    notebook = nbformat.v4.new_notebook()
    output = nbformat.v4.new_output("stream", name="stdout", text="loss ≈ 0.3")
    notebook.cells = [nbformat.v4.new_code_cell("print(loss)", execution_count=1, outputs=[output])]
    assert "without a check" in "\n".join(complaints(notebook))
    notebook.cells.append(nbformat.v4.new_code_cell("check.close(loss, 0.3, 0.1)", execution_count=2))
    assert complaints(notebook) == []


def test_an_exemption_without_a_reason_is_refused():
    notebook = notebooks.read(FIRST)
    cell = next(c for c in notebook.cells if c.cell_type == "code")
    cell.metadata["tags"] = ["nbval-ignore-output"]
    assert "without a `reason`" in "\n".join(complaints(notebook))


@pytest.fixture
def copy(tmp_path):
    """The parts of the course that the export reads and writes, in a folder of their own."""
    for part in ("chapters", "lrm_utils/models"):
        shutil.copytree(ROOT / part, tmp_path / part)
    for part in ("pyproject.toml", "_config.yml"):
        shutil.copy(ROOT / part, tmp_path / part)
    return tmp_path


def test_an_untouched_copy_has_no_drift(copy):
    assert export.drift(copy) == []


def test_an_exported_module_edited_by_hand_is_refused(copy):
    module = copy / "lrm_utils/models/cooccurrence.py"
    module.write_text(module.read_text().replace("window < 1", "window < 0"))
    (found,) = export.drift(copy)
    assert "-    if window < 0:" in found
    assert "+    if window < 1:" in found


def test_an_exported_cell_changed_without_its_module_is_refused(copy):
    path = copy / FIRST.relative_to(ROOT)
    path.write_text(path.read_text().replace("window < 1", "window < 2"))
    assert "+    if window < 2:" in export.drift(copy)[0]


def test_a_module_without_a_notebook_is_refused(copy):
    (copy / "lrm_utils/models/stray.py").write_text("")
    assert export.drift(copy) == ["stray.py belongs to no notebook: delete it"]


def test_the_modules_equal_the_exported_cells_of_their_notebooks():
    assert export.drift() == []


def test_an_exported_cell_that_does_not_stand_alone_is_refused(copy):
    path = copy / FIRST.relative_to(ROOT)
    path.write_text(path.read_text().replace("window < 1", "cfg.window < 1"))
    with pytest.raises(ValueError, match="(?s)do not stand alone.*Undefined name `cfg`"):
        export.drift(copy)


def test_imports_of_two_parts_of_a_package_are_both_exported(copy):
    notebook = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell("def f(x):\n    return scipy.sparse.eye(2), scipy.stats.sem(x)")
    cell.metadata["tags"] = ["export"]
    notebook.cells = [nbformat.v4.new_markdown_cell("# Two parts")]
    notebook.cells += [nbformat.v4.new_code_cell("import scipy.sparse\nimport scipy.stats\n%time 1"), cell]
    nbformat.write(notebook, copy / "chapters/02_parts.ipynb")
    source = export.modules(copy)[copy / "lrm_utils/models/parts.py"]
    assert "import scipy.sparse\nimport scipy.stats\n" in source
    assert "time" not in source


def test_normalizing_does_not_launder_cells_that_were_run_out_of_order():
    notebook = notebooks.read(FIRST)
    first, second, *_ = (c for c in notebook.cells if c.cell_type == "code")
    first.execution_count, second.execution_count = 9, 3
    assert "from top to bottom" in "\n".join(complaints(notebooks.normalize(notebook)))


def test_changing_the_address_in_the_configuration_changes_every_generated_cell(copy):
    config = copy / "_config.yml"
    config.write_text(config.read_text().replace(notebooks.repository(copy)[0], "https://github.com/else/where"))
    path = copy / FIRST.relative_to(ROOT)
    notebook = notebooks.read(path)
    notebooks.write_generated_cells(notebook, path, copy)
    assert "git+https://github.com/else/where" in notebooks.tagged(notebook, "setup")[0].source
    assert "/github/else/where/blob/main/chapters/" in notebooks.tagged(notebook, "badge")[0].source
