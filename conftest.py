"""Settings for every test and notebook: one thread each, no progress bars, and a table of what took longest."""

import os
from collections import defaultdict

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LRM_THREADS", "1")
os.environ.setdefault("LRM_PROGRESS", "0")
os.environ.setdefault("MPLBACKEND", "agg")


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
    terminalreporter.section("slowest notebooks and cells")
    for name, total in sorted(seconds.items(), key=lambda item: -item[1])[:10]:
        terminalreporter.write_line(f"{total:7.1f} s  {name}")
    for duration, name in sorted(cells, reverse=True)[:10]:
        terminalreporter.write_line(f"{duration:7.1f} s  {name}")
