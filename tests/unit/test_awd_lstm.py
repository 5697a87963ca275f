"""AWD-LSTM: dropout where it belongs, tied weights, chunks, penalties, averaged SGD and its trigger."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lrm_utils as lrm
from lrm_utils import check
from lrm_utils.models import awd_lstm as awd

RATES = dict(words=0.1, inputs=0.3, hidden=0.2, weights=0.4)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def small(V=30, D=8, H=12, layers=3, output=0.3, tied=True, **rates):
    return awd.AWDLanguageModel(awd.AWDLSTM(V, D, H, layers, **(RATES | rates)), output, tied)


# dropout


def test_a_locked_mask_is_the_same_at_all_steps_and_differs_between_rows():
    x = awd.locked_dropout(torch.ones(4, 9, 50), 0.5, training=True)
    assert torch.equal(x, x[:, :1].expand_as(x))
    assert not torch.equal(x[0], x[1])


def test_dropout_keeps_the_mean():
    assert awd.locked_dropout(torch.ones(200, 2, 200), 0.3, True).mean().item() == pytest.approx(1, abs=0.02)
    assert awd.embedding_dropout(torch.ones(20_000, 2), 0.3, True).mean().item() == pytest.approx(1, abs=0.03)


def test_embedding_dropout_drops_whole_words():
    table = awd.embedding_dropout(torch.ones(500, 7), 0.3, training=True)
    assert torch.equal(table, table[:, :1].expand_as(table))
    assert 0.2 < (table[:, 0] == 0).float().mean() < 0.4


@pytest.mark.parametrize("drop", [awd.locked_dropout, awd.embedding_dropout])
def test_without_training_or_at_rate_0_nothing_is_dropped(drop):
    x = torch.randn(3, 4, 5)
    assert drop(x, 0.5, False) is x
    assert drop(x, 0.0, True) is x


def test_weight_drop_thins_the_recurrent_matrix_alone_and_leaves_it_as_it_was():
    layer = awd.WeightDropLSTM(5, 40, 0.5)
    before = {name: p.clone() for name, p in layer.named_parameters()}
    layer(torch.randn(2, 6, 5))[0].square().sum().backward()
    silent = (layer.lstm.weight_hh_l0.grad == 0).float().mean().item()
    assert silent == pytest.approx(0.5, abs=0.05)
    assert (layer.lstm.weight_ih_l0.grad != 0).all()
    for name, p in layer.named_parameters():
        assert torch.equal(p, before[name])


def test_weight_drop_is_drawn_anew_for_every_chunk():
    layer, x = awd.WeightDropLSTM(5, 8, 0.5), torch.randn(2, 6, 5)
    assert not torch.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize("rate", ["words", "inputs", "hidden", "weights", "output"])
def test_each_rate_alone_makes_training_random_and_evaluation_never(rate):
    model = small(**(dict.fromkeys(RATES, 0.0) | {"output": 0.0} | {rate: 0.5}))
    words = torch.randint(30, (2, 7))
    assert not torch.equal(model(words)[0], model(words)[0])
    model.eval()
    assert torch.equal(model(words)[0], model(words)[0])


# the language model


def test_tied_there_is_one_table_and_its_gradient_has_both_parts():
    model, words = small().eval(), torch.zeros(1, 3, dtype=torch.long)
    assert [n for n, p in model.named_parameters() if p.shape == (30, 8)] == ["encoder.embedding.weight"]
    model(words, targets=words + 1)[0].backward()
    assert (model.encoder.embedding.weight.grad.abs().sum(1) > 0).all()  # words that were never read are scored, too


def test_not_tied_there_is_one_more_table():
    sizes = [sum(p.numel() for p in small(tied=tied).parameters()) for tied in (True, False)]
    assert sizes[1] - sizes[0] == 30 * 8
    free = small(tied=False).eval()
    before = free(torch.zeros(1, 2, dtype=torch.long))[0]
    free.own.weight.data += 1
    assert not torch.allclose(free(torch.zeros(1, 2, dtype=torch.long))[0], before)


def test_the_names_of_the_weights_are_those_of_the_checkpoint():
    names = {n.rsplit(".", 1)[0] if "lstm" in n else n for n in small().state_dict()}
    assert names == {"bias", "encoder.embedding.weight", *(f"encoder.layers.{i}.lstm" for i in range(3))}


def test_widths_go_from_the_vector_to_the_hidden_size_and_back():
    layers = awd.AWDLSTM(30, 8, 12, 3).layers
    assert [(x.lstm.input_size, x.lstm.hidden_size) for x in layers] == [(8, 12), (12, 12), (12, 8)]
    assert [(x.lstm.input_size, x.lstm.hidden_size) for x in awd.AWDLSTM(30, 8, 12, 1).layers] == [(8, 8)]


def test_starting_as_the_unigram_model():
    counts = torch.arange(30)
    model = small()
    awd.start_as_unigram(model, counts)
    check.close(model.bias.exp(), (counts + 1) / (counts + 1).sum(), 1e-6)
    assert model.bias.requires_grad


def test_the_loss_is_the_summed_cross_entropy_of_the_scores():
    model, words = small().eval(), torch.randint(30, (2, 7))
    scores, raw, dropped, _ = model(words)
    loss = model(words, targets=words.flip(1))[0]
    torch.testing.assert_close(loss, F.cross_entropy(scores.flatten(0, 1), words.flip(1).flatten(), reduction="sum"))
    assert torch.equal(raw, dropped)


def test_the_sampled_loss_reaches_the_table_and_the_bias():
    model, words = small(), torch.randint(30, (2, 7))
    model(words, targets=words, K=10)[0].backward()
    assert model.encoder.embedding.weight.grad.abs().sum() > 0 and model.bias.grad.abs().sum() > 0


def test_penalties_are_means_of_squares():
    states = torch.randn(2, 5, 3)
    assert awd.activation_penalty(states, 2.0).item() == pytest.approx(2 * (states**2).mean().item())
    steps = torch.stack([states[:, t + 1] - states[:, t] for t in range(4)])
    assert float(awd.temporal_penalty(states, 3.0)) == pytest.approx(3 * (steps**2).mean().item())
    assert float(awd.temporal_penalty(states[:, :1], 3.0)) == 0.0


def test_the_training_loss_is_cross_entropy_plus_penalties_for_every_word():
    model, words = small().eval(), torch.randint(30, (2, 7))
    batch = dict(words=words, targets=words.flip(1))
    plain, N, state = awd.lm_loss(0.0, 0.0)(model, batch, None)
    full, _, _ = awd.lm_loss(2.0, 3.0)(model, batch, None)
    raw = model(words)[1]
    expected = awd.activation_penalty(raw, 2.0) + awd.temporal_penalty(raw, 3.0)
    assert N == 14 and len(state) == 3
    torch.testing.assert_close(full - plain, N * expected, rtol=1e-3, atol=1e-3)


def test_penalized_states_are_those_with_and_without_dropout():
    model, words = small(output=0.9), torch.randint(30, (2, 7))
    _, raw, dropped, _ = model(words)
    assert (dropped == 0).float().mean() > 0.5 and (raw != 0).all()


# chunks


def test_the_gradient_stops_at_a_cut_and_the_state_does_not():
    model = small().eval()
    words = torch.randint(30, (1, 10))
    _, _, _, state = model(words[:, :5])
    carried = [tuple(s.detach() for s in pair) for pair in state]
    with_state, without = (model(words[:, 5:], s)[0] for s in (carried, None))
    assert not torch.allclose(with_state, without, atol=1e-6)
    torch.testing.assert_close(with_state, model(words)[0][:, 5:])
    model.zero_grad()
    awd.lm_loss(0, 0)(model, dict(words=words[:, 5:], targets=words[:, 5:]), carried)[0].backward()


def test_lengths_are_mostly_near_T_and_one_in_twenty_near_half():
    lengths = list(awd.chunk_lengths(400_000, 70, np.random.default_rng(0)))[:-1]
    short = np.mean(np.array(lengths) < 52)
    assert short == pytest.approx(0.05, abs=0.01)
    assert np.mean([n for n in lengths if n >= 52]) == pytest.approx(70, abs=1)
    assert min(lengths) >= 5


def test_folded_words_share_one_probability():
    model, rows = small().eval(), torch.randint(3, 30, (2, 9))
    rows[:, 4] = 1
    unk = torch.tensor([1, 27, 28, 29])
    plain, folded = awd.log_probabilities(model, rows), awd.log_probabilities(model, rows, unk=unk)
    p = model(rows[:, :-1])[0].softmax(-1)
    check.close(folded[:, 3], p[:, 3, unk].sum(-1).log(), 1e-5)
    others = [0, 1, 2, 4, 5, 6, 7]
    check.close(folded[:, others], plain[:, others], 0)


def test_a_small_model_learns_below_the_frequencies_of_words():
    text = np.tile(np.arange(6), 200)
    rows = awd.rows_of(text, 4)
    model = small(V=6, words=0.0)
    awd.start_as_unigram(model, np.full(6, 200))
    found = lrm.fit(
        model,
        lambda epoch: awd.chunks(rows, 10, np.random.default_rng(epoch)),
        awd.lm_loss(0.1, 0.1),
        steps=120,
        lr=0.02,
        carry=True,
    )
    check.learns(found.losses, below=0.5 * math.log(6))


# averaged SGD


def test_the_mean_is_that_of_the_points_from_the_start_on():
    theta = nn.Parameter(torch.zeros(3))
    optimizer, path = awd.ASGD([theta], lr=0.5), []
    for k in range(1, 11):
        if k == 4:
            optimizer.start()
        theta.grad = torch.randn(3)
        optimizer.step()
        path.append(theta.detach().clone())
    with awd.mean_weights(optimizer):
        check.close(theta, torch.stack(path[3:]).mean(0), 1e-6)
    check.close(theta, path[-1], 0)


def test_before_the_start_the_mean_is_the_weights_themselves():
    theta = nn.Parameter(torch.ones(2))
    optimizer = awd.ASGD([theta], lr=0.5)
    theta.grad = torch.ones(2)
    optimizer.step()
    with awd.mean_weights(optimizer):
        check.close(theta, [0.5, 0.5], 0)


def test_the_weights_come_back_after_an_error():
    theta = nn.Parameter(torch.ones(2))
    optimizer = awd.ASGD([theta], lr=0.5)
    optimizer.start()
    for _ in range(3):
        theta.grad = torch.ones(2)
        optimizer.step()
    with pytest.raises(KeyError), awd.mean_weights(optimizer):
        raise KeyError
    check.close(theta, [-0.5, -0.5], 0)


def test_a_weight_without_a_gradient_stands_still_and_is_averaged():
    still, moving = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = awd.ASGD([still, moving], lr=1.0)
    optimizer.start()
    moving.grad = torch.ones(1)
    optimizer.step()
    assert still.item() == 1 and optimizer.state[still]["mean"].item() == 1 and moving.item() == 0


@pytest.mark.parametrize(
    ("losses", "n", "fires"),
    [
        ([5, 4, 3, 2, 1], 2, None),
        ([5, 4, 6, 6, 6], 2, 3),  # 6 > 5, the only one more than two validations old
        ([5, 4, 4.5, 4.5, 4.5], 2, 4),  # at the fourth 4.5 < 5; at the fifth 4 is old enough
        ([1, 2], 5, None),
        ([1, 1, 1, 1], 0, None),  # equal is not worse
        ([1, 2], 0, 1),
    ],
)
def test_the_trigger_fires_at_the_first_validation_worse_than_the_best_of_long_ago(losses, n, fires):
    optimizer = awd.NTASGD([nn.Parameter(torch.ones(1))], lr=1.0, n=n)
    answers = [optimizer.watch(loss) for loss in losses]
    assert answers == [fires is not None and t >= fires for t in range(len(losses))]
    assert optimizer.param_groups[0]["losses"] == [float(x) for x in losses]


def test_the_state_of_an_average_can_be_saved_and_goes_on():
    def walk(optimizer, theta, steps):
        for k in steps:
            theta.grad = torch.full((2,), float(k))
            optimizer.step()

    theta = nn.Parameter(torch.zeros(2))
    whole = awd.ASGD([theta], lr=0.1)
    whole.start()
    walk(whole, theta, range(6))
    first = nn.Parameter(torch.zeros(2))
    half = awd.ASGD([first], lr=0.1)
    half.start()
    walk(half, first, range(3))
    second = nn.Parameter(first.detach().clone())
    rest = awd.ASGD([second], lr=0.1)
    rest.load_state_dict(half.state_dict())
    walk(rest, second, range(3, 6))
    check.close(rest.state[second]["mean"], whole.state[theta]["mean"], 1e-6)


# bad input


def test_bad_input_gets_one_clear_error():
    weight = [nn.Parameter(torch.ones(1))]
    for message, call in (
        ("do not fill 4 rows", lambda: awd.rows_of(np.arange(5), 4)),
        ("at least one word", lambda: list(awd.chunks(torch.zeros(2, 9), 0))),
        ("share of weights", lambda: awd.WeightDropLSTM(3, 3, 1.0)),
        ("share of weights", lambda: awd.WeightDropLSTM(3, 3, -0.1)),
        ("at least one", lambda: awd.AWDLSTM(9, 3, 3, layers=0)),
        ("rate above 0", lambda: awd.ASGD(weight, lr=0.0)),
        ("rate above 0", lambda: awd.ASGD(weight, lr=math.nan)),
        ("still to come", lambda: awd.NTASGD(weight, lr=1.0, n=-1)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_trigger_that_is_loaded_remembers_what_it_has_watched():
    first, second = (awd.NTASGD([nn.Parameter(torch.zeros(2))], lr=0.1, n=1) for _ in range(2))
    for loss in (3.0, 2.0):
        assert not first.watch(loss)
    second.load_state_dict(first.state_dict())
    assert second.watch(3.5), "worse than the best of more than one round ago"
    assert awd.NTASGD([nn.Parameter(torch.zeros(2))], lr=0.1, n=1).watch(3.5) is False


@pytest.mark.parametrize("B", [0, -1, 6])
def test_rows_that_cannot_be_filled_are_refused(B):
    with pytest.raises(ValueError, match=f"10 tokens do not fill {B} rows of two"):
        awd.rows_of(np.arange(10), B)
