"""Sentence and document vectors against scikit-learn 1.9, gensim 4.4 and PyTorch's own layers."""

import numpy as np
import pytest
import torch
from gensim.models.doc2vec import Doc2Vec, TaggedDocument
from scipy.stats import spearmanr
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from torch import nn

from lrm_utils import check, data, evaluate, text
from lrm_utils.models.documents_and_sentences import (
    SentenceEncoder,
    SkipThoughts,
    average,
    common_direction,
    held_out_presidents,
    paragraph_vectors,
    passages,
    sif_weights,
    without,
)
from lrm_utils.models.svd_and_lsa import inverse_document_frequency, term_counts
from lrm_utils.text import pad


@pytest.fixture(scope="module")
def corpus():
    """Every fifth passage of the speeches, as words and ids."""
    speeches = data.sotu()
    found = []
    for t, speech in enumerate(speeches):
        sentences = [w for w in map(text.words, text.sentences(speech.text)) if w]
        found += [(t, [word for i in part for word in sentences[i]]) for part in passages(sentences)]
    found = found[::5]
    vocab = text.Vocab.build((w for _, words in found for w in words), min_count=5)
    ids = [vocab.encode(words, drop_unknown=True) for _, words in found]
    years = np.array([speeches[t].year for t, _ in found])
    presidents = [speeches[t].president for t, _ in found]
    return vocab, ids, years, presidents


@pytest.fixture(scope="module")
def table(corpus):
    return np.random.default_rng(0).standard_normal((len(corpus[0]), 20)) + 1.0


def test_tf_idf_weights_are_those_of_scikit_learn_1_9(corpus):
    """scikit-learn adds 1 to the logarithm, even without smoothing; the rest agrees to 1e-12."""
    vocab, ids, *_ = corpus
    C = term_counts(ids, len(vocab))
    library = TfidfTransformer(smooth_idf=False, norm=None).fit(C)
    check.close(inverse_document_frequency(C), library.idf_ - 1, 1e-12)


def test_a_tf_idf_weighted_mean_is_scikit_learns_table_times_the_vectors(corpus, table):
    vocab, ids, *_ = corpus
    C = term_counts(ids, len(vocab))
    library = TfidfTransformer(smooth_idf=False, norm="l1").fit(C)
    ours = average(ids, table, inverse_document_frequency(C) + 1)
    check.close(ours, library.transform(C) @ table, 1e-10)


def test_sif_is_the_formula_of_the_paper_with_scikit_learns_svd(corpus, table):
    """Weights and sums word by word; the direction from TruncatedSVD (scikit-learn 1.9, ARPACK): 1e-8.

    The direction is taken without centering, as in the paper: PCA, which centers, finds another one.
    """
    vocab, ids, *_ = corpus
    p = vocab.counts / vocab.counts.sum()
    X = np.array([sum(1e-3 / (1e-3 + p[w]) * table[w] for w in d) / sum(1e-3 / (1e-3 + p[w]) for w in d) for d in ids])
    ours = average(ids, table, sif_weights(vocab.counts))
    check.close(ours, X, 1e-10)
    pc = TruncatedSVD(1, algorithm="arpack", random_state=0).fit(X).components_
    check.close(without(ours, common_direction(ours)), X - X @ pc.T @ pc, 1e-8)
    assert abs(PCA(1).fit(X).components_[0] @ pc[0]) < 0.9


def test_the_encoder_is_torchs_gru_on_packed_sequences():
    """PyTorch 2: the last state of a packed sequence, 1e-6."""
    torch.manual_seed(0)
    encoder = SentenceEncoder(torch.randn(9, 5), 4)
    ids, lengths = pad([[1, 2, 3], [4], [5, 6]])
    packed = nn.utils.rnn.pack_padded_sequence(encoder.embedding(ids), lengths, batch_first=True, enforce_sorted=False)
    check.close(encoder(ids, lengths), encoder.gru(packed)[1][0], 1e-6)


