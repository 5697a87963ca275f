"""The Transformer's blocks: what they refuse, what their options do, and small facts one can compute by hand."""

import math

import pytest
import torch
from torch import nn

from lrm_utils import check
from lrm_utils.models.seq2seq import BOS, beam_search, greedy
from lrm_utils.models.transformer import (
    Block,
    Dropout,
    Embedding,
    FeedForward,
    MultiHeadAttention,
    Positions,
    Residual,
    Stack,
    Transformer,
    attention_weights,
    both,
    causal_mask,
    drop,
    fast_attention,
    padding_mask,
    scaled_dot_product,
    sinusoidal_positions,
    source_mask,
    window_mask,
    windowed_attention,
    xavier,
)

LENGTHS = torch.tensor([5, 2, 3])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def translator(**options):
    return Transformer(11, 13, **(dict(D=16, H=2, F=32, layers=2, dropout=0.0, limit=12) | options))


def batch():
    return torch.randint(4, 11, (3, 5)), LENGTHS, torch.randint(4, 13, (3, 4))


# what is refused


def test_a_width_that_heads_cannot_share_is_refused():
    with pytest.raises(ValueError, match="width 10 cannot be shared by 3 heads"):
        MultiHeadAttention(10, 3)
    with pytest.raises(ValueError, match="0 heads"):
        MultiHeadAttention(10, 0)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_a_sequence_longer_than_the_table_of_positions_is_refused(positions):
    embedding = Embedding(5, 8, positions, limit=6)
    assert embedding(torch.zeros(1, 6, dtype=torch.long)).shape == (1, 6, 8)
    with pytest.raises(ValueError, match="7 positions are more than the 6 of the table.*limit=7"):
        embedding(torch.zeros(1, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="7 positions"):
        embedding(torch.zeros(1, 1, dtype=torch.long), start=6)


def test_writing_beyond_the_table_is_refused_too():
    model = translator(limit=5).eval()
    state = model.start(torch.randint(4, 11, (1, 5)), torch.tensor([5]))
    for _ in range(5):
        _, state = model.step(torch.tensor([4]), state)
    with pytest.raises(ValueError, match="6 positions are more than the 5"):
        model.step(torch.tensor([4]), state)


def test_an_empty_source_is_named():
    source, _, target = batch()
    with pytest.raises(ValueError, match="source 1 is empty"):
        translator()(source, torch.tensor([5, 0, 3]), target)
    with pytest.raises(ValueError, match="source 1 is empty"):
        translator().start(source, torch.tensor([5, 0, 3]))


def test_a_batch_that_is_all_padding_is_refused():
    source, _, target = batch()
    with pytest.raises(ValueError, match="all padding"):
        translator()(source, torch.tensor([0, 0, 0]), target)
    with pytest.raises(ValueError, match="all padding"):
        source_mask(source[:0], torch.tensor([], dtype=torch.long))


def test_a_length_beyond_the_columns_is_refused():
    with pytest.raises(ValueError, match="a length is 6, and the sources have 5 columns"):
        source_mask(torch.zeros(2, 5), torch.tensor([6, 1]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Block(8, 2, 16, norm="middle"), "norm='middle': take 'post'"),
        (lambda: Block(8, 2, 16, activation="sine"), "activation='sine': take one of relu, gelu"),
        (lambda: Positions(8, "rotary"), "positions='rotary': take 'sinusoidal', 'learned' or None"),
        (lambda: translator(positions="rotary"), "positions='rotary'"),
        (lambda: translator(tied="all"), "tied='all' needs one vocabulary for both sides, not 11 and 13"),
        (lambda: sinusoidal_positions(4, 5), "width 5 is odd"),
    ],
)
def test_unknown_names_and_sizes_get_one_clear_message(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_mask_of_numbers_is_refused():
    x = torch.randn(1, 3, 8)
    with pytest.raises(ValueError, match="allowed is torch.float32, not bool"):
        MultiHeadAttention(8, 2)(x, allowed=torch.zeros(1, 3, 3))


def test_a_mask_with_two_axes_is_refused_even_where_it_would_fit():
    heads, x = MultiHeadAttention(8, 2), torch.randn(3, 3, 8)  # as many sentences as queries
    real = padding_mask(torch.tensor([3, 1, 2]), 3)
    for run in (heads, heads.weights):
        with pytest.raises(ValueError, match=r"allowed is \(3, 3\), not \(B, T, S\): write mask\[None\]"):
            run(x, allowed=real)
    check.sums_to_one(heads.weights(x, allowed=real[:, None]), allowed=real[:, None, None])
    check.sums_to_one(heads.weights(x, allowed=window_mask(3, 1)[None]), allowed=window_mask(3, 1))
    assert torch.equal(heads(x, allowed=real[:, None, None]), heads(x, allowed=real[:, None]))


def test_the_options_of_the_fast_path_are_named():
    q, k, v = torch.randn(3, 1, 2, 3, 4)
    with pytest.raises(TypeError):
        fast_attention(q, k, v, None, True)


def test_a_causal_mask_needs_a_key_for_each_query():
    with pytest.raises(ValueError, match="4 queries, 3 keys"):
        both(None, True, torch.randn(1, 4, 8), torch.randn(1, 3, 8))


def test_a_decoder_block_without_a_memory_says_so():
    with pytest.raises(ValueError, match="needs a memory"):
        Block(8, 2, 16, cross=True)(torch.randn(1, 3, 8))


# masks, by hand


def test_masks_of_a_small_case():
    assert padding_mask(torch.tensor([1, 3]), 3).tolist() == [[True, False, False], [True, True, True]]
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(2, past=1).tolist() == [[True, True, False], [True, True, True]]
    assert window_mask(4, 1).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]


