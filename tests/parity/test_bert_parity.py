"""BERT of chapter 10 beside Hugging Face transformers 5.22 and d2l 1.0.3, up to 1e-5 of the largest number."""

import pytest
import torch
from record import import_d2l
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertForPreTraining, BertModel

from lrm_utils.models import bert

V, D, H, LAYERS, LIMIT, B, T = 97, 24, 3, 3, 32, 4, 17
LENGTHS = torch.tensor([17, 9, 3, 12])


def scattered(model):
    """The model with weights far from their start, so that nothing agrees by being near 0 or 1."""
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def equal(found, expected):
    assert expected.std() > 0.05  # they are not all alike
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def config(activation="gelu"):
    return BertConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=LAYERS,
        num_attention_heads=H,
        intermediate_size=3 * D,
        max_position_embeddings=LIMIT,
        hidden_act=activation,
    )


OURS = dict(V=V, D=D, H=H, layers=LAYERS, F=3 * D, limit=LIMIT)


@pytest.fixture(scope="module", params=[("gelu", "gelu"), ("gelu_new", "gelu_tanh"), ("relu", "relu")])
def pair(request):
    theirs, ours = request.param
    theirs = scattered(BertForPreTraining(config(theirs)))
    return bert.load_published(bert.BERT(activation=ours, **OURS), theirs.state_dict()).eval(), theirs


@pytest.fixture(scope="module")
def batch():
    torch.manual_seed(2)
    tokens, segments = torch.randint(V, (B, T)), torch.randint(2, (B, T))
    real = torch.arange(T) < LENGTHS[:, None]
    chosen = (torch.rand(B, T) < 0.4) & real
    return tokens, segments, real, chosen, torch.tensor([0, 1, 1, 0])


@torch.no_grad()
def test_the_states_of_every_layer_are_those_of_bert(pair, batch):
    ours, theirs = pair
    tokens, segments, real, _, _ = batch
    expected = theirs.bert(tokens, real.long(), segments, output_hidden_states=True).hidden_states
    found = ours.states(tokens, segments, LENGTHS)
    assert len(found) == len(expected) == LAYERS + 1
    for a, b in zip(found, expected, strict=True):
        equal(a[real], b[real])


@torch.no_grad()
def test_the_pooled_vector_is_that_of_bert(pair, batch):
    ours, theirs = pair
    tokens, segments, real, _, _ = batch
    expected = theirs.bert(tokens, real.long(), segments)
    last, pooled = bert.Encoder.forward(ours, tokens, segments, LENGTHS)
    equal(pooled, expected.pooler_output)
    equal(last[real], expected.last_hidden_state[real])


@torch.no_grad()
def test_the_logits_of_both_heads_are_those_of_bert(pair, batch):
    ours, theirs = pair
    tokens, segments, real, chosen, _ = batch
    expected = theirs(tokens, real.long(), segments)
    words, following = ours(tokens, segments, LENGTHS)
    equal(words[real], expected.prediction_logits[real])
    equal(following, expected.seq_relationship_logits)
    equal(ours(tokens, segments, LENGTHS, chosen)[0], expected.prediction_logits[chosen])


def test_the_joint_loss_and_the_gradient_of_the_shared_table_are_those_of_bert(pair, batch):
    ours, theirs = pair
    tokens, segments, real, chosen, labels = batch
    original = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(3))
    expected = theirs(
        tokens,
        real.long(),
        segments,
        labels=original.masked_fill(~chosen, -100),
        next_sentence_label=labels,
    ).loss
    parts = dict(tokens=tokens, segments=segments, lengths=LENGTHS, chosen=chosen, original=original, labels=labels)
    loss = bert.joint_loss(ours, parts)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
    (found,) = torch.autograd.grad(loss, ours.inputs.tokens.weight)
    (wanted,) = torch.autograd.grad(expected, theirs.bert.embeddings.word_embeddings.weight)
    wanted, found = wanted[1:], found[1:]  # theirs keeps the reading gradient of the padding token at 0
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * wanted.abs().max().item())


@torch.no_grad()
def test_a_file_without_heads_fits_the_encoder(batch):
    theirs = scattered(BertModel(config()))
    ours = bert.load_published(bert.Encoder(**OURS), theirs.state_dict()).eval()
    tokens, segments, real, _, _ = batch
    expected = theirs(tokens, real.long(), segments)
    last, pooled = ours(tokens, segments, LENGTHS)
    equal(last[real], expected.last_hidden_state[real])
    equal(pooled, expected.pooler_output)


@torch.no_grad()
def test_old_names_of_the_norms_are_understood(batch):
    theirs = scattered(BertModel(config()))
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in theirs.state_dict().items()
    }
    assert any(name.endswith("gamma") for name in old)
    ours = bert.load_published(bert.Encoder(**OURS), old | {"embeddings.position_ids": torch.arange(LIMIT)[None]})
    equal(ours.eval()(batch[0])[1], theirs(batch[0]).pooler_output)


