"""What benchmarks share: the text, timing with the noise in mind, and a record that says where numbers come from."""

import importlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from lrm_utils import data, text

FOLDER = Path(__file__).resolve().parent.parent / "lrm_utils" / "records"


def speeches() -> tuple[list, int]:
    """The ids of all speeches, words seen five times or more, and the size of the vocabulary."""
    documents = [text.words(speech.text) for speech in data.sotu()]
    vocab = text.Vocab.build((word for document in documents for word in document), min_count=5)
    return [vocab.encode(document, drop_unknown=True) for document in documents], len(vocab)


def import_d2l() -> ModuleType:
    """`d2l.torch`; it imports torchvision, for which an empty stand-in serves where that is not installed."""
    stand_ins = [] if find_spec("torchvision") else ["torchvision", "torchvision.transforms"]
    sys.modules.update({name: ModuleType(name) for name in stand_ins})
    if stand_ins:
        sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]
    try:
        return importlib.import_module("d2l.torch")
    finally:
        for name in stand_ins:
            del sys.modules[name]


def clock(work: Callable, *arguments, **options) -> tuple[float, object]:
    """The seconds that some work takes, and what it returns."""
    begin = time.perf_counter()
    result = work(*arguments, **options)
    return time.perf_counter() - begin, result


def summary(taken: list[float]) -> dict[str, float]:
    """The median of several times, and the fastest and slowest for the noise."""
    return {"median": round(statistics.median(taken), 3), "min": round(min(taken), 3), "max": round(max(taken), 3)}


def seconds(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """Run `work` a number of times and sum up how long it takes."""
    return summary([clock(work)[0] for _ in range(repeats)])


def save(name: str, **facts) -> None:
    """Write `lrm_utils/records/NAME.json`: the facts, the command, the versions and the kind of machine."""
    record = {
        "command": f"python bench/{name}.py",
        **facts,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in ("numpy", "scipy", "torch")},
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "system": platform.system()},
    }
    FOLDER.mkdir(exist_ok=True)
    written = json.dumps(record, indent=2, allow_nan=False) + "\n"
    (FOLDER / f"{name}.json").write_text(written)
    print(written, end="")


def run_parts(name: str, parts: dict[str, Callable[[], object]], inside: str | None = None, **facts) -> None:
    """Run the parts that the command line names, or all; each is written when it is done, and the others are kept.

    They stand in the record by their names, or together under the name `inside`.
    """
    asked, path = sys.argv[1:] or list(parts), FOLDER / f"{name}.json"
    if unknown := set(asked) - set(parts):
        sys.exit(f"there is no part {', '.join(sorted(unknown))}; there are: {'; '.join(parts)}")
    for part in asked:
        result = parts[part]()
        record = json.loads(path.read_text()) if path.exists() else {}
        kept = record.get(inside, {}) if inside else record
        found = {p: result if p == part else kept[p] for p in parts if p == part or p in kept}
        save(name, **facts, **({inside: found} if inside else found))
