"""Counting and association keep their theorems for any text; the fast count equals one written by other means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from lrm_utils import check
from lrm_utils.models.cooccurrence import co_occurrence, pmi, ppmi

V = 6
documents = st.lists(st.lists(st.integers(0, V - 1), max_size=12), min_size=1, max_size=4).filter(any)


def by_hand(texts, window, weight):
    """The definition, pair by pair."""
    X = np.zeros((V, V))
    for text in texts:
        for m, a in enumerate(text):
            for n, b in enumerate(text):
                if 0 < abs(m - n) <= window:
                    X[a, b] += weight(abs(m - n))
    return X


@given(documents, st.integers(1, 15))
def test_the_product_of_matrices_counts_exactly_what_the_loop_counts(texts, window):
    X = co_occurrence([np.array(t, dtype=int) for t in texts], V, window)
    assert (X.toarray() == by_hand(texts, window, lambda d: 1)).all()


@given(documents, st.integers(1, 6))
def test_weights_by_distance_are_those_of_the_definition(texts, window):
    X = co_occurrence([np.array(t, dtype=int) for t in texts], V, window, weight=lambda d: 1 / d)
    np.testing.assert_allclose(X.toarray(), by_hand(texts, window, lambda d: 1 / d), atol=1e-12)


@given(documents, st.integers(1, 6))
def test_company_is_mutual_and_does_not_depend_on_the_order_of_documents(texts, window):
    arrays = [np.array(t, dtype=int) for t in texts]
    X = co_occurrence(arrays, V, window)
    assert (X != X.T).nnz == 0
    assert (co_occurrence(arrays[::-1], V, window) != X).nnz == 0


def test_counts_agree_with_scikit_learn_when_the_window_is_the_sentence():
    """scikit-learn 1.9 CountVectorizer: distinct words, a window as long as the text: X is C'C without its diagonal."""
    texts = ["gold and silver coin", "silver coin of the mint", "the mint and gold"]
    vectorizer = CountVectorizer(token_pattern=r"\w+").fit(texts)
    ids = [np.array([vectorizer.vocabulary_[w] for w in t.split()]) for t in texts]
    C = vectorizer.transform(texts)
    expected = (C.T @ C).toarray() * (1 - np.eye(C.shape[1]))
    assert (co_occurrence(ids, C.shape[1], window=10).toarray() == expected).all()


@given(documents)
def test_lifts_average_to_one_among_strangers_and_information_is_never_negative(texts):
    X = co_occurrence([np.array(t, dtype=int) for t in texts], V, 3)
    if not X.nnz:
        return
    M = pmi(X)
    lift = M.copy()
    lift.data = np.exp(lift.data)
    p = X.sum(1) / X.sum()
    check.close(p @ lift @ p, 1.0)
    assert (X / X.sum() * M).sum() >= -1e-12


@given(documents, st.floats(0.1, 1.0), st.floats(1.0, 8.0))
def test_ppmi_is_the_positive_part_of_the_shifted_pmi(texts, alpha, k):
    X = co_occurrence([np.array(t, dtype=int) for t in texts], V, 3)
    if not X.nnz:
        return
    expected = np.zeros((V, V))
    M = pmi(X, alpha).tocoo()
    for i, j, value in zip(M.row, M.col, M.data, strict=True):
        expected[i, j] = max(value - np.log(k), 0)
    np.testing.assert_allclose(ppmi(X, alpha, k).toarray(), expected, atol=1e-12)


def test_independent_words_have_a_pmi_of_zero():
    """A table that is a product of its margins holds strangers only."""
    from scipy import sparse

    margins = np.array([1.0, 2.0, 5.0])
    assert np.allclose(pmi(sparse.csr_array(np.outer(margins, margins))).toarray(), 0)


@given(documents, st.integers(1, 4))
def test_smoothing_lowers_the_lift_of_the_rarest_context(texts, window):
    X = co_occurrence([np.array(t, dtype=int) for t in texts], V, window)
    totals = X.sum(0)
    if not X.nnz or len(set(totals[totals > 0])) < 2:
        return
    rarest = np.argmin(np.where(totals > 0, totals, np.inf))
    plain, smooth = pmi(X).toarray()[:, rarest], pmi(X, alpha=0.75).toarray()[:, rarest]
    seen = X.toarray()[:, rarest] > 0
    assert (smooth[seen] < plain[seen]).all()


def test_an_id_outside_the_vocabulary_is_refused():
    with pytest.raises(ValueError, match="id 50000 .* vocabulary of 6"):
        co_occurrence([np.array([0, 50_000])], V, 2)


def test_empty_corpus_and_empty_window_are_refused():
    with pytest.raises(ValueError, match="the corpus is empty"):
        co_occurrence([np.array([], dtype=int)], V, 2)
    with pytest.raises(ValueError, match="a window of 0 holds no pair"):
        co_occurrence([np.array([1, 2])], V, 0)
