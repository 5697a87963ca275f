"""Records of measured runs: each says where its numbers come from, and ships with the package."""

import json
import tomllib
from pathlib import Path

import pytest
import record as bench

from lrm_utils import records

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in Path(records.__file__).parent.glob("*.json"))


def test_there_are_records():
    assert "topic_models" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_record_names_the_script_that_makes_it_and_the_versions(name):
    record = records.load(name)
    script = record["command"].split()[1]
    assert (ROOT / script).is_file()
    assert {"python", "numpy"} <= record["versions"].keys()
    json.dumps(record, allow_nan=False)  # no infinity: every goal that a record reports was reached


def test_an_unknown_record_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ValueError, match="no record 'nonesuch'; there are: .*topic_models"):
        records.load("nonesuch")


def test_records_are_installed_with_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "lrm_utils.records" in settings["tool"]["setuptools"]["packages"]
    assert settings["tool"]["setuptools"]["package-data"]["lrm_utils.records"] == ["*.json"]


def test_parts_of_a_record_are_measured_alone_and_the_others_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    runs = iter(range(10))
    parts = {"speed": lambda: next(runs), "quality": lambda: next(runs)}
    for arguments, expected in (([], (0, 1)), (["quality"], (0, 2)), (["speed"], (3, 2))):
        monkeypatch.setattr("sys.argv", ["bench", *arguments])
        bench.run_parts("made", parts, seed=7)
        made = json.loads((tmp_path / "made.json").read_text())
        assert (made["speed"], made["quality"], made["seed"]) == (*expected, 7)


def test_parts_may_stand_together_under_one_name(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    parts = {"dot": lambda: 0.9, "additive": lambda: 0.97}
    for name in ("additive", "dot"):
        monkeypatch.setattr("sys.argv", ["bench", name])
        bench.run_parts("made", parts, inside="runs", edges=[3, 6])
    made = json.loads((tmp_path / "made.json").read_text())
    assert (made["runs"], made["edges"]) == ({"dot": 0.9, "additive": 0.97}, [3, 6])


def test_an_unknown_part_of_a_record_is_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["bench", "speed", "sped"])
    with pytest.raises(SystemExit, match="there is no part sped; there are: speed"):
        bench.run_parts("made", {"speed": lambda: pytest.fail("it ran")})
    assert not list(tmp_path.iterdir())
