"""The ruler agrees with libraries that were not written here, and published vectors keep their scores."""

import numpy as np
import pytest
from gensim.models import KeyedVectors
from gensim.test.utils import datapath
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from lrm_utils import data, evaluate
from lrm_utils.text import Vocab, WordVectors


@pytest.fixture(scope="module")
def glove():
    """The 30,000 most frequent words of GloVe 6B, 50 dimensions."""
    full = data.glove()
    return WordVectors(Vocab(full.vocab.words[:30_000], full.vocab.counts[:30_000]), full.matrix[:30_000])


@pytest.fixture(scope="module")
def keyed(glove):
    vectors = KeyedVectors(vector_size=50)
    vectors.add_vectors(list(glove.vocab.words), glove.matrix)
    return vectors


@pytest.mark.parametrize(("name", "file"), [("wordsim353", "wordsim353.tsv"), ("simlex999", "simlex999.txt")])
def test_similarity_agrees_with_gensim(glove, keyed, name, file):
    """gensim 4.4 `evaluate_word_pairs`; the same formula, so 1e-4 for its float32 cosines and ties among them."""
    ours = evaluate.similarity(glove, data.word_pairs(name))
    _, (theirs, _), unknown = keyed.evaluate_word_pairs(datapath(file), case_insensitive=True)
    assert ours.value == pytest.approx(theirs, abs=1e-4)
    assert 100 * (1 - ours.coverage) == pytest.approx(unknown, abs=0.5)


def test_analogies_agree_with_gensim(glove, keyed, tmp_path):
    """gensim 4.4 `evaluate_word_analogies` on every tenth question, those of unknown words left out by both."""
    chosen = {name: questions[::10] for name, questions in data.analogies().items()}
    lines = [line for name, qs in chosen.items() for line in (f": {name}", *(" ".join(q) for q in qs))]
    (tmp_path / "questions.txt").write_text("\n".join(lines))
    theirs, sections = keyed.evaluate_word_analogies(str(tmp_path / "questions.txt"), restrict_vocab=30_000)
    ours = evaluate.analogies(glove, chosen)
    for section in sections[:-1]:
        count = len(section["correct"]) + len(section["incorrect"])
        assert ours[section["section"]].answered == count
        assert ours[section["section"]].value * count == pytest.approx(len(section["correct"]), abs=0.01)
    assert ours["total"].value == pytest.approx(theirs)


def test_published_vectors_reach_their_known_scores():
    """GloVe 6B 50d: 0.503 on WordSim-353, 0.265 on SimLex-999, 49.7 % of the analogies among 30,000 words.

    These are what the harnesses above, gensim's and ours, give; the paper's own tables are of wider vectors.
    """
    vectors = data.glove()
    assert evaluate.similarity(vectors, data.word_pairs("wordsim353")).value == pytest.approx(0.503, abs=0.002)
    assert evaluate.similarity(vectors, data.word_pairs("simlex999")).value == pytest.approx(0.265, abs=0.002)
    total = evaluate.analogies(vectors, data.analogies(), among=30_000)["total"]
    assert total.value == pytest.approx(0.497, abs=0.002)


def test_probe_agrees_with_scikit_learn():
    """scikit-learn 1.9 LogisticRegression at the same penalty: C = 1 / (2 n penalty) in its convention."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(3, 8))
    labels = random.integers(0, 3, 600)
    features = (centers[labels] + 1.2 * random.normal(size=(600, 8))).astype(np.float32)
    scaler = StandardScaler().fit(features[:400])
    theirs = LogisticRegression(C=1 / (2 * 400 * 1e-3), max_iter=1000)
    theirs.fit(scaler.transform(features[:400]), labels[:400])
    expected = theirs.score(scaler.transform(features[400:]), labels[400:])
    ours = evaluate.probe(features[:400], labels[:400], features[400:], labels[400:])
    assert ours == pytest.approx(expected, abs=0.0051)  # at most one of the 200 test rows on the other side
    assert 0.5 < ours < 0.95