def test_no_mask_is_built_where_nothing_is_padded():
    assert source_mask(torch.zeros(2, 3), torch.tensor([3, 3])) is None
    assert source_mask(torch.zeros(2, 3), torch.tensor([3, 2])).tolist() == [[[True] * 3], [[True, True, False]]]
    assert both(None, False, torch.zeros(2, 1, 4), torch.zeros(2, 3, 4)) is None
    assert both(None, True, torch.zeros(2, 1, 4), torch.zeros(2, 3, 4)) is None  # one query sees all of the past


# dropout


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    for p in (0.1, 0.5, 0.9):
        x = drop(torch.ones(400_003), p)  # not a multiple of four
        assert abs((x == 0).double().mean().item() - p) < 0.005
        assert x.unique().tolist() == [0.0, pytest.approx(1 / (1 - p))]


def test_every_place_is_dropped_as_often_as_any_other():
    kept = torch.stack([drop(torch.ones(64), 0.3) > 0 for _ in range(4000)]).double()
    check.close(kept.mean(0), torch.full((64,), 0.7), 0.035)  # above four deviations
    together = torch.corrcoef(kept.T) - torch.eye(64)
    assert together.abs().max() < 0.09  # neighbors share a random number, and are independent all the same


def test_the_gradient_of_dropout_is_its_mask():
    x = torch.randn(50, requires_grad=True)
    y = drop(x, 0.4)
    y.sum().backward()
    check.close(x.grad, torch.where(y == 0, 0.0, 1 / 0.6))


def test_dropout_rests_in_evaluation_and_repeats_with_its_seed():
    layer, x = Dropout(0.5), torch.ones(1000)
    torch.manual_seed(1)
    first = layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), first) and (first == 0).any()
    assert layer.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert drop(x, 1.0).abs().sum() == 0
    assert drop(torch.ones(0, 3), 0.5).shape == (0, 3)


def test_dropout_falls_on_the_sublayers_output_before_it_is_added():
    residual = Residual(6, nn.Linear(6, 6), norm="pre", dropout=1.0)
    x = torch.randn(2, 3, 6)
    assert torch.equal(residual(x), x)  # all of the layer's output is dropped, the input passes
    post = Residual(6, nn.Linear(6, 6), norm="post", dropout=1.0)
    check.close(post(x), nn.functional.layer_norm(x, (6,)))


def test_dropout_falls_on_the_sum_of_words_and_positions():
    assert Embedding(5, 8, dropout=1.0)(torch.zeros(1, 4, dtype=torch.long)).abs().sum() == 0


