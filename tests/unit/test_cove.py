"""CoVe: errors, options, and small facts that can be worked out by hand."""

import copy

import numpy as np
import pytest
import torch

from lrm_utils import check, text
from lrm_utils.data import miniature
from lrm_utils.data.miniature import Translation
from lrm_utils.models import cove as cv
from lrm_utils.models import seq2seq as s2s
from lrm_utils.text import Vocab, WordVectors

WORDS = ("the", "owl", "dog", "saw", "bank")


@pytest.fixture
def vectors():
    matrix = np.random.default_rng(0).standard_normal((len(WORDS), 6)).astype(np.float32)
    return WordVectors(Vocab(WORDS, np.zeros(len(WORDS), dtype=int)), matrix)


@pytest.fixture
def table():
    torch.manual_seed(0)
    return torch.nn.Embedding.from_pretrained(torch.randn(12, 6))


def translator(table, layers=(2, 1)):
    torch.manual_seed(1)
    return cv.Translator(table, V_target=9, D=8, E=5, layers=layers).eval()


SOURCE = torch.tensor([[4, 5, 6, 7, 8], [9, 4, 0, 0, 0], [6, 6, 10, 0, 0]])
LENGTHS = torch.tensor([5, 2, 3])
TARGET = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 4], [1, 5, 5, 5]])


# ------------------------------------------------------------------------------------------------- word vectors
def test_the_table_holds_the_vector_of_each_word_and_zeros_for_unknown_words(vectors):
    vocab = Vocab(("<pad>", "dog", "covfefe", "owl"), np.zeros(4, dtype=int))
    table = cv.vector_table(vocab, vectors)
    np.testing.assert_array_equal(table.weight[1], vectors["dog"])
    np.testing.assert_array_equal(table.weight[3], vectors["owl"])
    assert not table.weight[[0, 2]].any()
    assert not table.weight.requires_grad


def test_enlarged_vectors_are_longer_and_the_old_ones_stay(vectors):
    before = vectors.matrix.copy()
    np.testing.assert_array_equal(cv.enlarged(vectors, 3.0)["dog"], 3 * vectors["dog"])
    np.testing.assert_array_equal(vectors.matrix, before)


def test_a_vocabulary_without_any_known_word_is_refused(vectors):
    with pytest.raises(ValueError, match="none of 2 words has a vector"):
        cv.vector_table(Vocab(("OWL", "DOG"), np.zeros(2, dtype=int)), vectors)


# ------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize("lengths", [[3, 0], [0, 0]])
def test_a_sentence_without_a_word_is_refused_by_name(lengths):
    with pytest.raises(ValueError, match=f"sentence {int(np.argmin(lengths))} is empty"):
        cv.places(torch.tensor(lengths), 4)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="the batch is empty"):
        cv.places(torch.zeros(0, dtype=torch.long), 4)


@pytest.mark.parametrize("how", ["encoder", "translator", "features", "classifier", "greedy"])
def test_every_reader_refuses_an_empty_sentence(table, how):
    lengths = torch.tensor([5, 0, 3])
    encoder = cv.MTLSTM(6, 4)
    read = {
        "encoder": lambda: encoder(table(SOURCE), lengths),
        "translator": lambda: translator(table)(SOURCE, lengths, TARGET),
        "features": lambda: cv.Features(table, encoder)(SOURCE, lengths),
        "classifier": lambda: cv.Classifier(cv.Features(table), 2, 4, n=1)(SOURCE[:, None], lengths[:, None]),
        "greedy": lambda: s2s.greedy(translator(table), SOURCE, lengths),
    }[how]
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        read()


def test_an_example_without_words_is_refused_when_it_is_read(table):
    batch = cv.collate_texts([(([4, 5],), 0), (([],), 1)])
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        cv.Classifier(cv.Features(table), 2, 4, n=1)(batch["words"], batch["lengths"])


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="D=7 cannot be halved"):
        cv.MTLSTM(4, 7)


