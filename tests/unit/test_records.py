"""Records of measured runs: each says where its numbers come from, and ships with the package."""

import json
import tomllib
from pathlib import Path

import pytest

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
