"""What holds for any model, sentence and beam of chapter 5's first notebook."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models import seq2seq as s2s
from lrm_utils.models.seq2seq import BOS, EOS, PAD

WIRINGS = [
    dict(embedded=False),
    dict(embedded=False, tied=True),
    dict(),
    dict(tied=True),
    dict(bidirectional=True),
]
wired = pytest.mark.parametrize("options", WIRINGS, ids=lambda o: " ".join(o) or "embedding")
seeds = st.integers(0, 2**31)


def model_of(seed, V=7, D=8, **options):
    torch.manual_seed(seed)
    model = s2s.Seq2Seq(V, V, D, **options).eval()
    with torch.no_grad():
        model.output.weight.mul_(6)  # an untrained model has no opinion: give it one
        model.output.bias.normal_()
    return model


def sources(seed, B=3, S=5, V=7):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, S + 1, (B,), generator=generator)
    ids = torch.randint(4, V, (B, S), generator=generator)
    return torch.where(torch.arange(S) < lengths[:, None], ids, PAD), lengths


@wired
def test_future_words_do_not_change_past_scores(options):
    model = model_of(0, **options)
    source, lengths = sources(0)
    check.causal(lambda y: model(source, lengths, y), torch.randint(1, 7, (3, 6)))


@wired
def test_padding_of_the_source_does_not_change_the_scores(options):
    model, target = model_of(0, **options), torch.randint(1, 7, (3, 4))
    source = torch.randint(4, 7, (3, 6))
    check.padding(lambda x, n: model(x, n, target).flatten(1), source, torch.tensor([6, 3, 1]))


@wired
def test_one_step_at_a_time_gives_what_all_at_once_gives(options):
    model, target = model_of(1, **options), torch.randint(1, 7, (3, 6))
    source, lengths = sources(1)
    state, found = model.start(source, lengths), []
    for t in range(6):
        logits, state = model.step(target[:, t], state)
        found.append(logits)
    assert torch.allclose(torch.stack(found, 1), model(source, lengths, target), atol=1e-5)


@given(seeds, st.integers(1, 6))
@settings(max_examples=25)
def test_a_beam_of_width_1_is_greedy_search(seed, limit):
    model, inputs = model_of(seed), sources(seed)
    assert torch.equal(s2s.beam_search(model, *inputs, width=1, limit=limit), s2s.greedy(model, *inputs, limit=limit))


def best_of_all(model, source, lengths, limit, alpha, V):
    """Try every sentence of up to `limit` tokens: the one with the best score, and its log-probability."""
    found = (-np.inf, 0.0, ())
    words = [t for t in range(V) if t not in (PAD, BOS)]
    for tokens in product(words, repeat=limit):
        cut = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
        y = torch.tensor([[BOS, *cut]])
        with torch.no_grad():
            logs = s2s.log_probabilities(model(source, lengths, y[:, :-1]))
        total = logs.gather(-1, y[:, 1:, None]).sum().item()
        found = max(found, (total / ((5 + len(cut)) / 6) ** alpha, total, cut))
    return found


@given(seeds, st.sampled_from([0.0, 0.6, 1.0, 2.0]))
@settings(max_examples=6)
def test_a_beam_as_wide_as_the_tree_is_exhaustive_search(seed, alpha):
    V, limit = 6, 3
    model, (source, lengths) = model_of(seed, V=V), sources(seed, B=2, V=V)
    ids, logp = s2s.beam_search(model, source, lengths, width=4**limit, limit=limit, alpha=alpha, scores=True)
    for row in range(2):
        _, total, tokens = best_of_all(model, source[[row]], lengths[[row]], limit, alpha, V)
        assert tuple(t for t in ids[row].tolist() if t != PAD) == tokens
        assert logp[row].item() == pytest.approx(total, abs=1e-4)


@given(seeds, st.integers(1, 8))
@settings(max_examples=25)
def test_a_beam_reports_the_log_probability_of_what_it_returns(seed, width):
    model, (source, lengths) = model_of(seed), sources(seed)
    ids, logp = s2s.beam_search(model, source, lengths, width=width, limit=6, scores=True)
    target = torch.cat([torch.full((3, 1), BOS), ids], 1)
    with torch.no_grad():
        logs = s2s.log_probabilities(model(source, lengths, target[:, :-1])).gather(-1, ids[..., None])[..., 0]
    assert torch.allclose(torch.where(ids == PAD, 0.0, logs).sum(1), logp, atol=1e-4)


@given(seeds)
@settings(max_examples=15)
def test_a_sentence_is_translated_alike_alone_and_in_a_batch(seed):
    model, (source, lengths) = model_of(seed), sources(seed)
    for search, options in ((s2s.greedy, {}), (s2s.beam_search, {"width": 3})):
        together = search(model, source, lengths, limit=6, **options)
        for row in range(3):
            alone = search(model, source[[row], : lengths[row]], lengths[[row]], limit=6, **options)[0].tolist()
            assert [t for t in together[row].tolist() if t] == [t for t in alone if t]


sentence = st.lists(st.sampled_from("abcd"), min_size=1, max_size=9)


@given(st.lists(st.tuples(sentence, sentence), min_size=1, max_size=5))
def test_bleu_lies_between_0_and_1_and_the_reference_itself_has_1(rows):
    candidates, references = [a for a, _ in rows], [[b] for _, b in rows]
    assert 0 <= s2s.bleu(candidates, references) <= 1
    if any(len(c) >= 4 for c in candidates):
        assert s2s.bleu(candidates, [[c] for c in candidates]) == pytest.approx(1)
        assert s2s.bleu(candidates, [[b, a] for a, b in rows]) == pytest.approx(1)


@given(seeds)
@settings(max_examples=20)
def test_the_loss_of_a_padded_batch_is_the_sum_of_its_rows(seed):
    random = np.random.default_rng(seed)
    some = [
        s2s.Pair(random.integers(4, 7, random.integers(1, 5)), np.array([BOS, *random.integers(4, 7, n), EOS]))
        for n in random.integers(0, 6, 4)
    ]
    model = model_of(seed)
    with torch.no_grad():
        total, count = s2s.translation_loss(model, s2s.collate(some))
        alone = [s2s.translation_loss(model, s2s.collate([pair])) for pair in some]
    assert count == sum(n for _, n in alone) == sum(len(p.target) - 1 for p in some)
    assert total.item() == pytest.approx(sum(v.item() for v, _ in alone), rel=1e-4)