def test_a_decoder_deeper_than_the_encoder_is_refused(table):
    with pytest.raises(ValueError, match="3 decoder layers cannot start from 2"):
        translator(table, (2, 3))


# ------------------------------------------------------------------------------------------------- the translator
def test_the_encoder_has_the_layers_and_directions_that_were_asked_for():
    encoder = cv.MTLSTM(6, 8)
    assert (encoder.rnn.num_layers, encoder.rnn.bidirectional, encoder.rnn.hidden_size) == (2, True, 4)
    states, (h, c) = encoder(torch.randn(3, 5, 6), LENGTHS)
    assert states.shape == (3, 5, 8)
    assert h.shape == c.shape == (3, 2, 8)


def test_the_last_states_are_those_after_the_last_word_forward_and_the_first_backward():
    torch.manual_seed(0)
    encoder, x = cv.MTLSTM(6, 8), torch.randn(3, 5, 6)
    states, (h, _) = encoder(x, LENGTHS)
    for i, n in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(h[i, -1, :4], states[i, n - 1, :4])
        torch.testing.assert_close(h[i, -1, 4:], states[i, 0, 4:])


@pytest.mark.parametrize("layers", [(2, 1), (2, 2), (1, 1)])
def test_the_decoder_starts_layer_by_layer_from_the_encoder_and_from_nothing_fed(table, layers):
    model = translator(table, layers)
    H, (h, c) = model.encoder(table(SOURCE), LENGTHS)
    state = model.start(SOURCE, LENGTHS)
    torch.testing.assert_close(state["h"], h[:, : layers[1]])
    torch.testing.assert_close(state["c"], c[:, : layers[1]])
    torch.testing.assert_close(state["H"], H)
    assert not state["fed"].any()
    assert state["fed"].shape == (3, 8)


@pytest.mark.parametrize("layers", [(2, 1), (2, 2)])
def test_what_is_kept_is_batch_first_so_that_beams_can_pick_rows(table, layers):
    model = translator(table, layers)
    _, state = model.step(torch.tensor([1, 1, 1]), model.start(SOURCE, LENGTHS))
    assert all(len(part) == 3 for part in state.values())
    ids = s2s.beam_search(model, SOURCE, LENGTHS, width=1, limit=6)
    torch.testing.assert_close(ids, s2s.greedy(model, SOURCE, LENGTHS, limit=6))


def test_the_adjusted_state_is_fed_back(table):
    model = translator(table)
    state = model.start(SOURCE, LENGTHS)
    other = state | {"fed": state["fed"] + 1}
    tokens = torch.tensor([4, 4, 4])
    fed, _, kept = model.decoder.step(model.target_table(tokens), state)
    torch.testing.assert_close(kept["fed"], fed)
    assert not torch.allclose(model.step(tokens, state)[0], model.step(tokens, other)[0])


def test_both_linear_maps_of_the_decoder_have_their_bias(table):
    decoder = translator(table).decoder
    assert (decoder.W_1.bias.shape, decoder.W_2.bias.shape) == ((8,), (8,))


def test_only_the_table_of_words_stays_out_of_the_training_of_the_translator(table):
    model = translator(table).train()
    loss, count = s2s.translation_loss(
        model,
        dict(source=SOURCE, source_lengths=LENGTHS, target=TARGET, target_lengths=torch.tensor([4, 4, 4])),
    )
    (loss / count).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == ["source_table.weight"]


