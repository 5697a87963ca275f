"""GPT beside Hugging Face's GPT-2 and beside counting: speed of training and of writing, and the loss on unseen text.

    python bench/gpt.py train       training steps, in turn with GPT2LMHeadModel at the same configuration
    python bench/gpt.py generate    greedy text with kept keys and values, in turn with GPT2LMHeadModel
    python bench/gpt.py lengths     seconds to write 32 to 512 tokens, with and without the cache
    python bench/gpt.py counts      the shipped model and Kneser-Ney on the same tokens, read from the same stretches
    python bench/gpt.py             all of them; parts that are not asked for are kept

`train` and `generate` use as many threads as the machine has cores. Hugging Face is asked twice for text: by its
own `generate`, and by a loop like ours around its forward pass, which leaves out what `generate` does beside computing.
"""

import os
import time
from importlib.metadata import version

import numpy as np
import torch
from record import run_parts, summary
from transformers import GPT2Config, GPT2LMHeadModel

from lrm_utils import checkpoints, pretrain, threads
from lrm_utils.models import gpt
from lrm_utils.models.language_models import KneserNey, NGrams, windows

V, D, H, LAYERS, LIMIT = 6000, 192, 6, 4, 256  # as shipped
B, REPEATS = 8, 15
PROMPT, LENGTH = 16, 200
LENGTHS = (32, 64, 128, 256, 512)
ORDER = 5


def in_turn(works, repeats):
    """The seconds of several works, which take turns; the first round warms up and is not counted."""
    taken = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - begin)
    return {name: seconds[1:] for name, seconds in taken.items()}


def against(taken, tokens):
    """Seconds and tokens a second of each, and how many times as fast as each peer ours is."""
    middle = {name: summary(seconds) for name, seconds in taken.items()}
    speed = {name: round(tokens / found["median"]) for name, found in middle.items()}
    ratio = {name: round(middle[name]["median"] / middle["ours"]["median"], 3) for name in middle if name != "ours"}
    return dict(seconds=middle, tokens_per_second=speed, times_as_fast_as=ratio)


def peer(dropout):
    """Hugging Face's GPT-2 at our configuration."""
    config = dict(
        vocab_size=V, n_positions=LIMIT, n_embd=D, n_layer=LAYERS, n_head=H, bos_token_id=0, eos_token_id=None
    )
    config |= dict(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, pad_token_id=1)
    return GPT2LMHeadModel(GPT2Config(**config))


def step(model, optimizer, loss):
    """A training step: forward, backward, Adam."""
    value = loss(model)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()


