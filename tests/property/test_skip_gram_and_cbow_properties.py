"""Surroundings are what a loop over the text finds, for any text; losses and gradients keep their theorems."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lrm_utils import check
from lrm_utils.models.cooccurrence import co_occurrence
from lrm_utils.models.skip_gram_and_cbow import (
    cbow_gradients,
    cbow_loss,
    cross_entropy,
    cross_entropy_gradients,
    skip_gram_gradients,
    skip_gram_loss,
    surroundings,
)

SIZE = 6
documents = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=12), min_size=1, max_size=5).filter(any)
seeds = st.integers(0, 2**32 - 1)
each = pytest.mark.parametrize(
    ("loss", "gradients"), [(skip_gram_loss, skip_gram_gradients), (cbow_loss, cbow_gradients)]
)


def arrays(texts):
    return [np.array(text, dtype=np.int64) for text in texts]


def by_hand(texts, window, reaches=None):
    """The definition, place by place; `reaches` gives each token how far it looks."""
    rows, number = [], 0
    for text in texts:
        for here, center in enumerate(text):
            reach = window if reaches is None else reaches[number]
            number += 1
            places = [here + d for d in range(-window, window + 1) if d]
            real = [0 <= p < len(text) and abs(p - here) <= reach for p in places]
            contexts = [text[p] if r else 0 for p, r in zip(places, real, strict=True)]
            if any(real):
                rows.append((center, contexts, real))
    return rows


def as_rows(found):
    return list(zip(*(x.tolist() for x in found), strict=True))


@given(documents, st.integers(1, 14))
def test_surroundings_are_what_the_loop_finds(texts, window):
    assert as_rows(surroundings(arrays(texts), window)) == by_hand(texts, window)


@given(documents, st.integers(1, 6), seeds)
def test_random_surroundings_are_what_the_loop_finds_with_the_same_reaches(texts, window, seed):
    reaches = np.random.default_rng(seed).integers(1, window + 1, sum(map(len, texts)))
    found = surroundings(arrays(texts), window, random=np.random.default_rng(seed))
    assert as_rows(found) == by_hand(texts, window, reaches)


@given(documents, st.integers(1, 14))
def test_pairs_counted_are_the_table_of_chapter_one(texts, window):
    centers, contexts, mask = surroundings(arrays(texts), window)
    counted = np.zeros((SIZE, SIZE))
    np.add.at(counted, (np.repeat(centers, mask.sum(1)), contexts[mask]), 1)
    assert (counted == co_occurrence(arrays(texts), SIZE, window).toarray()).all()


@pytest.mark.parametrize("window", [2, 5, 8])
def test_each_reach_from_one_to_the_window_is_equally_likely(window):
    """Tokens far from a border show their reach: chi-square over 50,000 of them, and both sides reach alike."""
    text = np.arange(50_000 + 2 * window)
    _, _, mask = surroundings([text], window, random=np.random.default_rng(7))
    inner = mask[window:-window]
    left, right = inner[:, :window].sum(1), inner[:, window:].sum(1)
    assert (left == right).all()
    assert set(left) == set(range(1, window + 1))
    assert stats.chisquare(np.bincount(left)[1:]).pvalue > 0.001
    assert abs(stats.spearmanr(left[:-1], left[1:]).statistic) < 0.02  # each draws its own


@st.composite
def batches(draw):
    """Tables of two to five words and a batch for them; every center has a context."""
    size, width, rows, places = (draw(st.integers(*r)) for r in ((2, 5), (1, 4), (1, 5), (1, 4)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    V, U = (torch.randn(size, width, generator=generator, dtype=torch.float64).requires_grad_() for _ in "VU")
    centers = torch.randint(size, (rows,), generator=generator)
    contexts = torch.randint(size, (rows, places), generator=generator)
    mask = torch.rand(rows, places, generator=generator) < 0.6
    mask[torch.arange(rows), torch.randint(places, (rows,), generator=generator)] = True
    return V, U, centers, contexts, mask


@each
@given(batch=batches())
def test_gradients_by_hand_are_those_of_autograd_for_any_batch(loss, gradients, batch):
    V, U, *batch = batch
    automatic = torch.autograd.grad(loss(V, U, *batch), (V, U))
    for by_rule, expected in zip(gradients(V, U, *batch), automatic, strict=True):
        check.close(by_rule, expected, 1e-9)


@each
@given(batch=batches())
def test_the_order_of_rows_and_of_places_does_not_matter(loss, gradients, batch):
    V, U, centers, contexts, mask = batch
    turned = centers.flip(0), contexts.flip(0, 1), mask.flip(0, 1)
    check.close(loss(V, U, *turned), loss(*batch), 1e-12)
    for one, two in zip(gradients(V, U, *turned), gradients(*batch), strict=True):
        check.close(one, two, 1e-12)


@each
@given(batch=batches())
def test_a_shift_of_all_output_vectors_changes_nothing(loss, gradients, batch):
    V, U, *rest = batch
    shift = torch.linspace(-2, 3, U.shape[1], dtype=torch.float64)
    check.close(loss(V, U + shift, *rest), loss(*batch), 1e-9)
    for one, two in zip(gradients(V, U + shift, *rest), gradients(*batch), strict=True):
        check.close(one, two, 1e-9)


@each
@given(batch=batches())
def test_what_one_output_vector_gains_others_lose(loss, gradients, batch):
    check.close(gradients(*batch)[1].sum(0), torch.zeros(batch[1].shape[1]), 1e-12)


@given(documents, st.integers(1, 4), seeds)
def test_the_loss_is_never_below_the_conditional_entropy(texts, window, seed):
    X = co_occurrence(arrays(texts), SIZE, window).toarray()
    if not X.any():
        return
    i, j = X.nonzero()
    floor = -(X[i, j] * np.log(X[i, j] / X.sum(1)[i])).sum() / X.sum()
    V, U = 3 * torch.randn(2, SIZE, 3, generator=torch.Generator().manual_seed(seed % 2**31), dtype=torch.float64)
    assert cross_entropy(V, U, torch.tensor(X)) >= floor - 1e-12
    dV, _ = cross_entropy_gradients(V, U, torch.tensor(X))
    assert (dV[torch.tensor(X.sum(1) == 0)] == 0).all()  # who was never a center does not move
