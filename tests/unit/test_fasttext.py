"""fastText: n-grams, hashes, bags, the trainer of vectors and the classifier, on values worked out by hand."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrm_utils.models.approximate_training import huffman
from lrm_utils.models.fasttext import (
    Bags,
    FastText,
    Softmax,
    Subwords,
    TextFeatures,
    Tree,
    character_ngrams,
    fnv,
    mean_rows,
    subword_step,
    train_classifier,
    train_fasttext,
)
from lrm_utils.models.training_word2vec import NegativeSampling, band, blocks, step
from lrm_utils.text import Vocab

WORDS = "help helps helped helping gold silver coin coins".split()
VOCAB = Vocab(tuple(WORDS), np.arange(len(WORDS), 0, -1))


def tiny_documents(seed=0, size=60):
    """Texts in which forms of help stand together, and so do metals."""
    random = np.random.default_rng(seed)
    return [random.choice([0, 1, 2, 3] if i % 2 else [4, 5, 6, 7], 12) for i in range(size)]


def test_where_has_the_n_grams_of_the_paper():
    assert character_ngrams("where", 3, 3) == ["<wh", "whe", "her", "ere", "re>"]


def test_lengths_from_shortest_to_longest_are_cut_at_every_place():
    assert character_ngrams("ab", 2, 3) == ["<a", "<ab", "ab", "ab>", "b>"]
    assert character_ngrams("a", 3, 6) == ["<a>"]
    assert character_ngrams("", 3, 6) == []


def test_a_border_mark_alone_is_no_n_gram_but_the_same_sign_inside_a_word_is():
    assert character_ngrams("ab", 1, 1) == ["a", "b"]
    assert character_ngrams("<", 1, 1) == ["<"]


@pytest.mark.parametrize("lengths", [(0, 3), (4, 3), (-1, 2)])
def test_lengths_that_make_no_sense_are_refused(lengths):
    with pytest.raises(ValueError, match="try 3 to 6"):
        character_ngrams("word", *lengths)
    with pytest.raises(ValueError, match="try 3 to 6"):
        Subwords(VOCAB, 10, *lengths)


def test_the_hash_is_fnv_1a_on_plain_letters():
    # test vectors of the function's authors
    assert (fnv(""), fnv("a"), fnv("foobar")) == (0x811C9DC5, 0xE40C292C, 0xBF9CF968)


def test_bytes_above_127_count_as_negative():
    plain = 2166136261
    for byte in "é".encode():
        plain = ((plain ^ byte) * 16777619) % 2**32
    assert fnv("é") != plain


def test_half_a_character_is_refused_with_a_reason():
    with pytest.raises(ValueError, match="lone surrogate"):
        fnv("a\ud800b")
    with pytest.raises(ValueError, match="lone surrogate"):
        Subwords(VOCAB).rows("\udc00")
    with pytest.raises(ValueError, match="lone surrogate"):
        TextFeatures(VOCAB).bags([["\udc00"]])


def test_a_known_word_has_its_own_row_first_and_an_unknown_one_only_buckets():
    subwords = Subwords(VOCAB, 50)
    known, unknown = subwords.rows("helps"), subwords.rows("helper")
    assert known[0] == 1 and len(known) == 1 + len(character_ngrams("helps"))
    assert len(unknown) == len(character_ngrams("helper"))
    assert all(len(VOCAB) <= row < len(VOCAB) + 50 for row in known[1:] + unknown)


def test_an_unknown_word_that_is_too_short_has_no_rows():
    with pytest.raises(ValueError, match="too short for an n-gram"):
        Subwords(VOCAB, 50, 5, 6).rows("a")
    assert Subwords(Vocab(("a",), np.ones(1)), 50, 5, 6).rows("a") == [0]
    with pytest.raises(ValueError, match="too short"):
        Subwords(VOCAB).rows("")


def test_there_must_be_a_bucket():
    with pytest.raises(ValueError, match="buckets=0"):
        Subwords(VOCAB, 0)
    with pytest.raises(ValueError, match="buckets=0"):
        TextFeatures(VOCAB, 0)
    with pytest.raises(ValueError, match="longest=0"):
        TextFeatures(VOCAB, 10, 0)


def test_the_mean_of_an_empty_bag_is_zero_and_of_others_the_mean():
    table, bags = torch.arange(8.0).reshape(4, 2), Bags.pack([[0, 1], [], [3]])
    expected = [[1.0, 2.0], [0.0, 0.0], [6.0, 7.0]]
    assert mean_rows(table, bags.rows, bags.starts.diff()).tolist() == expected


def test_the_vector_of_a_word_is_the_mean_of_its_rows():
    subwords = Subwords(VOCAB, 50)
    Z = torch.randn(len(VOCAB) + 50, 4, generator=torch.Generator().manual_seed(0))
    model = FastText(subwords, Z, None, [])
    for word in ("helps", "helpless"):
        expected = Z[subwords.rows(word)].mean(0).numpy()
        assert model[word] == pytest.approx(expected)
        assert model.vectors_of(["gold", word])[word] == pytest.approx(expected)
    assert model.vectors.vocab is VOCAB and model.vectors["gold"] == pytest.approx(model["gold"])


def batch_of(documents, window=2, L=4):
    """The first block of some documents, and who sees whom in it."""
    tokens, document = np.concatenate(documents), np.repeat(np.arange(len(documents)), [len(d) for d in documents])
    ids, left, right = blocks(tokens, document, window, L, np.random.default_rng(0))
    return ids[:3], band(left[:3], right[:3], window)


def test_without_n_grams_a_step_is_that_of_word2vec():
    around, near = batch_of(tiny_documents())
    draw = torch.Generator().manual_seed(1)
    V, U = (torch.randn(len(VOCAB), 5, generator=draw) for _ in range(2))
    Z, U_too, V = torch.cat([V, torch.zeros(1, 5)]), U.clone(), V.clone()
    bags = Subwords(VOCAB, 1, 40, 40).bags
    losses = [
        step(V, U, around, near, "skip-gram", NegativeSampling(VOCAB.counts, 2, 3, seed=4), 0.1, watch=True),
        subword_step(Z, U_too, bags, around, near, NegativeSampling(VOCAB.counts, 2, 3, seed=4), 0.1, watch=True),
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert torch.allclose(Z[:-1], V, atol=1e-5) and torch.allclose(U, U_too, atol=1e-5)


def test_every_row_of_a_word_gets_the_whole_gradient_of_the_word():
    around, near = batch_of(tiny_documents())
    subwords = Subwords(VOCAB, 1000)
    draw = torch.Generator().manual_seed(2)
    Z, U = torch.randn(len(VOCAB) + 1000, 5, generator=draw) / 3, torch.randn(len(VOCAB), 5, generator=draw) / 3
    rate, before = 1e-3, Z.clone()
    rows, weight, positive = NegativeSampling(VOCAB.counts, 2, 3, seed=4).judge(around[:, 2:-2], near)
    words = mean_rows(Z, subwords.bags.rows, subwords.bags.starts.diff()).requires_grad_()
    scores = F.embedding(rows, U) @ F.embedding(around, words).mT
    (weight * F.softplus(scores) - positive * scores).sum().backward()
    expected = before.clone()
    for word, gradient in enumerate(words.grad):
        bag = subwords.bags.rows[subwords.bags.starts[word] : subwords.bags.starts[word + 1]]
        expected.index_add_(0, bag, -rate * gradient.expand(len(bag), 5))
    subword_step(Z, U.clone(), subwords.bags, around, near, NegativeSampling(VOCAB.counts, 2, 3, seed=4), rate)
    assert torch.allclose(Z, expected, atol=1e-6) and not torch.allclose(Z, before, atol=1e-6)


def test_training_brings_words_of_one_company_together_and_an_unseen_form_with_them():
    model = train_fasttext(tiny_documents(size=400), Subwords(VOCAB, 500), D=16, epochs=30, sample=None, batch=64)
    vectors = model.vectors_of(["help", "helping", "gold", "helper"])
    cosine = vectors.unit @ vectors.unit.T
    assert cosine[0, 1] > 0.5 > cosine[0, 2] and cosine[0, 3] > cosine[2, 3]
    assert np.mean(model.losses[-5:]) < 0.8 * model.losses[0]


def test_the_same_seed_gives_the_same_vectors_and_another_seed_others():
    def trained(seed):
        return train_fasttext(tiny_documents(), Subwords(VOCAB, 100), D=8, epochs=2, seed=seed).Z

    assert torch.equal(trained(0), trained(0)) and not torch.equal(trained(0), trained(1))


@pytest.mark.parametrize(
    "wrong", [{"D": 0}, {"window": 0}, {"k": 0}, {"epochs": 0}, {"batch": 0}, {"lr": 0}, {"lr": 2}]
)
def test_settings_out_of_range_are_named(wrong):
    with pytest.raises(ValueError, match="must"):
        train_fasttext(tiny_documents(), Subwords(VOCAB, 10), **wrong)


def test_documents_that_do_not_fit_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="do not fit a vocabulary"):
        train_fasttext([[0, 99]], Subwords(VOCAB, 10))
    with pytest.raises(ValueError, match="no pair to learn from"):
        train_fasttext([], Subwords(VOCAB, 10))


def test_features_are_known_words_and_pairs_of_all_words():
    features = TextFeatures(VOCAB, 1000)
    bags = features.bags([["gold", "rush", "coin"], [], ["help"]])
    assert bags.starts.tolist() == [0, 4, 4, 5]
    assert bags.rows[:2].tolist() == [4, 6] and bags.rows[4].item() == 0  # rush is unknown, its pairs are not
    assert (bags.rows[2:4] >= len(VOCAB)).all()


def test_pairs_tell_the_order_of_words_and_do_not_reach_across_texts():
    features = TextFeatures(VOCAB, 100_000)
    one, other = features.bags([["gold", "coin"]]), features.bags([["coin", "gold"]])
    assert sorted(one.rows[:2]) == sorted(other.rows[:2]) and one.rows[2] != other.rows[2]
    assert features.bags([["gold"], ["coin"]]).rows.tolist() == [4, 6]


def labeled(size=200, seed=0):
    """Texts about metals (1) and about help (0), and one word of noise each."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, size)
    return [[WORDS[random.integers(4 * y, 4 * y + 4)], f"noise{random.integers(50)}"] for y in labels], labels


