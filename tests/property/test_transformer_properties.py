"""What must hold for the Transformer at every shape and under every mask."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models.transformer import (
    Block,
    Embedding,
    MultiHeadAttention,
    Positions,
    Stack,
    Transformer,
    both,
    causal_mask,
    fast_attention,
    padding_mask,
    scaled_dot_product,
    sinusoidal_positions,
    window_mask,
    windowed_attention,
)

few = settings(max_examples=25, deadline=None)
sizes = st.integers(1, 6)
seeds = st.integers(0, 2**16)


def parts(seed, B, H, T, S, D):
    random = torch.Generator().manual_seed(seed)
    make = [torch.randn(B, H, n, D, generator=random, dtype=torch.float64) for n in (T, S, S)]
    return *make, torch.rand(B, 1, T, S, generator=random) < 0.6


@few
@given(seeds, sizes, sizes, sizes, sizes, st.integers(1, 9))
def test_weights_sum_to_one_over_allowed_places_and_are_exactly_zero_elsewhere(seed, B, H, T, S, D):
    q, k, v, allowed = parts(seed, B, H, T, S, D)
    output, weights = scaled_dot_product(q, k, v, allowed)
    seen = allowed.any(-1).expand(B, H, T)
    assert (weights.masked_select(~allowed) == 0).all()
    check.close(weights.sum(-1), seen.double(), 1e-12)  # 0 where nothing is allowed
    check.close(output, weights @ v, 1e-12)
    assert (output[~seen] == 0).all()


@few
@given(seeds, sizes, sizes, sizes, sizes, st.integers(1, 9), st.booleans(), st.booleans())
def test_the_fast_path_equals_the_explicit_one_forward_and_backward(seed, B, H, T, more, D, causal, masked):
    q, k, v, allowed = parts(seed, B, H, T, T + more - 1, D)  # a causal mask needs a key for each query
    allowed = allowed if masked else None
    gradients = []
    for compute in (
        lambda q, k, v: fast_attention(q, k, v, allowed, causal=causal),
        lambda q, k, v: scaled_dot_product(q, k, v, both(allowed, causal, q, k))[0],
    ):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        output = compute(*leaves)
        (output * torch.arange(output.numel()).view(output.shape).cos()).sum().backward()
        gradients.append([output, *(x.grad for x in leaves)])
    for fast, explicit in zip(*gradients, strict=True):
        assert fast.isfinite().all()
        check.close(fast, explicit, 1e-9)


@few
@given(seeds, sizes, sizes, st.integers(1, 3), st.sampled_from([0.0, 0.4]))
def test_a_row_without_any_key_gives_zeros_and_no_nan_in_either_direction(seed, T, S, H, dropout):
    q, k, v, _ = parts(seed, 2, H, T, S, 4)
    allowed = torch.ones(2, 1, T, S, dtype=torch.bool)
    allowed[0, :, -1] = False
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        output = fast_attention(*leaves, allowed, dropout=dropout)
        assert (output[0, :, -1] == 0).all()
        output.sum().backward()
        assert all(x.grad.isfinite().all() for x in leaves)
        assert (leaves[0].grad[0, :, -1] == 0).all()
    layer = MultiHeadAttention(4 * H, H, dropout=dropout)
    x = torch.randn(2, T, 4 * H, requires_grad=True)
    layer(x, torch.randn(2, S, 4 * H), torch.zeros(2, T, S, dtype=torch.bool)).sum().backward()
    assert x.grad.abs().sum() == 0


@few
@given(seeds, st.integers(1, 20), st.integers(1, 8), st.integers(1, 3))
def test_windowed_attention_equals_attention_with_a_window_mask(seed, T, w, H):
    q, k, v, _ = parts(seed, 2, H, T, T, 4)
    check.close(windowed_attention(q, k, v, w), scaled_dot_product(q, k, v, window_mask(T, w))[0], 1e-10)


@few
@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 5))
def test_masks_say_what_they_promise_at_every_place(T, length, past):
    real, causal, window = padding_mask(torch.tensor([length]), T), causal_mask(T, past), window_mask(T, past)
    assert real.shape == (1, T) and causal.shape == (T, past + T) and window.shape == (T, T)
    assert all(real[0, t].item() == (t < length) for t in range(T))
    assert all(causal[t, s].item() == (s <= t + past) for t in range(T) for s in range(past + T))
    assert all(window[t, s].item() == (abs(t - s) <= past) for t in range(T) for s in range(T))


@few
@given(st.integers(1, 40), st.integers(0, 30), st.integers(1, 8))
def test_one_rotation_moves_every_sinusoid_by_as_many_places(T, s, half):
    table = sinusoidal_positions(T + s, 2 * half).double()
    hands = torch.view_as_complex(table.view(T + s, half, 2))  # sin + i cos: a hand that turns clockwise
    rates = 10_000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    turned = hands[:T] * torch.polar(torch.ones(half, dtype=torch.float64), -rates * s)
    check.close(torch.view_as_real(turned), torch.view_as_real(hands[s:]), 1e-5)


blocks = st.builds(
    lambda norm, activation, H: dict(norm=norm, activation=activation, H=H),
    st.sampled_from(["post", "pre"]),
    st.sampled_from(["relu", "gelu"]),
    st.sampled_from([1, 2, 4]),
)


@few
@given(seeds, blocks, st.integers(2, 6))
def test_without_positions_permuting_inputs_permutes_outputs_and_with_them_not(seed, options, T):
    torch.manual_seed(seed)
    H = options.pop("H")
    stack = Stack(2, 8, H, 16, dropout=0.0, **options).double()
    check.permutation(stack, torch.randn(2, T, 8, dtype=torch.float64), tolerance=1e-9)
    for kind in ("sinusoidal", "learned"):
        places = Positions(8, kind).double()
        try:
            check.permutation(lambda x, places=places: stack(places(x)), torch.randn(2, T, 8, dtype=torch.float64))
        except check.CheckFailed:
            continue
        raise AssertionError(f"{kind} positions do not tell places apart")


@few
@given(seeds, blocks, st.integers(2, 7))
def test_future_tokens_do_not_change_past_outputs(seed, options, T):
    torch.manual_seed(seed)
    H = options.pop("H")
    stack = Stack(2, 8, H, 16, dropout=0.0, **options)
    check.causal(lambda x: stack(x, causal=True), torch.randn(2, T, 8))


def test_a_mask_in_the_first_layer_only_leaks():
    torch.manual_seed(0)
    first, second = (Block(8, 2, 16, dropout=0.0) for _ in range(2))
    x = torch.randn(2, 5, 8)
    check.causal(lambda x: second(first(x, causal=True), causal=True), x)
    for causal in ((True, False), (False, True)):
        try:
            check.causal(lambda x, c=causal: second(first(x, causal=c[0]), causal=c[1]), x)
        except check.CheckFailed as error:
            assert "the future leaks" in str(error)
        else:
            raise AssertionError("the leak was not found")


def translator(seed, norm, positions="sinusoidal", layers=2):
    torch.manual_seed(seed)
    return Transformer(9, 9, 8, 2, 16, layers, 0.1, norm, positions, limit=16).eval()


@few
@given(seeds, st.sampled_from(["post", "pre"]), st.integers(1, 5), st.integers(1, 5))
def test_padding_never_changes_a_translation(seed, norm, shorter, T):
    model = translator(seed, norm)
    source, target = torch.randint(4, 9, (2, 6)), torch.randint(4, 9, (2, T))
    lengths = torch.tensor([6, shorter])
    check.padding(lambda s, n: model(s, n, target).flatten(1), source, lengths, tolerance=1e-5)
    check.padding(lambda s, n: model.encode(s, n)[0], source, lengths, tolerance=1e-5)
    alone = model(source[1:, :shorter], lengths[1:], target[1:])
    check.close(model(source, lengths, target)[1:], alone, 1e-5)


@few
@given(seeds, st.sampled_from(["post", "pre"]), st.sampled_from(["sinusoidal", "learned", None]), st.integers(1, 6))
def test_cached_steps_equal_the_full_forward_and_the_model_is_causal(seed, norm, positions, T):
    model = translator(seed, norm, positions)
    source, lengths, target = torch.randint(4, 9, (3, 5)), torch.tensor([5, 1, 3]), torch.randint(4, 9, (3, T))
    full, state = model(source, lengths, target), model.start(source, lengths)
    with torch.no_grad():
        for t in range(T):
            logits, state = model.step(target[:, t], state)
            check.close(logits, full[:, t], 2e-5)
    if T > 1:
        check.causal(lambda y: model(source, lengths, y), target)


@few
@given(seeds, st.integers(0, 4), st.integers(1, 4))
def test_a_cache_filled_in_pieces_equals_one_pass(seed, first, second):
    torch.manual_seed(seed)
    block = Block(8, 2, 16, dropout=0.0).double()
    x = torch.randn(2, first + second, 8, dtype=torch.float64)
    cache, found = {}, []
    for piece in (x[:, :first], x[:, first:]):
        if piece.shape[1]:
            found.append(block(piece, causal=True, cache=cache))
    check.close(torch.cat(found, 1), block(x, causal=True), 1e-9)
    assert cache["k"].shape == (2, 2, first + second, 4)


def test_reordered_states_go_on_as_the_rows_they_came_from():
    model = translator(0, "pre")
    source, lengths = torch.randint(4, 9, (3, 5)), torch.tensor([5, 2, 3])
    with torch.no_grad():
        _, state = model.step(torch.tensor([4, 5, 6]), model.start(source, lengths))
        straight, _ = model.step(torch.tensor([7, 8, 7]), state)
        order = torch.tensor([2, 0, 0])
        state = {name: part[order] for name, part in state.items()}
        turned, _ = model.step(torch.tensor([7, 7, 7]), state)
    check.close(turned, straight[order], 1e-5)


def test_a_block_equals_its_central_differences():
    torch.manual_seed(0)
    block = Block(6, 2, 8, dropout=0.0, norm="pre", activation="gelu", cross=True).double()
    x, memory = torch.randn(2, 3, 6, dtype=torch.float64), torch.randn(2, 4, 6, dtype=torch.float64)
    real = padding_mask(torch.tensor([4, 2]), 4)[:, None]
    check.gradient(lambda: block(x, None, True, memory, real).square().sum(), block, entries=4)


def test_embeddings_of_a_later_start_are_those_of_the_whole():
    layer = Embedding(7, 8, "learned", limit=9)
    ids = torch.randint(7, (2, 9))
    check.close(layer(ids[:, 4:], start=4), layer(ids)[:, 4:])
