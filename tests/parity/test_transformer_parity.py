"""Our blocks compute what PyTorch 2.13's, d2l 1.0.3's and Hugging Face transformers 5.22's compute, weights copied.

Tolerance 1e-9 in float64 and 1e-5 in float32. `torch.nn.Transformer` has a norm at the end of both stacks even in
post-norm, which the paper does not have; ours adds it when `final_norm=True`. d2l numbers positions as the paper does
and multiplies embeddings by the square root of the width; its layers have no projection biases unless asked for.
"""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from lrm_utils import data
from lrm_utils.models.bpe_and_wordpiece import read_wordpieces
from lrm_utils.models.transformer import (
    Block,
    Embedding,
    MultiHeadAttention,
    Stack,
    causal_mask,
    padding_mask,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from record import import_d2l

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
both_types = pytest.mark.parametrize("dtype", list(TOLERANCE))
both_norms = pytest.mark.parametrize("norm", ["post", "pre"])


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def spread(module, dtype):
    """Weights far from their start, so that no bias is 0 and no gain is 1."""
    for p in module.parameters():
        nn.init.normal_(p, std=0.4)
    return module.to(dtype)


def near(ours, theirs, dtype):
    assert ours.shape == theirs.shape
    worst = (ours - theirs).abs().max().item()
    assert worst <= TOLERANCE[dtype] * max(1.0, theirs.abs().max().item()), worst


def copy_attention(ours, theirs):
    ours.inputs.weight.data, ours.inputs.bias.data = theirs.in_proj_weight.data, theirs.in_proj_bias.data
    ours.output.load_state_dict(theirs.out_proj.state_dict())


def copy_block(ours, theirs):
    copy_attention(ours.attention.layer, theirs.self_attn)
    ours.attention.norm.load_state_dict(theirs.norm1.state_dict())
    if ours.cross is not None:
        copy_attention(ours.cross.layer, theirs.multihead_attn)
        ours.cross.norm.load_state_dict(theirs.norm2.state_dict())
    last = theirs.norm2 if ours.cross is None else theirs.norm3
    ours.feed_forward.norm.load_state_dict(last.state_dict())
    ours.feed_forward.layer.up.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.layer.down.load_state_dict(theirs.linear2.state_dict())


def copy_stack(ours, theirs):
    for block, layer in zip(ours.blocks, theirs.layers, strict=True):
        copy_block(block, layer)
    if theirs.norm is not None:
        ours.norm.load_state_dict(theirs.norm.state_dict())


@both_types
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_and_its_weights_equal_torch(dtype, causal):
    theirs, ours = (
        spread(nn.MultiheadAttention(12, 3, batch_first=True), dtype),
        MultiHeadAttention(12, 3).to(dtype),
    )
    copy_attention(ours, theirs)
    x, real = torch.randn(2, 5, 12, dtype=dtype), padding_mask(torch.tensor([5, 3]), 5)
    mask = ~causal_mask(5) if causal else None
    expected, weights = theirs(x, x, x, key_padding_mask=~real, attn_mask=mask, average_attn_weights=False)
    near(ours(x, allowed=real[:, None], causal=causal), expected, dtype)
    near(ours.weights(x, allowed=real[:, None], causal=causal), weights, dtype)


@both_types
def test_attention_to_a_memory_and_all_its_gradients_equal_torch(dtype):
    theirs, ours = (
        spread(nn.MultiheadAttention(12, 4, batch_first=True), dtype),
        MultiHeadAttention(12, 4).to(dtype),
    )
    copy_attention(ours, theirs)
    real, results = padding_mask(torch.tensor([7, 2]), 7), []
    x, y, g = (torch.randn(2, n, 12, dtype=dtype) for n in (5, 7, 5))
    for attend in (
        lambda x, y: ours(x, y, real[:, None]),
        lambda x, y: theirs(x, y, y, key_padding_mask=~real, need_weights=False)[0],
    ):
        x_, y_ = x.clone().requires_grad_(), y.clone().requires_grad_()
        output = attend(x_, y_)
        (output * g).sum().backward()
        results.append([output, x_.grad, y_.grad])
    for mine, other in zip(*results, strict=True):
        near(mine, other, dtype)
    near(ours.inputs.weight.grad, theirs.in_proj_weight.grad, dtype)
    near(ours.inputs.bias.grad, theirs.in_proj_bias.grad, dtype)
    near(ours.output.weight.grad, theirs.out_proj.weight.grad, dtype)


@both_types
@both_norms
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_block_equals_torch(dtype, norm, activation):
    theirs = nn.TransformerEncoderLayer(12, 3, 24, 0.0, activation, 1e-4, batch_first=True, norm_first=norm == "pre")
    theirs, ours = spread(theirs, dtype), Block(12, 3, 24, 0.0, norm, activation, eps=1e-4).to(dtype)
    copy_block(ours, theirs)
    x, real = torch.randn(2, 5, 12, dtype=dtype), padding_mask(torch.tensor([5, 3]), 5)
    near(ours(x, real[:, None]), theirs(x, src_key_padding_mask=~real), dtype)
    near(ours(x), theirs(x), dtype)


@both_types
@both_norms
def test_a_decoder_block_and_its_gradients_equal_torch(dtype, norm):
    theirs = spread(nn.TransformerDecoderLayer(12, 3, 24, 0.0, batch_first=True, norm_first=norm == "pre"), dtype)
    ours = Block(12, 3, 24, 0.0, norm, cross=True).to(dtype)
    copy_block(ours, theirs)
    x, y, real = torch.randn(2, 5, 12, dtype=dtype), torch.randn(2, 7, 12, dtype=dtype), None
    real, wanted = padding_mask(torch.tensor([7, 2]), 7), []
    for run in (
        lambda x, y: ours(x, None, True, y, real[:, None]),
        lambda x, y: theirs(x, y, tgt_mask=~causal_mask(5), memory_key_padding_mask=~real),
    ):
        x_, y_ = x.clone().requires_grad_(), y.clone().requires_grad_()
        output = run(x_, y_)
        output.sin().sum().backward()
        wanted.append([output, x_.grad, y_.grad])
    for mine, other in zip(*wanted, strict=True):
        near(mine, other, dtype)


@both_types
@both_norms
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_encoder_and_decoder_equal_torch_nn_transformer_with_its_final_norms(dtype, norm):
    theirs = nn.Transformer(12, 3, 2, 3, 24, 0.0, batch_first=True, norm_first=norm == "pre")
    theirs, options = spread(theirs, dtype), dict(norm=norm, final_norm=True, dropout=0.0)
    encoder, decoder = Stack(2, 12, 3, 24, **options), Stack(3, 12, 3, 24, cross=True, **options)
    for ours, other in ((encoder.to(dtype), theirs.encoder), (decoder.to(dtype), theirs.decoder)):
        copy_stack(ours, other)
    source, target = torch.randn(3, 7, 12, dtype=dtype), torch.randn(3, 5, 12, dtype=dtype)
    real = padding_mask(torch.tensor([7, 4, 1]), 7)
    expected = theirs(
        source, target, tgt_mask=~causal_mask(5), src_key_padding_mask=~real, memory_key_padding_mask=~real
    )
    near(decoder(target, None, True, encoder(source, real[:, None]), real[:, None]), expected, dtype)


@both_types
def test_a_stack_of_encoder_blocks_without_a_final_norm_equals_torch(dtype):
    layer = nn.TransformerEncoderLayer(12, 3, 24, 0.0, batch_first=True)
    theirs = spread(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), dtype)
    ours = Stack(3, 12, 3, 24, dropout=0.0).to(dtype)
    copy_stack(ours, theirs)
    x = torch.randn(2, 5, 12, dtype=dtype)
    near(ours(x, causal=True), theirs(x, mask=~causal_mask(5), is_causal=True), dtype)


