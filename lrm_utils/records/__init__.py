"""Measured runs that take longer than a page may: one JSON file each, written by the script in `bench/` that it names.

A page draws a record with `load`; it never holds numbers of its own.
"""

import json
from importlib.resources import files


def load(name: str) -> dict:
    """The record `name`: its facts, and the command, versions and machine that made it."""
    file = files(__name__) / f"{name}.json"
    if not file.is_file():
        known = ", ".join(
            sorted(f.name.removesuffix(".json") for f in files(__name__).iterdir() if f.name.endswith(".json"))
        )
        raise ValueError(f"there is no record {name!r}; there are: {known}")
    return json.loads(file.read_text())
