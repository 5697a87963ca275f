"""ELMo: errors, options, and small facts that can be worked out by hand."""

import copy

import numpy as np
import pytest
import torch

from lrm_utils import check
from lrm_utils.checkpoints import Checkpoint
from lrm_utils.data import Review
from lrm_utils.data.miniature import Tagged
from lrm_utils.models import elmo_representations as er
from lrm_utils.models.bilm import LanguageModel, Softmax
from lrm_utils.models.cove import Occurrence
from lrm_utils.text import Vocab, WordVectors

VOCAB = Vocab(("</s>", "<unk>", "the", "cat", "ate", "apple"), np.ones(6, dtype=int))
SETTINGS = dict(filters=[(1, 4), (2, 6)], D=5, H=7, layers=2, highways=1)
SENTENCES = [["the", "cat", "ate", "apple"], ["apple"], ["zyzzyva", "cat"], ["the", "the", "the"]]


@pytest.fixture
def checkpoint():
    torch.manual_seed(0)
    model = LanguageModel(er.built(Checkpoint({}, VOCAB, {"settings": SETTINGS})), Softmax(len(VOCAB), 5))
    return Checkpoint(model.state_dict(), VOCAB, {"name": "tiny", "settings": SETTINGS})


@pytest.fixture
def embedder(checkpoint):
    return er.Embedder(er.pretrained(checkpoint), VOCAB)


@pytest.fixture
def vectors():
    return WordVectors(VOCAB, np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32))


def examples(n=20, C=3, seed=0, pool=False):
    """Random sentences whose answer is read off layer 2 alone."""
    generator, found = torch.Generator().manual_seed(seed), []
    for i in range(n):
        h = torch.randn(3, 2 + i % 4, 6, generator=generator)
        y = h[2, :, :C].argmax(-1)
        found.append(er.Example(torch.zeros(2 + i % 4, 2), h.half(), y[0] if pool else y))
    return found


# ------------------------------------------------------------------------------------------------- the embedder
def test_a_checkpoint_gives_its_own_weights_frozen(checkpoint):
    bilm = er.pretrained(checkpoint)
    assert not bilm.training
    assert not any(p.requires_grad for p in bilm.parameters())
    for name, weights in bilm.state_dict().items():
        assert torch.equal(weights, checkpoint.weights[f"bilm.{name}"])


def test_every_word_has_2_l_plus_1_vectors_and_the_first_row_holds_one_twice(embedder):
    h = embedder(SENTENCES)
    assert [tuple(x.shape) for x in h] == [(3, len(s), 10) for s in SENTENCES]
    for x in h:
        assert torch.equal(x[0, :, :5], x[0, :, 5:])
        assert not torch.allclose(x[1, :, :5], x[1, :, 5:])


def test_the_edges_of_a_sentence_are_read_but_not_returned(embedder):
    bilm = embedder.bilm
    lexicon = er.Lexicon.of(SENTENCES, VOCAB)
    batch = lexicon.collate(SENTENCES[:1])
    whole = bilm(lexicon.spellings, batch["words"], batch["lengths"])
    torch.testing.assert_close(embedder(SENTENCES[:1])[0], whole[:, 0, 1:5])


def test_a_word_out_of_the_vocabulary_is_read_by_its_letters(embedder):
    one, other = embedder([["zyzzyva"], ["covfefe"]])
    assert not torch.allclose(one[0], other[0])


def test_pooled_vectors_are_means_and_at_picks_a_word(embedder):
    h = embedder(SENTENCES)
    torch.testing.assert_close(embedder.pooled(SENTENCES), torch.stack([x.mean(1) for x in h]))
    picked = embedder.at(SENTENCES, [3, 0, 1, 2])
    torch.testing.assert_close(picked, torch.stack([x[:, i] for x, i in zip(h, (3, 0, 1, 2), strict=True)]))


def test_the_order_of_sentences_is_kept_though_long_ones_are_read_first(embedder):
    for sentence, h in zip(SENTENCES, embedder(SENTENCES), strict=True):
        torch.testing.assert_close(h, embedder([sentence])[0])


@pytest.mark.parametrize("tokens", [1, 7, 10_000])
def test_the_size_of_batches_changes_nothing(embedder, tokens):
    found = dict(er.read_layers(embedder.bilm, VOCAB, SENTENCES, tokens))
    for i, h in enumerate(embedder(SENTENCES)):
        torch.testing.assert_close(found[i], h)


