"""Attention everywhere: weights, padding, order and probability, for any shape."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from lrm_utils import check
from lrm_utils.models import attention_everywhere as ae

SEED = st.integers(0, 10_000)
SENTENCE = st.lists(st.integers(4, 11), min_size=1, max_size=6)
DOCUMENT = st.lists(SENTENCE, min_size=1, max_size=5)
VECTORS = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
MODELS = {}


def classifiers():
    if not MODELS:
        torch.manual_seed(0)
        MODELS["two levels"] = ae.HierarchicalAttention(VECTORS, 4)
        MODELS["last"] = ae.LastState(VECTORS, 4)
        MODELS["flat"] = ae.FlatAttention(VECTORS, 4)
        MODELS["words"] = ae.FlatAttention(VECTORS, 4, recurrent=False)
        MODELS["mean"] = ae.HierarchicalAttention(VECTORS, 4, learned=False)
    return MODELS


@settings(max_examples=60, deadline=None)
@given(SEED, st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 5))
def test_weights_sum_to_1_over_what_is_allowed_and_are_0_elsewhere(seed, B, T, S, D):
    random = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(B, n, D, generator=random, requires_grad=True) for n in (T, S, S))
    allowed = torch.rand(B, T, S, generator=random) < 0.5
    found, weights = ae.attend(q, k, v, score=lambda q, k: 30 * q @ k.mT, allowed=allowed)
    assert (weights[~allowed] == 0).all()
    check.close(weights.sum(-1), allowed.any(-1).float(), 1e-5)
    assert (found[~allowed.any(-1)] == 0).all()
    found.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))


@settings(max_examples=40, deadline=None)
@given(SEED, st.integers(2, 7), st.integers(1, 5))
def test_the_gradient_of_a_score_is_its_weight_times_the_distance_of_its_value_from_the_mean(seed, S, C):
    random = torch.Generator().manual_seed(seed)
    a = torch.randn(1, S, dtype=torch.float64, generator=random, requires_grad=True)
    v, g = (torch.randn(*n, dtype=torch.float64, generator=random) for n in ((S, C), (C,)))
    found, weights = ae.attend(a, torch.eye(S, dtype=torch.float64), v)
    (found[0] @ g).backward()
    check.close(a.grad[0], weights[0].detach() * ((v - found[0].detach()) @ g), 1e-9)
    check.close(a.grad.sum(), 0.0, 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.lists(DOCUMENT, min_size=1, max_size=4), st.integers(0, 3), st.integers(0, 3), st.integers(0, 11))
def test_neither_padding_of_words_nor_of_sentences_changes_a_prediction(documents, more_s, more_t, filler):
    batch = ae.collate_documents(documents)
    words = F.pad(batch["words"], (0, more_t, 0, more_s), value=0)
    lengths = F.pad(batch["lengths"], (0, more_s))
    words = torch.where(ae.positions(lengths, words.shape[2]), words, filler)
    for model in classifiers().values():
        with torch.no_grad():
            alone = torch.cat([model(**ae.collate_documents([document])) for document in documents])
            check.close(model(words, lengths), alone, 1e-5)


@settings(max_examples=30, deadline=None)
@given(st.lists(DOCUMENT, min_size=1, max_size=5))
def test_a_batch_can_be_read_back(documents):
    batch = ae.collate_documents(documents)
    for words, lengths, document in zip(batch["words"].tolist(), batch["lengths"].tolist(), documents, strict=True):
        assert [row[:n] for row, n in zip(words, lengths, strict=True) if n] == document
    flat, sizes = ae.as_one_sequence(batch["words"], batch["lengths"])
    assert [row[:n] for row, n in zip(flat.tolist(), sizes.tolist(), strict=True)] == [sum(d, []) for d in documents]


@settings(max_examples=30, deadline=None)
@given(st.lists(SENTENCE, min_size=2, max_size=5))
def test_votes_sum_to_the_log_odds_and_drops_are_what_deletion_does(document):
    model = classifiers()["two levels"]
    odds, weights, votes, drops = ae.leave_one_out(model, document)
    check.close(votes.sum(), odds, 1e-5)
    check.sums_to_one(weights)
    rest = [[s for j, s in enumerate(document) if j != i] for i in range(len(document))]
    check.close(drops, odds - ae.log_odds(model, rest), 1e-5)


@settings(max_examples=30, deadline=None)
@given(SEED, st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4), st.integers(0, 2))
def test_padding_never_changes_a_reader_and_its_words_sum_to_1(seed, sizes, more):
    torch.manual_seed(seed)
    n, m = (torch.tensor(x) for x in zip(*sizes, strict=True))
    story, query = (torch.randint(4, 10, (len(sizes), int(x.max()) + more)) for x in (n, m))
    for reader in (ae.AttentionSum(10, 4), ae.AttentionOverAttention(10, 4), ae.AttentionOverAttention(10, 4, False)):
        with torch.no_grad():
            words = reader(story, n, query, m)
            check.sums_to_one(words)
            for b, (i, j) in enumerate(sizes):
                alone = reader(story[b : b + 1, :i], n[b : b + 1], query[b : b + 1, :j], m[b : b + 1])
                check.close(words[b], alone[0], 1e-5)
                outside = torch.ones(10, dtype=torch.bool).scatter(0, story[b, :i], False)
                assert (words[b][outside] == 0).all()


@settings(max_examples=20, deadline=None)
@given(SEED, st.integers(2, 6), st.integers(1, 6))
def test_self_attention_is_equivariant_under_any_permutation(seed, T, D):
    torch.manual_seed(seed)
    layer, x = ae.SelfAttention(D).double(), torch.randn(2, T, D, dtype=torch.float64)
    order = torch.randperm(T)
    with torch.no_grad():
        found, weights = layer(x)
        moved, moved_weights = layer(x[:, order])
    check.close(moved, found[:, order], 1e-9)
    check.close(moved_weights, weights[:, order][:, :, order], 1e-9)


@settings(max_examples=30, deadline=None)
@given(SEED, st.floats(0.01, 0.99))
def test_twins_with_other_labels_cost_an_invariant_model_at_least_log_2(seed, p):
    odds = torch.tensor([[0.0, math.log(p / (1 - p))]] * 2)
    assert F.cross_entropy(odds, torch.tensor([0, 1])) >= math.log(2) - 1e-6