def test_feeding_the_sentence_vector_as_input_is_a_gru_with_conditioned_gates():
    """The decoder of Kiros et al. adds C s to each gate; by hand, in PyTorch's form of the GRU: 1e-6."""
    torch.manual_seed(0)
    model = SkipThoughts(torch.randn(9, 5), 4)
    ids, s = torch.tensor([[2, 7, 8]]), torch.randn(1, 4)
    gru, h, states = model.before, torch.zeros(1, 4), []
    W, C = gru.weight_ih_l0[:, :5], gru.weight_ih_l0[:, 5:]
    for e in model.encoder.embedding(ids)[0]:
        a = (e @ W.T + s @ C.T + gru.bias_ih_l0).chunk(3, -1)
        b = (h @ gru.weight_hh_l0.T + gru.bias_hh_l0).chunk(3, -1)
        r, z = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
        h = (1 - z) * torch.tanh(a[2] + r * b[2]) + z * h
        states.append(h)
    check.close(model.decode(gru, s, ids)[0], torch.cat(states), 1e-6)


class Shuffled:
    """gensim reads documents in the order given; ours are shuffled each epoch, so its are too."""

    def __init__(self, documents):
        self.documents, self.random = documents, np.random.default_rng(0)

    def __iter__(self):
        return (self.documents[i] for i in self.random.permutation(len(self.documents)))


@pytest.mark.parametrize(("architecture", "dm", "epochs"), [("pv-dbow", 0, 25), ("pv-dm", 1, 15)])
def test_paragraph_vectors_are_as_good_as_those_of_gensim_4_4(corpus, architecture, dm, epochs):
    """Same passages and settings, one worker: the era within 0.05, nearest to itself within 0.15, rates in order.

    gensim draws other noise words for each word and updates after each; ours share them over a step. The largest of
    these differences that three seeds gave was 0.03.
    """
    vocab, ids, years, presidents = corpus
    ours = paragraph_vectors(ids, vocab.counts, architecture, D=50, epochs=epochs)
    tagged = [TaggedDocument([str(w) for w in d], [i]) for i, d in enumerate(ids)]
    peer = Doc2Vec(
        dm=dm, dm_mean=1, vector_size=50, window=5, negative=5, sample=1e-4, min_count=1, alpha=0.05, min_alpha=0.0002,
        epochs=epochs, workers=1, seed=1,
    )  # fmt: skip
    peer.build_vocab(tagged)
    peer.train(Shuffled(tagged), total_examples=len(tagged), epochs=epochs)
    eras = np.searchsorted((1830, 1870, 1910, 1950, 1990), years, side="right")
    folds = list(held_out_presidents(presidents, years))
    asked = list(range(0, len(ids), 10))
    era, itself = [], []
    again = ours.infer([ids[i] for i in asked], epochs=20).numpy()
    theirs = np.array([peer.infer_vector(tagged[i].words, epochs=20) for i in asked])
    for X, Y in ((ours.vectors.numpy(), again), (peer.dv.vectors, theirs)):
        era.append(np.mean([evaluate.probe(X[a], eras[a], X[b], eras[b]) for a, b in folds]))
        itself.append(evaluate.retrieval(Y, X, asked)["recall@1"])
    print(architecture, era, itself)
    check.close(era[0], era[1], 0.05)
    check.close(itself[0], itself[1], 0.15)
    assert min(itself) > 0.5
    sample = np.random.default_rng(0).integers(0, len(ids), (2, 3000))
    one, two = ((X / np.linalg.norm(X, axis=1, keepdims=True)) for X in (ours.vectors.numpy(), peer.dv.vectors))
    alike = spearmanr((one[sample[0]] * one[sample[1]]).sum(1), (two[sample[0]] * two[sample[1]]).sum(1)).statistic
    print("rank correlation of cosines", alike)
    assert alike > 0.5
