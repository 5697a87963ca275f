"""The tree and the losses agree with libraries that were not written here."""

from collections import Counter

import numpy as np
import pytest
import torch
from gensim.models import Word2Vec
from torch.nn import functional as F

from lrm_utils import data, text
from lrm_utils.models.approximate_training import (
    NoiseSampler,
    hierarchical_log_probabilities,
    huffman,
    masked_binary_cross_entropy,
    noise_distribution,
)


@pytest.fixture(scope="module")
def documents():
    return [text.words(speech.text) for speech in data.sotu()[::12]]


@pytest.fixture(scope="module")
def gensim_model(documents):
    """gensim 4.4.0 `Word2Vec(hs=1)`: builds its own Huffman tree; one epoch of training on the same speeches."""
    return Word2Vec(
        documents, vector_size=12, window=3, min_count=5, hs=1, negative=0, sg=1, epochs=1, workers=1, seed=0
    )


def test_expected_code_length_equals_that_of_gensim(gensim_model):
    """Trees may differ where counts tie; the expected length may not: exact integers, no tolerance."""
    vectors = gensim_model.wv
    counts = np.array([vectors.get_vecattr(word, "count") for word in vectors.index_to_key])
    theirs = np.array([len(vectors.get_vecattr(word, "code")) for word in vectors.index_to_key])
    ours = huffman(counts).lengths.numpy()
    assert int(ours @ counts) == int(theirs @ counts)
    assert (2.0**-theirs).sum() == pytest.approx(1)


def test_probabilities_of_gensims_trained_tree_sum_to_one_in_our_function(gensim_model):
    """gensim 4.4.0's own paths and trained weights in our formula, in float64: 1e-9.

    gensim takes code 0 for a positive score, which is our left turn: turn = 1 - 2 code.
    """
    vectors, V = gensim_model.wv, len(gensim_model.wv)
    codes = [vectors.get_vecattr(word, "code") for word in vectors.index_to_key]
    points = [vectors.get_vecattr(word, "point") for word in vectors.index_to_key]
    width = max(map(len, codes))
    nodes, turns = torch.zeros(V, width, dtype=torch.long), torch.zeros(V, width)
    for word, (code, point) in enumerate(zip(codes, points, strict=True)):
        nodes[word, : len(code)] = torch.as_tensor(np.asarray(point, dtype=np.int64)[: len(code)])
        turns[word, : len(code)] = 1 - 2 * torch.as_tensor(np.asarray(code, dtype=np.float32))
    tree = type(huffman([1, 1]))(nodes, turns, turns.abs().sum(1).long())
    table = torch.as_tensor(gensim_model.syn1[: V - 1]).double()
    v = torch.as_tensor(vectors.vectors).double()
    log_p = hierarchical_log_probabilities(v[:40], table, tree)
    np.testing.assert_allclose(log_p.exp().sum(1), 1, atol=1e-9)


def test_noise_distribution_equals_gensims_table(documents):
    """gensim 4.4.0 keeps cumulated counts**0.75 in 31 bits: `cum_table`; ours agrees to 1e-9 of the whole."""
    model = Word2Vec(vector_size=2, min_count=5, negative=5, ns_exponent=0.75, seed=0)
    model.build_vocab(documents)
    counts = [model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key]
    ours = np.cumsum(noise_distribution(counts))
    np.testing.assert_allclose(ours, model.cum_table / model.cum_table[-1], atol=2e-9)


def test_draws_have_the_frequencies_of_torch_multinomial(documents):
    """torch 2.13 `multinomial` draws from the same distribution by another road: each word's share within 5 sigma."""
    tally = Counter(word for document in documents for word in document)
    p = noise_distribution([n for n in tally.values() if n >= 50])
    size = 200_000
    ours = np.bincount(NoiseSampler(p, seed=0).draw(size), minlength=len(p)) / size
    random = torch.Generator().manual_seed(1)
    theirs = torch.multinomial(torch.as_tensor(p), size, replacement=True, generator=random)
    theirs = np.bincount(theirs, minlength=len(p)) / size
    assert (np.abs(ours - theirs) < 5 * np.sqrt(2 * p * (1 - p) / size)).all()


def test_masked_loss_equals_torch():
    """torch 2.13 `binary_cross_entropy_with_logits` with the mask as weight, scaled to the kept entries: 1e-12."""
    random = torch.Generator().manual_seed(0)
    scores = 5 * torch.randn(50, 9, dtype=torch.float64, generator=random)
    labels, mask = (torch.randint(2, (50, 9), generator=random).double() for _ in range(2))
    mask[:, 0] = 1
    theirs = F.binary_cross_entropy_with_logits(scores, labels, weight=mask, reduction="none").sum(1) / mask.sum(1)
    torch.testing.assert_close(masked_binary_cross_entropy(scores, labels, mask), theirs, atol=1e-12, rtol=0)
