"""What must hold for every table of counts: EM never lowers the likelihood, counts are conserved, rows sum to 1."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, special

from lrm_utils.models.topic_models import (
    Block,
    cell_probabilities,
    coherence,
    completion,
    completion_split,
    count_topics,
    em_step,
    gathered,
    gibbs,
    lda,
    mixtures,
    plsa,
)


@st.composite
def tables(draw):
    """A random table of counts in which every document has a word, and a number of topics."""
    M, V = draw(st.integers(1, 8)), draw(st.integers(1, 10))
    rows = st.lists(st.integers(0, 5), min_size=V, max_size=V).filter(any)
    X = np.array(draw(st.lists(rows, min_size=M, max_size=M)), dtype=float)
    return X, draw(st.integers(1, 5)), draw(st.integers(0, 1000))


@st.composite
def corpora(draw):
    """A few short documents of ids, the size of the vocabulary, a number of topics and a seed."""
    V = draw(st.integers(1, 6))
    document = st.lists(st.integers(0, V - 1), min_size=1, max_size=7).map(np.array)
    return draw(st.lists(document, min_size=1, max_size=5)), V, draw(st.integers(1, 4)), draw(st.integers(0, 1000))


@given(tables())
def test_em_never_lowers_the_likelihood(table):
    X, K, seed = table
    _, _, trace = plsa(X, K, steps=30, seed=seed)
    assert (np.diff(trace) >= -1e-9 * max(1.0, abs(trace[0]))).all()


@given(tables())
def test_the_sparse_step_is_the_step_of_the_formulas(table):
    X, K, seed = table
    random = np.random.default_rng(seed)
    Theta, Phi = random.dirichlet([1.0] * K, len(X)), random.dirichlet([1.0] * X.shape[1], K)
    q = Theta[:, :, None] * Phi[None]  # (M, K, V)
    n = X[:, None, :] * q / q.sum(1, keepdims=True)
    new_Theta, new_Phi, value = em_step(sparse.csr_array(X), Theta, Phi)
    np.testing.assert_allclose(new_Theta, n.sum(2) / n.sum((1, 2))[:, None], atol=1e-12)
    np.testing.assert_allclose(new_Phi, n.sum(0) / n.sum((0, 2))[:, None], atol=1e-12)
    np.testing.assert_allclose(value, (X * np.log(Theta @ Phi)).sum(), atol=1e-9)


@given(tables())
def test_every_distribution_sums_to_one(table):
    X, K, seed = table
    unseen = sparse.csr_array(np.eye(X.shape[1]))
    for alpha, (Theta, Phi) in {0.0: plsa(X, K, 5, seed)[:2], 0.1: lda(X, K, 0.1, sweeps=5, seed=seed)}.items():
        parts = [Theta, Phi, Theta @ Phi]
        if alpha:  # PLSA may hold a word impossible, and then has no mixture for it
            parts += [mixtures(Phi, unseen, alpha), mixtures(Phi, unseen, alpha) @ Phi]
        for p in parts:
            assert (p >= 0).all()
            np.testing.assert_allclose(p.sum(1), 1, atol=1e-9)


@given(corpora(), st.floats(0.01, 2), st.floats(0.01, 2))
def test_gibbs_counts_stay_consistent(corpus, alpha, beta):
    documents, V, K, seed = corpus
    for topics, n_dk, n_kw in gibbs(documents, V, K, alpha, beta, sweeps=3, seed=seed):
        again = count_topics(documents, topics, V, K)
        np.testing.assert_array_equal(n_dk, again[0])
        np.testing.assert_array_equal(n_kw, again[1])
        assert n_dk.sum() == n_kw.sum() == sum(map(len, documents))
        assert [len(z) for z in topics] == [len(words) for words in documents]


@given(tables())
def test_cvb0_counts_stay_consistent(table):
    X, K, seed = table
    X = sparse.csr_array(X)
    block, n_wk = Block(X, K), torch.zeros(X.shape[1], K)
    random = torch.Generator().manual_seed(seed)
    q = torch.rand(len(block.w), K, generator=random)
    block.assign(q / q.sum(1, keepdim=True), n_wk)
    for _ in range(4):
        block.assign(block.shares(n_wk, 0.1, 0.1), n_wk)
    expected = block.count * block.q  # every word shared out, nothing lost
    np.testing.assert_allclose(block.n_dk.sum(1), X.sum(1), rtol=1e-5)
    np.testing.assert_allclose(n_wk.sum(1), X.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(n_wk.sum(0), expected.sum(0), rtol=1e-4, atol=1e-4)


@given(tables())
def test_one_cell_is_shared_by_the_gibbs_conditional(table):
    X, K, seed = table
    X = sparse.csr_array(X)
    block, n_wk = Block(X, K), torch.zeros(X.shape[1], K)
    q = torch.rand(len(block.w), K, generator=torch.Generator().manual_seed(seed))
    block.assign(q / q.sum(1, keepdim=True), n_wk)
    new = block.shares(n_wk, 0.3, 0.2).double()
    for cell in range(min(5, len(block.w))):
        own, d, w = block.q[cell].double(), block.d[cell], block.w[cell]
        n_dk, n_kw, n_k = block.n_dk[d].double() - own, n_wk[w].double() - own, n_wk.double().sum(0) - own
        expected = (n_dk + 0.3) * (n_kw + 0.2) / (n_k + X.shape[1] * 0.2)
        np.testing.assert_allclose(new[cell], expected / expected.sum(), rtol=1e-4, atol=1e-6)


def log_urn(counts, prior):
    """The log probability of draws with these counts, by multiplying the predictive rule one draw at a time."""
    total = 0.0
    for urn in counts:
        seen = np.zeros(len(urn))
        for color in np.repeat(np.arange(len(urn)), urn.astype(int)):
            total += np.log((seen[color] + prior) / (seen.sum() + len(urn) * prior))
            seen[color] += 1
    return total


@pytest.mark.parametrize("K", [2, 3])
def test_gibbs_visits_states_as_often_as_they_are_probable(K):
    documents, V, alpha, beta = [np.array([0, 1]), np.array([1, 1, 2])], 3, 0.5, 0.2
    states = list(itertools.product(range(K), repeat=5))
    logs = []
    for z in states:
        n_dk, n_kw = count_topics(documents, [np.array(z[:2]), np.array(z[2:])], V, K)
        logs.append(log_urn(n_dk, alpha) + log_urn(n_kw, beta))
    exact = np.exp(logs - special.logsumexp(logs))
    visits, sweeps = dict.fromkeys(states, 0), 6000
    for topics, *_ in gibbs(documents, V, K, alpha, beta, sweeps, seed=1):
        visits[tuple(int(k) for k in np.concatenate(topics))] += 1
    distance = abs(np.array([visits[z] for z in states]) / sweeps - exact).sum()
    luck = np.sqrt(2 * exact * (1 - exact) / (np.pi * sweeps)).sum()  # the mean distance of independent draws
    assert distance < 2.5 * luck  # a chain is not independent; faults planted were at 3.5 and more


@given(tables())
def test_completion_is_the_perplexity_of_the_hidden_words(table):
    X, K, seed = table
    random = np.random.default_rng(seed)
    Theta, Phi = random.dirichlet([1.0] * K, len(X)), random.dirichlet([1.0] * X.shape[1], K)
    p = [np.log(Theta[d] @ Phi[:, w]) for d, w in zip(*np.nonzero(X), strict=True) for _ in range(int(X[d, w]))]
    np.testing.assert_allclose(completion(Theta, Phi, X), np.exp(-np.mean(p)))


def test_cells_come_in_the_order_of_the_table_across_pieces():
    random = np.random.default_rng(0)
    X = sparse.csr_array((random.random((300, 200)) < 0.6).astype(float))  # more cells than one piece holds
    Theta, Phi = random.dirichlet([1.0] * 3, 300), random.dirichlet([1.0] * 200, 3)
    assert X.nnz > 2 * 2**14
    np.testing.assert_allclose(cell_probabilities(X, Theta, Phi), (Theta @ Phi)[X.nonzero()])


def test_given_and_hidden_words_are_the_held_out_documents():
    random = np.random.default_rng(0)
    documents = [random.integers(0, 9, size=random.integers(4, 12)) for _ in range(50)]
    X, given_, hidden = completion_split(documents, 9, seed=3)
    assert (X.shape[0], given_.shape[0]) == (45, 5)
    np.testing.assert_array_equal(X.sum(0) + given_.sum(0) + hidden.sum(0), np.bincount(np.concatenate(documents)))
    assert (abs(given_.sum(1) - hidden.sum(1)) <= 1).all()


def test_topics_that_were_planted_are_found():
    random = np.random.default_rng(0)
    truth = np.kron(np.eye(3), np.full((1, 5), 0.2))  # three topics of five words
    Theta = random.dirichlet([0.3] * 3, 150)
    X = np.stack([random.multinomial(25, row) for row in Theta @ truth])
    for Phi in (plsa(X, 3, 100)[1], lda(X, 3, 0.3, sweeps=60)[1]):
        nearest = abs(truth[:, None] - Phi[None]).sum(2).argmin(1)
        assert sorted(nearest) == [0, 1, 2]
        np.testing.assert_allclose(Phi[nearest], truth, atol=0.05)


def test_coherence_tells_company_from_strangers_and_from_enemies():
    together = np.tile([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], (50, 1))
    Phi = np.array([[0.3, 0.3, 0.3, 0.0, 0.0, 0.1], [0.3, 0.0, 0.0, 0.3, 0.3, 0.1]])
    one, other = coherence(Phi, together, top=3)
    assert one == pytest.approx(1.0)  # always in the same documents
    assert other == pytest.approx((-1 - 1 + 1) / 3)  # two pairs never meet, one always does
    random = np.random.default_rng(0)
    strangers = (random.random((20_000, 6)) < 0.3) * 1
    assert abs(coherence(Phi, strangers, top=3)).max() < 0.03


def test_the_same_seed_gives_the_same_topics_and_another_does_not():
    X = np.random.default_rng(0).poisson(0.7, (40, 12)) + np.eye(40, 12)
    X[:, 0] += 1
    first, again, other = lda(X, 4, seed=1), lda(X, 4, seed=1), lda(X, 4, seed=2)
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.allclose(first[1], other[1])


def test_mixtures_belong_to_their_documents_although_blocks_are_shuffled():
    X = np.kron(np.eye(2), np.full((30, 4), 3.0))  # the first 30 documents use other words than the rest
    Theta, _ = lda(X, 2, sweeps=30)
    assert len(set(Theta[:30].argmax(1))) == len(set(Theta[30:].argmax(1))) == 1
    assert Theta[0].argmax() != Theta[-1].argmax()


@pytest.mark.parametrize("fit", [lambda X, K: plsa(X, K, 2), lambda X, K: lda(X, K, sweeps=2)])
class TestBadInput:
    """One clear error each, or the mathematically right answer."""

    def test_a_topic_count_of_zero_is_refused(self, fit):
        with pytest.raises(ValueError, match="0 topics cannot be mixed; ask for at least 1"):
            fit(np.ones((3, 3)), 0)

    def test_a_document_without_a_known_word_is_named(self, fit):
        with pytest.raises(ValueError, match=r"2 documents have no known word, the first is 1: drop them"):
            fit(np.array([[1, 2], [0, 0], [0, 0]]), 2)

    @pytest.mark.parametrize("wrong", [-1.0, 0.5, np.nan, np.inf])
    def test_counts_must_be_whole_and_not_negative(self, fit, wrong):
        with pytest.raises(ValueError, match="whole numbers that are not negative"):
            fit(np.array([[1, 2], [1, wrong]]), 2)

    def test_more_topics_than_documents_or_words_still_gives_distributions(self, fit):
        Theta, Phi = fit(np.array([[2.0, 1.0], [0.0, 3.0]]), 7)[:2]
        np.testing.assert_allclose(Theta.sum(1), 1)
        np.testing.assert_allclose(Phi.sum(1), 1)


def test_an_unseen_document_without_a_known_word_gets_the_prior_or_an_error():
    Phi = np.array([[0.5, 0.5], [0.1, 0.9]])
    empty = np.zeros((1, 2))
    np.testing.assert_allclose(mixtures(Phi, empty, alpha=0.1), [[0.5, 0.5]])
    with pytest.raises(ValueError, match="1 documents have no known word, the first is 0"):
        mixtures(Phi, empty)


def test_documents_and_topics_of_different_vocabularies_are_refused():
    with pytest.raises(ValueError, match="a table of shape .1, 3. does not fit 1 mixtures and topics of 2 words"):
        mixtures(np.ones((1, 2)) / 2, np.ones((1, 3)))


def test_a_sampler_needs_words_in_every_document():
    with pytest.raises(ValueError, match="1 documents have no known word, the first is 1"):
        next(gibbs([np.array([0]), np.array([], dtype=int)], 2, 2, 0.1, 0.1, 1))


@pytest.mark.parametrize("priors", [dict(alpha=0), dict(beta=0), dict(alpha=-1)])
def test_priors_must_be_positive(priors):
    with pytest.raises(ValueError, match="must be above 0"):
        lda(np.ones((2, 2)), 2, **priors)
    with pytest.raises(ValueError, match="must be above 0"):
        next(gibbs([np.array([0])], 1, 2, **{"alpha": 0.1, "beta": 0.1, **priors}, sweeps=1))


def test_a_word_held_impossible_makes_the_perplexity_infinite():
    assert completion(np.array([[1.0]]), np.array([[1.0, 0.0]]), np.array([[0, 1]])) == np.inf


@given(tables(), st.floats(0.01, 1))
def test_mixtures_are_the_fixed_point_of_em_with_imaginary_words(table, alpha):
    X, K, seed = table
    Phi = np.random.default_rng(seed).dirichlet([1.0] * X.shape[1], K)
    found = mixtures(Phi, X, alpha, steps=7)
    for d, counts in enumerate(X):
        theta = np.full(K, 1 / K)
        for _ in range(7):
            n = np.full(K, alpha)
            for w in np.flatnonzero(counts):
                joint = theta * Phi[:, w]
                n += counts[w] * joint / joint.sum()
            theta = n / n.sum()
        np.testing.assert_allclose(found[d], theta, rtol=1e-9)


def test_a_word_that_no_topic_knows_does_not_spoil_the_mixture():
    Phi = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    np.testing.assert_allclose(mixtures(Phi, [[1, 3, 2]], 0.1), mixtures(Phi, [[1, 3, 0]], 0.1))


@given(tables(), st.floats(0.01, 1), st.floats(0.01, 1))
def test_no_share_and_no_word_falls_below_its_imaginary_words(table, alpha, beta):
    X, K, seed = table
    Theta, Phi = lda(X, K, alpha, beta, sweeps=4, seed=seed)
    n = X.sum(1, keepdims=True)
    assert (Theta >= alpha / (n + K * alpha) * (1 - 1e-4)).all()
    assert (Phi >= beta / (X.sum() + X.shape[1] * beta) * (1 - 1e-4)).all()
    np.testing.assert_allclose(((n + K * alpha) * Theta).sum(), X.sum() + X.shape[0] * K * alpha)


@pytest.mark.parametrize("own", [0.0, 1.0])
def test_own_words_are_left_out_of_the_evidence(own):
    X = sparse.csr_array(np.array([[2.0, 1.0], [0.0, 3.0]]))
    block, n_wk = Block(X, 2), torch.zeros(2, 2)
    block.assign(torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]]), n_wk)
    n_dk, n_k = block.n_dk[0] - own * block.q[0], n_wk.sum(0) - own * block.q[0]
    expected = (n_dk + 0.1) * (n_wk[0] - own * block.q[0] + 0.2) / (n_k + 2 * 0.2)
    np.testing.assert_allclose(block.shares(n_wk, 0.1, 0.2, own)[0], expected / expected.sum(), rtol=1e-5)


def test_tiny_priors_leave_no_negative_probability():
    X = np.random.default_rng(0).poisson(1.0, (60, 30)) + np.eye(60, 30)
    X[:, 0] += 1
    for p in lda(X, 5, alpha=1e-6, beta=1e-7, sweeps=40):
        assert (p >= 0).all() and np.isfinite(p).all()


def test_documents_gather_around_the_seed_they_resemble():
    X = sparse.csr_array(np.kron(np.eye(3), np.full((20, 4), 2.0)))  # three groups without a common word
    for seed in range(50):
        topics = gathered(X, 3, np.random.default_rng(seed))
        if len(set(topics)) == 3 and all(len(set(topics[g : g + 20])) == 1 for g in (0, 20, 40)):
            break
    else:
        pytest.fail("no seed found the three groups")
    pairs = [gathered(X, 2, np.random.default_rng(seed)) for seed in range(20)]
    assert any(len(set(t[:20])) == len(set(t[20:40])) == 1 and t[0] != t[20] for t in pairs)


def test_given_words_are_a_random_half_and_not_the_first():
    documents = [np.arange(10)] * 100
    _, given_, hidden = completion_split(documents, 10, seed=0)
    assert (given_.sum(0) > 0).all() and (hidden.sum(0) > 0).all()


def test_pairs_that_are_everywhere_are_strangers_and_one_word_is_no_pair():
    assert coherence(np.array([[0.5, 0.5]]), np.ones((4, 2)))[0] == 0
    with pytest.raises(ValueError, match="at least two words"):
        coherence(np.array([[1.0]]), np.ones((4, 1)))


def test_completion_needs_hidden_words_and_a_mixture_for_each_document():
    with pytest.raises(ValueError, match="nothing to complete"):
        completion(np.ones((1, 1)), np.ones((1, 2)) / 2, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="does not fit 3 mixtures"):
        completion(np.ones((3, 1)), np.ones((1, 2)) / 2, np.ones((1, 2)))
    with pytest.raises(ValueError, match="no negative imaginary words"):
        mixtures(np.ones((1, 2)) / 2, np.ones((1, 2)), -0.5)
