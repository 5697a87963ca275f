"""Attention: scores, wirings, windows and hard attention on cases small enough to do by hand."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrm_utils.models import attention as at
from lrm_utils.models import seq2seq as s2s
from lrm_utils.models.seq2seq import BOS, EOS, PAD, Pair

D = 8


def decoders():
    """One decoder for each wiring, and attention of each kind."""
    return {
        "before": at.Before(D, at.Attention(at.AdditiveScore(D))),
        "after": at.After(D, at.Attention(at.GeneralScore(D))),
        "fed": at.Fed(D, at.Attention(at.CosineScore())),
        "fed, attend first": at.Fed(D, at.Attention(at.CosineScore()), attend_first=True),
        "next": at.Next(D, at.Attention(at.DotScore())),
        "two heads": at.Before(D, at.Attention(at.AdditiveScore(D), at.DotScore())),
        "local predictive": at.After(D, at.LocalAttention(at.GeneralScore(D), D, W=2)),
        "local monotonic": at.Before(D, at.LocalAttention(at.DotScore(), D, W=2, predictive=False)),
    }


def model_of(name="before", seed=0, V=9):
    torch.manual_seed(seed)
    return at.AttentionSeq2Seq(V, V, D, decoders()[name]).eval()


SOURCE, LENGTHS = torch.tensor([[4, 5, 6, 7], [8, 4, PAD, PAD]]), torch.tensor([4, 2])
TARGET = torch.tensor([[BOS, 4, 5], [BOS, 6, 7]])


def test_masked_softmax_by_hand():
    weights = at.masked_softmax(torch.tensor([0.0, math.log(3), 9.0]), torch.tensor([True, True, False]))
    assert torch.allclose(weights, torch.tensor([0.25, 0.75, 0.0]))
    assert weights[2] == 0
    free = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    assert torch.equal(at.masked_softmax(free), free.softmax(-1))
    assert torch.allclose(at.masked_softmax(free, torch.ones(2, 2, dtype=torch.bool), dim=0), free.softmax(0))


def test_a_fully_masked_row_is_zero_and_passes_no_nan_backward():
    scores = torch.randn(3, 4, requires_grad=True)
    allowed = torch.tensor([[True] * 4, [False] * 4, [True, False, False, False]])
    weights = at.masked_softmax(scores, allowed)
    assert weights[1].abs().sum() == 0
    assert weights[2].tolist() == [1, 0, 0, 0]
    (weights * torch.randn(3, 4)).sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[1].abs().sum() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_huge_scores_are_no_problem_in_any_precision(dtype):
    scores = torch.tensor([3e4, -3e4, 3e4], dtype=dtype)
    weights = at.masked_softmax(scores, torch.tensor([True, True, False]))
    assert weights.tolist() == [1, 0, 0]


def test_the_general_score_with_the_identity_is_the_dot_product():
    q, k = torch.randn(2, 3, D), torch.randn(2, 5, D)
    general = at.GeneralScore(D)
    general.W.weight.data = torch.eye(D)
    assert torch.allclose(general(q, k), at.DotScore()(q, k), atol=1e-5)
    assert torch.allclose(at.DotScore()(q, k), torch.einsum("btd,bsd->bts", q, k), atol=1e-5)


def test_the_general_score_takes_keys_of_another_width():
    score = at.GeneralScore(4, 6)
    q, k = torch.randn(1, 2, 4), torch.randn(1, 3, 6)
    assert torch.allclose(score(q, k), torch.einsum("btd,de,bse->bts", q, score.W.weight, k), atol=1e-5)


def test_the_cosine_score_ignores_lengths_and_is_scaled():
    q, k = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    expected = F.cosine_similarity(q[:, :, None], k[:, None], dim=-1)
    assert torch.allclose(at.CosineScore(1.0)(7 * q, 0.1 * k), expected, atol=1e-5)
    assert torch.allclose(at.CosineScore(3.0)(q, k), 3 * expected, atol=1e-5)
    learned = at.CosineScore()
    assert [p.item() for p in learned.parameters()] == [5.0]


def test_the_additive_score_by_hand():
    score = at.AdditiveScore(2, 3, A=4)
    q, k = torch.randn(1, 2, 2), torch.randn(1, 5, 3)
    for t in range(2):
        for s in range(5):
            hidden = torch.tanh(score.W_q.weight @ q[0, t] + score.W_k.weight @ k[0, s])
            assert score(q, k)[0, t, s].item() == pytest.approx((score.v.weight[0] @ hidden).item(), abs=1e-5)


def test_attention_without_a_score_is_refused():
    with pytest.raises(ValueError, match="at least one score"):
        at.Attention()


def test_the_context_is_the_mean_of_the_values_under_the_weights():
    torch.manual_seed(0)
    attention = at.Attention(at.GeneralScore(D), at.DotScore())
    q, states = torch.randn(2, 3, D), torch.randn(2, 4, D)
    allowed = torch.tensor([[True] * 4, [True, True, False, False]])
    context, weights = attention(q, attention.prepare(states), states, allowed, None)
    assert weights.shape == (2, 2, 3, 4)
    assert weights[1, :, :, 2:].abs().sum() == 0
    for head in range(2):
        expected = torch.einsum("bts,bsd->btd", weights[:, head], states)
        assert torch.allclose(context[..., head * D : (head + 1) * D], expected, atol=1e-6)
    alone = at.Attention(attention.scores[1])
    assert torch.allclose(alone.weights(q, states, allowed, None)[:, 0], weights[:, 1], atol=1e-6)


@pytest.mark.parametrize("name", decoders())
def test_every_parameter_of_a_wiring_takes_part(name):
    model = model_of(name).train()
    model(SOURCE, LENGTHS, TARGET).square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_before_looks_with_the_old_state_and_after_with_the_new():
    for name, old in (("before", True), ("after", False)):
        model = model_of(name)
        state = model.start(SOURCE, LENGTHS)
        _, weights, kept = model.decoder.step(model.target_table(TARGET[:, 0]), state)
        query = (state if old else kept)["hidden"][:, None]
        expected = model.decoder.attention.weights(query, state["keys"], state["allowed"], None)
        assert torch.allclose(weights, expected, atol=1e-6)


def test_next_predicts_without_the_context_that_it_has_just_read():
    model = model_of("next")
    state = model.start(SOURCE, LENGTHS)
    vectors = model.target_table(TARGET[:, 0])
    output, weights, kept = model.decoder.step(vectors, state)
    assert torch.equal(output[:, 0], kept["hidden"])
    assert state["fed"].abs().sum() == 0
    assert torch.allclose(kept["fed"], (weights[:, 0] @ state["states"])[:, 0], atol=1e-6)


def test_fed_passes_on_what_predicted_the_last_word():
    model = model_of("fed")
    state = model.start(SOURCE, LENGTHS)
    assert state["fed"].abs().sum() == 0
    output, _, kept = model.decoder.step(model.target_table(TARGET[:, 0]), state)
    assert torch.equal(kept["fed"], output[:, 0])
    changed = model.decoder.step(model.target_table(TARGET[:, 0]), state | {"fed": torch.ones_like(state["fed"])})[0]
    assert not torch.allclose(changed, output)


def test_attending_first_starts_from_a_look_with_the_encoders_last_state():
    model = model_of("fed, attend first")
    state = model.start(SOURCE, LENGTHS)
    context, _ = model.decoder.look(state["hidden"][:, None], state)
    assert torch.allclose(state["fed"], model.decoder.joined(context, state["hidden"][:, None])[:, 0])
    assert state["fed"].abs().sum() > 0


def test_frozen_input_words_do_not_learn():
    model = model_of()
    logits, _ = model.step(torch.tensor([4, 5]), model.start(SOURCE, LENGTHS), torch.tensor([True, False]))
    logits.sum().backward()
    assert model.target_table.weight.grad[4].abs().sum() == 0
    assert model.target_table.weight.grad[5].abs().sum() > 0


def test_an_empty_source_is_refused():
    with pytest.raises(ValueError, match="source 1 is empty"):
        model_of().start(SOURCE, torch.tensor([4, 0]))


def test_a_batch_that_is_all_padding_is_refused():
    with pytest.raises(ValueError, match="is empty"):
        model_of()(torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 0]), TARGET)


def test_monotonic_windows_move_with_the_place():
    local = at.LocalAttention(at.DotScore(), D, W=1, predictive=False)
    q, states, allowed = torch.randn(1, 4, D), torch.randn(1, 6, D), torch.ones(1, 6, dtype=torch.bool)
    weights = local.weights(q, states, allowed, torch.arange(4)[None])[0, 0]
    expected = (torch.arange(6) - torch.arange(4)[:, None]).abs() <= 1
    assert torch.equal(weights > 0, expected)
    assert torch.allclose(weights.sum(-1), torch.ones(4))


def test_a_monotonic_window_past_the_end_sees_nothing_and_is_no_nan():
    local = at.LocalAttention(at.DotScore(), D, W=1, predictive=False)
    allowed = torch.tensor([[True, True, False, False]])
    context, weights = local(
        torch.randn(1, 1, D), torch.randn(1, 4, D), torch.randn(1, 4, D), allowed, torch.tensor([[9]])
    )
    assert weights.abs().sum() == 0
    assert context.abs().sum() == 0


def test_predictive_windows_follow_the_formula():
    torch.manual_seed(0)
    local = at.LocalAttention(at.GeneralScore(D), D, W=2)
    q, states = torch.randn(1, 1, D), torch.randn(1, 9, D)
    allowed = torch.arange(9)[None] < 7
    center = 6 * torch.sigmoid(local.v_p(torch.tanh(local.W_p(q)))).item()
    assert local.centers(q, allowed, None).item() == pytest.approx(center, abs=1e-5)
    scores = local.scores[0](q, states)[0, 0]
    near = [s for s in range(7) if abs(s - center) <= 2]
    share = torch.stack([scores[s] for s in near]).softmax(0)
    weights = local.weights(q, local.prepare(states), allowed, None)[0, 0, 0]
    for s, alpha in zip(near, share, strict=True):
        assert weights[s].item() == pytest.approx(alpha.item() * math.exp(-((s - center) ** 2) / 2), abs=1e-5)
    assert weights.count_nonzero() == len(near)


@pytest.mark.parametrize("W", [1, 3, 6])
def test_the_bell_curve_has_a_standard_deviation_of_half_the_window(W):
    local = at.LocalAttention(at.DotScore(), D, W=W)
    q, states, allowed = torch.zeros(1, 1, D), torch.randn(1, 17, D), torch.ones(1, 17, dtype=torch.bool)
    weights = local.weights(q, states, allowed, None)[0, 0, 0]  # of a query that likes all places alike: around 8
    expected = [math.exp(-((s - 8) ** 2) / (2 * (W / 2) ** 2)) / (2 * W + 1) * (abs(s - 8) <= W) for s in range(17)]
    assert torch.allclose(weights, torch.tensor(expected), atol=1e-6)


def test_the_center_learns_through_the_bell_curve():
    local = at.LocalAttention(at.DotScore(), D, W=2)
    q, states = torch.randn(1, 3, D), torch.randn(1, 9, D)
    local.weights(q, states, torch.ones(1, 9, dtype=torch.bool), None).square().sum().backward()
    assert local.W_p.weight.grad.abs().sum() > 0


def test_a_window_without_width_is_refused():
    with pytest.raises(ValueError, match="at least one place"):
        at.LocalAttention(at.DotScore(), D, W=0)


def test_links_and_alignment_error_rate_by_hand():
    weights = np.array([[0.1, 0.9, 0.0], [0.8, 0.1, 0.1], [0.2, 0.2, 0.6]])
    assert at.links(weights) == {(1, 0), (0, 1), (2, 2)}
    assert at.links(weights, shift=1) == {(1, 1), (0, 2)}
    assert at.links(weights, shift=-1) == {(0, 0), (2, 1)}
    gold = {(1, 0), (0, 1), (1, 2)}
    assert at.alignment_error_rate([at.links(weights)], [gold]) == pytest.approx(1 - 4 / 6)
    assert at.alignment_error_rate([gold, gold], [gold, gold]) == 0
    assert at.alignment_error_rate([{(0, 0)}], [{(1, 1)}]) == 1


def test_the_alignment_error_rate_counts_links_and_not_sentences():
    long, short = {(i, i) for i in range(9)}, {(0, 0)}
    assert at.alignment_error_rate([long, {(1, 1)}], [long, short]) == pytest.approx(1 - 2 * 9 / 20)


def test_alignments_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="1 sets of links"):
        at.alignment_error_rate([set()], [])
    with pytest.raises(ValueError, match="no known alignment"):
        at.alignment_error_rate([set()], [set()])


def test_attended_returns_the_map_of_each_pair_without_padding():
    pairs = [Pair(np.array([4, 5, 6]), np.array([BOS, 7, 8, EOS])), Pair(np.array([4]), np.array([BOS, 7, EOS]))]
    model = model_of("two heads")
    maps = at.attended(model, pairs, batch_size=2)
    assert [m.shape for m in maps] == [(2, 3), (1, 1)]
    assert np.allclose(maps[0].sum(-1), 1, atol=1e-5)
    batch = s2s.collate(pairs[:1])
    _, weights = model.read(batch["source"], batch["source_lengths"], batch["target"][:, :-1])
    assert np.allclose(maps[0], weights.mean(1)[0, :2].detach(), atol=1e-5)


def test_the_expected_gradient_equals_autograds():
    scores = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    rewards = torch.randn(3, 5, dtype=torch.float64)
    (scores.softmax(-1) * rewards).sum().backward()
    assert torch.allclose(at.expected_gradient(scores, rewards), scores.grad, atol=1e-12)


def hard_parts():
    torch.manual_seed(0)
    model = at.AttentionSeq2Seq(9, 9, D, at.After(D, at.Attention(at.GeneralScore(D)))).double()
    batch = s2s.collate(
        [Pair(np.array([4, 5, 6]), np.array([BOS, 7, 8, EOS])), Pair(np.array([8, 4]), np.array([BOS, 5, EOS]))]
    )
    return model, batch


def test_hard_loss_over_all_places_is_the_expected_log_likelihood():
    model, batch = hard_parts()
    total, count = at.hard_loss(model, batch, samples=2, enumerate_all=True)
    _, weights = model.read(batch["source"], batch["source_lengths"], batch["target"][:, :-1])
    state, expected = model.start(batch["source"], batch["source_lengths"]), 0.0
    hidden = model.decoder.gru(model.target_table(batch["target"][:, :-1]), state["hidden"][None])[0]
    for row, (S, T) in enumerate(((3, 3), (2, 2))):
        for t in range(T):
            for s in range(S):
                joined = model.decoder.joined(state["states"][row, s], hidden[row, t])
                log = model.output(joined).log_softmax(-1)[batch["target"][row, t + 1]]
                expected -= (weights[row, 0, t, s] * log).item()
    assert count == 5
    assert total.item() == pytest.approx(expected, abs=1e-9)


def test_the_value_of_the_sampled_loss_estimates_the_enumerated_one():
    model, batch = hard_parts()
    truth = at.hard_loss(model, batch, samples=2, enumerate_all=True)[0].item()
    drawn = np.array([at.hard_loss(model, batch, samples=4)[0].item() for _ in range(200)])
    assert abs(drawn.mean() - truth) < 4.5 * drawn.std() / np.sqrt(len(drawn))


@pytest.mark.parametrize("name", ["before", "fed", "next", "local predictive"])
def test_hard_attention_refuses_decoders_in_which_the_context_of_a_draw_goes_elsewhere(name):
    _, batch = hard_parts()
    with pytest.raises(ValueError, match="needs an After decoder with global attention"):
        at.hard_loss(model_of(name), batch)


def test_where_all_places_are_worth_the_same_the_others_leave_a_draw_no_gain():
    model, batch = hard_parts()
    model.decoder.join.weight.data[:, :D] = 0  # the context is not heard
    W = model.decoder.attention.scores[0].W.weight
    quiet, loud = (
        torch.autograd.grad(at.hard_loss(model, batch, baseline=baseline)[0], W)[0] for baseline in ("others", "none")
    )
    assert quiet.abs().max() < 1e-12
    assert loud.abs().max() > 1e-4


def test_an_unlikely_place_that_is_drawn_after_all_learns_like_any_other(monkeypatch):
    model, batch = hard_parts()
    W, drawn = model.decoder.attention.scores[0].W.weight, []
    W.data *= 150

    def least(weights, samples, replacement):
        least = weights.masked_fill(weights == 0, 1).min(-1, keepdim=True)
        drawn.append(least.values)
        return least.indices.expand(-1, samples)

    monkeypatch.setattr(torch, "multinomial", least)
    loss = at.hard_loss(model, batch, samples=1, baseline="none")[0]
    assert drawn[0].max() < 1e-2
    assert torch.autograd.grad(loss, W)[0].abs().max() > 1e-3


@pytest.mark.parametrize(
    "options", [dict(samples=1), dict(baseline="mean", samples=3), dict(baseline="none", samples=0)]
)
def test_hard_loss_refuses_baselines_that_it_cannot_have(options):
    model, batch = hard_parts()
    with pytest.raises(ValueError, match="two samples or more"):
        at.hard_loss(model, batch, **options)
