"""AWD-LSTM: what holds for every text, every cut, and every walk."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lrm_utils import check
from lrm_utils.models import awd_lstm as awd


def model(seed, V=20, layers=2):
    torch.manual_seed(seed)
    return awd.AWDLanguageModel(awd.AWDLSTM(V, 6, 9, layers)).eval()


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 2**32 - 1), st.booleans())
def test_chunks_cover_every_word_once_and_targets_are_the_next_words(length, T, seed, moving):
    rows = torch.arange(2 * (length + 1)).view(2, length + 1)
    parts = list(awd.chunks(rows, T, np.random.default_rng(seed) if moving else None))
    assert torch.equal(torch.cat([p["words"] for p in parts], 1), rows[:, :-1])
    assert torch.equal(torch.cat([p["targets"] for p in parts], 1), rows[:, 1:])
    assert all(p["words"].shape == p["targets"].shape and p["words"].shape[1] > 0 for p in parts)
    if not moving:
        assert all(p["words"].shape[1] == T for p in parts[:-1])


@given(st.integers(0, 5000), st.integers(1, 100), st.integers(0, 2**32 - 1))
def test_random_lengths_add_up(total, T, seed):
    lengths = list(awd.chunk_lengths(total, T, np.random.default_rng(seed)))
    assert sum(lengths) == total and all(n > 0 for n in lengths)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=200), st.integers(1, 20))
def test_rows_are_the_text_in_order(tokens, B):
    if len(tokens) < 2 * B:
        return
    rows = awd.rows_of(tokens, B)
    assert rows.shape == (B, len(tokens) // B)
    assert rows.flatten().tolist() == tokens[: rows.numel()]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 12), st.integers(2, 13))
def test_where_the_text_is_cut_does_not_change_its_probability(seed, T, length):
    rows = torch.randint(20, (2, length), generator=torch.Generator().manual_seed(seed))
    m = model(seed)
    check.close(awd.log_probabilities(m, rows, T), awd.log_probabilities(m, rows, 100), 1e-5)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000), st.integers(1, 3))
def test_no_word_sees_what_comes_after_it(seed, layers):
    m = model(seed, layers=layers)
    words = torch.randint(20, (2, 7), generator=torch.Generator().manual_seed(seed))
    check.causal(lambda x: m(x)[0], words)
    check.causal(lambda x: m(x.flip(1))[0].flip(1), words, backward=True)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000))
def test_all_texts_of_a_length_share_probability_1(seed):
    """The product of conditionals, over every text of three words after a first one, and four words in all."""
    m = model(seed, V=4)
    texts = torch.cartesian_prod(*[torch.arange(4)] * 3)
    rows = torch.cat([torch.zeros(len(texts), 1, dtype=torch.long), texts], 1)
    check.close(awd.log_probabilities(m, rows).sum(1).exp().sum(), 1.0, 1e-5)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 8))
def test_folding_keeps_the_sum_of_probabilities(seed, surplus):
    m = model(seed)
    unk = torch.tensor([1, *range(20 - surplus, 20)])
    left = [i for i in range(20) if i == 1 or i < 20 - surplus]
    rows = torch.tensor([[3, i] for i in left])
    check.close(awd.log_probabilities(m, rows, unk=unk).exp().sum(), 1.0, 1e-5)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.integers(1, 30))
def test_the_running_mean_is_the_mean(gradients, start):
    theta = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer, path = awd.ASGD([theta], lr=0.3), []
    for k, g in enumerate(gradients, 1):
        if k == start:
            optimizer.start()
        theta.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        path.append(theta.item())
    with awd.mean_weights(optimizer):
        expected = np.mean(path[start - 1 :]) if start <= len(path) else path[-1]
        check.close(theta.item(), expected, 1e-9)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(0, 6))
def test_the_trigger_is_the_formula_of_the_paper(losses, n):
    optimizer = awd.NTASGD([nn.Parameter(torch.ones(1))], lr=1.0, n=n)
    on = False
    for t, v in enumerate(losses):
        on = on or (t > n and v > min(losses[: t - n]))
        assert optimizer.watch(v) == on
