"""The decomposition and LSA keep their theorems for any matrix and any corpus; bad input gets one clear error."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.linalg import norm, qr, svd
from scipy import sparse

from lrm_utils.models.svd_and_lsa import (
    LSA,
    best_inside,
    inverse_document_frequency,
    sharpen,
    term_counts,
    tf_idf,
    truncated_svd,
    word_vectors,
)


@st.composite
def matrices(draw, most=25):
    """A dense or sparse matrix of any shape, some of low rank, with spectra from flat to steep, and a k that fits."""
    m, n = draw(st.integers(1, most)), draw(st.integers(1, most))
    rank = draw(st.integers(1, min(m, n)))
    decay = draw(st.sampled_from([0.0, 0.5, 3.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    A = (rng.standard_normal((m, rank)) * np.exp(-decay * np.arange(rank))) @ rng.standard_normal((rank, n))
    A *= 10.0 ** draw(st.integers(-3, 3))
    k = draw(st.integers(1, min(m, n)))
    return (sparse.csr_array(A) if draw(st.booleans()) else A), k


def dense(A):
    return A.toarray() if sparse.issparse(A) else A


@given(matrices(), st.integers(0, 3))
def test_what_is_lost_is_the_tail_of_the_singular_values(drawn, extra):
    """Eckart-Young: the error of rank k equals the tail, as a dense SVD knows it; also with a narrow block."""
    A, k = drawn
    U, s, Vt = truncated_svd(A, k, extra=extra, tolerance=1e-10)
    tail = norm(svd(dense(A), compute_uv=False)[k:])
    assert norm(dense(A) - (U * s) @ Vt) == pytest.approx(tail, rel=1e-3, abs=1e-4 * norm(dense(A)))


@given(matrices(most=12), st.integers(0, 2**32 - 1))
def test_no_other_table_of_the_same_rank_loses_less(drawn, seed):
    A, k = drawn
    U, s, Vt = truncated_svd(A, k)
    Q = qr(np.random.default_rng(seed).standard_normal((A.shape[1], k)))[0]
    rival = norm(dense(A) - dense(A) @ Q @ Q.T)
    assert norm(dense(A) - (U * s) @ Vt) <= rival + 1e-9 * norm(dense(A))


@given(matrices())
def test_factors_are_orthonormal_and_values_descend_even_beyond_the_rank(drawn):
    A, k = drawn
    U, s, Vt = truncated_svd(A, k)
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-9)
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(k), atol=1e-9)
    assert (np.diff(s) <= 0).all() and (s >= 0).all()
    np.testing.assert_allclose(dense(A) @ Vt.T, U * s, atol=1e-9 * norm(dense(A)))


@given(matrices(), st.integers(0, 5))
def test_singular_values_beyond_the_rank_are_zero(drawn, seed):
    """The decision: k may exceed the rank, and then the last values are 0."""
    A, k = drawn
    rank = max(1, k // 2)
    left, values, right = svd(dense(A), full_matrices=False)
    lower = (left[:, :rank] * values[:rank]) @ right[:rank]
    s = truncated_svd(lower, k, seed=seed)[1]
    assert len(s) == k
    np.testing.assert_allclose(s[rank:], 0, atol=1e-10 * max(values[0], 1e-300))


def test_a_table_of_zeros_has_singular_values_of_zero():
    U, s, Vt = truncated_svd(sparse.csr_array((5, 4)), 3)
    assert (s == 0).all()
    np.testing.assert_allclose(U.T @ U, np.eye(3), atol=1e-12)


def test_whole_numbers_and_single_precision_are_welcome():
    A = np.random.default_rng(0).integers(0, 9, (40, 30), dtype=np.uint8)  # a product of these would overflow
    exact = svd(A.astype(float), compute_uv=False)[:5]
    np.testing.assert_allclose(truncated_svd(A, 5, tolerance=1e-10)[1], exact, rtol=1e-6)
    single = truncated_svd(A.astype(np.float32), 5, tolerance=1e-6)
    assert single[0].dtype == np.float32
    np.testing.assert_allclose(single[1], exact, rtol=1e-4)


def test_the_result_does_not_depend_on_the_start_beyond_the_tolerance():
    A = sparse.random_array((300, 200), density=0.1, rng=np.random.default_rng(0))
    (U1, s1, _), (U2, s2, _) = (truncated_svd(A, 10, tolerance=1e-12, seed=seed) for seed in (1, 2))
    np.testing.assert_allclose(s1, s2, rtol=1e-6)
    np.testing.assert_allclose(U1, U2, atol=1e-3)  # signs included


@given(matrices(most=20), st.integers(1, 6))
def test_a_filter_never_leaves_the_block_poorer(drawn, width):
    """One round of `sharpen` holds at least what the block held before."""
    A, _ = drawn
    width = min(width, *A.shape)
    Q = qr(np.random.default_rng(0).standard_normal((A.shape[1], width)))[0]
    _, s, Vt = best_inside(A, Q)
    assume(s[0] > 0)
    again = best_inside(A, qr(sharpen(A, s, Vt))[0])[1]
    assert norm(again) >= norm(s) * (1 - 1e-9)


def test_the_filter_is_the_chebyshev_polynomial_of_numpy():
    """NumPy's `Chebyshev.basis(8)`, on a spectrum so flat that the filter takes all eight steps."""
    values = np.linspace(1.1, 1, 6)
    stretched = sharpen(np.diag(values), values, np.eye(6))
    expected = np.polynomial.chebyshev.Chebyshev.basis(8)(2 * values**2 / values[-1] ** 2 - 1)
    np.testing.assert_allclose(stretched, np.diag(expected), rtol=1e-9, atol=1e-9)