def test_an_empty_sentence_is_refused_by_its_number(embedder):
    with pytest.raises(ValueError, match="sentence 1 is empty"):
        embedder([["the"], []])


def test_no_sentence_is_refused(embedder):
    with pytest.raises(ValueError, match="no sentence"):
        embedder.at([], [])


def test_a_sentence_is_read_once_for_all_its_words(embedder, monkeypatch):
    read, real = [], embedder.bilm.forward
    monkeypatch.setattr(embedder.bilm, "forward", lambda *inputs: read.append(inputs[1]) or real(*inputs))
    found = embedder.at([SENTENCES[0]] * 4 + [SENTENCES[1]], [0, 1, 2, 3, 0])
    assert sum(len(index) for index in read) == 2
    torch.testing.assert_close(found[:4].movedim(0, 1), embedder(SENTENCES[:1])[0])


def test_reading_leaves_no_graph_and_switches_dropout_off(checkpoint):
    bilm = er.built(checkpoint).train()
    embedder = er.Embedder(bilm, VOCAB)
    one, again = embedder(SENTENCES[:1])[0], embedder(SENTENCES[:1])[0]
    assert not one.requires_grad
    assert torch.equal(one, again)


# ------------------------------------------------------------------------------------------------- the mix
def test_a_new_mix_is_the_plain_average():
    h = torch.randn(3, 4, 5)
    torch.testing.assert_close(er.ScalarMix(3)(h), h.mean(0))


def test_the_mix_by_hand():
    mix = er.ScalarMix(2)
    mix.w.data, mix.gamma.data = torch.tensor([0.0, float(np.log(3))]), torch.tensor(2.0)
    h = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    torch.testing.assert_close(mix(h), torch.tensor([[2 * 0.25, 2 * 0.75]]))


def test_a_mix_of_one_layer_is_that_layer_times_gamma():
    mix, h = er.ScalarMix(1), torch.randn(1, 4, 5)
    mix.w.data, mix.gamma.data = torch.tensor([-7.0]), torch.tensor(0.5)
    torch.testing.assert_close(mix(h), 0.5 * h[0])


def test_without_a_scale_gamma_stays_1_and_the_weights_learn():
    mix = er.ScalarMix(3, scaled=False)
    mix(torch.randn(3, 4, 5)).square().sum().backward()
    assert mix.gamma.grad is None
    assert mix.w.grad.abs().sum() > 0


def test_the_wrong_number_of_layers_is_refused():
    with pytest.raises(ValueError, match="a mix of 3 layers was given 2"):
        er.ScalarMix(3)(torch.randn(2, 4, 5))


def test_the_norm_takes_away_the_scale_of_each_layer_on_its_own():
    mix, h = er.ScalarMix(3, norm=True), torch.randn(3, 4, 50)
    other = h * torch.tensor([100.0, 1.0, 0.01])[:, None, None] + torch.tensor([5.0, 0.0, 0.0])[:, None, None]
    torch.testing.assert_close(mix(h), mix(other), atol=0.05, rtol=0.05)


def test_dropout_acts_on_the_mix_in_training_only():
    mix, h = er.ScalarMix(3, dropout=0.5), torch.ones(3, 40, 50)
    dropped = mix.train()(h)
    assert 0.4 < (dropped == 0).float().mean() < 0.6
    torch.testing.assert_close(mix.eval()(h), torch.ones(40, 50))


def test_the_penalty_is_lambda_times_the_squares_of_the_scores():
    mix = er.ScalarMix(3)
    mix.w.data = torch.tensor([1.0, -2.0, 3.0])
    assert mix.penalty(0.5).item() == pytest.approx(7.0)


def test_a_large_lambda_brings_the_weights_to_the_average():
    spreads = []
    for lam in (0.0, 0.1, 10.0):
        model = er.trained_task(examples(60), 3, steps=60, lr=0.05, lam=lam, D=8, dropout=0.0)
        s = model.mixes["input"].s.detach()
        spreads.append(float(s.max() - s.min()))
    assert spreads[0] > spreads[1] > spreads[2]
    assert spreads[2] < 0.01


