"""gensim 4.4 `KeyedVectors` and d2l 1.0.3 give the same answers on published vectors, and read and write our files."""

import numpy as np
import pytest
import torch
from gensim.models import KeyedVectors

from lrm_utils import data, evaluate
from lrm_utils.models.similarity_and_analogy import (
    WordSpace,
    analogies,
    analogies_by_product,
    from_keyed,
    head,
    load_vectors,
    nearest,
    neighbors,
    odd_one_out,
    save_glove,
    similarity,
    to_keyed,
)
from lrm_utils.models.training_word2vec import save_word2vec


@pytest.fixture(scope="module")
def glove():
    """The 20,000 most frequent words of GloVe 6B, 50 dimensions."""
    return head(data.glove(), 20_000)


@pytest.fixture(scope="module")
def space(glove):
    return WordSpace(glove)


@pytest.fixture(scope="module")
def keyed(glove):
    return to_keyed(glove)


QUESTIONS = [q for section in data.analogies().values() for q in section[::150]]


def test_over_to_gensim_and_back_every_bit_stays(glove, keyed):
    back = from_keyed(keyed)
    assert back.vocab.words == glove.vocab.words
    np.testing.assert_array_equal(back.matrix, glove.matrix)
    keyed_again = to_keyed(back)
    assert keyed_again.most_similar("gold", topn=3) == keyed.most_similar("gold", topn=3)
    back.matrix[0] = 0
    assert keyed.vectors[0].any()  # a copy, not a view


def test_most_similar_agrees_with_gensim(space, keyed):
    """The same words in the same order; cosines to 1e-5, because gensim's are in single precision."""
    for word in ("chip", "baby", "beautiful", "the", "1990", "'s"):
        ours, theirs = neighbors(space, word, 10), keyed.most_similar(word, topn=10)
        assert [w for w, _ in ours] == [w for w, _ in theirs]
        assert [c for _, c in ours] == pytest.approx([c for _, c in theirs], abs=1e-5)
        assert similarity(space, "gold", word) == pytest.approx(float(keyed.similarity("gold", word)), abs=1e-5)


def test_analogies_agree_with_gensim(space, keyed, glove):
    """`most_similar(positive=[b, c], negative=[a])`, which bars the question's words as well."""
    known = [q for q in QUESTIONS if all(w in glove.vocab for w in q)]
    ids, cosines = analogies(space, known, k=3)
    for q, row, scores in zip(known, ids, cosines, strict=True):
        theirs = keyed.most_similar(positive=[q.b, q.c], negative=[q.a], topn=3)
        assert [space.vocab.words[i] for i in row] == [w for w, _ in theirs]
        assert scores == pytest.approx([c for _, c in theirs], abs=1e-5)
    assert len(known) > 60


def test_analogies_by_product_agree_with_gensim(space, keyed, glove):
    """`most_similar_cosmul`, whose epsilon is 1e-6; scores to 1e-4 for single precision, then divided."""
    known = [q for q in QUESTIONS if all(w in glove.vocab for w in q)]
    ids, found = analogies_by_product(space, known, k=3, epsilon=1e-6)
    for q, row, scores in zip(known, ids, found, strict=True):
        theirs = keyed.most_similar_cosmul(positive=[q.b, q.c], negative=[q.a], topn=3)
        assert [space.vocab.words[i] for i in row] == [w for w, _ in theirs]
        assert scores == pytest.approx([c for _, c in theirs], abs=1e-4)


@pytest.mark.parametrize(
    "words", ["breakfast cereal dinner lunch", "gold silver copper democracy", "monday friday june sunday", "one two a"]
)
def test_the_odd_one_out_agrees_with_gensim(space, keyed, words):
    assert odd_one_out(space, words.split()) == keyed.doesnt_match(words.split())


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_gensim_and_we_read_each_others_files(tmp_path, glove, binary):
    some = head(glove, 300)
    to_keyed(some).save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    back = load_vectors(tmp_path / "theirs", header=True, binary=binary)
    assert back.vocab.words == some.vocab.words
    np.testing.assert_array_equal(back.matrix, some.matrix)
    save_word2vec(some, tmp_path / "ours", binary)
    np.testing.assert_array_equal(
        KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary).vectors, some.matrix
    )


def test_gensim_reads_our_glove_files(tmp_path, glove):
    some = head(glove, 300)
    save_glove(some, tmp_path / "g")
    read = KeyedVectors.load_word2vec_format(str(tmp_path / "g"), binary=False, no_header=True)
    assert tuple(read.index_to_key) == some.vocab.words
    np.testing.assert_array_equal(read.vectors, some.matrix)


def test_neighbors_agree_with_the_loop_of_d2l(space, glove):
    """d2l 1.0.3, section on similarity and analogy: one product and one `topk` a word, lengths on the way."""
    table = torch.from_numpy(np.ascontiguousarray(glove.matrix))
    lengths = torch.sqrt((table * table).sum(1) + 1e-9)
    rows = np.arange(0, 20_000, 400)
    ours = nearest(space, space.unit[rows], 5, rows[:, None])[0]
    for row, found in zip(rows, ours, strict=True):
        theirs = torch.topk(table @ table[row] / (lengths * lengths[row]), 6).indices[1:]
        np.testing.assert_array_equal(found, theirs)


def test_the_score_is_that_of_the_ruler(space, glove):
    questions = {name: section[::40] for name, section in data.analogies().items()}
    known = [q for section in questions.values() for q in section if all(w in glove.vocab for w in q)]
    right = [space.vocab.words[i] == q.d for i, q in zip(analogies(space, known)[0][:, 0], known, strict=True)]
    assert np.mean(right) == pytest.approx(evaluate.analogies(glove, questions)["total"].value)
    free = [
        space.vocab.words[i] == q.d for i, q in zip(analogies(space, known, exclude=False)[0][:, 0], known, strict=True)
    ]
    assert np.mean(free) == pytest.approx(evaluate.analogies(glove, questions, exclude=False)["total"].value)
