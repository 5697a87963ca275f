"""The lean GPT and its trainer against Hugging Face transformers 5.22 and torch 2.13, with copied weights."""

import pytest
import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from lrm_utils import check
from lrm_utils.models import nano_gpt as nano
from lrm_utils.models.gpt import GPT

V, D, H, LAYERS, T = 31, 24, 3, 2, 12
PARTS = {
    "ln_1": "attention.norm",
    "attn.c_attn": "attention.layer.inputs",
    "attn.c_proj": "attention.layer.output",
    "ln_2": "feed_forward.norm",
    "mlp.c_fc": "feed_forward.layer.up",
    "mlp.c_proj": "feed_forward.layer.down",
}


@pytest.fixture
def pair():
    """Our lean model, and GPT-2 with its weights, the GELU itself, and biases that are 0 and stay so."""
    torch.manual_seed(0)
    ours = nano.lean(GPT(V, D, H, LAYERS, T, dropout=0.0))
    sizes = dict(vocab_size=V, n_positions=T, n_embd=D, n_head=H, n_layer=LAYERS)
    off = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    theirs = GPT2LMHeadModel(GPT2Config(activation_function="gelu", **sizes, **off))
    weights = ours.state_dict()
    with torch.no_grad():
        theirs.transformer.wte.weight.copy_(weights["table.weight"][:V])
        theirs.transformer.wpe.weight.copy_(weights["table.weight"][V:])
        theirs.transformer.ln_f.weight.copy_(weights["blocks.norm.weight"])
        for i in range(LAYERS):
            for there, here in PARTS.items():
                weight = weights[f"blocks.blocks.{i}.{here}.weight"]
                place = theirs.transformer.h[i].get_submodule(there).weight
                place.copy_(weight.T if weight.ndim == 2 else weight)  # GPT-2 keeps its matrices the other way round
    for name, p in theirs.named_parameters():
        if name.endswith("bias"):
            p.data.zero_()
            p.requires_grad_(False)
    return ours, theirs


def test_the_lean_model_is_gpt2_without_biases(pair):
    ours, theirs = pair
    tokens = torch.randint(V, (3, T))
    check.close(ours.eval()(tokens), theirs.eval()(tokens).logits, 1e-5)


def test_ten_steps_of_the_loop_are_ten_steps_of_gpt2_by_torch(pair):
    """AdamW with two groups, LambdaLR and clip_grad_norm_, as their documentation puts them together."""
    ours, theirs = pair
    batches = [torch.randint(V, (4, T + 1)) for _ in range(10)]
    learned = [p for p in theirs.parameters() if p.requires_grad]
    groups = [
        dict(params=[p for p in learned if p.ndim > 1], weight_decay=0.1),
        dict(params=[p for p in learned if p.ndim == 1], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.99), foreach=False)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: nano.warm_up_and_cosine(step, 10, warm=3))
    losses = []
    for batch in batches:
        logits = theirs(batch[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        rates.step()
        losses.append(loss.item())
    found = nano.train(
        ours, iter(batches), 10, lr=3e-3, schedule=lambda step, steps: nano.warm_up_and_cosine(step, steps, warm=3)
    )
    check.close(found, losses, 2e-5)
    check.close(ours.table.weight[:V], theirs.transformer.wte.weight, 1e-4)