# ------------------------------------------------------------------------------------------------- the task's network
@pytest.mark.parametrize("at", [(), ("input",), ("output",), ("input", "output")])
def test_the_mixes_stand_where_they_were_asked_for_with_weights_of_their_own(at):
    model = er.TaskRNN(2, 3, D=8, at=at, W=6)
    assert set(model.mixes) == set(at)
    assert model.rnn.rnn.input_size == 2 + 6 * ("input" in at)
    assert model.output.in_features == 8 + 6 * ("output" in at)
    assert len({id(mix.w) for mix in model.mixes.values()}) == len(at)


def test_without_a_mix_the_layers_are_not_read():
    model = er.TaskRNN(2, 3, D=8, at=(), W=6).eval()
    x, n = torch.randn(2, 4, 2), torch.tensor([4, 2])
    torch.testing.assert_close(model(x, torch.zeros(2, 3, 4, 6), n), model(x, torch.ones(2, 3, 4, 6), n))


def test_the_network_computes_its_formulas():
    torch.manual_seed(0)
    model = er.TaskRNN(2, 3, D=8, at=("input", "output"), W=6).eval()
    for mix in model.mixes.values():
        mix.w.data, mix.gamma.data = torch.randn(3), torch.rand(())
    x, h = torch.randn(1, 4, 2), torch.randn(1, 3, 4, 6)
    one, two = (
        mix.gamma * sum(s * layer for s, layer in zip(mix.s, h[0], strict=True)) for mix in model.mixes.values()
    )
    states = model.rnn.rnn(torch.cat([x[0], one], -1)[None])[0][0]
    expected = torch.cat([states, two], -1) @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(x, h, torch.tensor([4]))[0], expected)


def test_examples_hold_vectors_layers_and_answers(embedder, vectors):
    found = er.task_examples(SENTENCES[:2], [[0, 1, 2, 0], [1]], embedder, vectors)
    assert (found[0].h.dtype, tuple(found[0].h.shape), tuple(found[0].x.shape)) == (torch.float16, (3, 4, 10), (4, 3))
    np.testing.assert_array_equal(found[1].x[0], vectors["apple"])
    assert found[0].y.tolist() == [0, 1, 2, 0]
    unknown = er.rows_of(["covfefe"], WordVectors(Vocab(("the",), np.ones(1, dtype=int)), np.ones((1, 3))))
    assert not unknown.any()


def test_a_batch_of_words_is_filled_up_with_no_answer():
    batch = er.collate(examples(3))
    assert (tuple(batch["x"].shape), tuple(batch["h"].shape)) == ((3, 4, 2), (3, 3, 4, 6))
    assert batch["lengths"].tolist() == [2, 3, 4]
    assert (batch["y"] == -100).sum().item() == 3
    assert not batch["h"][0, :, 2:].any()


def test_a_batch_of_sentences_has_one_answer_each():
    some = examples(4, pool=True)
    assert er.collate(some)["y"].tolist() == [int(e.y) for e in some]


def test_the_loss_is_a_sum_over_words_and_the_penalty_counts_once_a_word():
    model, batch = er.TaskRNN(2, 3, D=8, W=6).eval(), er.collate(examples(3))
    model.mixes["input"].w.data = torch.tensor([1.0, 0.0, -1.0])
    (without, n), (with_penalty, _) = er.task_loss(0.0)(model, batch), er.task_loss(0.5)(model, batch)
    assert n == 9
    assert ((with_penalty - without) / n).item() == pytest.approx(0.5 * 2, abs=1e-4)


def test_a_mix_finds_the_layer_that_holds_the_answer():
    model = er.trained_task(examples(200), 3, steps=150, lr=0.03, D=16, dropout=0.0)
    assert int(model.mixes["input"].s.argmax()) == 2
    check.above(er.answered(model, examples(100, seed=1)).mean(), 0.8)


def test_sentences_are_answered_too():
    model = er.trained_task(examples(100, pool=True), 3, steps=5, D=8)
    assert er.answered(model, examples(7, pool=True)).shape == (7,)


def test_answers_do_not_depend_on_the_batch_size():
    model, some = er.trained_task(examples(), 3, steps=3, D=8), examples(23, seed=2)
    np.testing.assert_array_equal(er.answered(model, some, 1), er.answered(model, some, 10))


