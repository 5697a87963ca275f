"""Characters of any text, windows of any size, and batches cut in any number of parts."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils.models import nano_gpt as nano
from lrm_utils.models.gpt import GPT, next_token_loss

texts = st.text(st.characters(codec="utf-8"), max_size=80)


@given(texts.filter(len), texts)
def test_decoding_gives_back_the_text_and_the_unknown_is_refused(text, other):
    known = nano.Characters(text)
    ids = known.encode(text)
    assert known.decode(ids) == text
    assert len(ids) == len(text) and ids.min() == 0 and ids.max() == len(known) - 1 == len(set(text)) - 1
    if set(other) <= set(text):
        assert known.decode(known.encode(other)) == other
    else:
        with pytest.raises(ValueError, match="unknown characters"):
            known.encode(other)


@given(texts.filter(len))
def test_the_alphabet_does_not_depend_on_the_order_of_the_text(text):
    known = nano.Characters(text)
    assert nano.Characters(text[::-1]).symbols == known.symbols == nano.Characters(known.symbols).symbols
    assert list(known.symbols) == sorted(known.symbols)


@given(st.integers(2, 40), st.integers(1, 39), st.integers(1, 9), st.integers(0, 99))
def test_windows_are_runs_of_the_text_that_end_before_its_end(N, T, B, seed):
    source = nano.windows(np.arange(N), T, B, torch.Generator().manual_seed(seed))
    if N <= T:
        with pytest.raises(ValueError, match="have no window"):
            next(source)
        return
    for _ in range(3):
        rows = next(source)
        assert rows.shape == (B, T + 1) and rows.dtype == torch.int64
        assert (rows.diff(dim=1) == 1).all() and rows.min() >= 0 and rows.max() < N


@given(st.integers(1, 400), st.integers(0, 200), st.floats(0, 1))
def test_the_factor_stays_between_the_floor_and_one_and_has_one_peak(steps, warm, floor):
    factors = np.array([nano.warm_up_and_cosine(step, steps, warm, floor) for step in range(steps)])
    assert (factors > 0).all() if floor else (factors >= 0).all()
    assert (factors <= 1 + 1e-12).all()
    assert (np.diff(factors[:warm]) > 0).all() and (np.diff(factors[warm:]) <= 1e-12).all()
    if steps > warm:
        assert factors[warm] == pytest.approx(1) and (factors[warm:] >= floor - 1e-12).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_the_mean_of_the_gradients_of_equal_parts_is_that_of_the_whole(k, rows, seed):
    """Accumulation and data parallelism, in one line."""
    torch.manual_seed(seed)
    model = nano.lean(GPT(11, 8, 2, 1, 6, dropout=0.0)).double()
    batch = torch.randint(11, (k * rows, 7))

    def gradient(part):
        loss, n = next_token_loss(model, part)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss / n, list(model.parameters()))])

    whole = gradient(batch)
    for parts in (batch.chunk(k), [batch[r::k] for r in range(k)]):
        torch.testing.assert_close(sum(map(gradient, parts)) / k, whole, rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.floats(0, 1))
def test_the_groups_hold_every_parameter_once(heads, layers, lean, decay):
    model = GPT(7, 4 * heads, heads, layers, 5)
    groups = nano.decayed(nano.lean(model) if lean else model, decay)
    found = [id(p) for group in groups for p in group["params"]]
    assert sorted(found) == sorted(map(id, model.parameters())) and len(set(found)) == len(found)
    assert math.isclose(groups[0]["weight_decay"], decay) and groups[1]["weight_decay"] == 0