@torch.no_grad()
def test_any_mask_over_pairs_of_places_does_what_it_does_in_bert(pair, batch):
    ours, theirs = pair
    tokens, segments, _, _, _ = batch
    allowed = (torch.rand(B, T, T, generator=torch.Generator().manual_seed(4)) < 0.5) | torch.eye(T).bool()
    expected = theirs.bert(tokens, allowed[:, None], segments).last_hidden_state
    equal(ours.states(tokens, segments, allowed=allowed)[-1], expected)


@pytest.mark.parametrize(("name", "layers", "width", "heads"), [("base", 12, 768, 12), ("large", 24, 1024, 16)])
def test_the_published_sizes_have_as_many_weights_as_in_the_library(name, layers, width, heads):
    sizes = bert.PUBLISHED[f"BERT {name}"]
    assert (sizes["layers"], sizes["D"], sizes["H"]) == (layers, width, heads)
    asked = dict(hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width)
    with torch.device("meta"):
        ours, theirs = bert.BERT(**sizes), BertForPreTraining(BertConfig(**asked))
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_in_training_numbers_are_dropped_where_bert_drops_them():
    """Over 400 rows in training, the spread of every state is that of the library's, up to chance."""
    settings = config()
    settings.hidden_dropout_prob = settings.attention_probs_dropout_prob = 0.2
    theirs = scattered(BertModel(settings)).train()
    ours = bert.load_published(bert.Encoder(dropout=0.2, **OURS), theirs.state_dict()).train()
    tokens = torch.randint(V, (1, 12)).repeat(400, 1)
    with torch.no_grad():
        found, expected = ours(tokens)[0].std(0).mean(), theirs(tokens).last_hidden_state.std(0).mean()
    assert found.item() == pytest.approx(expected.item(), rel=0.02)


# ---------------------------------------------------------------------------------------- Dive into Deep Learning


def renamed(theirs):
    """The weights of d2l's BERTModel by our names; its head has a table of its own."""
    names = {
        "encoder.token_embedding": "inputs.tokens",
        "encoder.segment_embedding": "inputs.segments",
        "hidden.0": "pooler",
        "mlm.mlp.0": "mlm.dense",
        "mlm.mlp.2": "mlm.norm",
        "nsp.output": "nsp",
    }
    in_block = {
        "attention.W_o": "attention.layer.output",
        "addnorm1.ln": "attention.norm",
        "ffn.dense1": "feed_forward.layer.up",
        "ffn.dense2": "feed_forward.layer.down",
        "addnorm2.ln": "feed_forward.norm",
    }
    state, ours = theirs.state_dict(), {}
    for name, weight in state.items():
        place, _, kind = name.rpartition(".")
        if name == "encoder.pos_embedding":
            ours["inputs.positions.table"] = weight[0]
        elif place == "mlm.mlp.3":
            ours["mlm.table" if kind == "weight" else "mlm.bias"] = weight
        elif place in names:
            ours[f"{names[place]}.{kind}"] = weight
        else:
            _, _, block, part = place.split(".", 3)
            if part in in_block:
                ours[f"blocks.blocks.{block}.{in_block[part]}.{kind}"] = weight
            elif part == "attention.W_q":
                thirds = [state[name.replace("W_q", third)] for third in ("W_q", "W_k", "W_v")]
                ours[f"blocks.blocks.{block}.attention.layer.inputs.{kind}"] = torch.cat(thirds)
    return ours


@torch.no_grad()
def test_the_forward_pass_is_that_of_d2l_with_copied_weights(batch):
    tokens, segments, real, _, labels = batch
    theirs = import_d2l().BERTModel(V, D, 3 * D, H, LAYERS, 0.1, max_len=LIMIT)
    places = torch.tensor([[1, 5, 6], [0, 2, 8], [0, 1, 2], [3, 4, 11]])
    theirs(tokens, segments, LENGTHS, places)  # its lazy layers learn their sizes
    theirs = scattered(theirs)
    options = dict(activation="relu", embedding_norm=False, tied=False, eps=1e-5)
    ours = bert.BERT(**OURS, **options).eval()
    ours.load_state_dict(renamed(theirs))
    states, words, following = theirs(tokens, segments, LENGTHS, places)
    equal(ours.states(tokens, segments, LENGTHS)[-1][real], states[real])
    chosen = torch.zeros(B, T, dtype=torch.bool).scatter(1, places, True)
    found, verdict = ours(tokens, segments, LENGTHS, chosen)
    equal(found, words.flatten(0, 1))
    equal(verdict, following)
    assert isinstance(ours.inputs.norm, nn.Identity)
    assert F.cross_entropy(verdict, labels).isfinite()
