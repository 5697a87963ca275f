"""What the trainer refuses, each with one sentence that says what to do, and what it must survive."""

import numpy as np
import pytest
import torch

from lrm_utils.models.training_word2vec import keep_probability, load_word2vec, save_word2vec, train
from lrm_utils.text import Vocab, WordVectors

VOCAB = Vocab(("a", "b", "c"), np.array([30, 20, 10]))
TEXT = [np.array([0, 1, 2, 0, 1, 0])] * 10


@pytest.mark.parametrize(
    "text,vocab,options,message",
    [
        (TEXT, VOCAB, {"k": 0}, "k=0 noise words.*infinitely long"),
        (TEXT, VOCAB, {"shared": 0}, "shared=0: a block needs a noise word"),
        (TEXT, VOCAB, {"window": 0}, "window=0.*at least 1"),
        (TEXT, VOCAB, {"epochs": 0}, "epochs=0"),
        (TEXT, VOCAB, {"D": 0}, "D=0"),
        (TEXT, VOCAB, {"lr": 0}, "lr=0: the learning rate must be above 0"),
        (TEXT, VOCAB, {"lr": float("nan")}, "lr=nan"),
        (TEXT, VOCAB, {"sample": 0}, "sample=0 would drop all words.*None"),
        (TEXT, VOCAB, {"architecture": "gram-skip"}, "no plan for 'gram-skip'.*there are .*'skip-gram', 'negative"),
        (TEXT, VOCAB, {"objective": "softmax"}, "no plan for 'skip-gram', 'softmax'"),
        ([], VOCAB, {}, "no pair to learn from"),
        ([np.array([], dtype=int)], VOCAB, {}, "no pair to learn from"),
        ([np.array([1]), np.array([2])], VOCAB, {}, "no document has two words"),
        ([np.array([0, 3])], VOCAB, {}, "ids from 0 to 3 do not fit a vocabulary of 3 words"),
        ([np.array([0, -1])], VOCAB, {}, "ids from -1 to 0 do not fit"),
        ([np.zeros(5, dtype=int)], Vocab(("a",), np.array([5])), {}, "two words or more"),
        ([np.zeros(5, dtype=int)], Vocab(("a",), np.array([5])), {"objective": "hierarchical softmax"}, "two words"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_reason(text, vocab, options, message):
    with pytest.raises(ValueError, match=message):
        train(text, vocab, **options)


@pytest.mark.parametrize("objective", ["negative sampling", "hierarchical softmax"])
@pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])
def test_short_and_empty_sentences_and_a_window_longer_than_any_are_no_trouble(architecture, objective):
    text = [*TEXT, np.array([], dtype=int), np.array([1]), np.array([2, 0])]
    model = train(text, VOCAB, D=4, window=50, architecture=architecture, objective=objective, epochs=2, sample=None)
    assert model.V.isfinite().all() and model.U.any()


def test_a_text_that_subsampling_empties_is_no_trouble():
    model = train([np.array([0, 1])], Vocab(("a", "b"), np.array([10**9, 10**9])), D=4, sample=1e-12, epochs=2)
    assert model.V.isfinite().all()


def test_the_seed_decides_everything():
    one, same, other = (train(TEXT, VOCAB, D=4, seed=seed, sample=None) for seed in (0, 0, 1))
    assert torch.equal(one.V, same.V) and torch.equal(one.U, same.U) and one.losses == same.losses
    assert not torch.equal(one.V, other.V)


def test_the_first_loss_is_that_of_coin_tosses():
    assert train(TEXT, VOCAB, D=4, k=3, sample=None).losses[0] == pytest.approx(4 * np.log(2), rel=1e-5)


def test_an_unseen_word_is_an_error_that_names_the_nearest():
    vectors = train(TEXT, Vocab(("gold", "silver", "coin"), VOCAB.counts), D=4, sample=None).vectors
    with pytest.raises(ValueError, match="'golf' is not in the vocabulary.*gold"):
        vectors.neighbors("golf")


def test_nothing_is_dropped_below_the_threshold():
    assert keep_probability(np.array([1, 2, 997]), 0.01).tolist()[:2] == [1, 1]


VECTORS = WordVectors(Vocab(("one", "two"), np.ones(2)), np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("kept", [0, 3, 10, -1, -4])
def test_a_file_that_was_cut_off_is_refused(tmp_path, binary, kept):
    save_word2vec(VECTORS, tmp_path / "v", binary)
    whole = (tmp_path / "v").read_bytes()
    (tmp_path / "v").write_bytes(whole[:kept])
    if kept == -1:  # only the last line break is missing
        assert np.array_equal(load_word2vec(tmp_path / "v", binary).matrix, VECTORS.matrix)
        return
    with pytest.raises(ValueError, match="v is no whole (text|binary) word2vec file"):
        load_word2vec(tmp_path / "v", binary)


@pytest.mark.parametrize(
    "content,message",
    [
        ("a 1 2\nb 3 4\n", "v is no whole text word2vec file"),
        ("2 2\na 1 2\na 3 4\n", "'a' comes twice"),
        ("2 2\na 1 2\nb 3\n", "'b' comes twice, or has not 2 finite numbers"),
        ("2 2\na 1 2\nb 3 nan\n", "'b' comes twice, or has not 2 finite numbers"),
        ("2 2\na 1 2\nb inf 4\n", "'b' comes twice, or has not 2 finite numbers"),
        ("1 2\na  1 2\n", "v is no whole text word2vec file"),
        ("3 2\na 1 2\nb 3 4\n", "2 words are there, 3 were promised"),
        ("1 2\na 1 two\n", "v is no whole text"),
    ],
)
def test_a_file_in_another_format_is_refused(tmp_path, content, message):
    (tmp_path / "v").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_word2vec(tmp_path / "v")


def test_a_binary_file_with_bytes_left_over_is_refused(tmp_path):
    save_word2vec(VECTORS, tmp_path / "v", binary=True)
    (tmp_path / "v").write_bytes((tmp_path / "v").read_bytes() + b"xx")
    with pytest.raises(ValueError, match="v is no whole binary word2vec file: 2 bytes are left over"):
        load_word2vec(tmp_path / "v", binary=True)


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_only_the_plain_space_separates(tmp_path, binary):
    words = ("no\u00a0break", "line\u2028separator", "\x85")
    vectors = WordVectors(Vocab(words, np.ones(3)), np.arange(6, dtype=np.float32).reshape(3, 2))
    save_word2vec(vectors, tmp_path / "v", binary)
    back = load_word2vec(tmp_path / "v", binary)
    assert back.vocab.words == words and np.array_equal(back.matrix, vectors.matrix)


def test_a_binary_file_read_as_text_is_refused(tmp_path):
    save_word2vec(VECTORS, tmp_path / "v", binary=True)
    with pytest.raises(ValueError, match="no whole text word2vec file"):
        load_word2vec(tmp_path / "v")


@pytest.mark.parametrize("word", ["two words", "", "tab\tbed", "line\n"])
def test_words_that_the_format_cannot_hold_leave_the_old_file_alone(tmp_path, word):
    save_word2vec(VECTORS, tmp_path / "v")
    before = (tmp_path / "v").read_bytes()
    bad = WordVectors(Vocab(("fine", word), np.ones(2)), VECTORS.matrix)
    with pytest.raises(ValueError, match="cannot be stored"):
        save_word2vec(bad, tmp_path / "v")
    assert (tmp_path / "v").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["v"]
