"""The scale of a run is read from one place and refuses what it does not know."""

import random
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import lrm_utils as lrm


def test_small_is_the_default_and_full_is_asked_for(monkeypatch):
    monkeypatch.delenv("LRM_SCALE", raising=False)
    assert lrm.scale(small=dict(width=2), full=dict(width=9)).width == 2
    monkeypatch.setenv("LRM_SCALE", "full")
    assert lrm.scale(small=dict(width=2), full=dict(width=9)).width == 9


def test_unknown_scale_is_an_error_that_names_the_choices(monkeypatch):
    monkeypatch.setenv("LRM_SCALE", "huge")
    with pytest.raises(ValueError, match="LRM_SCALE='huge' is not a scale; set it to 'small' .* or 'full'"):
        lrm.start()


def test_both_scales_name_the_same_settings():
    with pytest.raises(ValueError, match="only one of them has: epochs"):
        lrm.scale(small=dict(width=2), full=dict(width=9, epochs=3))


def test_start_makes_every_generator_repeatable():
    drawn = []
    for _ in range(2):
        lrm.start(seed=7)
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert drawn[0] == drawn[1]


def test_threads_are_pinned_when_asked(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("LRM_THREADS", "1")
    lrm.start()
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def test_threads_are_given_back_even_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:

        @lrm.threads(1)
        def work(fail):
            assert torch.get_num_threads() == 1
            if fail:
                raise RuntimeError("no more")

        for fail in (False, True, False):
            with pytest.raises(RuntimeError, match="no more") if fail else nullcontext():
                work(fail)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
