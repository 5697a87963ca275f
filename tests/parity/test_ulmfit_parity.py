"""Our rates, pooling, and head compute what PyTorch 2.13's parts compute: rates to 1e-12, pooling and head to 1e-6.

The formula of the rate is written out a second time, from the paper (section 3.2 of Howard and Ruder, 2018), with its
own letters; where T * cut_frac is not whole the two differ on purpose, and the paper's goes below 0.
"""

from math import floor

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lrm_utils.models import awd_lstm as awd
from lrm_utils.models import ulmfit as ulm


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def paper(t, T, cut_frac, ratio, eta_max):
    cut = floor(T * cut_frac)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
    return eta_max * (1 + p * (ratio - 1)) / ratio


@pytest.mark.parametrize(("T", "cut_frac", "ratio"), [(10, 0.1, 32), (500, 0.1, 32), (40, 0.25, 10), (64, 0.5, 32)])
def test_the_schedule_is_the_papers_at_every_step_of_torchs_lambda_lr(T, cut_frac, ratio):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.01)
    ours = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: ulm.slanted_triangular(t, T, cut_frac, ratio))
    for t in range(T):
        assert ours.get_last_lr()[0] == pytest.approx(paper(t, T, cut_frac, ratio, 0.01), abs=1e-12)
        optimizer.step()
        ours.step()


def test_where_the_cut_is_not_whole_the_papers_rate_goes_below_zero_and_ours_does_not():
    assert paper(14, 15, 0.1, 32, 1) < 0 < ulm.slanted_triangular(14, 15)
    with pytest.raises(ZeroDivisionError):
        paper(100, 100, 1, 32, 1)


def test_pooling_is_torchs_adaptive_pools_on_each_document():
    states, lengths = torch.randn(4, 11, 5), torch.tensor([11, 3, 1, 7])
    ours = ulm.concat_pool(states, lengths)
    for row, n, found in zip(states, lengths, ours, strict=True):
        real = row[:n].T[None]  # (1, D, T)
        pools = [real[0, :, -1], F.adaptive_max_pool1d(real, 1)[0, :, 0], F.adaptive_avg_pool1d(real, 1)[0, :, 0]]
        torch.testing.assert_close(found, torch.cat(pools), rtol=0, atol=1e-6)


def test_chunks_read_what_a_packed_torch_lstm_reads():
    reader = awd.AWDLSTM(30, 8, 12, 1, words=0.0, inputs=0.0, hidden=0.0, weights=0.0)
    x, n = torch.randint(30, (4, 25)), torch.tensor([25, 12, 3, 20])
    packed = pack_padded_sequence(reader.embedding(x), n, batch_first=True, enforce_sorted=False)
    states, (h, _) = reader.layers[0].lstm(packed)
    states, _ = pad_packed_sequence(states, batch_first=True)
    ours = ulm.bpt3c(reader, x, n, 10, 1)
    D = reader.embedding.embedding_dim
    torch.testing.assert_close(ours[:, :D], h[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(ours, ulm.concat_pool(states, n), rtol=0, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_head_is_a_torch_sequence_with_copied_weights(training):
    head = ulm.Head(8, 3, hidden=10, drops=(0.0, 0.0) if training else (0.4, 0.1))
    theirs = nn.Sequential(
        nn.BatchNorm1d(24), nn.Dropout(head.drops[0]), nn.Linear(24, 10), nn.ReLU(),
        nn.BatchNorm1d(10), nn.Dropout(head.drops[1]), nn.Linear(10, 3),
    )  # fmt: skip
    x = 3 + 2 * torch.randn(40, 24)
    head(x)  # moves the running averages away from 0 and 1
    for place, part in ((0, head.norms[0]), (2, head.linears[0]), (4, head.norms[1]), (6, head.linears[1])):
        theirs[place].load_state_dict(part.state_dict())
    head.train(training)
    theirs.train(training)
    torch.testing.assert_close(head(x), theirs(x), rtol=0, atol=1e-6)


def test_in_use_batch_norm_is_its_formula_with_the_running_averages():
    head = ulm.Head(4, 2)
    for _ in range(5):
        head(5 + 3 * torch.randn(30, 12))
    norm = head.eval().norms[0]
    x = torch.randn(7, 12)
    by_hand = norm.weight * (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt() + norm.bias
    torch.testing.assert_close(norm(x), by_hand, rtol=0, atol=1e-6)
