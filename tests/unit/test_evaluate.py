"""The ruler measures what it says, on cases small enough to work out by hand."""

import math

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

from lrm_utils import evaluate
from lrm_utils.data import Analogy, WordPair
from lrm_utils.text import Vocab, WordVectors


def vectors(**rows):
    names = list(rows)
    return WordVectors(Vocab(tuple(names), np.ones(len(names))), np.array([rows[n] for n in names], dtype=np.float32))


SQUARE = vectors(man=[1, 0, 0], king=[1, 1, 0], woman=[0, 0, 1], queen=[0, 1, 1], plum=[-1, 0, -1])


def test_similarity_is_one_when_the_order_agrees_and_counts_what_it_answered():
    pairs = [WordPair("man", "king", 9.0), WordPair("king", "queen", 5.0), WordPair("man", "plum", 1.0)]
    score = evaluate.similarity(SQUARE, [*pairs, WordPair("man", "unheard", 3.0)])
    assert (score.value, score.answered, score.asked) == (pytest.approx(1.0), 3, 4)
    assert score.coverage == 0.75
    reverse = [WordPair(p.first, p.second, -p.score) for p in pairs]
    assert evaluate.similarity(SQUARE, reverse).value == pytest.approx(-1.0)


def test_the_error_of_a_correlation_is_the_spread_that_fresh_pairs_would_have():
    """For independent normal numbers with correlation 0.5, theory gives 0.06 at 200 pairs (Bonett and Wright, 2000)."""
    random = np.random.default_rng(0)
    one = random.standard_normal((300, 200))
    other = 0.5 * one + np.sqrt(0.75) * random.standard_normal(one.shape)
    texts = list(zip(one, other, strict=True))
    spread = np.std([spearmanr(a, b).statistic for a, b in texts])
    errors = [evaluate.rank_correlations(a, b, samples=200).std() for a, b in texts[:20]]
    assert spread == pytest.approx(0.06, abs=0.01)
    assert np.mean(errors) == pytest.approx(spread, rel=0.15)


def test_bootstrap_samples_are_the_same_for_both_models_and_differ_by_seed():
    random = np.random.default_rng(1)
    judged, cosines = random.random(50), random.random(50)
    assert np.array_equal(evaluate.rank_correlations(cosines, judged), evaluate.rank_correlations(cosines * 2, judged))
    assert not np.array_equal(
        evaluate.rank_correlations(cosines, judged, seed=0), evaluate.rank_correlations(cosines, judged, seed=1)
    )
    assert evaluate.rank_correlations(judged, judged) == pytest.approx(np.ones(1000))
    with pytest.raises(ValueError, match="two rows of one length"):
        evaluate.rank_correlations(cosines[:-1], judged)


def test_similarity_of_too_few_pairs_is_not_a_number():
    assert math.isnan(evaluate.similarity(SQUARE, [WordPair("man", "king", 1.0)]).value)


def test_analogy_finds_the_parallelogram_only_when_the_question_is_excluded():
    question = [Analogy("man", "king", "woman", "queen")]
    assert evaluate.analogy(SQUARE, question).value == 1.0
    close = vectors(man=[1, 0], king=[1, 0.2], woman=[0, 1], queen=[-0.5, 1])
    assert evaluate.analogy(close, question, exclude=True).value == 1.0
    assert evaluate.analogy(close, question, exclude=False).value == 0.0


def test_vectors_that_say_nothing_score_nothing():
    question = [Analogy("king", "woman", "queen", "man")]
    same = vectors(man=[1, 1], king=[1, 1], woman=[1, 1], queen=[1, 1], plum=[1, 1])
    assert evaluate.analogy(same, question).value == 0.0
    with pytest.raises(ValueError, match="the training diverged"):
        evaluate.analogy(vectors(man=[np.nan, 0], king=[1, 0], woman=[0, 1], queen=[1, 1]), question)
    with pytest.raises(ValueError, match="the training diverged"):
        evaluate.retrieval(np.full((1, 2), np.nan), np.ones((2, 2)), [0])
    counts = WordVectors(SQUARE.vocab, sparse.csr_array(SQUARE.matrix))
    with pytest.raises(ValueError, match="need a dense matrix"):
        evaluate.analogy(counts, question)


