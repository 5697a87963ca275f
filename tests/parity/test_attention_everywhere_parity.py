"""Attention everywhere against PyTorch 2.13, d2l 1.0.3 and scikit-learn 1.9."""

import math

import numpy as np
import pytest
import torch
from record import import_d2l
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional as F

from lrm_utils import check
from lrm_utils.models import attention_everywhere as ae


@pytest.fixture(scope="module")
def tensors():
    random = torch.Generator().manual_seed(0)
    return [torch.randn(3, n, 8, dtype=torch.float64, generator=random) for n in (5, 7, 7)]


def scaled(query, key):
    return ae.dot(query, key) / math.sqrt(query.shape[-1])


def test_the_lookup_is_pytorchs_scaled_dot_product_attention(tensors):
    """Both in float64, to 1e-12; every query may see at least one key, since PyTorch gives NaN or 0 by version."""
    allowed = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.6
    allowed[..., 0] = True
    for mask in (None, allowed):
        check.close(
            ae.attend(*tensors, score=scaled, allowed=mask)[0],
            F.scaled_dot_product_attention(*tensors, attn_mask=mask),
            1e-12,
        )
        check.close(
            ae.attend(*tensors, allowed=mask)[0],
            F.scaled_dot_product_attention(*tensors, attn_mask=mask, scale=1.0),
            1e-12,
        )


def test_the_lookup_is_d2ls_dot_product_attention(tensors):
    """d2l 1.0.3 masks with -1e6 in place of -inf: its forbidden weights underflow to 0; float64, to 1e-12."""
    d2l = import_d2l()
    theirs = d2l.DotProductAttention(dropout=0.0).eval()
    for lengths in (None, torch.tensor([7, 3, 1])):
        found = theirs(*tensors, lengths)
        allowed = None if lengths is None else ae.positions(lengths, 7)[:, None]
        ours, weights = ae.attend(*tensors, score=scaled, allowed=allowed)
        check.close(ours, found, 1e-12)
        check.close(weights, theirs.attention_weights, 1e-12)


def test_self_attention_is_pytorchs_multihead_attention_with_one_head():
    """With copied weights and the factor sqrt(D) put into the query matrix; float64, to 1e-9; padding, too."""
    torch.manual_seed(0)
    ours = ae.SelfAttention(6).double()
    theirs = nn.MultiheadAttention(6, 1, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        query = ours.query.weight * math.sqrt(6)
        theirs.in_proj_weight.copy_(torch.cat([query, ours.key.weight, ours.value.weight]))
        theirs.out_proj.weight.copy_(torch.eye(6))
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    real = ae.positions(torch.tensor([5, 3]), 5)
    found, weights = theirs(x, x, x, key_padding_mask=~real)
    ours_found, ours_weights = ours(x, real[:, None])
    check.close(ours_found, found, 1e-9)
    check.close(ours_weights, weights, 1e-9)


def test_states_of_a_padded_batch_are_those_of_torchs_gru_alone():
    torch.manual_seed(0)
    gru, x = nn.GRU(4, 3, batch_first=True, bidirectional=True), torch.randn(3, 6, 4)
    lengths = torch.tensor([2, 6, 4])
    states = ae.read_states(gru, x, lengths)
    assert states.shape == (3, 6, 6)
    for b, n in enumerate(lengths.tolist()):
        check.close(states[b, :n], gru(x[b : b + 1, :n])[0][0], 1e-6)
        assert (states[b, n:] == 0).all()


def test_logistic_regression_is_that_of_scikit_learn():
    """scikit-learn 1.9 sums losses and takes C = 1 / (2 penalty n); the bias is free in both; to 1e-3."""
    random = np.random.default_rng(0)
    A = sparse.random_array((200, 30), density=0.3, rng=random).tocsr()
    y = (A @ random.normal(size=30) + random.normal(size=200) * 0.3 + 0.2 > 0).astype(int)
    for penalty in (1e-2, 1e-4):
        w, b = ae.logistic_regression(A, y, penalty)
        theirs = LogisticRegression(C=1 / (2 * penalty * len(y)), tol=1e-8, max_iter=10_000).fit(A, y)
        check.close(w, theirs.coef_[0], 1e-3 * np.abs(w).max())
        check.close(b, theirs.intercept_[0], 1e-3 * np.abs(w).max())
