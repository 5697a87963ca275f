"""Two scales from one source: how large a run is, where it runs, and how it is made repeatable.

A notebook states both sizes in one cell, `cfg = lrm.scale(small=…, full=…)`, and `LRM_SCALE` picks one of them. It
knows nothing of what the settings mean.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import torch

SCALES = ("small", "full")


def current() -> str:
    """The scale in force: `LRM_SCALE`, or `small` where it is not set."""
    name = os.environ.get("LRM_SCALE", "small")
    if name not in SCALES:
        raise ValueError(f"LRM_SCALE={name!r} is not a scale; set it to 'small' (a laptop) or 'full' (a GPU)")
    return name


def scale(*, small: dict, full: dict) -> SimpleNamespace:
    """Return the settings of the scale in force, as attributes; both scales must name the same settings."""
    if small.keys() != full.keys():
        odd = ", ".join(sorted(small.keys() ^ full.keys()))
        raise ValueError(f"both scales must have the same settings; only one of them has: {odd}")
    return SimpleNamespace(**(small if current() == "small" else full))


def device() -> torch.device:
    """A GPU where there is one, else the CPU; under `torchrun`, the GPU that belongs to this process."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device("cpu")


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch use that many threads inside a `with`, or inside a function decorated with it.

    Many small operations run faster on one core than on several, which spend more time on waiting for each other than
    on their share of the work.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def seed_all(seed: int) -> None:
    """Seed Python, NumPy and torch on every device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def start(seed: int = 0) -> None:
    """Begin a notebook: seed every generator, pin the threads when `LRM_THREADS` asks for it, set the figure style."""
    from lrm_utils import plot  # here, because figures need a display and training jobs have none

    current()  # an unknown scale is told of at once, not after a minute of work
    seed_all(seed)
    if threads := os.environ.get("LRM_THREADS"):
        torch.set_num_threads(int(threads))
    plot.use_style()