# ------------------------------------------------------------------------------------------------- features
def test_features_are_the_vector_and_beside_it_the_state(table):
    encoder = cv.MTLSTM(6, 4)
    features = cv.Features(table, encoder)
    out = features(SOURCE, LENGTHS)
    assert out.shape == (3, 5, features.width) == (3, 5, 10)
    torch.testing.assert_close(out[..., :6], table(SOURCE))
    torch.testing.assert_close(out[..., 6:], encoder(table(SOURCE), LENGTHS)[0])
    assert cv.Features(table).width == 6


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_features_do_not_move_in_training_and_others_do(table, frozen):
    torch.manual_seed(0)
    encoder = cv.MTLSTM(6, 4)
    before = copy.deepcopy(encoder.state_dict())
    rng = np.random.default_rng(0)
    examples = [((rng.integers(4, 12, 3), rng.integers(4, 12, 2)), int(rng.integers(2))) for _ in range(20)]
    learner = cv.trained_classifier(cv.Features(table, encoder, frozen), examples, 2, steps=3, batch_size=8)
    after = learner.features.encoder.state_dict()
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert (moved == []) is frozen
    assert all(torch.equal(before[name], weights) for name, weights in encoder.state_dict().items()), "not on a copy"
    assert all(p.requires_grad for p in encoder.parameters())


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_encoder_is_not_among_what_learns(table, frozen):
    features = cv.Features(table, cv.MTLSTM(6, 4), frozen)
    assert any(p.requires_grad for p in features.parameters()) is not frozen
    assert features(SOURCE, LENGTHS).requires_grad is not frozen
    with torch.no_grad():
        assert not features(SOURCE, LENGTHS).requires_grad


def test_shuffled_weights_are_the_same_numbers_in_another_order():
    torch.manual_seed(0)
    encoder = cv.MTLSTM(6, 8)
    other = cv.shuffled_weights(encoder)
    for (name, a), b in zip(encoder.named_parameters(), other.parameters(), strict=True):
        assert not torch.equal(a, b), name
        torch.testing.assert_close(a.flatten().sort().values, b.flatten().sort().values)
    again = cv.shuffled_weights(encoder)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), again.parameters(), strict=True))
    third = cv.shuffled_weights(encoder, seed=1)
    assert not torch.equal(third.rnn.weight_ih_l0, other.rnn.weight_ih_l0)


# ------------------------------------------------------------------------------------------------- the classifier
def test_the_four_pools_by_hand():
    pool = cv.Pooling(2)
    pool.v.weight.data, pool.v.bias.data = torch.tensor([[1.0, 0.0]]), torch.tensor([5.0])
    X = torch.tensor([[[0.0, -1.0], [float(np.log(3)), -3.0], [99.0, 99.0]]])
    out = pool(X, torch.tensor([[True, True, False]]))[0]
    log3 = float(np.log(3))
    expected = [log3, -1.0, log3 / 2, -2.0, 0.0, -3.0, 0.75 * log3, 0.25 * -1 + 0.75 * -3]
    torch.testing.assert_close(out, torch.tensor(expected))


def test_each_text_looks_at_the_other_and_a_single_text_at_itself(table):
    torch.manual_seed(0)
    bcn = cv.BCN(6, 3, 4).eval()
    x, lengths = torch.randn(2, 2, 5, 6), torch.tensor([[5, 3], [2, 4]])
    seen = []
    kept = cv.summarize

    def spy(X, Y, y_real):
        seen.append((X, Y, y_real))
        return kept(X, Y, y_real)

    cv.summarize = spy
    try:
        bcn(x, lengths)
        cv.BCN(6, 3, 4, n=1).eval()(x[:, :1], lengths[:, :1])
    finally:
        cv.summarize = kept
    X, Y, real = seen[0]
    torch.testing.assert_close(Y, X[[1, 0, 3, 2]])
    assert real.sum(1).tolist() == [3, 5, 4, 2]
    torch.testing.assert_close(seen[1][0], seen[1][1])


def test_the_network_computes_its_formulas():
    torch.manual_seed(0)
    bcn = cv.BCN(6, 3, 4, pieces=2).eval()
    x, lengths = torch.randn(1, 2, 5, 6), torch.tensor([[5, 3]])

    def lstm(reader, words):
        return reader.rnn(words[None])[0][0]

    X, Y = (lstm(bcn.encode, torch.relu(bcn.reduce[1](x[0, i, :n]))) for i, n in enumerate((5, 3)))
    A = X @ Y.T
    C_y, C_x = A.softmax(1) @ Y, A.T.softmax(1) @ X
    pooled = []
    for own, summary in ((X, C_y), (Y, C_x)):
        U = lstm(bcn.integrate, torch.cat([own, own - summary, own * summary], 1))
        beta = torch.softmax((U @ bcn.pool.v.weight[0]) + bcn.pool.v.bias, 0)
        pooled += [U.amax(0), U.mean(0), U.amin(0), U.T @ beta]
    hidden = bcn.maxout(torch.cat(pooled)).view(4, 2).max(1).values
    torch.testing.assert_close(bcn(x, lengths)[0], bcn.output(hidden))


