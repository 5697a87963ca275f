"""Fine-tuned GPT of chapter 9 beside Hugging Face transformers 5.22: the first GPT with two heads, GPT-2 that sorts."""

import pytest
import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2ForSequenceClassification, OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel

from lrm_utils.models import gpt
from lrm_utils.models import gpt_finetuning as ft

V, D, H, LAYERS, LIMIT = 41, 24, 3, 2, 20
SIZES = dict(D=D, H=H, layers=LAYERS, limit=LIMIT, dropout=0.0)


def scattered(model):
    """The model with weights far from their start, so that nothing agrees by being near 0 or 1."""
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return model.eval()


def rows(B, R):
    """Examples of R rows of unequal lengths, padded with 0 behind their ends; and the lengths."""
    torch.manual_seed(2)
    lengths = torch.randint(5, LIMIT, (B, R))
    tokens = torch.randint(1, V, (B, R, LIMIT))
    return tokens.where(torch.arange(LIMIT) < lengths[..., None], 0), lengths


@pytest.fixture(scope="module")
def double():
    """Both heads of the first GPT, and ours with the same weights."""
    config = OpenAIGPTConfig(
        vocab_size=V, n_positions=LIMIT, n_embd=D, n_layer=LAYERS, n_head=H, summary_type="cls_index"
    )
    theirs = scattered(OpenAIGPTDoubleHeadsModel(config))
    ours = ft.Tuned(gpt.GPT(V, **SIZES, norm="post"), choose=True, dropout=0.0).eval()
    ours.gpt.load_state_dict(gpt.from_published(theirs.transformer.state_dict()))
    ours.head.load_state_dict(theirs.multiple_choice_head.summary.state_dict())
    return ours, theirs


def test_choices_are_scored_as_by_the_first_gpt_with_two_heads(double):
    ours, theirs = double
    tokens, lengths = rows(4, 3)
    found = ours(tokens, lengths)
    expected = theirs(tokens, mc_token_ids=lengths - 1).mc_logits
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def test_the_loss_of_the_text_is_the_masked_mean_over_their_logits(double):
    """Each row's mean over its own tokens but the first, then the mean over rows, as in the code published with GPT."""
    ours, theirs = double
    tokens, lengths = rows(4, 3)
    _, found = ours(tokens, lengths, text=True)
    logits = theirs(tokens, mc_token_ids=lengths - 1).logits.flatten(0, 1)
    means = [
        F.cross_entropy(z[: n - 1], row[1:n])
        for z, row, n in zip(logits, tokens.flatten(0, 1), lengths.flatten(), strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(means).mean(), rtol=1e-5, atol=1e-6)


def test_both_losses_have_the_gradient_that_the_library_has(double):
    ours, theirs = double
    tokens, lengths = rows(5, 2)
    lengths[:], right = LIMIT, torch.tensor([0, 1, 1, 0, 1])  # without padding both take the same mean
    tokens = tokens.clamp_min(1)
    told = theirs(tokens, mc_token_ids=lengths - 1, labels=tokens, mc_labels=right)
    expected = torch.autograd.grad(told.mc_loss + 0.5 * told.loss, theirs.transformer.h[0].mlp.c_fc.weight)[0]
    loss = ft.objective(0.5)(ours, (tokens, lengths, right))
    torch.testing.assert_close(loss, told.mc_loss + 0.5 * told.loss, rtol=1e-5, atol=1e-6)
    found = torch.autograd.grad(loss, ours.gpt.blocks.blocks[0].feed_forward.layer.up.weight)[0]
    torch.testing.assert_close(found.T, expected, rtol=1e-3, atol=1e-5)


def test_texts_are_classified_as_by_the_classifier_of_gpt2():
    config = GPT2Config(
        vocab_size=V,
        n_positions=LIMIT,
        n_embd=D,
        n_layer=LAYERS,
        n_head=H,
        num_labels=3,
        pad_token_id=0,
        eos_token_id=None,
    )
    theirs = scattered(GPT2ForSequenceClassification(config))
    theirs.score.weight.data *= 5
    ours = ft.Tuned(gpt.GPT(V, **SIZES), outputs=3, dropout=0.0).eval()
    ours.gpt.load_state_dict(gpt.from_published(theirs.transformer.state_dict()))
    ours.head.weight.data, ours.head.bias.data = theirs.score.weight.data, torch.zeros(3)
    tokens, lengths = rows(6, 1)
    expected = theirs(tokens[:, 0]).logits
    torch.testing.assert_close(ours(tokens, lengths), expected, rtol=0, atol=1e-5 * expected.abs().max().item())