def train():
    """Training steps of B rows of LIMIT tokens, with and without dropout."""
    found = {}
    for dropout in (0.0, 0.1):
        ours, theirs = gpt.GPT(V, D, H, LAYERS, LIMIT, dropout), peer(dropout).train()
        batch = torch.randint(V, (B, LIMIT + 1))
        adam = {model: torch.optim.Adam(model.parameters()) for model in (ours, theirs)}

        def our_loss(model, batch=batch):
            total, n = gpt.next_token_loss(model, batch)
            return total / n

        def their_loss(model, batch=batch):
            logits = model(batch[:, :-1], use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

        works = dict(
            ours=lambda a=ours, f=our_loss: step(a, adam[a], f),  # noqa: B023 (called before the next round)
            huggingface=lambda a=theirs, f=their_loss: step(a, adam[a], f),  # noqa: B023
        )
        found[f"dropout {dropout}"] = against(in_turn(works, REPEATS), B * LIMIT)
    return found


@torch.no_grad()
def loop(model, tokens, length):
    """Greedy text from Hugging Face's model without its `generate`."""
    fresh, past = tokens, None
    for _ in range(length):
        out = model(fresh, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, fresh = out.past_key_values, out.logits[:, -1:].argmax(-1)


def generate():
    """LENGTH tokens after a prompt, one row and B rows."""
    ours, theirs, found = gpt.GPT(V, D, H, LAYERS, LIMIT).eval(), peer(0.0).eval(), {}
    for rows in (1, B):
        prompt = torch.randint(2, V, (rows, PROMPT))
        alone = dict(max_new_tokens=LENGTH, min_new_tokens=LENGTH, do_sample=False, use_cache=True)
        works = dict(
            ours=lambda p=prompt: list(gpt.generate(ours, p, LENGTH)),
            huggingface=lambda p=prompt, a=alone: theirs.generate(p, attention_mask=torch.ones_like(p), **a),
            huggingface_loop=lambda p=prompt: loop(theirs, p, LENGTH),
        )
        found[f"{rows} rows"] = against(in_turn(works, REPEATS), rows * LENGTH)
    return found


@threads(1)
def lengths():
    """Seconds for one text of each length, with and without the cache, by a model with room for all of it."""
    model = gpt.GPT(V, D, H, LAYERS, max(LENGTHS)).eval()
    prompt, found = torch.randint(V, (1, 1)), {}
    for length in LENGTHS:
        repeats = 2 if length > 300 else 5
        works = dict(
            cached=lambda n=length: list(gpt.generate(model, prompt, n)),
            anew=lambda n=length: list(gpt.generate(model, prompt, n, cached=False)),
        )
        found[length] = {name: summary(taken) for name, taken in in_turn(works, repeats).items()}
    return found


def streams(tokenizer):
    """The tokens that the shipped model has read, and those of both kinds that it has not."""
    train, held_out = pretrain.written()
    return gpt.stream(tokenizer, train), {name: gpt.stream(tokenizer, texts) for name, texts in held_out.items()}


@threads(1)
def counts():
    """Nats a token of the shipped model, of Kneser-Ney of several orders, and of frequencies; and letters a token.

    Kneser-Ney has counted what the model has read, or the speeches alone. "ahead" is by how much the model is better
    than the best of them, with the standard error over the stretches that it reads.
    """
    shipped = checkpoints.load("gpt")
    model = gpt.GPT(len(shipped.vocab), **shipped.card["settings"])
    model.load_state_dict(shipped.weights)
    train, held_out = streams(shipped.vocab)
    V, alone = len(shipped.vocab), gpt.stream(shipped.vocab, pretrain.speech_texts()[0])
    ngrams, of_speeches = (NGrams(*windows([tokens], V, ORDER), V) for tokens in (train, alone))
    found = {}
    for name, tokens in held_out.items():
        judged = tokens[: (len(tokens) - 1) // model.limit * model.limit + 1]
        contexts, words = windows([judged], V, ORDER)
        contexts, words = contexts[1:-1], words[1:-1]  # not the first token, nor the end that `windows` adds
        found[name] = {
            "tokens": len(words),
            "letters a token": len(shipped.vocab.decode(judged[1:], False)) / len(words),
        }
        found[name]["gpt"] = gpt.mean_loss(model, tokens)
        rivals = {"frequencies": ngrams.up_to(1)}
        rivals |= {f"Kneser-Ney {order}": ngrams.up_to(order) for order in range(2, ORDER + 1)}
        rivals["Kneser-Ney, speeches alone"] = of_speeches
        nats = {rival: -np.log(KneserNey(counted).probability(contexts, words)) for rival, counted in rivals.items()}
        found[name] |= {rival: float(loss.mean()) for rival, loss in nats.items()}
        rows = judged[np.arange(len(words) // model.limit)[:, None] * model.limit + np.arange(model.limit + 1)]
        best = min(nats, key=lambda rival: nats[rival].mean())
        ahead = (nats[best].reshape(len(rows), -1) - gpt.losses(model, rows).numpy()).mean(1)
        found[name] |= {"ahead": float(ahead.mean()), "error": float(ahead.std() / len(ahead) ** 0.5)}
    return {name: {k: round(v, 4) for k, v in part.items()} for name, part in found.items()}


PARTS = dict(train=train, generate=generate, lengths=lengths, counts=counts)

if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(0)
    shape = dict(V=V, D=D, H=H, layers=LAYERS, limit=LIMIT, B=B, prompt=PROMPT, length=LENGTH, repeats=REPEATS)
    run_parts("gpt", PARTS, shape=shape, transformers=version("transformers"))