def test_dropout_is_off_when_a_classifier_is_judged(table):
    examples = [(([4, 5, 6], [7, 8]), 0), (([9], [10, 11, 4]), 1)] * 4
    learner = cv.trained_classifier(cv.Features(table), examples, 2, steps=2, batch_size=4)
    assert not learner.training
    assert (cv.right(learner, examples) == cv.right(learner, examples)).all()


def test_dropout_acts_on_words_on_what_is_pooled_and_on_the_hidden_layer_in_training():
    torch.manual_seed(0)
    bcn = cv.BCN(6, 3, 4, n=1, dropout=0.5).train()
    x, seen = torch.ones(40, 1, 5, 6), {}
    for name in ("reduce.1", "maxout", "output"):
        layer = bcn.get_submodule(name)
        layer.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
    bcn(x, torch.full((40, 1), 5))
    for name, inputs in seen.items():
        assert 0.4 < (inputs == 0).float().mean() < 0.6, name


def test_the_loss_of_labels_is_a_mean(table):
    torch.manual_seed(0)
    learner, examples = cv.Classifier(cv.Features(table), 2, 4).eval(), [(([4, 5], [6]), 0), (([7], [8]), 1)]
    losses = [cv.label_loss(learner, cv.collate_texts(some)) for some in (examples, examples * 3)]
    torch.testing.assert_close(*losses)


def test_a_classifier_is_trained_with_the_ramp_and_clipped_gradients(table, monkeypatch):
    asked = {}
    monkeypatch.setattr(cv, "fit", lambda model, batches, loss, **options: asked.update(options))
    cv.trained_classifier(cv.Features(table), [(([4, 5],), 0), (([6],), 1)], 2, steps=7, seed=3, lr=0.02, D=4)
    assert asked == dict(steps=7, lr=0.02, schedule=s2s.ramp, clip=1.0, seed=3)


def test_a_classifier_depends_on_its_seed_and_on_nothing_else(table):
    examples = [(([4, 5, 6], [7, 8]), 0), (([9], [10, 11, 4]), 1)] * 4
    one, again, other = (
        cv.trained_classifier(cv.Features(table), examples, 2, steps=2, seed=seed).bcn.output.weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)


def test_right_does_not_depend_on_the_batch_size(table):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    examples = [((rng.integers(4, 12, rng.integers(1, 7)),), int(rng.integers(3))) for _ in range(23)]
    learner = cv.Classifier(cv.Features(table), 3, 4, n=1).eval()
    expected = cv.right(learner, examples, batch_size=1)
    np.testing.assert_array_equal(cv.right(learner, examples, batch_size=7), expected)
    scores = [learner(torch.as_tensor(ids)[None, None], torch.tensor([[len(ids)]])) for (ids,), _ in examples]
    answers = [int(s.argmax()) == label for s, (_, label) in zip(scores, examples, strict=True)]
    np.testing.assert_array_equal(expected, answers)


def test_texts_are_collated_in_order():
    batch = cv.collate_texts([(([4, 5, 6], [7]), 1), (([8], [9, 10]), 0)])
    assert batch["words"].tolist() == [[[4, 5, 6], [7, 0, 0]], [[8, 0, 0], [9, 10, 0]]]
    assert batch["lengths"].tolist() == [[3, 1], [1, 2]]
    assert batch["labels"].tolist() == [1, 0]


