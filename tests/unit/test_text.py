"""Words, vocabularies, padding and batches keep their promises."""

import numpy as np
import pytest
import torch
from scipy import sparse

from lrm_utils import text
from lrm_utils.text import Vocab, WordVectors

TOKENS = "gold and silver and gold and coin".split()


def test_words_are_lower_case_and_keep_the_inner_apostrophe():
    assert text.words("The Nation's gold—$1,500 in ‘coin’, naïve?") == [
        "the", "nation's", "gold", "1", "500", "in", "coin", "naïve",
    ]  # fmt: skip


def test_sentences_end_where_a_capital_follows():
    assert text.sentences("It rose 1.5 percent. Was it gold? “Yes.” It was.\nNew line") == [
        "It rose 1.5 percent.", "Was it gold?", "“Yes.”", "It was.", "New line",
    ]  # fmt: skip
    assert len(text.sentences("Mr. Adams of the U.S. Senate wrote to Dr. Hall. He read No. 5.")) == 2


def test_vocabulary_is_ordered_by_frequency_then_spelling():
    vocab = Vocab.build(TOKENS)
    assert vocab.words == ("and", "gold", "coin", "silver")
    assert vocab.counts.tolist() == [3, 2, 1, 1]
    assert Vocab.build(TOKENS, min_count=2).words == ("and", "gold")
    assert Vocab.build(TOKENS, size=3, specials=("<pad>", "<unk>")).words == ("<pad>", "<unk>", "and")


def test_encoding_and_decoding_are_inverse():
    vocab = Vocab.build(TOKENS)
    assert vocab.decode(vocab.encode(TOKENS)) == TOKENS


def test_unknown_word_names_the_nearest_spellings():
    vocab = Vocab.build(["treasury", "treaty", "gold"])
    with pytest.raises(ValueError, match=r"'tresury' is not in the vocabulary \(3 words\); .*treasury"):
        vocab["tresury"]
    with pytest.raises(ValueError, match="no word is spelled like it"):
        vocab.encode(["gold", "xylophone"])


def test_unknown_words_become_unk_or_are_dropped_when_asked():
    vocab = Vocab.build(TOKENS, specials=("<unk>",))
    assert vocab.encode(["gold", "plum"]).tolist() == [vocab["gold"], 0]
    assert Vocab.build(TOKENS).encode(["plum", "gold"], drop_unknown=True).tolist() == [1]


def test_empty_corpus_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="corpus is empty"):
        Vocab.build([])
    with pytest.raises(ValueError, match="no word occurs min_count=9 times; the most frequent occurs 3"):
        Vocab.build(TOKENS, min_count=9)


def test_neighbors_are_ordered_by_cosine_and_leave_out_the_word_itself():
    vectors = WordVectors(Vocab.build(list("aaabbc")), np.array([[1.0, 0.0], [3.0, 0.1], [0.0, 2.0]]))
    assert [w for w, _ in vectors.neighbors("a")] == ["b", "c"]
    assert vectors.neighbors("a", k=1)[0][1] == pytest.approx(3 / np.hypot(3, 0.1))
    assert vectors.neighbors("a", k=0) == []


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("container", [np.array, sparse.csr_array])
def test_unit_vectors_have_length_one_and_zero_stays_zero(kind, container):
    vectors = WordVectors(Vocab.build(list("ab")), container(np.array([[0, 0], [3, 4]], dtype=kind)))
    unit = vectors.unit.toarray() if sparse.issparse(vectors.unit) else vectors.unit
    np.testing.assert_allclose(unit, [[0, 0], [0.6, 0.8]], rtol=1e-6)


def test_vectors_must_fit_the_vocabulary():
    with pytest.raises(ValueError, match=r"\(2, 5\) does not fit 3 words"):
        WordVectors(Vocab.build(list("abc")), np.zeros((2, 5)))


def test_padding_fills_up_and_cuts():
    padded, lengths = text.pad([[5, 6, 7], [8]], value=0)
    assert padded.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert lengths.tolist() == [3, 1]
    padded, lengths = text.pad([[5, 6, 7], [8]], length=2)
    assert padded.tolist() == [[5, 6], [8, 0]]
    assert lengths.tolist() == [2, 1]
    assert padded.dtype == torch.int64
    with pytest.raises(ValueError, match="empty"):
        text.pad([])


def test_batches_refuse_a_size_below_one():
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        next(text.batches(3, 0))
