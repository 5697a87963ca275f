"""fastText: what holds for any word, any bag and any text."""

import numpy as np
import torch
from gensim.models.fasttext import ft_ngram_hashes
from hypothesis import given
from hypothesis import strategies as st

from lrm_utils.models.fasttext import Bags, Subwords, TextFeatures, character_ngrams, fnv
from lrm_utils.text import Vocab

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORD = st.text(st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=8)
LISTS = st.lists(st.lists(st.integers(0, 50), max_size=6), min_size=1, max_size=8)
VOCAB = Vocab(("gold", "silver", "coin"), np.array([3, 2, 1]))


@given(ANY, st.integers(1, 5), st.integers(0, 4))
def test_n_grams_are_all_runs_of_the_marked_word_and_nothing_else(word, shortest, more):
    marked, longest = f"<{word}>", shortest + more
    found = character_ngrams(word, shortest, longest)
    runs = [marked[i:j] for i in range(len(marked)) for j in range(i + 1, len(marked) + 1)]
    marks = 2 if shortest == 1 else 0
    assert len(found) == sum(shortest <= len(run) <= longest for run in runs) - marks
    assert set(found) <= set(runs) and all(shortest <= len(n) <= longest for n in found)


@given(ANY, st.integers(1, 4), st.integers(0, 3), st.integers(1, 2**22))
def test_buckets_are_gensims_for_any_word(word, shortest, more, buckets):
    ours = [fnv(ngram) % buckets for ngram in character_ngrams(word, shortest, shortest + more)]
    assert ours == list(ft_ngram_hashes(word, shortest, shortest + more, buckets))


@given(LISTS, st.data())
def test_taking_bags_gives_what_was_put_in(lists, draw):
    chosen = draw.draw(st.lists(st.integers(0, len(lists) - 1), min_size=1, max_size=10))
    rows, sizes = Bags.pack(lists).take(torch.tensor(chosen))
    assert [part.tolist() for part in rows.split(sizes.tolist())] == [lists[i] for i in chosen]


@given(st.lists(WORD, min_size=1, max_size=8, unique=True), WORD, st.integers(1, 1000))
def test_a_word_keeps_its_buckets_whatever_else_is_known(words, word, buckets):
    some, more = (Vocab(tuple(w), np.ones(len(w))) for w in (words, [*words, word + "x"]))
    first, second = (Subwords(v, buckets, 1, 3) for v in (some, more))
    tail = len(character_ngrams(word, 1, 3))
    shifted = [row - len(some) for row in first.rows(word)[-tail:]]
    assert shifted == [row - len(more) for row in second.rows(word)[-tail:]]


def slow_features(words, vocab, buckets, longest):
    """The program's own order of work, one number at a time."""
    rows = [vocab.ids[w] for w in words if w in vocab]
    hashes = [fnv(w) - 2**32 if fnv(w) >= 2**31 else fnv(w) for w in words]
    for i in range(len(words)):
        run = hashes[i] % 2**64
        for j in range(i + 1, min(len(words), i + longest)):
            run = (run * 116049371 + hashes[j]) % 2**64
            rows.append(len(vocab) + run % buckets)
    return sorted(rows)


@given(
    st.lists(st.lists(st.one_of(WORD, st.sampled_from(VOCAB.words)), max_size=6), min_size=1, max_size=5),
    st.integers(1, 2**21),
    st.integers(1, 4),
)
def test_features_of_many_texts_at_once_are_those_of_each_alone(texts, buckets, longest):
    bags = TextFeatures(VOCAB, buckets, longest).bags(texts)
    assert len(bags.starts) == len(texts) + 1
    for i, words in enumerate(texts):
        found = sorted(bags.rows[bags.starts[i] : bags.starts[i + 1]].tolist())
        assert found == slow_features(words, VOCAB, buckets, longest)