def test_analogies_report_every_section_and_the_total():
    sections = {"royal": (Analogy("man", "king", "woman", "queen"),), "odd": (Analogy("man", "king", "woman", "plum"),)}
    scores = evaluate.analogies(SQUARE, sections)
    assert [scores[name].value for name in ("royal", "odd", "total")] == [1.0, 0.0, 0.5]
    assert math.isnan(evaluate.analogies(SQUARE, {"none": (Analogy("a", "b", "c", "d"),)})["total"].value)


def test_words_beyond_the_limit_are_neither_asked_nor_answered():
    question = [Analogy("man", "king", "woman", "queen")]
    assert evaluate.analogy(SQUARE, question, among=3).answered == 0
    assert evaluate.analogy(SQUARE, question, among=4).answered == 1


def test_perplexity_of_a_uniform_model_is_the_size_of_the_vocabulary():
    assert evaluate.perplexity(7 * math.log(50), 7) == pytest.approx(50)
    with pytest.raises(ValueError, match="at least one token"):
        evaluate.perplexity(1.0, 0)


def test_retrieval_ranks_by_cosine_and_ties_count_against_the_model():
    documents = np.array([[1.0, 0.0], [0.0, 5.0], [1.0, 1.0]])
    scores = evaluate.retrieval(np.array([[2.0, 0.1], [0.0, 1.0], [1.0, 0.0]]), documents, [0, 1, 2], k=2)
    assert scores == {"recall@1": pytest.approx(2 / 3), "recall@2": 1.0, "mrr": pytest.approx((1 + 1 + 1 / 2) / 3)}
    assert evaluate.retrieval(np.ones((1, 2)), np.ones((4, 2)), [0])["mrr"] == 0.25
    with pytest.raises(ValueError, match="3 queries need as many right answers, not 1"):
        evaluate.retrieval(documents, documents, [0])


def test_probe_needs_two_classes_and_separates_what_is_separable():
    x, y = np.array([[0.0], [1.0], [10.0], [11.0]]), np.array(["low", "low", "high", "high"])
    assert evaluate.probe(x, y, np.array([[2.0], [9.0]]), np.array(["low", "high"])) == 1.0
    with pytest.raises(ValueError, match="two classes"):
        evaluate.probe(x, np.zeros(4), x, np.zeros(4))


def test_agreement_is_one_for_turned_vectors_and_nothing_for_unrelated_ones():
    random, names = np.random.default_rng(0), tuple(f"w{i}" for i in range(300))
    vocab = Vocab(names, np.ones(300))
    first = random.standard_normal((300, 20))
    turn, _ = np.linalg.qr(random.standard_normal((20, 20)))
    groups = names[:20], names[20:220], names[220:]
    same = evaluate.agreement(WordVectors(vocab, first), WordVectors(vocab, 3 * first @ turn), *groups)
    other = evaluate.agreement(
        WordVectors(vocab, first), WordVectors(vocab, random.standard_normal((300, 20))), *groups
    )
    assert same.shape == (20,) and same == pytest.approx(np.ones(20), abs=1e-6)
    assert abs(other.mean()) < 0.1


def test_agreement_ignores_a_direction_that_all_words_share():
    random, names = np.random.default_rng(0), tuple(f"w{i}" for i in range(300))
    vocab, groups = Vocab(names, np.ones(300)), (names[150:200], names[:150], names[200:])
    share = np.where(np.arange(300) // 150 == 0, random.uniform(0, 2, 300), 1.0)  # anchors have more or less of it
    common = share[:, None] * random.standard_normal(20)
    noise = [WordVectors(vocab, common + random.standard_normal((300, 20))) for _ in range(2)]
    assert abs(evaluate.agreement(*noise, *groups).mean()) < 0.1
    plain = [v.unit[150:200] @ v.unit[:150].T for v in noise]
    assert np.mean([spearmanr(a, b).statistic for a, b in zip(*plain, strict=True)]) > 0.2