def test_inner_dropout_falls_on_attention_weights_and_hidden_units_only_if_asked():
    plain, inner = Block(8, 2, 16, dropout=0.0), Block(8, 2, 16, dropout=0.0, inner_dropout=0.5)
    assert plain.attention.layer.dropout == 0.0 and plain.feed_forward.layer.dropout.p == 0.0
    x = torch.randn(2, 5, 8)
    assert torch.equal(plain(x), plain(x))
    for part in (inner.attention, inner.feed_forward):
        assert not torch.equal(part(x), part(x))
    assert torch.equal(inner.eval()(x), inner(x))
    assert Block(8, 2, 16, cross=True, inner_dropout=0.5).cross.layer.dropout == 0.5


def test_attention_with_dropout_has_the_right_mean():
    q, k, v = torch.randn(3, 1, 2, 4, 8)
    allowed = causal_mask(4)
    mean = torch.stack([fast_attention(q, k, v, allowed, dropout=0.3) for _ in range(3000)]).mean(0)
    check.close(mean, scaled_dot_product(q, k, v, allowed)[0], 0.12)
    mean = torch.stack([fast_attention(q, k, v, causal=True, dropout=0.3) for _ in range(3000)]).mean(0)
    check.close(mean, scaled_dot_product(q, k, v, allowed)[0], 0.12)


# positions and embeddings


def test_sinusoids_are_those_of_the_paper():
    table = sinusoidal_positions(50, 8)
    for t in (0, 3, 49):
        for i in range(4):
            angle = t / 10_000 ** (2 * i / 8)
            assert table[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_embeddings_are_scaled_by_the_root_of_the_width_unless_told_otherwise():
    ids = torch.tensor([[2, 4]])
    for scaled, factor in ((True, 4.0), (False, 1.0)):
        layer = Embedding(5, 16, None, scaled=scaled)
        check.close(layer(ids), layer.tokens.weight[ids] * factor)
    layer = Embedding(5, 16, "learned")
    check.close(layer(ids, start=3), layer.tokens.weight[ids] * 4 + layer.positions.table[3:5])


def test_learned_positions_learn_and_sinusoids_do_not():
    assert [name for name, _ in Positions(8, "learned").named_parameters()] == ["table"]
    assert not list(Positions(8, "sinusoidal").parameters())
    assert not Positions(8, "sinusoidal").state_dict()  # a checkpoint does not depend on the limit


def test_weights_start_by_xaviers_rule_and_biases_at_zero():
    layer = xavier(nn.Linear(300, 200))
    assert layer.weight.var().item() == pytest.approx(2 / 500, rel=0.05)
    assert layer.weight.abs().max() <= math.sqrt(6 / 500)
    assert layer.bias.abs().sum() == 0
    block = Block(32, 4, 64, cross=True)
    biases = [p for name, p in block.named_parameters() if name.endswith("bias")]
    assert sum(b.abs().sum() for b in biases) == 0
    assert block.attention.layer.inputs.weight.var().item() == pytest.approx(2 / (4 * 32), rel=0.1)
    assert Embedding(500, 64).tokens.weight.var().item() == pytest.approx(1 / 64, rel=0.05)


def test_a_block_has_the_parameters_that_one_counts():
    D = 24
    assert sum(p.numel() for p in Block(D, 3, 4 * D).parameters()) == 12 * D**2 + 13 * D
    assert sum(p.numel() for p in Block(D, 3, 4 * D, cross=True).parameters()) == 16 * D**2 + 19 * D
    assert sum(p.numel() for p in MultiHeadAttention(D, 3, bias=False).parameters()) == 4 * D**2


def test_activations_are_relu_and_the_exact_gelu():
    x = torch.tensor([-2.0, -0.5, 0.5, 2.0])
    for name, expected in (("relu", x.clamp(min=0)), ("gelu", x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))):
        check.close(FeedForward(4, 8, name).activation(x), expected)


# stacks and the model


def test_a_final_norm_stands_behind_pre_norm_and_where_it_is_asked_for():
    assert isinstance(Stack(1, 8, 2, 16, norm="pre").norm, nn.LayerNorm)
    assert isinstance(Stack(1, 8, 2, 16, norm="post").norm, nn.Identity)
    assert isinstance(Stack(1, 8, 2, 16, norm="post", final_norm=True).norm, nn.LayerNorm)
    assert isinstance(Stack(1, 8, 2, 16, norm="pre", final_norm=False).norm, nn.Identity)
    stack = Stack(1, 8, 2, 16, norm="pre", eps=1e-3)
    assert {m.eps for m in stack.modules() if isinstance(m, nn.LayerNorm)} == {1e-3}