@pytest.mark.parametrize("objective", [Softmax, Tree])
def test_a_classifier_learns_what_can_be_learned(objective):
    texts, labels = labeled()
    features = TextFeatures(VOCAB, 5000)
    model = train_classifier(features.bags(texts), labels, features, objective=objective, epochs=20)
    unseen, answers = labeled(seed=1)
    assert (model.predict(features.bags(unseen)) == answers).mean() > 0.98
    p = model.log_probabilities(features.bags(unseen)).exp()
    assert p.sum(1) == pytest.approx(np.ones(len(unseen)), abs=1e-5)


def test_an_empty_text_is_refused_in_training_and_gets_no_opinion_afterwards():
    features = TextFeatures(VOCAB, 100)
    with pytest.raises(ValueError, match="text 1 has no features"):
        train_classifier(features.bags([["gold"], [], ["help"]]), [1, 0, 0], features)
    model = train_classifier(features.bags([["gold"], ["help"]]), [1, 0], features)
    assert model.log_probabilities(features.bags([[]])).exp().tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0], "2 texts and 1 labels"), ([0, 0], "each of them seen"), ([0, 2], "each of them seen")],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    features = TextFeatures(VOCAB, 100)
    with pytest.raises(ValueError, match=message):
        train_classifier(features.bags([["gold"], ["help"]]), labels, features)


