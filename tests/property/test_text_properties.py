"""Promises of tokenizing and batching that hold for any input."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lrm_utils import text


@given(st.text())
def test_words_of_words_are_the_same_words(string):
    found = text.words(string)
    assert text.words(" ".join(found)) == found


@given(st.lists(st.text(min_size=1), min_size=1), st.integers(1, 5))
def test_known_words_round_trip_and_counts_add_up(tokens, min_count):
    vocab = text.Vocab.build(tokens)
    assert vocab.decode(vocab.encode(tokens)) == tokens
    assert vocab.counts.sum() == len(tokens)
    assert list(vocab.counts) == sorted(vocab.counts, reverse=True)


@given(st.integers(0, 300), st.integers(1, 40), st.one_of(st.none(), st.integers(0, 9)), st.booleans())
def test_every_row_is_in_exactly_one_batch(size, batch_size, seed, by_length):
    lengths = np.random.default_rng(0).integers(1, 50, size) if by_length else None
    found = list(text.batches(size, batch_size, seed, lengths))
    assert sorted(i for batch in found for i in batch) == list(range(size))
    assert all(len(batch) <= batch_size for batch in found)
    assert [b.tolist() for b in found] == [b.tolist() for b in text.batches(size, batch_size, seed, lengths)]


@given(st.lists(st.lists(st.integers(1, 99), max_size=9), min_size=1, max_size=8))
def test_padding_keeps_every_sequence(sequences):
    padded, lengths = text.pad(sequences)
    assert [row[:n].tolist() for row, n in zip(padded, lengths, strict=True)] == sequences
    assert all((row[n:] == 0).all() for row, n in zip(padded, lengths, strict=True))
