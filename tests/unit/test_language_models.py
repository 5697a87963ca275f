"""Language models refuse what makes no sense with one clear sentence, and samples keep to the vocabulary."""

import numpy as np
import pytest
import torch

from lrm_utils.models.language_models import (
    NNLM,
    AddK,
    KneserNey,
    NGrams,
    look_up,
    sample,
    warm_up_and_decay,
    windows,
)

V = 6
TEXT = [[2, 3, 4], [2, 3, 5], [2, 4], [5]]


@pytest.fixture(scope="module")
def ngrams():
    return NGrams(*windows(TEXT, V, 3), V)


@pytest.mark.parametrize("n", [0, -2])
def test_an_order_below_one_is_refused(n):
    with pytest.raises(ValueError, match=f"order {n} predicts nothing: the order must be at least 1"):
        windows(TEXT, V, n)


@pytest.mark.parametrize("corpus", [[], [[]], [[], []]])
def test_an_empty_corpus_is_refused(corpus):
    with pytest.raises(ValueError, match="the corpus is empty"):
        windows(corpus, V, 3)


def test_one_empty_sentence_among_others_is_an_end_symbol():
    contexts, words = windows([[], [2]], V, 2)
    assert (contexts.tolist(), words.tolist()) == ([[6], [6], [2]], [0, 2, 0])


@pytest.mark.parametrize("bad", [6, 7, 50_000, -1])
@pytest.mark.parametrize("n", [1, 3])
def test_a_sentence_with_an_id_outside_the_vocabulary_is_refused(bad, n):
    """6 is the start symbol: inside a sentence it is an error like any other."""
    with pytest.raises(ValueError, match="an id is not in the vocabulary of 6 words, 0 to 5"):
        windows([[2, 3], [2, bad, 4]], V, n)


@pytest.mark.parametrize(("context", "word"), [([2, 3], 6), ([2, 3], -1), ([2, 7], 3), ([-1, 2], 3)])
def test_a_question_with_an_id_outside_the_vocabulary_is_refused(ngrams, context, word):
    for model in (KneserNey(ngrams), AddK(ngrams, 0.1)):
        with pytest.raises(ValueError, match="an id is not in the vocabulary of 6 words"):
            model.probability([context], [word])


def test_the_start_symbol_may_stand_in_a_context(ngrams):
    assert KneserNey(ngrams).probability([[6, 6]], [2])[0] > 0.5


@pytest.mark.parametrize("contexts", [[[2]], [2, 3], [[2, 3], [3, 4]]])
def test_contexts_of_the_wrong_shape_are_refused(ngrams, contexts):
    with pytest.raises(ValueError, match=r"shape \(1, 2\), not"):
        list(look_up(ngrams, contexts, [3]))


def test_longer_contexts_than_the_model_looks_at_change_nothing(ngrams):
    model = KneserNey(ngrams)
    assert model.probability([[5, 5, 2, 3]], [4]) == model.probability([[2, 3]], [4])


@pytest.mark.parametrize("n", [0, 4])
def test_counts_hold_only_the_orders_that_were_counted(ngrams, n):
    with pytest.raises(ValueError, match=f"hold the orders 1 to 3, not {n}"):
        ngrams.up_to(n)


def test_shortened_counts_are_those_of_the_shorter_order(ngrams):
    for order in (1, 2):
        direct = NGrams(*windows(TEXT, V, order), V)
        for ours, theirs in zip(ngrams.up_to(order).counts, direct.counts, strict=True):
            assert ours.tolist() == theirs.tolist()


def test_a_negative_k_is_refused(ngrams):
    with pytest.raises(ValueError, match="k must be 0 or more"):
        AddK(ngrams, -0.1)


def test_kneser_ney_by_hand():
    """The exercise of the notebook: we want peace / we want gold / we have peace / gold, discount 0.75."""

    class Fixed(KneserNey):
        def discount(self, counts):  # no discount at the lowest order, as in the exercise
            return np.array([0, 0.75, 0.75, 0.75]) if len(counts) == 9 else np.zeros(4)

    end, we, want, have, peace, gold = range(6)
    model = Fixed(NGrams(*windows([[we, want, peace], [we, want, gold], [we, have, peace], [gold]], 6, 2), 6))
    expected = [0.25 / 2 + 0.75 * 2 / 9, 0.75 * 2 / 9]
    np.testing.assert_allclose(model.probability([[want], [have]], [gold, gold]), expected)


def test_models_do_not_change_the_counts_they_are_given(ngrams):
    before = [counts.copy() for counts in ngrams.counts]
    KneserNey(ngrams)
    assert all((a == b).all() for a, b in zip(before, ngrams.counts, strict=True))


def test_a_network_without_context_is_refused():
    with pytest.raises(ValueError, match="n must be at least 2"):
        NNLM(V, 1, D=2, H=2)


def test_the_network_starts_as_the_unigram_model():
    model = NNLM(V, 3, D=2, H=2)
    torch.nn.init.zeros_(model.output.weight)
    _, words = windows(TEXT, V, 3)
    model.start_as_unigram(words)
    expected = (np.bincount(words, minlength=V) + 1) / (len(words) + V)
    np.testing.assert_allclose(model.distribution([6, 6]), expected, atol=1e-6)


def test_batches_do_not_change_the_probabilities():
    torch.manual_seed(0)
    model = NNLM(V, 3, D=2, H=2)
    contexts, words = windows(TEXT, V, 3)
    np.testing.assert_allclose(model.probability(contexts, words, batch=2), model.probability(contexts, words))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_sample_continues_its_prompt_inside_the_vocabulary_and_stops(ngrams, n):
    model = KneserNey(ngrams.up_to(n))
    for seed in range(20):
        written = sample(model, [2, 3], np.random.default_rng(seed), longest=8)
        assert written[:2] == [2, 3] and len(written) <= 8
        assert all(0 < word < V for word in written)
        assert written == sample(model, [2, 3], np.random.default_rng(seed), longest=8)


def test_a_network_can_be_sampled_like_a_count_model():
    torch.manual_seed(0)
    written = sample(NNLM(V, 3, D=2, H=2), [2], np.random.default_rng(0), longest=6)
    assert written[0] == 2 and len(written) <= 6
    assert all(0 < word < V for word in written)


def test_an_unsmoothed_sample_of_high_order_recites_the_text():
    parrot = AddK(NGrams(*windows(TEXT, V, 5), V), 0)
    written = [sample(parrot, [], np.random.default_rng(seed)) for seed in range(30)]
    assert all(sentence in TEXT for sentence in written)
    assert len({tuple(sentence) for sentence in written}) == len(TEXT)


def test_an_unsmoothed_model_cannot_continue_what_it_has_never_seen(ngrams):
    with pytest.raises(ValueError, match="every word has probability 0 after a context never seen: smooth it"):
        sample(AddK(ngrams, 0), [5, 5], np.random.default_rng(0))


def test_the_learning_rate_climbs_to_one_and_falls_to_nothing():
    factors = [warm_up_and_decay(step, 1000) for step in range(1000)]
    assert np.argmax(factors) in range(95, 105)
    assert 0.9 < max(factors) <= 1
    assert factors[0] < 0.02 and factors[-1] < 0.001
    assert (np.diff(factors[105:]) < 0).all()