def test_no_texts_are_refused():
    features = TextFeatures(VOCAB, 100)
    with pytest.raises(ValueError, match="at least one"):
        train_classifier(features.bags([]), [], features)


@pytest.mark.parametrize("wrong", [{"D": 0}, {"epochs": 0}, {"batch": 0}, {"lr": 0}, {"lr": -1}])
def test_settings_of_the_classifier_out_of_range_are_named(wrong):
    features = TextFeatures(VOCAB, 100)
    with pytest.raises(ValueError, match="lr above 0"):
        train_classifier(features.bags([["gold"], ["help"]]), [1, 0], features, **wrong)


@pytest.mark.parametrize("objective", [Softmax, Tree])
def test_a_step_of_the_classifier_moves_down_the_gradient(objective):
    counts, draw = np.array([7, 5, 3, 1]), torch.Generator().manual_seed(0)
    goal = objective(counts)
    h = torch.randn(6, 5, generator=draw, dtype=torch.double).requires_grad_()
    W = torch.randn(goal.rows, 5, generator=draw, dtype=torch.double).requires_grad_()
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    (-goal.log_probabilities(h, W)[torch.arange(6), labels]).sum().backward()
    moved = W.detach().clone()
    dh = goal.step(h.detach(), moved, labels, 0.25)
    assert torch.allclose(dh, h.grad, atol=1e-6)
    assert torch.allclose(moved, W.detach() - 0.25 * W.grad, atol=1e-6)


def test_the_rate_falls_to_zero_and_every_text_is_read_in_every_epoch(monkeypatch):
    seen, rates = [], []

    class Watching(Softmax):
        def step(self, h, W, labels, rate):
            seen.extend(labels.tolist())
            rates.append(rate)
            return torch.zeros_like(h)

    features = TextFeatures(VOCAB, 100)
    texts = [[word] for word in WORDS]
    train_classifier(features.bags(texts), range(8), features, objective=Watching, epochs=3, batch=3, lr=0.9)
    assert sorted(seen) == sorted(list(range(8)) * 3)
    assert rates == pytest.approx([0.9 * (1 - i / 9) for i in range(9)])


def test_the_tree_has_a_row_for_each_inner_node():
    counts = np.array([5, 4, 3, 2, 1])
    assert Tree(counts).rows == 4 and Softmax(counts).rows == 5
    assert torch.equal(Tree(counts).tree.lengths, huffman(counts).lengths)