def d2l_weights(ours, theirs):
    """d2l has four layers of D to D for what we have in one."""
    ours.inputs.weight.data = torch.cat([w.weight.data for w in (theirs.W_q, theirs.W_k, theirs.W_v)])
    ours.inputs.bias.data = torch.cat([w.bias.data for w in (theirs.W_q, theirs.W_k, theirs.W_v)])
    ours.output.load_state_dict(theirs.W_o.state_dict())


@both_types
def test_heads_equal_d2l(dtype):
    d2l = import_d2l()
    theirs = d2l.MultiHeadAttention(12, 3, 0.0, bias=True).eval().to(dtype)
    x, y = torch.randn(2, 5, 12, dtype=dtype), torch.randn(2, 7, 12, dtype=dtype)
    lengths = torch.tensor([7, 3])
    theirs(x, y, y, lengths)  # its layers are lazy
    theirs, ours = spread(theirs, dtype), MultiHeadAttention(12, 3).to(dtype)
    d2l_weights(ours, theirs)
    near(ours(x, y, padding_mask(lengths, 7)[:, None]), theirs(x, y, y, lengths), dtype)


@both_types
def test_an_encoder_block_equals_d2l(dtype):
    d2l = import_d2l()
    theirs = d2l.TransformerEncoderBlock(12, 24, 3, 0.0, use_bias=True).eval().to(dtype)
    x, lengths = torch.randn(2, 5, 12, dtype=dtype), torch.tensor([5, 3])
    theirs(x, lengths)
    theirs, ours = spread(theirs, dtype), Block(12, 3, 24, 0.0).to(dtype)
    d2l_weights(ours.attention.layer, theirs.attention)
    pairs = (
        (ours.attention.norm, theirs.addnorm1.ln),
        (ours.feed_forward.norm, theirs.addnorm2.ln),
        (ours.feed_forward.layer.up, theirs.ffn.dense1),
        (ours.feed_forward.layer.down, theirs.ffn.dense2),
    )
    for mine, other in pairs:
        mine.load_state_dict(other.state_dict())
    near(ours(x, padding_mask(lengths, 5)[:, None]), theirs(x, lengths), dtype)


