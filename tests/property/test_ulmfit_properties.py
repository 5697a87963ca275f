"""ULMFiT: what holds for every number of steps, every document, and every cut."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models import awd_lstm as awd
from lrm_utils.models import ulmfit as ulm

lengths_of = st.lists(st.integers(1, 30), min_size=1, max_size=5)


def encoder(seed, layers=2):
    torch.manual_seed(seed)
    return awd.AWDLSTM(20, 6, 9, layers, words=0.0, inputs=0.0, hidden=0.0, weights=0.0)


def drawn(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(20, (len(lengths), max(lengths)), generator=generator), torch.tensor(lengths)


@given(st.integers(1, 500), st.floats(0.01, 0.99), st.floats(1, 100))
def test_the_rate_rises_to_the_peak_falls_from_there_and_is_never_negative(steps, cut_frac, ratio):
    factors = [ulm.slanted_triangular(t, steps, cut_frac, ratio) for t in range(steps)]
    peak = max(range(steps), key=factors.__getitem__)
    assert all(0 < f <= 1 + 1e-12 for f in factors)
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)


@given(st.integers(1, 40), st.sampled_from([10, 20, 4, 2]))
def test_where_the_rise_is_a_whole_number_of_steps_the_rate_is_the_printed_one(tens, parts):
    T, cut = tens * parts, tens
    for t in range(T):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (parts - 1))
        assert abs(ulm.slanted_triangular(t, T, 1 / parts) - (1 + p * 31) / 32) < 1e-12


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.floats(1e-5, 1), st.floats(1, 5))
def test_rates_fall_by_the_factor_and_the_top_has_the_whole_rate(sizes, lr, factor):
    groups = [[torch.zeros(1, requires_grad=True) for _ in range(n)] for n in sizes]
    rates = [g["lr"] for g in ulm.discriminative(groups, lr, factor)]
    assert rates[-1] == lr
    check.close([b / a for a, b in zip(rates, rates[1:], strict=False)] or [factor], factor, 1e-6)


@settings(deadline=None, max_examples=25)
@given(lengths_of, st.integers(1, 40), st.integers(1, 5), st.integers(0, 1000))
def test_chunks_of_any_size_give_the_pooled_states_of_one_pass(lengths, T, keep, seed):
    reader, (x, n) = encoder(seed), drawn(lengths, seed)
    check.close(ulm.bpt3c(reader, x, n, T, keep), ulm.concat_pool(reader(x)[0], n), 1e-5)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=5), st.integers(1, 25), st.integers(0, 1000))
def test_padding_and_companions_do_not_change_the_scores(lengths, T, seed):
    model, (x, n) = ulm.Classifier(encoder(seed), C=3, T=T).eval(), drawn(lengths, seed)
    check.padding(model, torch.cat([x, x[:, :1]], 1), n)  # at least one place of padding
    alone = torch.cat([model(x[i : i + 1, :k], n[i : i + 1]) for i, k in enumerate(lengths)])
    check.close(model(x, n), alone, 1e-5)


@given(lengths_of, st.integers(1, 35))
def test_aligned_documents_end_in_the_same_chunk_and_keep_their_words(lengths, T):
    x, n = drawn(lengths, 0)
    tokens, real = ulm.aligned(x, n, T)
    last = (tokens.shape[1] - 1) // T
    for row, (k, mask) in enumerate(zip(lengths, real, strict=True)):
        places = mask.nonzero()[:, 0]
        assert tokens[row, mask].tolist() == x[row, :k].tolist()
        assert places[0] % T == 0 and places[-1] // T == last
        assert places.tolist() == list(range(places[0], places[0] + k))


@given(st.integers(2, 6), st.integers(0, 6))
def test_unfreezing_reaches_from_the_lowest_group_up(size, lowest):
    groups = [[torch.nn.Parameter(torch.zeros(1)) for _ in range(2)] for _ in range(size)]
    ulm.unfreeze(groups, lowest)
    assert [[p.requires_grad for p in g] for g in groups] == [[i >= lowest] * 2 for i in range(size)]


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 70), st.integers(1, 20), st.integers(0, 5))
def test_batches_hold_every_document_once_with_its_label(size, B, epoch):
    documents = [[i] * (1 + i % 7) for i in range(size)]
    found = {}
    for tokens, lengths, labels in ulm.labeled_batches(documents, range(size), B)(epoch):
        for row, n, label in zip(tokens, lengths, labels, strict=True):
            assert set(row[:n].tolist()) == {label.item()} and n == 1 + label % 7
            assert label.item() not in found
            found[label.item()] = True
    assert len(found) == (size - 1 if B == 1 or size % B == 1 else size) or (B == 1 and not found)