@pytest.mark.parametrize("labels", [["good", "bad"], [0.5, 1.5], [True, False], [-1, 1]])
def test_labels_that_are_no_numbers_of_classes_are_refused(labels):
    features = TextFeatures(VOCAB, 100)
    with pytest.raises(ValueError, match="number the classes first"):
        train_classifier(features.bags([["gold"], ["help"]]), labels, features)


def test_bags_of_other_features_are_refused_in_training_and_in_use():
    small, large = TextFeatures(VOCAB, 2), TextFeatures(VOCAB, 100_000)
    texts = [["gold", "coin"], ["help", "helps"]]
    with pytest.raises(ValueError, match="with the features that the classifier was trained with"):
        train_classifier(large.bags(texts), [1, 0], small)
    model = train_classifier(small.bags(texts), [1, 0], small)
    with pytest.raises(ValueError, match="with the features that the classifier was trained with"):
        model.predict(large.bags(texts))


def test_a_string_is_no_list_of_words():
    with pytest.raises(ValueError, match="split it first"):
        TextFeatures(VOCAB, 100).bags(["gold coin"])
    model = FastText(Subwords(VOCAB, 50), torch.zeros(len(VOCAB) + 50, 4), None, [])
    with pytest.raises(ValueError, match="a list of words was expected"):
        model.vectors_of("help")


def test_a_generator_of_texts_is_read_once_and_whole():
    features, texts = TextFeatures(VOCAB, 100), [["gold"], ["help", "coin"]]
    assert torch.equal(features.bags(d for d in texts).rows, features.bags(texts).rows)


def test_nothing_cannot_be_packed_and_buckets_are_whole():
    with pytest.raises(ValueError, match="nothing to pack"):
        Bags.pack([])
    with pytest.raises(ValueError, match="a whole number"):
        Subwords(VOCAB, 1e6)


@pytest.mark.parametrize("batch", [4, 200])
def test_a_large_batch_learns_as_a_small_one_does(batch):
    texts, labels = labeled(600)
    features = TextFeatures(VOCAB, 5000)
    bags = features.bags(texts)
    model = train_classifier(bags, labels, features, batch=batch, lr=1.0, epochs=40)
    assert (model.predict(bags) == labels).mean() > 0.98


def test_predicting_in_blocks_changes_nothing():
    texts, labels = labeled()
    features = TextFeatures(VOCAB, 5000)
    bags = features.bags([*texts, []])
    model = train_classifier(features.bags(texts), labels, features, epochs=3)
    assert (model.predict(bags, block=7) == model.log_probabilities(bags).argmax(1).numpy()).all()


def rates_of(batch, texts=100):
    """The rates that a classifier is moved with, in the order of its steps."""
    rates = []

    class Watching(Softmax):
        def step(self, h, W, labels, rate):
            rates.append(rate)
            return torch.zeros_like(h)

    features = TextFeatures(VOCAB, 100)
    bags = features.bags([["gold"], ["help"]] * (texts // 2))
    train_classifier(bags, [1, 0] * (texts // 2), features, objective=Watching, epochs=1, batch=batch, lr=1.0)
    return rates


def test_a_step_is_never_longer_than_for_32_texts():
    assert rates_of(100) == pytest.approx([0.32])
    assert rates_of(25) == pytest.approx([1, 0.75, 0.5, 0.25])


def test_another_seed_gives_another_classifier_and_the_start_has_the_width_of_the_program():
    features, D = TextFeatures(VOCAB, 50_000), 4
    bags = features.bags([["gold"], ["help"]])
    first, again, other = (train_classifier(bags, [1, 0], features, D=D, seed=s).E for s in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert 0.99 / D < first[20:].abs().max() <= 1 / D  # rows that no text has touched


def test_exponent_sample_and_width_of_the_start_reach_the_trainer(monkeypatch):
    told, seen = [], []

    def noise(counts, k, shared, exponent, seed):
        told.append((k, exponent, seed))
        return NegativeSampling(counts, k, shared, exponent, seed)

    def cut(tokens, *rest):
        seen.append(len(tokens))
        return blocks(tokens, *rest)

    monkeypatch.setattr("lrm_utils.models.fasttext.NegativeSampling", noise)
    monkeypatch.setattr("lrm_utils.models.fasttext.blocks", cut)
    documents, subwords = tiny_documents(), Subwords(VOCAB, 50_000)
    model = train_fasttext(documents, subwords, D=8, k=3, epochs=1, exponent=0.5, sample=None, seed=7)
    assert told == [(3, 0.5, 7)] and seen == [sum(map(len, documents))]
    train_fasttext(documents, subwords, D=8, epochs=1, sample=1e-3)
    assert seen[1] < seen[0] / 2
    untouched = np.setdiff1d(np.arange(len(VOCAB) + 50_000), subwords.bags.rows.numpy())
    assert 0.99 / 8 < model.Z[untouched].abs().max() <= 1 / 8