def test_embeddings_with_sinusoids_equal_d2l():
    d2l = import_d2l()
    table, places = nn.Embedding(9, 16), d2l.PositionalEncoding(16, 0.0)
    ours, ids = Embedding(9, 16), torch.randint(9, (2, 30))
    ours.tokens.load_state_dict(table.state_dict())
    near(ours(ids), places(table(ids) * 4.0), torch.float32)


def test_minilm_in_our_stack_equals_hugging_face():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48
    )
    bert = spread(transformers.BertModel(config).eval(), torch.float64)
    stack = Stack(3, 24, 4, 48, dropout=0.0, activation="gelu", eps=1e-12).double()
    for block, layer in zip(stack.blocks, bert.encoder.layer, strict=True):
        attention = layer.attention
        parts = [getattr(attention.self, name) for name in ("query", "key", "value")]
        block.attention.layer.inputs.weight.data = torch.cat([p.weight.data for p in parts])
        block.attention.layer.inputs.bias.data = torch.cat([p.bias.data for p in parts])
        pairs = (
            (block.attention.layer.output, attention.output.dense),
            (block.attention.norm, attention.output.LayerNorm),
            (block.feed_forward.layer.up, layer.intermediate.dense),
            (block.feed_forward.layer.down, layer.output.dense),
            (block.feed_forward.norm, layer.output.LayerNorm),
        )
        for mine, other in pairs:
            mine.load_state_dict(other.state_dict())
    ids, real = torch.randint(50, (2, 7)), padding_mask(torch.tensor([7, 4]), 7)
    with torch.no_grad():
        expected = bert(ids, attention_mask=real.long()).last_hidden_state
        found = stack(bert.embeddings(ids), real[:, None])
    near(found[real], expected[real], torch.float64)


def test_the_published_minilm_gives_hugging_faces_states_for_the_sentence_of_the_page():
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file

    folder = data.minilm_folder()
    theirs, tokenizer = load_file(folder / "model.safetensors"), read_wordpieces(folder / "vocab.txt")
    bert = transformers.BertModel(transformers.BertConfig.from_json_file(folder / "config.json")).eval()
    missing, unexpected = bert.load_state_dict(theirs, strict=False)
    assert not missing and set(unexpected) <= {"embeddings.position_ids"}
    stack = Stack(6, 384, 12, 1536, activation="gelu", eps=1e-12, dropout=0.0).eval()
    state, names = (
        {},
        {
            "attention.layer.output": "attention.output.dense",
            "attention.norm": "attention.output.LayerNorm",
            "feed_forward.layer.up": "intermediate.dense",
            "feed_forward.layer.down": "output.dense",
            "feed_forward.norm": "output.LayerNorm",
        },
    )
    for i in range(6):
        for kind in ("weight", "bias"):
            parts = [theirs[f"encoder.layer.{i}.attention.self.{n}.{kind}"] for n in ("query", "key", "value")]
            state[f"blocks.{i}.attention.layer.inputs.{kind}"] = torch.cat(parts)
            state |= {f"blocks.{i}.{a}.{kind}": theirs[f"encoder.layer.{i}.{b}.{kind}"] for a, b in names.items()}
    stack.load_state_dict(state)
    sentence = "The animal didn't cross the street because it was too tired."
    ids = torch.tensor([[tokenizer.id("[CLS]"), *tokenizer.encode(sentence), tokenizer.id("[SEP]")]])
    with torch.no_grad():
        near(stack(bert.embeddings(ids)), bert(ids).last_hidden_state, torch.float32)