def test_the_filter_converges_faster_than_plain_rounds_on_a_flat_spectrum():
    values = np.linspace(2, 1, 200)
    rng = np.random.default_rng(0)
    A = qr(rng.standard_normal((200, 200)))[0] * values @ qr(rng.standard_normal((200, 200)))[0]
    Q = plain = qr(rng.standard_normal((200, 30)))[0]
    products = 0

    class Counted:
        T = A.T

        def __matmul__(self, X):
            nonlocal products
            products += 1
            return A @ X

    for _ in range(3):
        _, s, Vt = best_inside(Counted(), Q)
        Q = qr(sharpen(Counted(), s, Vt))[0]
    sharp = best_inside(A, Q)[1]
    for _ in range(products):
        plain = qr(A.T @ (A @ plain))[0]
    blunt = best_inside(A, plain)[1]
    assert abs(sharp[:20] - values[:20]).max() < abs(blunt[:20] - values[:20]).max() / 2


@given(matrices(most=20), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 1.0]))
def test_rotations_keep_cosines(drawn, seed, p):
    A, k = drawn
    U, s, _ = truncated_svd(A, k)
    vectors = word_vectors(U, s, k, p)
    R = qr(np.random.default_rng(seed).standard_normal((k, k)))[0]
    np.testing.assert_allclose(vectors @ R @ (vectors @ R).T, vectors @ vectors.T, atol=1e-9 * norm(vectors) ** 2)


@given(matrices(most=20))
def test_at_full_rank_and_power_one_the_short_vectors_have_the_products_of_the_rows(drawn):
    A, _ = drawn
    U, s, _ = truncated_svd(A, min(A.shape), tolerance=1e-12)
    vectors = word_vectors(U, s, len(s), 1)
    np.testing.assert_allclose(vectors @ vectors.T, dense(A) @ dense(A).T, atol=1e-8 * norm(dense(A)) ** 2)


V = 8
corpora = st.lists(st.lists(st.integers(0, V - 1), min_size=1, max_size=15), min_size=3, max_size=8)


def told_apart(texts):
    """The counts of texts, or nothing when one of them has no word that tells it apart."""
    C = term_counts([np.array(t) for t in texts], V)
    assume((C @ inverse_document_frequency(C) > 0).all())
    return C


@given(corpora)
def test_counts_are_those_of_a_loop(texts):
    C = term_counts([np.array(t) for t in texts], V)
    assert (C.toarray() == [[t.count(w) for w in range(V)] for t in texts]).all()


@given(corpora)
def test_weights_are_those_of_the_definition(texts):
    C = told_apart(texts)
    expected = np.zeros((len(texts), V))
    for d, t in enumerate(texts):
        for w in set(t):
            expected[d, w] = (1 + np.log(t.count(w))) * np.log(len(texts) / sum(w in other for other in texts))
    expected /= norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(tf_idf(C, inverse_document_frequency(C)).toarray(), expected, atol=1e-12)


@given(corpora, st.integers(1, 3))
def test_a_document_folded_in_lands_on_its_place(texts, k):
    C = told_apart(texts)
    lsa = LSA.fit(C, k)
    np.testing.assert_allclose(lsa.fold_in(C), lsa.documents, atol=1e-9)


@given(corpora)
def test_with_all_directions_lsa_is_tf_idf(texts):
    C = told_apart(texts)
    lsa = LSA.fit(C, min(C.shape), tolerance=1e-12)
    rows = tf_idf(C, lsa.idf)
    np.testing.assert_allclose(lsa.search(C), (rows @ rows.T).toarray(), atol=1e-6)


def test_a_document_is_found_by_a_word_that_it_does_not_contain():
    """Cars and automobiles share their companions, engine and road; the third subject shares nothing."""
    car, automobile, engine, road, wheat, corn = range(6)
    texts = [[car, engine, road], [automobile, engine, road], [car, engine], [automobile, road], [wheat, corn], [corn]]
    C = term_counts([np.array(t) for t in texts], 6)
    asked = term_counts([np.array([car])], 6)
    rows = tf_idf(C, inverse_document_frequency(C))
    assert (rows @ tf_idf(asked, inverse_document_frequency(C)).T).toarray()[1, 0] == 0
    found = LSA.fit(C, 2).search(asked)[0]
    assert found[1] > 0.9 and abs(found[4]) < 0.1


