"""What holds of BERT for any batch, any pair, and any draw."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lrm_utils.models import bert
from lrm_utils.models.bpe_and_wordpiece import BERT_SPECIALS, WordPiece

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = WordPiece([*BERT_SPECIALS, *LETTERS])
SIGNALS = torch.tensor([0, 2, 3, 4])
V, LIMIT = len(TOKENIZER), 14

seeds = st.integers(0, 10_000)
texts = st.lists(st.integers(5, V - 1), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = bert.BERT(V, 8, 2, H=2, limit=LIMIT, dropout=0.3).double().eval()
    for weight in made.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return made


def rows(seed, B, T):
    """A batch of real tokens between [CLS] and [SEP], with padding behind."""
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, V, (B, T), generator=random)
    lengths = torch.randint(3, T + 1, (B,), generator=random)
    tokens[:, 0] = 2
    tokens[torch.arange(B), lengths - 1] = 3
    return tokens.masked_fill(torch.arange(T) >= lengths[:, None], 0), lengths


# ------------------------------------------------------------------------------------------------------------- hiding


@settings(max_examples=60, deadline=None)
@given(seed=seeds, B=st.integers(1, 6), T=st.integers(3, LIMIT), rate=st.floats(0.01, 1.0))
def test_special_tokens_are_never_chosen_and_nothing_else_is_touched(seed, B, T, rate):
    tokens, _ = rows(seed, B, T)
    read, chosen = bert.masker(TOKENIZER, rate)(tokens, torch.Generator().manual_seed(seed))
    special = torch.isin(tokens, SIGNALS)
    assert not (chosen & special).any()
    assert torch.equal(read[~chosen], tokens[~chosen])
    free = (~special).sum(1)
    assert torch.equal(chosen.sum(1), (rate * free).round().clamp(min=1).long())
    assert not torch.isin(read[chosen], torch.tensor([0, 1, 2, 3])).any()


@settings(max_examples=30, deadline=None)
@given(seed=seeds, B=st.integers(1, 6), T=st.integers(3, LIMIT))
def test_the_same_seed_hides_the_same_tokens(seed, B, T):
    tokens, _ = rows(seed, B, T)
    hide = bert.masker(TOKENIZER)
    one, two = (hide(tokens, torch.Generator().manual_seed(seed)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    torch.manual_seed(seed)
    three = hide(tokens)
    torch.manual_seed(seed)
    assert all(torch.equal(a, b) for a, b in zip(three, hide(tokens), strict=True))


@pytest.mark.parametrize("mix", [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5), (0.4, 0.4, 0.2)])
def test_fates_places_and_random_tokens_pass_a_chi_square_test(mix):
    tokens = torch.tensor([[2, *range(5, 25), 3, *range(6, 20), 3, 0, 0]]).repeat(20_000, 1)
    read, chosen = bert.masker(TOKENIZER, mix=mix)(tokens, torch.Generator().manual_seed(0))
    asked, became = tokens[chosen], read[chosen]
    luck = mix[1] / len(LETTERS)  # a random token is the old one by chance
    found = np.array([(became == 4).sum(), 0, (became == asked).sum()])
    found[1] = len(asked) - found.sum()
    expected = len(asked) * np.array([mix[0], mix[1] - luck, mix[2] + luck])
    kept = expected > 0
    assert (found[~kept] == 0).all()
    if kept.sum() > 1:
        assert stats.chisquare(found[kept], expected[kept]).pvalue > 1e-3
    free = ~torch.isin(tokens[0], SIGNALS)
    n, k = int(free.sum()), int(chosen[0].sum())  # k of n places in each row, none twice: the counts spread less
    spread = stats.chisquare(chosen[:, free].sum(0)).statistic / (1 - k / n) * (n - 1) / n
    assert 1e-3 < stats.chi2.sf(spread, n - 1) < 1 - 1e-3
    if mix[1]:
        drawn = became[(became != 4) & (became != asked)]
        counts = torch.bincount(drawn, minlength=V)
        assert counts[:5].sum() == 0
        weight = torch.tensor([(asked != i).sum() for i in range(5, V)]).double()
        assert stats.chisquare(counts[5:], weight / weight.sum() * len(drawn)).pvalue > 1e-3


# ------------------------------------------------------------------------------------------------------ pairs, packing


@settings(max_examples=80, deadline=None)
@given(a=texts, b=texts, room=st.integers(2, 40))
def test_shortening_is_taking_tokens_off_the_longer_text_one_by_one(a, b, room):
    x, y = list(a), list(b)
    while len(x) + len(y) > room:
        (x if len(x) >= len(y) else y).pop()
    assert bert.shorten(a, b, room) == (x, y)


@settings(max_examples=80, deadline=None)
@given(a=texts, b=st.none() | texts)
def test_a_packed_pair_can_be_taken_apart_again(a, b):
    tokens, sides = bert.pack(a, b, TOKENIZER, limit=50)
    assert len(tokens) == len(sides) and tokens[0] == 2 and tokens[-1] == 3
    parts = [[t for t, g in zip(tokens[1:], sides[1:], strict=True) if g == side] for side in (0, 1)]
    assert parts[0] == [*a, 3]
    assert parts[1] == ([] if b is None else [*b, 3])
    assert sides == sorted(sides)


documents = st.lists(st.lists(st.lists(st.integers(5, 9), min_size=1, max_size=3), min_size=1, max_size=8), min_size=2)


@settings(max_examples=60, deadline=None)
@given(found=documents, seed=seeds)
def test_pairs_are_half_true_and_no_negative_is_true_by_accident(found, seed):
    true = {(tuple(a), tuple(b)) for d in found for a, b in zip(d, d[1:], strict=False)}
    try:
        pairs = bert.sentence_pairs(found, seed)
    except ValueError:
        return  # a text so small or so repetitive that it has no negatives
    labels = [label for *_, label in pairs]
    assert len(pairs) == sum(len(d) - 1 for d in found)
    assert sum(labels) == len(labels) // 2
    for a, b, label in pairs:
        assert ((a, b) in true) == (label == 0)
    assert pairs == bert.sentence_pairs(found, seed)


def test_negatives_come_from_other_documents_and_from_all_their_sentences_alike():
    sizes = [3, 30, 300]
    found, sentence = [], iter(range(10_000))
    for size in sizes:
        found.append([[next(sentence)] for _ in range(size)])
    home = np.repeat(range(3), sizes)
    drawn = [(home[a[0]], b[0]) for seed in range(30) for a, b, label in bert.sentence_pairs(found, seed) if label]
    assert all(home[b] != mine for mine, b in drawn)
    other = np.bincount([home[b] for mine, b in drawn if mine == 2], minlength=3)
    assert other[1] / other[0] == pytest.approx(10, rel=0.35)  # as many times more as there are sentences


@settings(max_examples=10, deadline=None)
@given(seed=seeds, B=st.integers(1, 5))
def test_batches_ask_for_what_stood_there_and_hold_every_pair_once(seed, B):
    random = np.random.default_rng(seed)
    pairs = [
        (tuple(random.integers(5, V, random.integers(1, 9))), tuple(random.integers(5, V, 3)), int(i % 2))
        for i in range(11)
    ]
    torch.manual_seed(seed)
    batches = list(bert.pair_batches(pairs, TOKENIZER, LIMIT, B)(seed))
    assert sum(len(batch["labels"]) for batch in batches) == len(pairs)
    for batch in batches:
        tokens, original, chosen = batch["tokens"], batch["original"], batch["chosen"]
        assert torch.equal(tokens[~chosen], original[~chosen])
        assert ((original != 0).sum(1) == batch["lengths"]).all()
        assert chosen.any(1).all()


# ---------------------------------------------------------------------------------------------------------- the network


@settings(max_examples=25, deadline=None)
@given(seed=seeds, B=st.integers(2, 4), T=st.integers(4, LIMIT - 3), more=st.integers(1, 3))
def test_padding_changes_no_state_and_no_logit(model, seed, B, T, more):
    tokens, lengths = rows(seed, B, T)
    real = torch.arange(T) < lengths[:, None]
    other = torch.where(real, tokens, (tokens + 1 + seed) % V)
    longer = torch.cat([other, torch.full((B, more), 7)], 1)
    with torch.no_grad():
        before, after = model.states(tokens, None, lengths), model.states(longer, None, lengths)
        for x, y in zip(before, after, strict=True):
            torch.testing.assert_close(x[real], y[:, :T][real], rtol=0, atol=1e-12)
        verdicts = [model(x, None, lengths)[1] for x in (tokens, longer)]
    torch.testing.assert_close(*verdicts, rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, B=st.integers(1, 3), T=st.integers(3, LIMIT))
def test_every_real_place_reads_every_other_and_itself(model, seed, B, T):
    tokens, lengths = rows(seed, B, T)
    with torch.no_grad():
        before = model.states(tokens, None, lengths)[1]
        for row, n in enumerate(lengths.tolist()):
            changed = tokens.clone()
            changed[row, seed % n] = 5 + (changed[row, seed % n] + 1) % (V - 5)
            moved = (model.states(changed, None, lengths)[1] - before).abs().amax(-1)
            assert (moved[row, :n] > 0).all()
            assert moved[torch.arange(B) != row].abs().sum() == 0


@settings(max_examples=25, deadline=None)
@given(seed=seeds, T=st.integers(2, LIMIT), data=st.data())
def test_no_place_reads_where_the_mask_forbids_it_at_any_depth(model, seed, T, data):
    tokens = torch.randint(5, V, (1, T), generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(T, generator=torch.Generator().manual_seed(seed))
    rank = order.argsort()
    allowed = (rank[:, None] >= rank)[None]  # each sees itself and what is before it in some order
    place = data.draw(st.integers(0, T - 1))
    changed = tokens.clone()
    changed[0, place] = 5 + (changed[0, place] + 1) % (V - 5)
    with torch.no_grad():
        one, two = (model.states(x, allowed=allowed)[-1][0] for x in (tokens, changed))
    moved = (one - two).abs().amax(-1) > 1e-12
    assert torch.equal(moved, rank >= rank[place])


@settings(max_examples=15, deadline=None)
@given(seed=seeds, B=st.integers(1, 4), T=st.integers(3, LIMIT))
def test_asking_some_places_is_asking_all_and_looking_at_some(model, seed, B, T):
    tokens, lengths = rows(seed, B, T)
    _, chosen = bert.masker(TOKENIZER)(tokens, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        every, some = model(tokens, None, lengths)[0], model(tokens, None, lengths, chosen)[0]
    torch.testing.assert_close(some, every[chosen], rtol=0, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, B=st.integers(1, 4), T=st.integers(1, LIMIT))
def test_the_input_is_the_sum_of_three_rows(model, seed, B, T):
    random = torch.Generator().manual_seed(seed)
    tokens, sides = torch.randint(V, (B, T), generator=random), torch.randint(2, (B, T), generator=random)
    x = model.inputs.total(tokens, sides)
    for b in range(B):
        for t in range(T):
            rows_ = model.inputs.tokens.weight[tokens[b, t]], model.inputs.segments.weight[sides[b, t]]
            assert torch.equal(x[b, t], rows_[0] + rows_[1] + model.inputs.positions.table[t])