def test_every_example_comes_once_an_epoch_and_epochs_differ():
    examples = [(([4] * (1 + i % 5),), i) for i in range(23)]
    epoch = cv.text_batches(examples, 4)
    orders = [[label for batch in epoch(n) for label in batch["labels"].tolist()] for n in (0, 0, 1)]
    assert sorted(orders[0]) == list(range(23))
    assert orders[0] == orders[1] != orders[2]


def test_examples_of_similar_length_share_a_batch():
    examples = [(([4] * (1 + i % 5), [5] * (1 + i % 5)), i) for i in range(40)]
    for batch in cv.text_batches(examples, 8)(0):
        assert len(batch["lengths"].unique()) == 1


def test_a_classifier_learns_who_acts():
    rng, examples = np.random.default_rng(0), []
    for _ in range(120):
        a, b = rng.permutation(np.arange(4, 8))[:2]
        examples.append((([a, 9, b], [a, 9, b] if (same := int(rng.integers(2))) else [b, 9, a]), same))
    torch.manual_seed(0)
    table = torch.nn.Embedding.from_pretrained(torch.randn(12, 6))
    learner = cv.trained_classifier(cv.Features(table), examples[:100], 2, steps=150, batch_size=20, lr=1e-2)
    check.above(cv.right(learner, examples[100:]).mean(), 0.8)


# ------------------------------------------------------------------------------------------------- the questions
PAIR = Translation(
    ("the", "small", "dog", "saw", "two", "owls", "and", "the", "owls", "hid"),
    ("doda", "rufa", "bi", "memain", "labek", "ta", "memai", "hideku"),
    ((1, 1), (2, 0), (3, 4), (4, 2), (5, 3), (6, 5), (8, 6), (9, 7)),
)


def test_roles_are_read_off_nouns_and_not_off_adjectives():
    found = cv.asked([PAIR], "...ai?(n?)", "suffers", "acts")
    assert [(o.word, o.position, o.label) for o in found] == [
        ("dog", 2, "acts"),
        ("owls", 5, "suffers"),
        ("owls", 8, "acts"),
    ]


def test_words_before_the_first_place_are_not_asked_about():
    found = cv.asked([PAIR], "...ai?(n?)", "suffers", "acts", first=5)
    assert [(o.word, o.position) for o in found] == [("owls", 5), ("owls", 8)]


def test_numbers_are_read_off_verbs_in_the_past():
    found = cv.asked([PAIR], "...ek(u?)", "many", "one")
    assert [(o.word, o.label) for o in found] == [("saw", "one"), ("hid", "many")]


def test_balanced_answers_leave_nothing_to_the_word():
    made = [("owl", "a")] * 3 + [("owl", "b")] * 2 + [("dog", "a")] * 4
    kept = cv.balanced([cv.Occurrence((word,), 0, label) for word, label in made])
    assert sorted((o.word, o.label) for o in kept) == [("owl", "a")] * 2 + [("owl", "b")] * 2


def test_the_first_occurrences_of_each_answer_are_kept():
    made = [cv.Occurrence(("owl",) * (i + 1), 0, label) for i, label in enumerate("aabab")]
    assert {len(o.words) for o in cv.balanced([*made, made[0]])} == {1, 2, 3, 5}


@pytest.fixture(scope="module")
def asked():
    return cv.questions("test", train=10, test=60)


def test_every_question_is_balanced_within_each_word(asked):
    assert list(asked) == ["role", "number", "tag", "sense"]
    for question, occurrences in asked.items():
        for word in {o.word for o in occurrences}:
            labels = [o.label for o in occurrences if o.word == word]
            counts = {labels.count(label) for label in labels}
            assert len(counts) == 1, (question, word)
            assert len(set(labels)) > 1


def test_the_answers_are_those_of_the_generator(asked):
    lived = {"acts": 0, "suffers": 0}
    for o in asked["role"]:
        lived[o.label] += 1
        if o.position and o.words[o.position - 1] == "that":
            raise AssertionError("a relative pronoun is followed by a verb")
    assert lived["acts"] == lived["suffers"] > 5
    splits = miniature.translation(train=20, validation=0, test=120, seed=1)
    first = [pair.source for pair in splits.test]
    assert {o.words for o in asked["role"]} <= set(first)
    assert min(o.position for o in asked["role"]) >= cv.LATE
    assert not {o.words for o in asked["role"]} & {p.source for p in miniature.translation(train=500).train}