def test_the_biLM_is_bit_identical_after_a_task_was_trained(embedder, vectors):
    before = copy.deepcopy(embedder.bilm.state_dict())
    some = er.task_examples(SENTENCES, [0, 1, 0, 1], embedder, vectors)
    er.trained_task(some, 2, steps=5, D=8)
    assert all(torch.equal(before[name], w) for name, w in embedder.bilm.state_dict().items())


def test_training_depends_on_its_seed_and_on_nothing_else():
    one, again, other = (er.trained_task(examples(), 3, 3, seed=seed, D=8).output.weight for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.allclose(one, other)


# ------------------------------------------------------------------------------------------------- senses and words
def sensed(*rows):
    return [Occurrence((word,), 0, sense) for word, sense in rows]


def test_the_nearest_mean_is_that_of_the_same_word():
    taught = sensed(("bank", "money"), ("bank", "river"), ("bat", "animal"))
    senses = er.Senses([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], taught)
    assert senses.nearest([[1.0, 0.9], [0.1, 1.0], [1.0, 0.0]], sensed(("bank", ""), ("bank", ""), ("bat", ""))) == [
        "money", "river", "animal",
    ]  # fmt: skip


def test_means_are_means_and_cosines_ignore_lengths():
    taught = sensed(("a", "x"), ("a", "x"), ("a", "y"))
    senses = er.Senses([[2.0, 0.0], [0.0, 2.0], [100.0, 0.0]], taught)
    np.testing.assert_allclose(senses.means, [[1.0, 1.0], [100.0, 0.0]])
    assert senses.nearest([[0.01, 0.01]], sensed(("a", ""))) == ["x"]


def test_the_first_sense_is_the_most_frequent_and_wins_ties():
    taught = sensed(("a", "y"), ("a", "x"), ("a", "y"), ("b", "x"))
    senses = er.Senses(np.ones((4, 2)), taught)
    assert senses.first(sensed(("a", ""), ("b", ""))) == ["y", "x"]
    assert senses.nearest(np.ones((1, 2)), sensed(("a", ""))) == ["y"]


def test_a_vector_of_zeros_takes_the_first_sense():
    some = [Occurrence(("bank",), 0, label) for label in ("river", "money", "money")]
    senses = er.Senses(np.array([[1.0, 0], [0, 1], [0, 1]]), some)
    assert senses.nearest(np.zeros((1, 2)), some[:1]) == ["money"]


def test_answers_are_given_without_dropout():
    some = examples(40)
    torch.manual_seed(0)
    model = er.TaskRNN(2, 3, D=4, W=6, dropout=0.9).train()
    assert np.array_equal(er.answered(model, some), er.answered(model, some)) and not model.training


def test_a_word_without_any_sense_is_refused():
    with pytest.raises(ValueError, match="no sense of 'crane'; there are: a"):
        er.Senses(np.ones((1, 2)), sensed(("a", "x"))).nearest(np.ones((1, 2)), sensed(("crane", "")))


def test_a_capital_makes_a_name_and_the_model_does_not_see_it():
    found = er.named([Review("He saw that Mark left a mark on the Rock.  Mark was there again today.", 1)], most=9)
    assert [(o.word, o.label) for o in found] == [("mark", "name"), ("mark", "word"), ("rock", "name")]
    assert all(w == w.lower() for o in found for w in o.words)


def test_no_name_is_taken_from_titles_and_shouting_nor_more_often_than_asked():
    loud = Review("The Return Of The King And Mark. And he said MARK to all of us here.", 0)
    assert er.named([loud], most=9) == []
    calm = Review("and then the king saw the king and the king again", 0)
    assert len(er.named([calm], most=2)) == 2


def test_windows_hold_zeros_beyond_the_edges(vectors):
    o = Occurrence(("the", "cat", "ate"), 0, "")
    found = er.windows([o], vectors, 1)
    assert found.shape == (1, 3, 3)
    np.testing.assert_array_equal(found[0, 1:], [vectors["the"], vectors["cat"]])


def test_plain_sentences_have_no_punctuation_and_no_capitals():
    some = [
        Tagged(("The", "cat", ".", "'s"), ("DET", "NOUN", "PUNCT", "PART"), ("O",) * 4),
        Tagged((".",), ("PUNCT",), ("O",)),
    ]
    assert er.plain(some) == [(("the", "cat", "'s"), ("DET", "NOUN", "PART"))]