@pytest.mark.parametrize("k", [0, -1, 5])
def test_a_k_that_does_not_fit_the_matrix_is_refused(k):
    with pytest.raises(ValueError, match=rf"k={k} singular values .* shape \(6, 4\) has between 1 and 4"):
        truncated_svd(np.ones((6, 4)), k)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_matrix_with_nan_or_infinity_is_refused(bad, kind):
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        truncated_svd(kind([[1.0, 2.0], [bad, 1.0]]), 1)


def test_the_exponent_weighs_the_directions():
    U, s = np.eye(3), np.array([9.0, 4.0, 1.0])
    for p, expected in ((1, [9, 4]), (0.5, [3, 2]), (0, [1, 1])):
        np.testing.assert_allclose(word_vectors(U, s, 2, p), np.eye(3)[:, :2] * expected)


def test_more_directions_than_were_computed_are_refused():
    with pytest.raises(ValueError, match="k=4 directions were asked for; there are 3"):
        word_vectors(np.eye(3), np.ones(3), 4)


@pytest.mark.parametrize("query", [[], [0], [3]], ids=["no known word", "a word of every document", "a word of none"])
def test_a_query_without_a_telling_word_is_refused(query):
    C = term_counts([np.array([0, 1]), np.array([0, 2]), np.array([0, 1, 2, 2])], 4)
    lsa = LSA.fit(C[:2], 2)
    with pytest.raises(ValueError, match="document 1 has no word that tells documents apart"):
        lsa.fold_in(term_counts([np.array([1]), np.array(query, dtype=int)], 4))


def test_ids_outside_the_vocabulary_and_empty_corpora_are_refused():
    for wrong in ([0, 5], [-1, 2]):
        with pytest.raises(ValueError, match=f"ids from {min(wrong)} to {max(wrong)} do not fit a vocabulary of 5"):
            term_counts([wrong], 5)
    with pytest.raises(ValueError, match="the corpus is empty"):
        term_counts([], 5)


@pytest.mark.parametrize("scale", [1e-165, 1e-20, 1e19, 1e150])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_scale_of_a_matrix_only_scales_its_singular_values(scale, dtype):
    if not float(np.finfo(dtype).tiny) * 1e3 < scale < float(np.finfo(dtype).max) / 1e3:
        pytest.skip("this precision has no such numbers")
    A = np.random.default_rng(0).standard_normal((40, 30))
    exact = np.linalg.svd(A, compute_uv=False)[:5]
    _, s, _ = truncated_svd((A * scale).astype(dtype), 5, tolerance=1e-6)
    np.testing.assert_allclose(s / dtype(scale), exact, rtol=1e-3)


def test_a_tighter_tolerance_gives_a_smaller_error():
    A = np.random.default_rng(0).standard_normal((300, 200))
    exact = np.linalg.svd(A, compute_uv=False)[:10]
    errors = [abs(truncated_svd(A, 10, tolerance=t)[1] - exact).max() for t in (0.3, 1e-3, 1e-9)]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert errors[2] < 1e-3


def test_settings_and_kinds_of_numbers_that_make_no_sense_are_refused():
    for wrong in (dict(extra=-1), dict(tolerance=-1.0)):
        with pytest.raises(ValueError, match="must be at least 0"):
            truncated_svd(np.eye(4), 2, **wrong)
    with pytest.raises(ValueError, match="A real"):
        truncated_svd(np.eye(4) * 1j, 2)
    np.testing.assert_allclose(truncated_svd(np.eye(4, dtype=np.float16), 2)[1], [1, 1])


def test_stored_zeros_do_not_change_tf_idf_and_negative_counts_are_refused():
    C = term_counts([[0, 1], [1, 2], [2, 3]], 4)
    idf = inverse_document_frequency(C)
    stored = C.copy()
    stored.data = np.append(stored.data, 0.0)
    stored.indices = np.append(stored.indices, 0).astype(stored.indices.dtype)
    stored.indptr = stored.indptr.copy()
    stored.indptr[-1] += 1
    np.testing.assert_allclose(tf_idf(stored, idf).toarray(), tf_idf(C, idf).toarray())
    with pytest.raises(ValueError, match="at least 0"):
        tf_idf(-C, idf)


def test_single_precision_stays_single():
    for A in (np.eye(5, dtype=np.float32), sparse.csr_array(np.eye(5, dtype=np.float32))):
        assert {part.dtype for part in truncated_svd(A, 2)} == {np.dtype(np.float32)}
