"""Settings for every test and notebook: one thread each, no progress bars, and a table of what took longest."""

import json
import os
from collections import defaultdict
from pathlib import Path

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LRM_THREADS", "1")
os.environ.setdefault("LRM_PROGRESS", "0")
os.environ.setdefault("MPLBACKEND", "agg")

# No deadline for an example: a busy machine is not a bug. The same examples on every run of a change that is to land.
settings.register_profile("course", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("course")


def _exemptions(path: str) -> list[str]:
    """The cells of a notebook that nbval does not compare, each with its reason."""
    cells = json.loads(Path(path).read_text())["cells"]
    tagged = [(c, {t for t in c["metadata"].get("tags", ()) if t.startswith(("nbval-", "raises-"))}) for c in cells]
    return [f"{path}: {', '.join(tags)}: {c['metadata'].get('reason')}" for c, tags in tagged if tags]


def pytest_terminal_summary(terminalreporter):
    """List the slowest notebooks and their slowest cells, so that a growing suite shows where it grows."""
    seconds, cells = defaultdict(float), []
    for reports in terminalreporter.stats.values():
        for report in reports:
            name = getattr(report, "nodeid", "")
            if ".ipynb" in name and hasattr(report, "duration"):
                seconds[name.split("::")[0]] += report.duration
                cells.append((report.duration, name))
    if not seconds:
        return
    listed = [line for path in sorted(seconds) for line in _exemptions(path)]
    terminalreporter.section(f"{len(listed)} cells are exempt from comparison")
    for line in listed:
        terminalreporter.write_line(line)
    terminalreporter.section("slowest notebooks and cells")
    for name, total in sorted(seconds.items(), key=lambda item: -item[1])[:10]:
        terminalreporter.write_line(f"{total:7.1f} s  {name}")
    for duration, name in sorted(cells, reverse=True)[:10]:
        terminalreporter.write_line(f"{duration:7.1f} s  {name}")
