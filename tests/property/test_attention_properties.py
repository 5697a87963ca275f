"""What holds for every score, wiring and mask of attention; the estimator of hard attention, tested by statistics."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lrm_utils import check
from lrm_utils.models import attention as at
from lrm_utils.models import seq2seq as s2s
from lrm_utils.models.seq2seq import BOS, EOS, Pair

D = 8
WIRINGS = {
    "before": lambda: at.Before(D, at.Attention(at.AdditiveScore(D))),
    "after": lambda: at.After(D, at.Attention(at.GeneralScore(D))),
    "fed": lambda: at.Fed(D, at.Attention(at.CosineScore())),
    "fed, attend first": lambda: at.Fed(D, at.Attention(at.DotScore()), attend_first=True),
    "next": lambda: at.Next(D, at.Attention(at.DotScore())),
    "two heads": lambda: at.Before(D, at.Attention(at.AdditiveScore(D), at.GeneralScore(D))),
    "local predictive": lambda: at.After(D, at.LocalAttention(at.GeneralScore(D), D, W=2)),
    "local monotonic": lambda: at.After(D, at.LocalAttention(at.DotScore(), D, W=2, predictive=False)),
}
wired = pytest.mark.parametrize("name", WIRINGS)


def model_of(name, seed=0, V=9):
    torch.manual_seed(seed)
    return at.AttentionSeq2Seq(V, V, D, WIRINGS[name]()).eval()


def inputs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, 9, (3, 6), generator=generator), torch.tensor([6, 3, 1])


@given(hnp.arrays(np.float32, (4, 6), elements=st.floats(-1e4, 1e4, width=32)), hnp.arrays(bool, (4, 6)))
def test_weights_sum_to_1_over_what_is_allowed_and_are_0_elsewhere(scores, allowed):
    scores = torch.tensor(scores, requires_grad=True)
    weights = at.masked_softmax(scores, torch.tensor(allowed))
    assert torch.isfinite(weights).all()
    assert (weights.detach().numpy()[~allowed] == 0).all()
    assert np.allclose(weights.detach().sum(-1), allowed.any(-1), atol=1e-5)
    weights.square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad.numpy()[~allowed] == 0).all()


@given(hnp.arrays(np.float64, (3, 5), elements=st.floats(-50, 50)), hnp.arrays(bool, (3, 5)))
def test_masking_is_leaving_out(scores, allowed):
    """The weights of the allowed places are those of a softmax that never saw the others."""
    weights = at.masked_softmax(torch.tensor(scores), torch.tensor(allowed)).numpy()
    for row in range(3):
        if allowed[row].any():
            alone = torch.tensor(scores[row][allowed[row]]).softmax(-1).numpy()
            assert np.allclose(weights[row][allowed[row]], alone, atol=1e-12)


@wired
def test_future_words_do_not_change_past_scores(name):
    model, (source, lengths) = model_of(name), inputs()
    check.causal(lambda y: model(source, lengths, y), torch.randint(1, 9, (3, 6)))


@wired
def test_padding_of_the_source_does_not_change_the_scores(name):
    model, (source, lengths) = model_of(name), inputs()
    target = torch.randint(1, 9, (3, 4))
    check.padding(lambda x, n: model(x, n, target).flatten(1), source, lengths)


@wired
def test_one_step_at_a_time_gives_what_teacher_forcing_gives(name):
    model, (source, lengths) = model_of(name), inputs()
    target = torch.randint(1, 9, (3, 5))
    state, found = model.start(source, lengths), []
    for t in range(5):
        logits, state = model.step(target[:, t], state)
        found.append(logits)
    assert torch.allclose(torch.stack(found, 1), model(source, lengths, target), atol=1e-5)


@wired
def test_padding_gets_no_weight_at_all(name):
    model, (source, lengths) = model_of(name), inputs()
    _, weights = model.read(source, lengths, source)
    padded = (torch.arange(6) >= lengths[:, None])[:, None, None].expand_as(weights)
    assert weights[padded].abs().sum() == 0
    if "local" not in name:
        assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5)
    else:
        assert (weights.sum(-1) <= 1 + 1e-5).all()


@wired
def test_a_beam_of_width_1_is_greedy_search(name):
    model, (source, lengths) = model_of(name, seed=1), inputs(1)
    with torch.no_grad():
        model.output.weight.mul_(5)
    assert torch.equal(
        s2s.beam_search(model, source, lengths, width=1, limit=7), s2s.greedy(model, source, lengths, limit=7)
    )


@wired
def test_sentences_are_translated_alike_alone_and_in_a_batch(name):
    model, (source, lengths) = model_of(name, seed=2), inputs(2)
    together = s2s.beam_search(model, source, lengths, width=3, limit=6)
    for row in range(3):
        alone = s2s.beam_search(model, source[[row], : lengths[row]], lengths[[row]], width=3, limit=6)
        assert [t for t in together[row].tolist() if t] == [t for t in alone[0].tolist() if t]


@given(st.integers(0, 2**31), st.sampled_from([0.0, -1.3, 2.0]))
@settings(max_examples=8)
def test_reinforce_is_unbiased_whatever_the_baseline(seed, baseline):
    """The mean of 20,000 estimates against the enumerated gradient: within 5 standard errors in each entry."""
    generator = torch.Generator().manual_seed(seed)
    scores, rewards = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    drawn = at.reinforce_gradient(scores, rewards, baseline, 20_000, generator)
    error = drawn.std(0) / np.sqrt(len(drawn))
    assert ((drawn.mean(0) - at.expected_gradient(scores, rewards)).abs() <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("baseline", ["none", "others"])
def test_the_gradient_of_hard_attention_is_unbiased_for_every_parameter(baseline):
    """600 estimates against the gradient over all places, for each tensor of a small model.

    In units of its standard error, the mean of the estimates deviates from the truth by a root mean square of 1 if it
    is unbiased; entries of one tensor are correlated, so that 1.5 is allowed.
    """
    torch.manual_seed(0)
    model = at.AttentionSeq2Seq(9, 9, D, at.After(D, at.Attention(at.GeneralScore(D)))).double()
    batch = s2s.collate(
        [Pair(np.array([4, 5, 6, 7]), np.array([BOS, 7, 8, EOS])), Pair(np.array([8, 4]), np.array([BOS, 5, EOS]))]
    )
    parameters = dict(model.named_parameters())

    def gradient(**options):
        total, count = at.hard_loss(model, batch, **options)
        return torch.autograd.grad(total / count, list(parameters.values()))

    truth = gradient(samples=2, enumerate_all=True)
    drawn = [gradient(samples=3, baseline=baseline) for _ in range(600)]
    for name, expected, *estimates in zip(parameters, truth, *drawn, strict=True):
        estimates = torch.stack(estimates)
        error = estimates.std(0) / np.sqrt(len(estimates))
        moves = error > 1e-12
        assert torch.allclose(estimates.mean(0)[~moves], expected[~moves], atol=1e-9), name
        if moves.any():
            z = (estimates.mean(0) - expected)[moves] / error[moves]
            assert z.square().mean().sqrt() < 1.5, name


def test_a_baseline_lowers_the_variance():
    generator = torch.Generator().manual_seed(0)
    scores, rewards = torch.randn(6, generator=generator), torch.randn(6, generator=generator) - 10
    expected = (scores.softmax(-1) * rewards).sum()
    plain, quiet = (at.reinforce_gradient(scores, rewards, b, 5000, generator).var(0).sum() for b in (0.0, expected))
    assert quiet < 0.1 * plain