def test_who_acts_and_how_many_is_read_off_the_ending_of_the_partner(asked):
    pairs = {p.source: p for p in miniature.translation(train=40, validation=0, test=240, seed=1).test}
    for question, ending, yes, no in (("role", "n", "suffers", "acts"), ("number", "u", "many", "one")):
        assert {o.label for o in asked[question]} == {yes, no}
        for o in asked[question]:
            partner = pairs[o.words].target[dict(pairs[o.words].alignment)[o.position]]
            assert o.label == (yes if partner.endswith(ending) else no)


def test_tags_and_senses_are_those_of_the_word_that_is_asked_about(asked):
    sizes = dict(train=10, validation=0, test=60, seed=1)
    tags = {s.words: s.tags for s in miniature.tagging(**sizes).test}
    senses = {s.words: s for s in miniature.senses(**sizes).test}
    assert all(o.label == tags[o.words][o.position] for o in asked["tag"])
    for o in asked["sense"]:
        known = senses[o.words]
        assert (o.position, o.label) == (known.position, f"{o.word}: {known.sense}")


def test_a_static_probe_is_right_half_the_time_and_an_all_knowing_one_always(vectors):
    made = [
        cv.Occurrence(("the", w, "saw")[: 2 + (k % 2)], 1, f"{w}{k % 2}") for w in ("owl", "dog") for k in range(20)
    ]
    questions = {"follows": made}
    assert cv.probed(questions, questions, vectors)["follows"] == 0.5
    assert cv.probed(questions, questions, vectors, window=1)["follows"] == 1.0
    torch.manual_seed(0)
    assert cv.probed(questions, questions, vectors, cv.MTLSTM(6, 8))["follows"] == 1.0


@pytest.mark.parametrize("side", [-1, 1])
def test_a_window_reaches_as_far_to_either_side_as_it_says_and_no_further(vectors, side):
    def far(distance):
        rows = [("bank", *["the"] * (distance - 1), "owl"), ("saw", *["the"] * (distance - 1), "owl")]
        made = [cv.Occurrence(row[::-side], 0 if side > 0 else distance, row[0]) for row in rows * 5]
        return {"neighbor": made}

    for window in (1, 2):
        near, beyond = far(window), far(window + 1)
        assert cv.probed(near, near, vectors, window=window)["neighbor"] == 1.0
        assert cv.probed(beyond, beyond, vectors, window=window)["neighbor"] == 0.5


def test_a_probe_is_tested_on_other_occurrences_than_it_was_taught(vectors):
    taught = [cv.Occurrence((w,), 0, label) for w, label in (("owl", "a"), ("dog", "b"))]
    tested = [cv.Occurrence((w,), 0, label) for w, label in (("owl", "b"), ("owl", "b"), ("dog", "b"), ("owl", "b"))]
    assert cv.probed({"which": taught}, {"which": tested}, vectors)["which"] == 0.25


def test_occurrence_vectors_stand_at_the_asked_place(vectors):
    torch.manual_seed(0)
    encoder = cv.MTLSTM(6, 4)
    sentences = [("the", "owl", "saw"), ("owl",), ("the", "covfefe", "dog", "saw")]
    asked = [cv.Occurrence(s, i, "") for s in sentences for i in range(len(s))]
    found = cv.occurrence_vectors(asked, vectors, encoder, batch_size=3)
    assert found.shape == (8, 10)
    for row, o in zip(found, asked, strict=True):
        x = np.stack([vectors[w] if w in WORDS else np.zeros(6, np.float32) for w in o.words])
        states = encoder.rnn(torch.as_tensor(x)[None])[0][0].detach().numpy()
        np.testing.assert_allclose(row, np.concatenate([x, states], 1)[o.position], atol=1e-6)
    np.testing.assert_array_equal(cv.occurrence_vectors(asked, vectors)[1], vectors["owl"])


