"""Attention everywhere: what it reads, what it refuses, and small facts worked out by hand."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrm_utils import check
from lrm_utils.data.miniature import Cloze
from lrm_utils.models import attention_everywhere as ae
from lrm_utils.text import Vocab

KNOWN = {"do", "n't", "it", "'s", "o'clock", "the", "film"}
DOCUMENTS = [[[4, 5, 6], [7, 8]], [[9, 3, 4, 5]], [[1, 2], [3], [4, 5, 6, 7, 8]]]
ITEMS = [
    Cloze(tuple("tom saw ben . ben saw nina .".split()), tuple("tom saw _ .".split()), "ben"),
    Cloze(tuple("nina saw tom .".split()), tuple("_ saw tom .".split()), "nina"),
]
VOCAB = Vocab.build((w for i in ITEMS for w in (*i.context, *i.query)), specials=("<pad>", "<bos>", "<eos>", "<unk>"))


def classifiers(D=5):
    torch.manual_seed(0)
    vectors = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    return {
        "two levels": ae.HierarchicalAttention(vectors, D),
        "two levels, mean": ae.HierarchicalAttention(vectors, D, learned=False),
        "last": ae.LastState(vectors, D),
        "flat": ae.FlatAttention(vectors, D),
        "flat, mean": ae.FlatAttention(vectors, D, learned=False),
        "words": ae.FlatAttention(vectors, D, recurrent=False),
        "words, mean": ae.FlatAttention(vectors, D, learned=False, recurrent=False),
    }


def readers(D=4):
    torch.manual_seed(0)
    return [
        ae.AttentionSum(len(VOCAB), D),
        ae.AttentionOverAttention(len(VOCAB), D),
        ae.AttentionOverAttention(len(VOCAB), D, weighted=False),
    ]


def inputs(items=ITEMS):
    batch = ae.collate_cloze(items, VOCAB)
    return tuple(batch[name] for name in ("story", "story_lengths", "query", "query_lengths"))


# ------------------------------------------------------------------------------------------------------- reading text
def test_contractions_are_cut_where_glove_cuts_them():
    assert ae.review_words("Don't! It's the film's o'clock.", KNOWN) == "do n't it 's the film 's o'clock".split()


def test_a_known_word_and_a_word_without_an_apostrophe_stay_whole():
    assert ae.review_words("o'clock zebra", KNOWN) == ["o'clock", "zebra"]
    assert ae.review_words("n't", set()) == ["n't"]  # nothing would be left in front of the cut


def test_long_sentences_are_broken_and_no_word_is_lost():
    string = "one two three four five. Six seven."
    document = ae.document_of(string, set(), longest=2)
    assert document == [["one", "two"], ["three", "four"], ["five"], ["six", "seven"]]


def test_sentences_without_a_word_are_left_out():
    assert ae.document_of("Fine. !!! ... Yes.", set()) == [["fine"], ["yes"]]


def test_a_sentence_of_no_words_is_no_limit():
    with pytest.raises(ValueError, match="at least 1"):
        ae.document_of("a b", set(), longest=0)


# ---------------------------------------------------------------------------------------------------------- collating
def test_a_batch_holds_every_word_at_its_place():
    batch = ae.collate_documents(DOCUMENTS, [1, 0, 1])
    assert batch["lengths"].tolist() == [[3, 2, 0], [4, 0, 0], [2, 1, 5]]
    assert batch["words"].shape == (3, 3, 5)
    for b, document in enumerate(DOCUMENTS):
        for s, sentence in enumerate(document):
            assert batch["words"][b, s, : len(sentence)].tolist() == sentence
    assert int((batch["words"] > 0).sum()) == int(batch["lengths"].sum())
    assert batch["labels"].tolist() == [1, 0, 1]


def test_documents_without_labels_make_a_batch_without_labels():
    assert set(ae.collate_documents(DOCUMENTS)) == {"words", "lengths"}


@pytest.mark.parametrize("bad", [[[[4, 5]], []], [[[4]], [[5], []]], [[[4]], [[], [5]]]])
def test_a_review_without_a_word_is_refused_by_its_number(bad):
    with pytest.raises(ValueError, match="document 1 has no sentence, or one without a word"):
        ae.collate_documents(bad)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="no documents"):
        ae.collate_documents([])


@pytest.mark.parametrize("name", list(classifiers()))
def test_a_document_or_a_batch_that_is_all_padding_is_refused(name):
    model = classifiers()[name]
    words = torch.full((2, 3, 4), 4)
    with pytest.raises(ValueError, match="document 0 of the batch is all padding"):
        model(words, torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="document 1 of the batch is all padding"):
        model(words, torch.tensor([[4, 0, 0], [0, 0, 0]]))
    with pytest.raises(ValueError, match="all padding"):
        model(words[:0], torch.zeros(0, 3, dtype=torch.long))


@pytest.mark.parametrize("name", list(classifiers()))
def test_an_empty_sentence_between_others_is_refused(name):
    with pytest.raises(ValueError, match="document 1 has an empty sentence before a real one"):
        classifiers()[name](torch.full((2, 3, 4), 4), torch.tensor([[4, 1, 0], [2, 0, 1]]))


def test_a_document_as_one_sequence_is_its_sentences_end_to_end():
    batch = ae.collate_documents(DOCUMENTS)
    flat, sizes = ae.as_one_sequence(batch["words"], batch["lengths"])
    assert sizes.tolist() == [5, 4, 8]
    assert flat.tolist() == [[4, 5, 6, 7, 8, 0, 0, 0], [9, 3, 4, 5, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8]]


# ------------------------------------------------------------------------------------------------------------- lookup
def test_a_lookup_is_the_weighted_mean_of_the_values_worked_out_by_hand():
    query, key = torch.tensor([[1.0, 0.0]]), torch.tensor([[math.log(3), 5.0], [0.0, -7.0]])
    value = torch.tensor([[4.0], [8.0]])
    found, weights = ae.attend(query, key, value)
    check.close(weights, torch.tensor([[0.75, 0.25]]))
    check.close(found, torch.tensor([[5.0]]))


def test_forbidden_places_have_weight_0_and_a_row_without_places_is_0_forward_and_backward():
    x = torch.randn(3, 4, 6, requires_grad=True)
    allowed = torch.tensor([[True, True, False, True], [False] * 4, [False, False, True, False]])[:, None]
    found, weights = ae.attend(x, x, x, allowed=allowed)
    check.sums_to_one(weights[[0, 2]], allowed=allowed[[0, 2]])
    assert (weights[1] == 0).all() and (found[1] == 0).all()
    found.square().sum().backward()
    assert x.grad.isfinite().all() and (x.grad[1] == 0).all()


def test_a_missing_value_and_a_mask_of_numbers_are_refused():
    x = torch.randn(1, 4, 6)
    with pytest.raises(ValueError, match="4 keys and 3 values"):
        ae.attend(x, x, x[:, :3])
    with pytest.raises(ValueError, match="torch.float32, expected torch.bool"):
        ae.attend(x, x, x, allowed=torch.ones(1, 4, 4))


def test_the_score_is_that_which_is_given():
    x = torch.randn(1, 4, 6)
    near = ae.attend(x, x, x, score=lambda q, k: -1e4 * torch.cdist(q, k))[0]
    check.close(near, x, 1e-5)


def test_a_pool_asks_keys_and_returns_states():
    torch.manual_seed(0)
    pool, states = ae.AttentionPool(5), torch.randn(2, 4, 5)
    allowed = ae.positions(torch.tensor([4, 2]), 4)
    found, weights = pool(states, allowed)
    for b, n in enumerate((4, 2)):
        scores = torch.tanh(states[b, :n] @ pool.key.weight.T + pool.key.bias) @ pool.query[0]
        check.close(weights[b, :n], scores.softmax(0), 1e-6)
        check.close(found[b], scores.softmax(0) @ states[b, :n], 1e-6)
    assert (weights[1, 2:] == 0).all()


def test_a_pool_without_a_question_is_the_mean_and_has_no_parameters():
    pool, states = ae.AttentionPool(5, learned=False), torch.randn(2, 4, 5)
    found, weights = pool(states, ae.positions(torch.tensor([4, 3]), 4))
    check.close(found, torch.stack([states[0].mean(0), states[1, :3].mean(0)]), 1e-6)
    check.close(weights[1], torch.tensor([1 / 3] * 3 + [0]))
    assert not list(pool.parameters())


# -------------------------------------------------------------------------------------------------------- classifiers
def test_the_hierarchy_is_a_loop_over_sentences_and_then_a_document():
    model = classifiers()["two levels"]
    batch = ae.collate_documents(DOCUMENTS)
    scores = model(**batch)
    for document, found in zip(DOCUMENTS, scores, strict=True):
        vectors = []
        for sentence in document:
            states = model.word_gru(model.embedding(torch.tensor([sentence])))[0]
            vectors.append(model.word_pool(states, torch.ones(1, len(sentence), dtype=torch.bool))[0][0])
        states = model.sentence_gru(torch.stack(vectors)[None])[0]
        pooled, _ = model.sentence_pool(states, torch.ones(1, len(document), dtype=torch.bool))
        check.close(found, model.output(pooled)[0], 1e-5)


def test_the_last_state_is_that_after_the_last_real_word():
    model = classifiers()["last"]
    scores = model(**ae.collate_documents(DOCUMENTS))
    for document, found in zip(DOCUMENTS, scores, strict=True):
        words = torch.tensor([[word for sentence in document for word in sentence]])
        check.close(found, model.output(model.gru(model.embedding(words))[1][0])[0], 1e-5)


def test_a_mean_of_words_is_the_mean_of_their_vectors():
    model = classifiers()["words, mean"]
    scores = model(**ae.collate_documents(DOCUMENTS))
    for document, found in zip(DOCUMENTS, scores, strict=True):
        words = torch.tensor([word for sentence in document for word in sentence])
        check.close(found, model.output(model.embedding(words).mean(0)), 1e-5)


def test_only_the_hierarchy_knows_where_a_sentence_ends():
    cut, uncut = [[[4, 5], [6, 7]]], [[[4, 5, 6, 7]]]
    models = classifiers()
    for name in ("last", "flat", "flat, mean", "words"):
        check.close(ae.log_odds(models[name], cut), ae.log_odds(models[name], uncut), 1e-6)
    assert abs(ae.log_odds(models["two levels"], cut) - ae.log_odds(models["two levels"], uncut)) > 1e-4


@pytest.mark.parametrize("kind", [ae.HierarchicalAttention, ae.LastState, ae.FlatAttention])
def test_word_vectors_are_moved_by_training_and_the_given_table_is_not(kind):
    """A table that shares its memory with the model would give the next model a head start."""
    vectors = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    kept = vectors.copy()
    torch.manual_seed(0)
    model = kind(vectors, 5)
    ae.train_classifier(model, DOCUMENTS, np.array([1, 0, 1]), epochs=2, batch_size=2)
    assert (vectors == kept).all()
    assert (model.embedding.weight[4] - torch.tensor(kept[4])).abs().max() > 1e-4
    assert (model.embedding.weight[10] == torch.tensor(kept[10])).all()  # no document has word 10


@pytest.mark.parametrize("name", list(classifiers()))
def test_every_classifier_learns_a_word_that_decides(name):
    """Label 1 if word 4 occurs."""
    random = np.random.default_rng(1)
    documents = [[list(random.integers(5, 12, 4)) for _ in range(3)] for _ in range(120)]
    labels = random.integers(0, 2, 120)
    for document, label in zip(documents, labels, strict=True):
        if label:
            document[random.integers(3)][random.integers(4)] = 4
    model = classifiers()[name]
    history = ae.train_classifier(model, documents, labels, epochs=12, batch_size=12, lr=5e-2)
    assert len(history.losses) == 120
    assert (((ae.log_odds(model, documents) > 0) == labels).mean()) > 0.9
    assert not model.training


def test_each_pass_has_an_order_of_its_own(monkeypatch):
    seeds, shuffle = [], ae.batches

    def spied(*arguments, seed=None, **options):
        seeds.append(seed)
        return shuffle(*arguments, seed=seed, **options)

    monkeypatch.setattr(ae, "batches", spied)
    ae.train_classifier(classifiers()["words"], DOCUMENTS, np.array([1, 0, 1]), epochs=3, batch_size=2)
    ae.train_reader(readers()[0], ITEMS, VOCAB, epochs=3, batch_size=1)
    assert seeds == [0, 1, 2, 0, 1, 2]


def test_the_loss_of_a_model_that_knows_nothing_is_log_2():
    model = classifiers()["two levels"]
    torch.nn.init.zeros_(model.output.weight)
    torch.nn.init.zeros_(model.output.bias)
    batch = ae.collate_documents(DOCUMENTS, [1, 0, 1])
    check.close(ae.classification_loss(model, batch), math.log(2))


def test_the_rate_rises_in_20_steps_and_falls_to_0(monkeypatch):
    schedules = []
    monkeypatch.setattr(ae, "fit", lambda *_, schedule, **__: schedules.append(schedule))
    ae.train_classifier(classifiers()["words"], DOCUMENTS, np.array([1, 0, 1]), epochs=1)
    ae.train_reader(readers()[0], ITEMS, VOCAB, epochs=1)
    assert len(schedules) == 2
    for schedule in schedules:
        factors = [schedule(step, 100) for step in range(100)]
        check.close(factors[0], 1 / 20)
        check.close(factors[19], 0.81)
        check.close(factors[60], 0.4)
        assert max(factors) == factors[19] and 0 < factors[-1] < 0.02


def test_log_odds_are_in_the_order_of_the_documents_whatever_the_batch():
    model = classifiers()["two levels"]
    documents = [DOCUMENTS[i % 3] for i in range(9)]
    odds = ae.log_odds(model, documents, batch_size=2)
    check.close(odds, [float((ae.log_odds(model, [d]))[0]) for d in documents], 1e-5)
    scores = model(**ae.collate_documents(DOCUMENTS)).log_softmax(1)
    check.close(odds[:3], scores[:, 1] - scores[:, 0], 1e-5)


def test_the_effect_of_a_place_is_signed_toward_the_inserted_sentence():
    model = classifiers()["two levels"]
    against, labels = [[4, 5], [6]], [0, 1, 1]
    moves = ae.effect_of_place(model, DOCUMENTS, labels, against, (0, 0.5, 1))
    assert moves.shape == (3, 3)
    first = ae.log_odds(model, [[[4, 5], *DOCUMENTS[0]]]) - ae.log_odds(model, DOCUMENTS[:1])
    check.close(moves[0, 0], first[0], 1e-5)  # label 0 is to be moved up
    middle = [*DOCUMENTS[2][:2], [6], DOCUMENTS[2][2]]  # round(1.5) is 2
    check.close(moves[1, 2], (ae.log_odds(model, DOCUMENTS[2:]) - ae.log_odds(model, [middle]))[0], 1e-5)
    last = ae.log_odds(model, [[*DOCUMENTS[1], [6]]]) - ae.log_odds(model, DOCUMENTS[1:2])
    check.close(moves[2, 1], -last[0], 1e-5)


def test_leaving_a_sentence_out_is_what_the_model_says_of_the_rest():
    model = classifiers()["two levels"]
    odds, weights, votes, drops = ae.leave_one_out(model, DOCUMENTS[2])
    check.close(odds, ae.log_odds(model, DOCUMENTS[2:])[0], 1e-5)
    check.sums_to_one(weights)
    check.close(votes.sum(), odds, 1e-5)
    for i in range(3):
        rest = [s for j, s in enumerate(DOCUMENTS[2]) if j != i]
        check.close(drops[i], odds - ae.log_odds(model, [rest])[0], 1e-5)


def test_a_vote_is_the_weight_times_what_the_state_says():
    model = classifiers()["two levels"]
    _, weights, votes, _ = ae.leave_one_out(model, DOCUMENTS[2])
    batch = ae.collate_documents(DOCUMENTS[2:])
    vectors, _ = model.sentences(**batch)
    _, _, states = model.document(vectors[None], torch.tensor([3]))
    says = model.output(states[0])
    check.close(votes, weights * (says[:, 1] - says[:, 0]).detach().numpy(), 1e-6)


def test_leaving_a_sentence_out_stays_on_the_device_of_the_model():
    class Elsewhere(torch.nn.Module):  # a model on another device, as far as a machine without a GPU can have one
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1, device="meta"))
            self.output, self.seen = torch.nn.Identity(), []

        def sentences(self, words, lengths):
            self.seen += [words.device.type, lengths.device.type]
            return torch.zeros(3, 2, device="meta"), None

        def document(self, vectors, counts):
            self.seen += [vectors.device.type, counts.device.type]
            B, S = vectors.shape[:2]
            return torch.zeros(B, 2), torch.full((B, S), 1 / S), torch.zeros(B, S, 2)

    model = Elsewhere()
    ae.leave_one_out(model, DOCUMENTS[2])
    assert model.seen == ["meta"] * 6


def test_one_sentence_cannot_be_left_out():
    with pytest.raises(ValueError, match="document of 1 sentences"):
        ae.leave_one_out(classifiers()["two levels"], [[4, 5]])


def test_a_logistic_regression_needs_both_labels_and_no_other():
    A = np.eye(3)
    for labels in ([1, 1, 1], [0, 1, 2], [-1, 1, 1]):
        with pytest.raises(ValueError, match="both labels"):
            ae.logistic_regression(A, labels)


def test_a_logistic_regression_separates_and_survives_huge_margins():
    A = np.array([[1e6, 0], [-1e6, 0], [2e6, 1], [-2e6, 1]])
    with np.errstate(over="raise"):
        w, b = ae.logistic_regression(A, [1, 0, 1, 0])
    assert np.isfinite(w).all() and (((A @ w + b) > 0) == [1, 0, 1, 0]).all()


# ------------------------------------------------------------------------------------------------------------ readers
def test_a_cloze_batch_holds_story_query_and_answer():
    batch = ae.collate_cloze(ITEMS, VOCAB)
    assert batch["story_lengths"].tolist() == [8, 4] and batch["query_lengths"].tolist() == [4, 4]
    assert VOCAB.decode(batch["story"][1, :4].tolist()) == list(ITEMS[1].context)
    assert (batch["story"][1, 4:] == 0).all()
    assert VOCAB.decode(batch["answer"].tolist()) == ["ben", "nina"]


def test_an_answer_that_is_not_in_the_story_is_refused_by_name():
    odd = Cloze(ITEMS[0].context, ITEMS[0].query, "parrot")
    with pytest.raises(ValueError, match="item 1: the answer 'parrot' is not a word of its story"):
        ae.collate_cloze([ITEMS[0], odd], VOCAB)


@pytest.mark.parametrize(("context", "query", "what"), [((), ("_",), "story"), (("ben",), (), "query")])
def test_an_empty_story_or_query_is_refused(context, query, what):
    with pytest.raises(ValueError, match=f"item 0 has no {what}"):
        ae.collate_cloze([Cloze(context, query, "ben")], VOCAB)


@pytest.mark.parametrize("which", range(3))
def test_a_reader_refuses_padding_for_a_story_or_a_query(which):
    story, n, query, m = inputs()
    for lengths in ((n * 0, m), (n, m * 0), (torch.tensor([8, 0]), m)):
        with pytest.raises(ValueError, match="all padding"):
            readers()[which](story, lengths[0], query, lengths[1])


@pytest.mark.parametrize("which", range(3))
def test_a_word_gets_the_sum_of_its_places_and_all_sum_to_1(which):
    reader, x = readers()[which], inputs()
    p, words = reader.places(*x), reader(*x)
    check.sums_to_one(words)
    check.sums_to_one(p, allowed=ae.positions(x[1], x[0].shape[1]))
    assert words.shape == (2, len(VOCAB)) and (words[:, 0] == 0).all()
    for b in range(2):
        for word in range(len(VOCAB)):
            check.close(words[b, word], p[b][x[0][b] == word].sum(), 1e-6)


def test_attention_sum_asks_with_both_last_states():
    reader, x = readers()[0], inputs()
    p = reader.places(*x)
    for b in range(2):
        h = reader.story_gru(reader.embedding(x[0][b : b + 1, : x[1][b]]))[0][0]
        _, (forward, backward) = reader.query_gru(reader.embedding(x[2][b : b + 1, : x[3][b]]))
        query = torch.cat([forward[0], backward[0]])
        check.close(p[b, : x[1][b]], (h @ query).softmax(0), 1e-5)


@pytest.mark.parametrize("weighted", [True, False])
def test_attention_over_attention_is_the_loop_of_its_definition(weighted):
    reader, x = readers()[1 if weighted else 2], inputs()
    alpha, beta = reader.pointing(*x)
    p = reader.places(*x)
    for b in range(2):
        S, T = int(x[1][b]), int(x[3][b])
        h = reader.story_gru(reader.embedding(x[0][b : b + 1, :S]))[0][0].detach()
        u = reader.query_gru(reader.embedding(x[2][b : b + 1, :T]))[0][0].detach()
        counts = torch.zeros(T)
        for s in range(S):
            counts += (
                torch.tensor([u[t] @ h[s] for t in range(T)]).softmax(0) / S if weighted else torch.ones(T) / T / S
            )
        expected = torch.zeros(S)
        for t in range(T):
            points = torch.tensor([u[t] @ h[s] for s in range(S)]).softmax(0)
            check.close(alpha[b, t, :S], points, 1e-5)
            expected += counts[t] * points
        check.close(beta[b, :T], counts, 1e-5)
        check.close(p[b, :S], expected, 1e-5)


def test_the_cloze_loss_is_minus_log_p_and_finite_where_p_is_0():
    reader = readers()[1]
    batch = ae.collate_cloze(ITEMS, VOCAB)
    p = reader(*inputs())
    expected = -(p[0, VOCAB["ben"]].log() + p[1, VOCAB["nina"]].log()) / 2
    check.close(ae.cloze_loss(reader, batch), expected, 1e-6)
    impossible = batch | {"answer": torch.tensor([0, 0])}
    check.close(ae.cloze_loss(reader, impossible), -math.log(1e-12), 1e-3)


@pytest.mark.parametrize("which", range(3))
def test_every_reader_learns_to_answer(which):
    torch.manual_seed(0)
    reader = readers(D=8)[which]
    history = ae.train_reader(reader, ITEMS * 8, VOCAB, epochs=15, batch_size=4, lr=2e-2)
    assert len(history.losses) == 60
    assert ae.answers(reader, ITEMS, VOCAB).tolist() == [VOCAB["ben"], VOCAB["nina"]]


# ------------------------------------------------------------------------------------------------------ self-attention
def test_self_attention_looks_up_three_views_of_one_sequence():
    torch.manual_seed(0)
    layer, x = ae.SelfAttention(6), torch.randn(2, 5, 6)
    found, weights = layer(x)
    q, k, v = x @ layer.query.weight.T, x @ layer.key.weight.T, x @ layer.value.weight.T
    check.close(weights, (q @ k.mT).softmax(-1), 1e-6)
    check.close(found, F.softmax(q @ k.mT, -1) @ v, 1e-5)
    assert [name for name, _ in layer.named_parameters()] == ["query.weight", "key.weight", "value.weight"]


def test_a_causal_mask_makes_self_attention_causal():
    torch.manual_seed(0)
    layer, x = ae.SelfAttention(6), torch.randn(2, 5, 6)
    check.causal(lambda x: layer(x, torch.ones(5, 5, dtype=torch.bool).tril())[0], x)