def test_tying_shares_what_it_says():
    free = translator()
    assert free.output.weight is not free.target.tokens.weight
    tied = translator(tied=True)
    assert tied.output.weight is tied.target.tokens.weight
    assert tied.source.tokens.weight is not tied.target.tokens.weight
    every = Transformer(13, 13, D=16, H=2, F=32, tied="all")
    assert every.output.weight is every.target.tokens.weight is every.source.tokens.weight
    assert free.output.bias is None


def test_the_model_has_the_shape_and_the_options_that_were_asked_for():
    model = translator(norm="pre", activation="gelu", inner_dropout=0.2, dropout=0.3)
    assert model(*batch()).shape == (3, 4, 13)
    assert {m.p for m in model.modules() if isinstance(m, Dropout)} == {0.2, 0.3}
    assert {m.dropout for m in model.modules() if isinstance(m, MultiHeadAttention)} == {0.2}
    assert all(block.cross is None for block in model.encoder.blocks)
    assert all(block.cross is not None for block in model.decoder.blocks)


def test_every_parameter_gets_a_gradient():
    model = translator(positions="learned", limit=5)
    model(*batch()).square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert without == []


def test_the_decoder_looks_at_the_source():
    model, (source, lengths, target) = translator().eval(), batch()
    other = source.clone()
    other[0, 2] = 4 + (other[0, 2] - 3) % 7
    moved = (model(source, lengths, target) - model(other, lengths, target)).abs().amax((1, 2))
    assert moved[0] > 1e-4 and moved[1:].max() < 1e-6


def test_steps_do_not_change_the_state_they_are_given():
    model, (source, lengths, _) = translator().eval(), batch()
    state = model.start(source, lengths)
    before = {name: part.clone() for name, part in state.items()}
    model.step(torch.full((3,), BOS), state)
    assert state.keys() == before.keys() and all(torch.equal(state[n], before[n]) for n in before)
    assert all(len(part) == 3 for part in state.values())  # batch first: a search can reorder it


def test_greedy_and_beam_search_run_on_the_model():
    model, (source, lengths, _) = translator().eval(), batch()
    said = greedy(model, source, lengths, limit=6)
    assert torch.equal(beam_search(model, source, lengths, width=1, limit=6)[:, : said.shape[1]], said)
    assert len(beam_search(model, source, lengths, width=3, limit=6)) == 3


def test_attention_weights_come_from_every_attention_and_leave_no_hook_behind():
    model, inputs = translator().eval(), batch()
    before = model(*inputs)
    maps = attention_weights(model, *inputs)
    assert list(maps) == [f"encoder.blocks.{i}.attention.layer" for i in range(2)] + [
        f"decoder.blocks.{i}.{part}.layer" for i in range(2) for part in ("attention", "cross")
    ]
    check.sums_to_one(maps["encoder.blocks.1.attention.layer"], allowed=padding_mask(LENGTHS, 5)[:, None, None])
    check.sums_to_one(maps["decoder.blocks.1.cross.layer"], allowed=padding_mask(LENGTHS, 5)[:, None, None])
    check.sums_to_one(maps["decoder.blocks.0.attention.layer"], allowed=causal_mask(4))
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert torch.equal(model(*inputs), before)


def test_a_memory_may_be_given_as_its_keys_and_values():
    heads, x, y = MultiHeadAttention(8, 2), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    check.close(heads(x, heads.split(y, 1, 3)), heads(x, y))
    check.close(heads.weights(x, heads.split(y, 1, 3)), heads.weights(x, y))


def test_weights_do_not_grow_the_cache():
    heads, x = MultiHeadAttention(8, 2), torch.randn(2, 3, 8)
    cache = {}
    heads(x, causal=True, cache=cache)
    assert heads.weights(x[:, :1], causal=True, cache=cache).shape == (2, 2, 1, 4)
    assert cache["k"].shape[2] == 3
    cache = {}  # nothing written yet: looking must not be the first to write
    assert heads.weights(x, causal=True, cache=cache).shape == (2, 2, 3, 3)
    assert cache == {}


def test_a_window_wider_than_the_text_is_plain_attention():
    q, k, v = torch.randn(3, 1, 2, 5, 4)
    check.close(windowed_attention(q, k, v, 9), scaled_dot_product(q, k, v)[0], 1e-5)
