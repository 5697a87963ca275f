"""What holds for every batch: label smoothing, the schedule, and the tasks."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils.models.seq2seq import BOS, EOS
from lrm_utils.models.training_a_transformer import copy_pairs, label_smoothing_loss, parity_pairs, warmup_schedule


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(2, 9), st.floats(0, 0.99), st.integers(0, 2**31), st.data())
def test_the_smoothed_loss_mixes_two_losses_and_is_never_below_the_entropy_of_its_target(B, T, V, eps, seed, data):
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(B, T, V, dtype=torch.float64, generator=generator)
    target = torch.randint(V, (B, T), generator=generator)
    lengths = torch.tensor(data.draw(st.lists(st.integers(0, T), min_size=B, max_size=B)))
    loss, count = label_smoothing_loss(logits, target, lengths, eps)
    assert count == lengths.sum()
    plain = label_smoothing_loss(logits, target, lengths, 0.0)[0]
    every = sum(label_smoothing_loss(logits, torch.full_like(target, k), lengths, 0.0)[0] for k in range(V)) / V
    torch.testing.assert_close(loss, (1 - eps) * plain + eps * every)
    q = np.full(V, eps / V)
    q[0] += 1 - eps
    entropy = -sum(x * np.log(x) for x in q if x > 0)
    assert loss >= count * entropy - 1e-9


@given(st.integers(1, 2048), st.integers(1, 5000), st.integers(0, 10**6))
def test_the_rate_is_positive_and_never_above_its_peak(D, warmup, step):
    rate = warmup_schedule(D, warmup)
    assert 0 < rate(step, 1) <= rate(warmup - 1, 1) * (1 + 1e-12)
    assert rate(step, 1) == rate(step, 7)  # the number of steps does not matter


@settings(max_examples=40)
@given(st.integers(0, 20), st.integers(1, 5), st.integers(0, 6), st.integers(1, 9), st.integers(0, 99))
def test_rows_of_a_task_have_the_lengths_and_letters_that_were_asked_for(n, shortest, more, letters, seed):
    pairs = copy_pairs(n, shortest, shortest + more, letters, seed)
    assert len(pairs) == n
    for pair in pairs:
        assert shortest <= len(pair.source) <= shortest + more
        assert ((pair.source >= 4) & (pair.source < 4 + letters)).all()
        assert pair.target[0] == BOS and pair.target[-1] == EOS
        assert pair.target[1:-1].tolist() == pair.source.tolist()
    for pair in parity_pairs(n, shortest, shortest + more, seed):
        assert pair.target[1] - 4 == (pair.source == 5).sum() % 2
