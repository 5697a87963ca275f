"""Training a Transformer: losses, schedules, one step of Adam, the tasks, and the trained shape of model."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
import training_a_transformer as bench

import lrm_utils as lrm
from lrm_utils import check
from lrm_utils.models import seq2seq as s2s
from lrm_utils.models.seq2seq import BOS, EOS, PAD, beam_search, collate, greedy, length_penalty, log_probabilities
from lrm_utils.models.training_a_transformer import (
    adam_step,
    copy_pairs,
    cross_maps,
    head_errors,
    label_smoothing_loss,
    parity_pairs,
    smoothed_translation_loss,
    warmup_schedule,
)
from lrm_utils.models.transformer import Transformer, attention_weights

SHAPE = dict(D=16, H=4, F=32, layers=2, dropout=0.1)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


# label smoothing


def test_without_smoothing_it_is_the_cross_entropy():
    logits, target = torch.randn(2, 3, 5), torch.randint(5, (2, 3))
    lengths = torch.tensor([3, 1])
    for ours, theirs in zip(
        label_smoothing_loss(logits, target, lengths, 0.0), s2s.masked_loss(logits, target, lengths), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_the_smoothed_loss_is_the_cross_entropy_with_the_smoothed_target():
    V, eps = 7, 0.3
    logits, target = torch.randn(1, 1, V), torch.tensor([[4]])
    q = torch.full((V,), eps / V)
    q[4] += 1 - eps
    loss, count = label_smoothing_loss(logits, target, torch.tensor([1]), eps)
    torch.testing.assert_close(loss, -(q * logits[0, 0].log_softmax(-1)).sum())
    assert count == 1


@pytest.mark.parametrize(("V", "eps"), [(5, 0.1), (322, 0.1), (3, 0.6)])
def test_no_prediction_beats_the_smoothed_target_itself_and_its_entropy_is_the_least_loss(V, eps):
    q = torch.full((V,), eps / V, dtype=torch.float64)
    q[0] += 1 - eps
    one = torch.tensor([1])
    least = -(q * q.log()).sum()
    at = label_smoothing_loss(q.log()[None, None], torch.zeros(1, 1, dtype=torch.long), one, eps)[0]
    torch.testing.assert_close(at, least)
    for _ in range(20):
        other = (q.log() + 0.3 * torch.randn(V, dtype=torch.float64))[None, None]
        assert label_smoothing_loss(other, torch.zeros(1, 1, dtype=torch.long), one, eps)[0] > least


def test_a_tenth_is_taken_from_the_true_word_unless_another_share_is_given():
    logits, target, lengths = torch.randn(2, 3, 5), torch.randint(5, (2, 3)), torch.tensor([3, 2])
    loss = label_smoothing_loss(logits, target, lengths)[0]
    torch.testing.assert_close(loss, label_smoothing_loss(logits, target, lengths, 0.1)[0])


def test_what_stands_behind_the_end_does_not_count_even_if_it_is_nan():
    logits, target = torch.randn(2, 4, 6), torch.randint(6, (2, 4))
    lengths = torch.tensor([2, 4])
    loss, count = label_smoothing_loss(logits, target, lengths)
    changed = logits.clone()
    changed[0, 2:] = torch.nan
    again, _ = label_smoothing_loss(changed, target, lengths)
    torch.testing.assert_close(loss, again)
    assert count == 6
    changed.requires_grad_()
    label_smoothing_loss(changed, target, lengths)[0].backward()
    assert (changed.grad[0, 2:] == 0).all()


def test_the_smoothed_loss_of_a_model_counts_words_and_the_end_and_not_the_start():
    batch = collate(copy_pairs(5, 2, 6, seed=1))
    model = Transformer(14, 14, **SHAPE).eval()
    loss, count = smoothed_translation_loss(model, batch, 0.0)
    expected, words = s2s.translation_loss(model, batch)
    torch.testing.assert_close(loss, expected)
    assert count == words == (batch["target_lengths"] - 1).sum()
    assert smoothed_translation_loss(model, batch)[0] == smoothed_translation_loss(model, batch, 0.1)[0] != loss


@pytest.mark.parametrize("eps", [-0.1, 1.0, 2])
def test_a_share_outside_0_to_1_is_refused(eps):
    with pytest.raises(ValueError, match="eps"):
        label_smoothing_loss(torch.zeros(1, 1, 3), torch.zeros(1, 1, dtype=torch.long), torch.tensor([1]), eps)


def test_logits_that_do_not_fit_their_targets_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        label_smoothing_loss(torch.zeros(2, 4, 3), torch.zeros(2, 5, dtype=torch.long), torch.tensor([1, 1]))


# the schedule


@pytest.mark.parametrize(("D", "warmup"), [(512, 4000), (64, 100), (7, 1)])
def test_the_schedule_peaks_at_the_end_of_the_warmup_with_the_height_of_the_formula(D, warmup):
    rate = warmup_schedule(D, warmup)
    rates = np.array([rate(step, 0) for step in range(3 * warmup + 5)])
    assert rates.argmax() == warmup - 1
    assert rates.max() == pytest.approx((D * warmup) ** -0.5)
    assert rates[0] == pytest.approx(D**-0.5 * warmup**-1.5)
    assert (np.diff(rates[:warmup]) > 0).all()
    assert (np.diff(rates[warmup - 1 :]) < 0).all()


def test_the_schedule_rises_in_a_line_and_falls_like_a_root():
    rate = warmup_schedule(64, 100)
    assert rate(49, 0) == pytest.approx(rate(99, 0) / 2)
    assert rate(399, 0) == pytest.approx(rate(99, 0) / 2)


@pytest.mark.parametrize(("D", "warmup"), [(0, 10), (8, 0), (8, -1)])
def test_a_schedule_without_width_or_warmup_is_refused(D, warmup):
    with pytest.raises(ValueError, match="at least 1"):
        warmup_schedule(D, warmup)


def test_fit_uses_the_schedule_as_the_rate_itself():
    weight = torch.nn.Linear(1, 1, bias=False)
    seen, schedule = [], warmup_schedule(4, 3)

    def loss(model, batch):
        seen.append(optimizer.param_groups[0]["lr"])
        return model(batch).sum()

    optimizer = torch.optim.SGD(weight.parameters(), lr=1.0)
    lrm.fit(weight, [torch.ones(1, 1)], loss, steps=6, optimizer=optimizer, schedule=schedule)
    assert seen == pytest.approx([schedule(i, 6) for i in range(6)])


# Adam


def test_the_first_step_of_adam_moves_every_parameter_by_the_rate_whatever_its_gradient():
    g = torch.tensor([1e-5, -1e-3, 7.0], dtype=torch.float64)
    zero = torch.zeros_like(g)
    theta, m, v = adam_step(zero, g, zero, zero, t=1, lr=0.01)
    torch.testing.assert_close(theta, -0.01 * g.sign(), rtol=1e-3, atol=0)
    torch.testing.assert_close(m, 0.1 * g)
    torch.testing.assert_close(v, 0.02 * g * g)


def test_a_step_of_adam_changes_none_of_its_inputs():
    theta, g, m, v = torch.randn(4, 3)
    kept = [x.clone() for x in (theta, g, m, v)]
    adam_step(theta, g, m, v.abs(), t=3, lr=0.1)
    assert all(torch.equal(x, y) for x, y in zip((theta, g, m, v), kept, strict=True))


def test_step_0_of_adam_is_refused():
    with pytest.raises(ValueError, match="counted from 1"):
        adam_step(*torch.zeros(4, 2), t=0, lr=0.1)


# the tasks


def test_copies_are_copies():
    for pair in copy_pairs(50, 1, 9, seed=3):
        assert pair.target.tolist() == [BOS, *pair.source.tolist(), EOS]


def test_parity_counts_the_ones():
    pairs = parity_pairs(200, 1, 12, seed=5)
    for pair in pairs:
        assert set(pair.source.tolist()) <= {4, 5}
        assert pair.target.tolist() == [BOS, 4 + pair.source.tolist().count(5) % 2, EOS]
    assert {int(pair.target[1]) for pair in pairs} == {4, 5}


def test_the_tasks_use_all_letters_and_all_lengths_and_repeat_themselves_by_their_seed():
    pairs = copy_pairs(500, 2, 5, letters=3, seed=0)
    assert {len(pair.source) for pair in pairs} == {2, 3, 4, 5}
    assert {int(i) for pair in pairs for i in pair.source} == {4, 5, 6}
    again, other = copy_pairs(500, 2, 5, letters=3, seed=0), copy_pairs(500, 2, 5, letters=3, seed=1)
    assert all(np.array_equal(a.source, b.source) for a, b in zip(pairs, again, strict=True))
    assert any(not np.array_equal(a.source, b.source) for a, b in zip(pairs, other, strict=True))
    assert len(pairs) == 500


def test_all_lengths_and_all_letters_are_as_likely_and_letters_are_ten_unless_told():
    pairs = copy_pairs(4000, 1, 4)
    lengths = np.bincount([len(pair.source) for pair in pairs])[1:]
    letters = np.bincount(np.concatenate([pair.source for pair in pairs]))[4:]
    assert len(lengths) == 4 and len(letters) == 10
    for counts in (lengths, letters):
        mean = counts.mean()
        assert np.abs(counts - mean).max() < 5 * mean**0.5


def test_another_seed_makes_other_rows_of_bits():
    one, again, other = (parity_pairs(50, 1, 9, seed=seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a.source, b.source) for a, b in zip(one, again, strict=True))
    assert any(not np.array_equal(a.source, b.source) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("shortest", "longest"), [(0, 3), (4, 3)])
def test_empty_rows_and_reversed_bounds_are_refused(shortest, longest):
    with pytest.raises(ValueError, match="shortest <= longest"):
        copy_pairs(3, shortest, longest)


# where heads look


def test_maps_have_a_row_for_each_target_word_and_sum_to_one_over_the_source():
    pairs = copy_pairs(6, 2, 7, seed=0)
    model = Transformer(14, 14, **SHAPE).eval()
    for pair, weights in zip(pairs, cross_maps(model, pairs), strict=True):
        assert weights.shape == (2, 4, len(pair.source), len(pair.source))
        check.sums_to_one(weights)


def test_a_row_of_a_map_belongs_to_the_position_that_predicts_the_word_and_layers_keep_their_order():
    sources, targets = ([5, 6, 7, 8, 9], [4, 5]), ([4, 5], [6, 7, 8, 9])
    pairs = [s2s.Pair(np.array(x), np.array([BOS, *y, EOS])) for x, y in zip(sources, targets, strict=True)]
    model = Transformer(14, 14, **SHAPE).eval()
    for pair, weights in zip(pairs, cross_maps(model, pairs), strict=True):
        S, T = len(pair.source), len(pair.target) - 2
        assert weights.shape == (2, 4, T, S)
        alone = attention_weights(
            model, torch.as_tensor(pair.source)[None], torch.tensor([S]), torch.as_tensor(pair.target)[None, :-1]
        )
        for layer in range(2):
            expected = next(w for name, w in alone.items() if f"decoder.blocks.{layer}.cross" in name)[0, :, :T, :S]
            np.testing.assert_allclose(weights[layer], expected, atol=1e-6)


def test_a_head_that_looks_where_it_should_has_no_error(monkeypatch):
    pairs = [s2s.Pair(p.source, p.target, tuple((i, i) for i in range(len(p.source)))) for p in copy_pairs(5, 2, 6)]
    sizes = [len(pair.source) for pair in pairs]
    good_and_bad = [np.stack([np.eye(n), np.roll(np.eye(n), 1, 1)]) for n in sizes]  # (H, T, S)
    maps = [np.stack([m, m[::-1], m]) for m in good_and_bad]  # the second layer has them the other way around
    monkeypatch.setattr(
        "lrm_utils.models.training_a_transformer.cross_maps",
        lambda model, some: [maps[next(i for i, p in enumerate(pairs) if p is q)] for q in some],
    )
    errors = head_errors(None, pairs, batch_size=2)
    assert errors.shape == (3, 2)
    np.testing.assert_allclose(errors, [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])


def test_errors_of_a_real_model_are_shares_and_do_not_depend_on_the_batches():
    pairs = [s2s.Pair(p.source, p.target, tuple((i, i) for i in range(len(p.source)))) for p in copy_pairs(9, 2, 6)]
    model = Transformer(14, 14, **SHAPE).eval()
    errors = head_errors(model, pairs)
    assert ((errors >= 0) & (errors <= 1)).all()
    np.testing.assert_allclose(head_errors(model, pairs, batch_size=4), errors)


# the trained shape of model


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_future_words_do_not_change_earlier_predictions_and_padding_changes_none(norm):
    model = Transformer(14, 14, **SHAPE, norm=norm)
    source, lengths = torch.randint(4, 14, (3, 7)), torch.tensor([7, 4, 2])
    check.causal(lambda y: model.eval()(source, lengths, y), torch.randint(4, 14, (3, 6)))
    target = torch.randint(4, 14, (3, 5))
    check.padding(lambda x, n: model.eval()(x, n, target).flatten(1), source, lengths)


def test_step_by_step_with_a_cache_equals_all_at_once():
    model = Transformer(14, 14, **SHAPE, norm="pre").eval()
    source, lengths, target = torch.randint(4, 14, (3, 6)), torch.tensor([6, 3, 1]), torch.randint(4, 14, (3, 5))
    with torch.no_grad():
        state, logits = model.start(source, lengths), []
        for t in range(5):
            new, state = model.step(target[:, t], state)
            logits.append(new)
        torch.testing.assert_close(torch.stack(logits, 1), model(source, lengths, target), atol=1e-5, rtol=1e-5)


def test_evaluation_switches_dropout_off_and_training_switches_it_on():
    model = Transformer(14, 14, **(SHAPE | {"dropout": 0.5}))
    inputs = torch.randint(4, 14, (2, 5)), torch.tensor([5, 5]), torch.randint(4, 14, (2, 4))
    assert not torch.equal(model.train()(*inputs), model(*inputs))
    assert torch.equal(model.eval()(*inputs), model(*inputs))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("task", [copy_pairs, parity_pairs])
def test_every_objective_beats_its_untrained_loss_and_reads_its_source(norm, task):
    pairs = task(400, 1, 4, seed=0)
    model = Transformer(14, 14, D=32, H=4, F=64, layers=2, dropout=0.0, norm=norm)
    batches, schedule = s2s.shuffled_batches(pairs, 40), partial(s2s.ramp, warmup=30)
    history = lrm.fit(model, batches, smoothed_translation_loss, steps=250, lr=5e-3, schedule=schedule)
    check.learns(history.losses)
    guessing = {copy_pairs: np.log(10), parity_pairs: np.log(2)}[task]  # the first word, were the source not read
    batch = collate(pairs)
    with torch.no_grad():
        first = model(batch["source"], batch["source_lengths"], batch["target"][:, :1])[:, 0]
    assert torch.nn.functional.cross_entropy(first, batch["target"][:, 1]) < 0.9 * guessing


def test_without_positions_a_row_of_bits_and_its_double_look_the_same_and_with_positions_they_do_not():
    rows = ([4, 5], [4, 5, 4, 5])
    for positions, same in ((None, True), ("sinusoidal", False)):
        model = Transformer(6, 6, **SHAPE, norm="pre", positions=positions).eval()
        once, twice = (model(torch.tensor([r]), torch.tensor([len(r)]), torch.tensor([[BOS]])) for r in rows)
        assert torch.allclose(once, twice, atol=1e-5) == same


def test_filling_adams_averages_moves_no_weight_and_shrinking_scales_what_every_residual_adds():
    pairs = bench.s2s.parallel(bench.miniature.translation(train=200, validation=10, test=10))
    model = Transformer(*bench.sizes(pairs), **SHAPE)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    optimizer = bench.adam(model, 0.01)
    bench.fill(model, pairs, optimizer, steps=3, squares_only=True)
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert optimizer.param_groups[0]["lr"] == 0.01
    states = list(optimizer.state.values())
    assert not any(state["exp_avg"].any() for state in states)
    assert all(state["exp_avg_sq"].any() for state in states)
    bench.shrink(model, pairs, optimizer, share=0.5)
    scaled = {name for name, weight in model.state_dict().items() if not torch.equal(before[name], weight)}
    assert len(scaled) == 2 * (2 + 3)  # two layers: two residuals in the encoder, three in the decoder
    assert all(torch.equal(model.state_dict()[name], 0.5 * before[name]) for name in scaled)


# beams


def test_a_beam_of_width_1_is_greedy_search_with_any_length_penalty():
    model = Transformer(14, 14, **SHAPE).eval()
    batch = collate(copy_pairs(20, 1, 8, seed=2))
    inputs = batch["source"], batch["source_lengths"]
    for alpha in (0.0, 0.6, 2.0):
        assert torch.equal(
            beam_search(model, *inputs, width=1, limit=12, alpha=alpha), greedy(model, *inputs, limit=12)
        )


def best_of_all(model, source, lengths, limit, alpha):
    """The best penalized score of every sentence that ends, or is cut off at the limit, and the sentence."""
    best = (-np.inf, ())
    for n in range(1, limit + 1):
        for sentence in itertools.product([EOS, 3, 4, 5], repeat=n):
            if EOS in sentence[:-1] or (sentence[-1] != EOS and n < limit):
                continue
            logs = log_probabilities(model(source, lengths, torch.tensor([[BOS, *sentence[:-1]]])))[0]
            total = sum(logs[t, word].item() for t, word in enumerate(sentence))
            best = max(best, (total / length_penalty(n, alpha), sentence))
    return best


@torch.no_grad()
def test_a_beam_as_wide_as_the_tree_finds_the_best_penalized_sentence():
    torch.manual_seed(26)
    model = Transformer(6, 6, D=16, H=2, F=32, layers=1, norm="pre").double().eval()
    source, lengths, limit, sizes = torch.tensor([[4, 5, 3]]), torch.tensor([3]), 4, set()
    for alpha in (0.0, 0.6, 1.0, 3.0):
        best, sentence = best_of_all(model, source, lengths, limit, alpha)
        ids, score = beam_search(model, source, lengths, width=64, limit=limit, alpha=alpha, scores=True)
        assert [i for i in ids[0].tolist() if i != PAD] == list(sentence)
        assert float(score[0]) / length_penalty(len(sentence), alpha) == pytest.approx(best)
        sizes.add(len(sentence))
    assert len(sizes) == 3  # the penalty decides which sentence is best
