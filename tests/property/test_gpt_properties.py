"""What holds of GPT for any text, any batch, and any logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils.models import gpt

V, LIMIT = 13, 12


@pytest.fixture(scope="module", params=["pre", "post"])
def model(request):
    torch.manual_seed(0)
    made = gpt.GPT(V, D=8, H=2, layers=3, limit=LIMIT, dropout=0.3, norm=request.param).double().eval()
    for weight in made.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return made


def tokens_of(seed, B, T):
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(seed))


seeds, batches = st.integers(0, 10_000), st.integers(1, 4)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, B=batches, T=st.integers(2, LIMIT), data=st.data())
def test_a_changed_token_leaves_all_earlier_logits_alone(model, seed, B, T, data):
    tokens, place = tokens_of(seed, B, T), data.draw(st.integers(1, T - 1))
    changed = tokens.clone()
    changed[:, place] = (changed[:, place] + 1 + seed % (V - 1)) % V
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :place], after[:, :place], rtol=0, atol=1e-12)
    assert not torch.allclose(before[:, place], after[:, place])


@settings(max_examples=30, deadline=None)
@given(seed=seeds, B=batches, T=st.integers(1, LIMIT), data=st.data())
def test_cached_logits_are_those_of_one_pass_however_the_text_is_cut(model, seed, B, T, data):
    tokens = tokens_of(seed, B, T)
    cuts = sorted(data.draw(st.sets(st.integers(1, T - 1)))) if T > 1 else []
    caches = model.caches()
    with torch.no_grad():
        parts = [model(part, caches) for part in tokens.tensor_split(cuts, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), model(tokens), rtol=0, atol=1e-10)
    assert caches[0]["k"].shape[2] == T


@settings(max_examples=15, deadline=None)
@given(seed=seeds, B=batches, T=st.integers(1, 2 * LIMIT), length=st.integers(1, 2 * LIMIT + 3))
def test_text_written_with_the_cache_is_text_written_without_it(model, seed, B, T, length):
    tokens = tokens_of(seed, B, T)
    with_cache, without = (
        torch.stack(list(gpt.generate(model, tokens, length, cached=cached)), 1) for cached in (True, False)
    )
    assert torch.equal(with_cache, without)
    assert with_cache.shape == (B, length)


@settings(max_examples=15, deadline=None)
@given(seed=seeds, B=st.integers(2, 4), T=st.integers(1, LIMIT))
def test_rows_of_a_batch_know_nothing_of_each_other(model, seed, B, T):
    tokens = tokens_of(seed, B, T)
    with torch.no_grad():
        together, alone = model(tokens), torch.cat([model(row[None]) for row in tokens])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def logits_of(seed, N=6):
    random = torch.Generator().manual_seed(seed)
    return 4 * torch.randn(N, V, generator=random, dtype=torch.double)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, p=st.floats(0.01, 0.99))
def test_the_nucleus_is_the_smallest_set_that_reaches_p(seed, p):
    z = logits_of(seed)
    kept, share = gpt.narrowed(z, top_p=p).isfinite(), z.softmax(-1)
    mass = share.where(kept, 0).sum(-1)
    least = share.where(kept, torch.inf).amin(-1)
    assert (mass >= p - 1e-9).all()
    assert (mass - least < p + 1e-9).all()  # without its last token it does not reach p
    assert (share.where(~kept, 0).amax(-1) <= least).all()  # and it holds the most probable ones


@settings(max_examples=40, deadline=None)
@given(seed=seeds, k=st.integers(1, 2 * V))
def test_top_k_keeps_k_tokens_and_their_proportions(seed, k):
    z = logits_of(seed)
    q = gpt.narrowed(z, top_k=k).softmax(-1)
    assert ((q > 0).sum(-1) == min(k, V)).all()
    best = z.softmax(-1).topk(min(k, V)).values
    torch.testing.assert_close(q.topk(min(k, V)).values, best / best.sum(-1, keepdim=True))


@settings(max_examples=40, deadline=None)
@given(seed=seeds, temperature=st.sampled_from([1e-6, 1e-4, 1e-3]))
def test_toward_temperature_zero_the_draw_is_greedy(seed, temperature):
    z = logits_of(seed)
    assert torch.equal(gpt.sampler(temperature=temperature)(z, None), gpt.greedy(z, None))


@settings(max_examples=40, deadline=None)
@given(seed=seeds, penalty=st.floats(1.01, 3))
def test_the_penalty_makes_what_was_said_less_probable_and_nothing_else_unlikelier(seed, penalty):
    z, seen = logits_of(seed), tokens_of(seed, 6, 4)
    before, after = z.softmax(-1), gpt.narrowed(z, seen, repetition=penalty).softmax(-1)
    there = torch.zeros_like(z, dtype=torch.bool).scatter(1, seen, True)
    assert (after.where(there, 0).sum(-1) <= before.where(there, 0).sum(-1) + 1e-12).all()
    assert (after.where(~there, 1) >= before.where(~there, 0) - 1e-12).all()


def test_draws_have_the_frequencies_of_the_distribution():
    torch.manual_seed(0)
    z = torch.tensor([2.0, 1.0, 0.0, -1.0])
    drawn = gpt.sampler(temperature=0.8)(z.repeat(40_000, 1), None)
    expected = (z / 0.8).softmax(-1)
    found = torch.bincount(drawn, minlength=4) / 40_000
    error = (expected * (1 - expected) / 40_000).sqrt()
    assert ((found - expected).abs() < 4 * error).all()


@settings(max_examples=40, deadline=None)
@given(T=st.integers(1, 9), B=st.integers(1, 4), more=st.integers(0, 60), epoch=st.integers(0, 5))
def test_stretches_overlap_by_one_and_ask_no_token_twice(T, B, more, epoch):
    tokens = np.arange(B * T + T + more)
    rows = np.concatenate([batch.numpy() for batch in gpt.stretches(tokens, T, B)(epoch)])
    assert rows.shape[1] == T + 1
    assert (np.diff(rows, axis=1) == 1).all()  # each is a piece of the text
    asked = rows[:, 1:].ravel()
    assert len(set(asked)) == len(asked)
    assert len(asked) > len(tokens) - (B + 2) * T - 1  # at most a batch and the edges are left out


def test_a_token_comes_to_stand_at_every_place():
    epochs, place = gpt.stretches(np.arange(100), 8, 3), set()
    for number in range(60):
        for batch in epochs(number):
            place |= {int(where) for where in (batch == 50).nonzero()[:, 1]}
    assert place == set(range(9))
