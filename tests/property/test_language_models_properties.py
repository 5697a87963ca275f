"""Every language model is a distribution in every context, and counting keeps its theorems, for any text."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from lrm_utils import check
from lrm_utils.models.language_models import (
    NNLM,
    AddK,
    Interpolation,
    KneserNey,
    NGrams,
    continuations,
    find,
    look_up,
    take,
    windows,
)

V = 5  # 0 is the end symbol, 1 stands for <unk>, 5 is the start symbol
corpora = st.lists(st.lists(st.integers(0, V - 1), max_size=7), min_size=1, max_size=6).filter(any)
orders = st.integers(1, 6)


def padded(texts, n):
    """The n-grams of a text by the definition."""
    tokens = [[V] * (n - 1) + text + [0] for text in texts]
    return [tuple(t[i - n + 1 : i + 1]) for t in tokens for i in range(n - 1, len(t))]


def contexts_to_try(n, seed):
    """Random contexts, most of them unseen, and odd ones: all start symbols, all <unk>, a start symbol at the end."""
    random = np.random.default_rng(seed)
    odd = np.array([[V] * (n - 1), [1] * (n - 1), [0] * (n - 1), ([1] * n + [V])[2:]]).reshape(4, n - 1)
    return np.concatenate([random.integers(0, V + 1, (6, n - 1)), odd])


@given(corpora, orders)
def test_windows_are_the_ngrams_of_the_padded_sentences(texts, n):
    contexts, words = windows(texts, V, n)
    assert [(*h, w) for h, w in zip(contexts.tolist(), words.tolist(), strict=True)] == padded(texts, n)


@given(corpora, orders)
def test_sorted_tables_count_exactly_what_a_dictionary_counts(texts, n):
    ngrams = NGrams(*windows(texts, V, n), V)
    for m in range(1, n + 1):
        counts = Counter(gram[-m:] for gram in padded(texts, n))
        tables = ngrams.up_to(m)
        grams = np.array(list(np.ndindex(*[V + 1] * (m - 1), V)) if m < 4 else list(counts))
        *_, (_, place) = look_up(tables, grams[:, :-1], grams[:, -1])
        assert take(tables.counts[-1], place, 0).tolist() == [counts[tuple(g)] for g in grams.tolist()]
        assert tables.counts[-1].sum() == len(padded(texts, n))


@given(corpora, st.integers(2, 5))
def test_continuation_counts_are_the_number_of_different_words_before(texts, n):
    ngrams = NGrams(*windows(texts, V, n), V)
    counts = continuations(ngrams)
    for m in range(1, n):
        before = Counter(gram[1:] for gram in {gram[-m - 1 :] for gram in padded(texts, n)})
        grams = np.array(list(before))
        *_, (_, place) = look_up(ngrams.up_to(m), grams[:, :-1], grams[:, -1])
        assert counts[m - 1][place].tolist() == list(before.values())


@given(corpora, orders, st.integers(0, 99))
def test_kneser_ney_sums_to_one_in_every_context_and_excludes_no_word(texts, n, seed):
    model = KneserNey(NGrams(*windows(texts, V, n), V))
    p = np.array([model.distribution(context) for context in contexts_to_try(n, seed)])
    check.sums_to_one(p, tolerance=1e-12)
    assert p.min() > 0


@given(corpora, orders, st.integers(0, 99), st.floats(1e-6, 10))
def test_add_k_sums_to_one_in_every_context(texts, n, seed, k):
    model = AddK(NGrams(*windows(texts, V, n), V), k)
    check.sums_to_one([model.distribution(c) for c in contexts_to_try(n, seed)], tolerance=1e-9)


@given(corpora, corpora, orders, st.integers(0, 99))
def test_interpolation_sums_to_one_and_em_never_lowers_the_likelihood(texts, held_out, n, seed):
    model = Interpolation(NGrams(*windows(texts, V, n), V))
    losses = model.fit(*windows(held_out, V, n), rounds=8)
    assert np.diff(losses).max() <= 1e-9
    check.sums_to_one(model.weights, tolerance=1e-9)
    check.sums_to_one([model.distribution(c) for c in contexts_to_try(n, seed)], tolerance=1e-9)


@given(corpora, orders)
def test_without_smoothing_seen_contexts_sum_to_one_and_fit_the_text_best(texts, n):
    contexts, words = windows(texts, V, n)
    ngrams = NGrams(contexts, words, V)
    unsmoothed = AddK(ngrams, 0)
    check.sums_to_one([unsmoothed.distribution(c) for c in contexts], tolerance=1e-12)
    best = np.log(unsmoothed.probability(contexts, words)).sum()
    for other in (AddK(ngrams, 0.5), KneserNey(ngrams), Interpolation(ngrams)):
        assert np.log(other.probability(contexts, words)).sum() <= best + 1e-9


@given(corpora, st.integers(0, 4))
def test_an_order_above_the_length_of_the_sentences_adds_nothing_but_start_symbols(texts, more):
    n = max(map(len, texts)) + 1  # this order sees whole sentences; a larger one sees more padding
    contexts, words = windows(texts, V, n + more)
    longer, shorter = AddK(NGrams(contexts, words, V), 0), AddK(NGrams(*windows(texts, V, n), V), 0)
    np.testing.assert_array_equal(longer.probability(contexts, words), shorter.probability(*windows(texts, V, n)))


@given(corpora)
def test_kneser_ney_bigrams_say_each_word_as_often_as_the_text(texts):
    """The demand from which continuation counts are derived, for an undiscounted lowest order."""
    ngrams = NGrams(*windows(texts, V, 2), V)
    model = KneserNey(ngrams)
    q = np.zeros(V)
    q[ngrams.grams[0]] = model.ngrams.counts[0] / model.ngrams.counts[0].sum()
    history, word = np.divmod(ngrams.grams[1], V)
    total = model.totals[1]
    said = np.bincount(word, model.kept[1] * total[history], minlength=V) + (model.spared[1] * total).sum() * q
    np.testing.assert_allclose(said, np.bincount(windows(texts, V, 2)[1], minlength=V), atol=1e-9)


@given(st.lists(st.integers(0, 50), min_size=1, unique=True).map(sorted), st.lists(st.integers(-5, 60), min_size=1))
def test_find_is_the_place_in_the_table_or_minus_one(table, keys):
    found = find(np.array(table), np.array(keys))
    assert found.tolist() == [table.index(key) if key in table else -1 for key in keys]


@pytest.mark.parametrize("direct", [False, True])
@settings(max_examples=25)
@given(n=st.integers(2, 5), seed=st.integers(0, 99))
def test_the_network_sums_to_one_in_every_context(direct, n, seed):
    torch.manual_seed(seed)
    model = NNLM(V, n, D=3, H=4, direct=direct)
    check.sums_to_one([model.distribution(context) for context in contexts_to_try(n, seed)])


@pytest.mark.parametrize("direct", [False, True])
@settings(max_examples=10)
@given(n=st.integers(2, 4), seed=st.integers(0, 99))
def test_gradients_of_the_network_equal_central_differences(direct, n, seed):
    torch.manual_seed(seed)
    model = NNLM(V, n, D=3, H=4, direct=direct).double()
    torch.nn.init.normal_(model.output.weight)
    contexts, words = torch.as_tensor(contexts_to_try(n, seed)), torch.randint(V, (10,))
    check.gradient(lambda: F.cross_entropy(model(contexts), words), model, entries=8)


@settings(max_examples=10)
@given(n=st.integers(2, 5), seed=st.integers(0, 99))
def test_future_tokens_do_not_change_past_predictions(n, seed):
    torch.manual_seed(seed)
    model = NNLM(V, n, D=3, H=4, direct=True)

    def along(ids):
        return model(F.pad(ids, (n - 2, 0), value=V).unfold(1, n - 1, 1))

    check.causal(along, torch.randint(V, (2, 6)))