def test_text_pad_value_is_the_padding_of_the_translator():
    assert s2s.PAD == 0
    assert text.pad([[5], [6, 7]], s2s.PAD)[0].tolist() == [[5, 0], [6, 7]]


# ------------------------------------------------------------------------------------------------- patches
@pytest.fixture(scope="module")
def speaker():
    corpus = s2s.parallel(miniature.translation(train=300, validation=0, test=20))
    torch.manual_seed(0)
    table = torch.nn.Embedding.from_pretrained(torch.randn(len(corpus.source_vocab), 6))
    return cv.Translator(table, len(corpus.target_vocab), 8, 5).eval(), corpus


def test_without_a_donor_it_is_greedy_search(speaker):
    model, corpus = speaker
    pairs = corpus.test[:5]
    for pair, ids in zip(pairs, s2s.translate(model, pairs, limit=9), strict=True):
        sentence = " ".join(corpus.source_vocab.decode(pair.source))
        assert cv.patched(model, corpus, sentence, limit=9) == corpus.target_vocab.decode(ids)


def test_the_end_of_a_sentence_is_not_among_its_words(speaker):
    model, corpus = speaker
    ending = copy.deepcopy(model)
    ending.output.bias.data[s2s.EOS] += 100
    assert cv.patched(ending, corpus, "the owl pushed the dog") == []


def test_a_state_is_taken_from_the_place_of_the_donor_that_was_asked_for(speaker):
    model, corpus = speaker
    kept, seen = model.step, []

    def spy(tokens, state):
        seen.append(state["H"])
        return kept(tokens, state)

    one, two = "the owl pushed the dog", "two dogs saw many red geese"
    states = [
        model.start(torch.as_tensor(corpus.source_vocab.encode(s.split()))[None], torch.tensor([len(s.split())]))["H"]
        for s in (one, two)
    ]
    model.step = spy
    try:
        cv.patched(model, corpus, one, two, [(1, 3)], limit=1)
    finally:
        del model.step
    torch.testing.assert_close(seen[0][:, 1], states[1][:, 3])
    torch.testing.assert_close(seen[0][:, [0, 2, 3, 4]], states[0][:, [0, 2, 3, 4]])


def test_with_begin_the_decoder_starts_from_the_donor_and_attends_to_the_sentence(speaker):
    model, corpus = speaker
    one, two = "the owl pushed the dog", "two dogs saw many red geese"
    kept, seen = model.step, []
    model.step = lambda tokens, state: (seen.append(state), kept(tokens, state))[1]
    try:
        for sentence, donor in ((one, two), (two, None), (one, None)):
            cv.patched(model, corpus, sentence, donor, begin=donor is not None, limit=1)
    finally:
        del model.step
    mixed, other, own = seen
    torch.testing.assert_close(mixed["h"], other["h"])
    torch.testing.assert_close(mixed["c"], other["c"])
    torch.testing.assert_close(mixed["H"], own["H"])


def test_patches_count_the_endings_that_follow(speaker, monkeypatch):
    model, corpus = speaker
    whole = [(i, i) for i in range(5)]

    def said(model, corpus, sentence, donor, taken=(), begin=False):
        assert (sentence.split()[0], donor.split()[0]) == ("the", "two")
        if taken == [(2, 2)]:
            return ["mema", "labeku" if "pushed" in sentence else "labek"]
        if taken == [(0, 0), (1, 1)]:
            return []
        return ["memau", "labeku" if begin and taken == whole else "labek"]

    monkeypatch.setattr(cv, "patched", said)
    found = cv.patches(model, corpus, nouns=("owl",))
    nothing = dict.fromkeys(("nothing", "subject's states", "all states", "start of the decoder"), 0.0)
    assert found == pytest.approx(nothing | {"verb's state": 1 / 6, "all states and start": 1.0})
