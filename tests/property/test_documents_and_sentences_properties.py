"""What must hold of sentence and document vectors for any input: order, padding, causality, and nothing lost."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models.documents_and_sentences import (
    QuickThoughts,
    SkipThoughts,
    average,
    blocks,
    held_out_presidents,
    passages,
    sif_weights,
)

V = 12
START = torch.randn(V, 6, generator=torch.Generator().manual_seed(0))
word = st.integers(0, V - 1)
corpus = st.lists(st.lists(word, min_size=1, max_size=9), min_size=1, max_size=6)


def models():
    torch.manual_seed(0)
    return SkipThoughts(START, 5), QuickThoughts(START, 5)


@st.composite
def sentences(draw):
    """A padded batch, at least one row of which has padding."""
    T = draw(st.integers(2, 7))
    lengths = draw(st.lists(st.integers(1, T), min_size=1, max_size=5)) + [draw(st.integers(1, T - 1))]
    ids = draw(st.lists(st.lists(word, min_size=T, max_size=T), min_size=len(lengths), max_size=len(lengths)))
    return torch.tensor(ids), torch.tensor(lengths)


@given(sentences())
def test_padding_never_changes_a_sentence_vector(batch):
    for model in models():
        check.padding(model.encode, *batch)


@given(sentences(), st.sampled_from(["before", "after"]))
def test_the_decoders_are_causal(batch, name):
    skip = models()[0]
    s = skip.encode(*batch)
    check.causal(lambda ids: skip.output(skip.decode(getattr(skip, name), s, ids)), batch[0])


@given(sentences())
def test_a_mean_is_blind_to_order(batch):
    weights, ids = np.linspace(0.1, 1, V), batch[0].numpy()
    mean = average(ids, START.numpy(), weights)
    for moved in (ids[:, ::-1], np.roll(ids, 1, axis=1)):
        check.close(average(moved, START.numpy(), weights), mean, 1e-9)
    check.permutation(
        lambda x: torch.as_tensor(average(x.numpy(), START.numpy(), weights)), torch.tensor([[0, 1, 3]]), invariant=True
    )


def test_the_gru_encoders_are_not_blind_to_order():
    ids = torch.tensor([[1, 2, 3, 4]])
    for model in models():
        with pytest.raises(check.CheckFailed, match="does not leave the output alone"):
            check.permutation(lambda x, m=model: m.encode(x, torch.tensor([4])), ids, invariant=True)


@given(corpus, st.integers(2, 5))
def test_saying_everything_twice_does_not_move_a_mean(documents, times):
    once = average(documents, START.numpy())
    check.close(average([d * times for d in documents], START.numpy()), once, 1e-9)
    assert (once >= START.numpy().min(0) - 1e-9).all() and (once <= START.numpy().max(0) + 1e-9).all()


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=20).filter(any), st.floats(1e-6, 10))
def test_sif_weights_lie_between_0_and_1_and_fall_with_the_count(counts, a):
    weights = sif_weights(counts, a)
    assert ((weights > 0) & (weights <= 1)).all()
    assert (np.diff(weights[np.argsort(counts)]) <= 1e-12).all()


@given(corpus, st.integers(1, 5), st.integers(0, 99), st.booleans())
def test_blocks_keep_every_word_in_its_place(documents, length, seed, drop):
    keep = np.random.default_rng(seed).random(V) if drop else np.ones(V)
    documents = [np.array(d) for d in documents]
    words, document, first, begin, end = blocks(documents, keep, np.random.default_rng(seed), length)
    found = {}
    for d, a, b, e in zip(document.tolist(), first.tolist(), begin.tolist(), end.tolist(), strict=True):
        assert b <= a < e
        found.setdefault(d, []).extend(words[a : min(a + length, e)].tolist())
    for d, rest in found.items():
        all_words = iter(documents[d].tolist())
        assert all(word in all_words for word in rest)  # in their order
    if not drop:
        assert found == {d: words.tolist() for d, words in enumerate(documents)}


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 100))
def test_passages_lose_no_sentence(lengths, size):
    sentences = [[0] * n for n in lengths]
    found = passages(sentences, size)
    assert [i for part in found for i in part] == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in part) >= size for part in found[:-1])


@given(st.integers(2, 6), st.integers(0, 4), st.lists(st.integers(1, 5), min_size=6, max_size=12))
def test_folds_never_leak(folds, gap, terms):
    presidents = [p for p, n in enumerate(terms) for _ in range(n)]
    years = np.arange(len(presidents))
    tested = np.zeros(len(presidents), dtype=int)
    for train, test in held_out_presidents(presidents, years, folds, gap):
        tested += test
        sides = [{presidents[i] for i in np.flatnonzero(side)} for side in (train, test)]
        assert not sides[0] & sides[1]
        if train.any():
            assert np.abs(years[train][:, None] - years[test]).min() > gap
    assert (tested == 1).all()


@given(sentences())
def test_no_sentence_is_its_own_neighbor_and_choices_sum_to_one(batch):
    p = models()[1].log_probabilities(*batch).exp()
    check.sums_to_one(p, allowed=~torch.eye(len(p), dtype=torch.bool))
