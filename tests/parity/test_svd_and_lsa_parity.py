"""The decomposition and LSA agree with libraries that were not written here, on the speeches themselves."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer

from lrm_utils import data, text
from lrm_utils.models.cooccurrence import co_occurrence, ppmi
from lrm_utils.models.svd_and_lsa import LSA, inverse_document_frequency, term_counts, tf_idf, truncated_svd


@pytest.fixture(scope="module")
def corpus():
    """The ids of every fifth speech, and the number of words seen ten times or more in them."""
    documents = [text.words(speech.text) for speech in data.sotu()[::5]]
    vocab = text.Vocab.build((word for document in documents for word in document), min_count=10)
    return [vocab.encode(document, drop_unknown=True) for document in documents], len(vocab)


@pytest.fixture(scope="module")
def table(corpus):
    ids, V = corpus
    return ppmi(co_occurrence(ids, V, 5), alpha=0.75, k=2)


def angles(one, other):
    """The cosines of the principal angles between the spans of two sets of orthonormal rows."""
    return np.linalg.svd(one @ other.T, compute_uv=False)


def test_singular_values_and_subspaces_agree_with_scikit_learn(table):
    """scikit-learn 1.9 `TruncatedSVD` with ARPACK, which is exact to 1e-9 here; ours stops at a tolerance, 1e-8."""
    theirs = TruncatedSVD(30, algorithm="arpack", random_state=0).fit(sparse.csr_matrix(table))
    U, s, Vt = truncated_svd(table, 30, tolerance=1e-8)
    np.testing.assert_allclose(s, theirs.singular_values_, rtol=1e-4)
    assert angles(Vt, theirs.components_).min() > 0.999
    np.testing.assert_allclose(
        (U * s) @ (U * s).T[:, :50],
        (P := theirs.transform(sparse.csr_matrix(table))) @ P.T[:, :50],
        atol=1e-2 * s[0],
    )


def test_single_precision_and_the_default_tolerance_lose_little(table):
    """What the notebook uses: float32 and a tolerance of 1e-3; every value within 1 % of ARPACK's."""
    theirs = TruncatedSVD(100, algorithm="arpack", random_state=0).fit(sparse.csr_matrix(table)).singular_values_
    ours = truncated_svd(table.astype(np.float32), 100)[1]
    np.testing.assert_allclose(ours, theirs, rtol=0.01)
    assert np.square(ours).sum() == pytest.approx(np.square(theirs).sum(), rel=2e-3)


def test_tf_idf_agrees_with_scikit_learn(corpus):
    """scikit-learn 1.9 `TfidfTransformer`, sublinear tf, no smoothing; it adds 1 to the idf, so idf - 1 is put in."""
    ids, V = corpus
    C = term_counts(ids, V)
    transformer = TfidfTransformer(sublinear_tf=True, smooth_idf=False).fit(sparse.csr_matrix(C))
    idf = inverse_document_frequency(C)
    np.testing.assert_allclose(idf, transformer.idf_ - 1, atol=1e-12)
    transformer.idf_ = idf
    expected = transformer.transform(sparse.csr_matrix(C))
    np.testing.assert_allclose(tf_idf(C, idf).toarray(), expected.toarray(), atol=1e-12)


def test_documents_and_queries_have_the_cosines_of_scikit_learn(corpus):
    """scikit-learn 1.9: `TruncatedSVD` of the same table; cosines, because axes may be turned and flipped."""
    ids, V = corpus
    C, asked = term_counts(ids, V), term_counts([d[:200] for d in ids], V)
    lsa = LSA.fit(C, 20, tolerance=1e-10)
    theirs = TruncatedSVD(20, algorithm="arpack", random_state=0)
    documents = theirs.fit_transform(sparse.csr_matrix(tf_idf(C, lsa.idf)))
    queries = theirs.transform(sparse.csr_matrix(tf_idf(asked, lsa.idf)))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, documents)]
    np.testing.assert_allclose(lsa.search(asked), unit[0] @ unit[1].T, atol=1e-4)
