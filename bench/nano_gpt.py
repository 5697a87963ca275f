"""nanoGPT: our trainer beside the published one, what more steps buy, and what counting characters does.

    python bench/nano_gpt.py ours        tinyshakespeare at the CPU setting, from our start and nanoGPT's; a sample
    python bench/nano_gpt.py peer        the same by the published train.py, as it stands, in its own process
    python bench/nano_gpt.py steps       both trainers from one start on the same batches: losses, and time of a step
    python bench/nano_gpt.py counts      n-gram models of characters, on both texts
    python bench/nano_gpt.py speeches    the loss on the speeches against the number of steps
    python bench/nano_gpt.py parts       400 steps on the speeches, one part of the loop missing each time
    python bench/nano_gpt.py             all of them; parts that are not asked for are kept

`peer` and `steps` need nanoGPT's code: `--peer FOLDER`, a checkout of it. Without it they are passed over. The text of
Shakespeare is fetched, or found where LRM_DATA says. Both models are judged by one function, over the whole
validation part. Threads are torch's own number, for both.
"""

import argparse
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from record import clock, run_parts, summary
from torch import nn

from lrm_utils import pretrain
from lrm_utils.models import nano_gpt as nano
from lrm_utils.models.gpt import GPT, generate, mean_loss, next_token_loss, sampler
from lrm_utils.models.language_models import KneserNey, NGrams

SIZE = dict(D=128, H=4, layers=4, limit=64, dropout=0.0)
T, B, STEPS, SEEDS, NARROW_SEEDS = 64, 12, 2000, 3, 2
BUDGETS, BUDGET_SEEDS = (200, 500, 2000), 2
ORDERS = (1, 2, 3, 4, 5, 6, 7)
SHORT, SHORT_SEEDS, PLAIN_RATES = 400, 2, (0.01, 0.03, 0.1, 0.3, 1.0)
SETTING = [
    "--device=cpu",
    "--compile=False",
    "--eval_iters=20",
    "--log_interval=1",
    f"--block_size={T}",
    f"--batch_size={B}",
    "--n_layer=4",
    "--n_head=4",
    "--n_embd=128",
    f"--max_iters={STEPS}",
    f"--lr_decay_iters={STEPS}",
    "--dropout=0.0",
]  # as its README has it
PEER: Path | None = None


def say(*words):
    """Progress, on standard error."""
    print(*words, file=sys.stderr, flush=True)


def texts(shakespeare):
    """The alphabet, and the ids to train on and to judge by."""
    train, validation = pretrain.characters(shakespeare)
    known = nano.Characters(train + validation)
    return known, torch.as_tensor(known.encode(train)), known.encode(validation)


def begin(V, seed, narrow=False):
    """A model at the CPU setting and what draws its windows, both from a seed; `narrow`: nanoGPT's start."""
    torch.manual_seed(seed)
    model = nano.lean(GPT(V, **SIZE))
    return model if narrow else nano.widen(model), torch.Generator().manual_seed(seed)


def thinned(losses, points=100):
    """Means of the losses in `points` groups."""
    return [round(float(np.mean(part)), 4) for part in np.array_split(losses, min(points, len(losses)))]


# -------------------------------------------------------------------------------------------------- ours and the peer


def one(seed, narrow):
    """A whole run on Shakespeare: its losses, the seconds of the loop alone, and a sample."""
    known, train, held_out = texts(True)
    model, generator = begin(len(known), seed, narrow)
    validations, away = {}, 0.0

    def watch(step):
        nonlocal away
        if step % (STEPS // 2) == 0 and step:
            spent, loss = clock(mean_loss, model, held_out)
            validations[step], away = round(loss, 4), away + spent

    spent, losses = clock(nano.train, model, nano.windows(train, T, B, generator), STEPS, watch=watch)
    validations[STEPS] = round(mean_loss(model, held_out), 4)
    newline = torch.as_tensor(known.encode("\n"))[None]
    pick = sampler(torch.Generator().manual_seed(seed), temperature=0.8)
    written = known.decode(int(token) for token in generate(model, newline, 500, pick))
    return {
        "validation": validations,
        "loop": round(spent - away, 2),
        "curve": thinned(losses),
        "sliding": round(sliding(model, held_out), 4),
        "weights": sum(p.numel() for p in model.parameters()),
        "sample": written,
    }


@torch.no_grad()
def sliding(model, tokens):
    """The mean loss when each character has at least half a window before it."""
    half = model.limit // 2
    starts = np.arange(0, len(tokens) - model.limit, half)
    rows = torch.as_tensor(tokens[starts[:, None] + np.arange(model.limit + 1)])
    total = 0.0
    for batch in rows.split(64):
        logits = model(batch[:, :-1])[:, half:]
        total += nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, half + 1 :].flatten(), reduction="sum")
    return float(total) / (len(rows) * half)


def ours():
    """Each run in a process of its own, as the peer's."""
    runs = []
    for seed, narrow in [(s, False) for s in range(SEEDS)] + [(s, True) for s in range(NARROW_SEEDS)]:
        command = [sys.executable, __file__, "--one", str(seed), *(["--narrow"] if narrow else [])]
        spent, done = clock(subprocess.run, command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout) | {"everything": round(spent, 2)})
        say({k: runs[-1][k] for k in ("validation", "loop", "everything")}, "narrow" if narrow else "")
    samples = [run.pop("sample") for run in runs]
    weights = [run.pop("weights") for run in runs]
    read = dict(characters=STEPS * B * T, weights=weights[0], threads=torch.get_num_threads())
    wide, narrow = runs[:SEEDS], [run["validation"][str(STEPS)] for run in runs[SEEDS:]]
    return read | {"runs": wide, "from nanoGPT's start": narrow, "sample": samples[0]}


class Judged(nn.Module):
    """A model of nanoGPT as `mean_loss` wants it: all logits, and a table to ask for the device."""

    def __init__(self, model):
        super().__init__()
        self.model, self.limit, self.table = model, model.config.block_size, model.transformer.wte

    def forward(self, tokens):
        """The logits of what follows each token; nanoGPT gives them all when it is given targets."""
        tokens = tokens.contiguous()
        return self.model(tokens, tokens)[0]


def peer_model():
    """The module `model` of nanoGPT."""
    sys.path.insert(0, str(PEER))
    import model

    return model


def peer():
    """The command of its README, on the files that its own prepare.py writes; then its best weights, judged by us."""
    from lrm_utils import data

    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept) / "nanoGPT"
        shutil.copytree(PEER, folder, ignore=shutil.ignore_patterns(".git", "out*"))
        place = folder / "data" / "shakespeare_char"
        (place / "input.txt").write_text(data.tinyshakespeare())
        quiet = dict(check=True, capture_output=True, text=True)
        subprocess.run([sys.executable, "prepare.py"], cwd=place, **quiet)
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *SETTING]
        spent, done = clock(subprocess.run, command, cwd=folder, **quiet)
        state = torch.load(folder / "out-shakespeare-char" / "ckpt.pt", weights_only=True)
    took = [float(t) for i, t in re.findall(r"iter (\d+): loss .*?, time ([\d.]+)ms", done.stdout) if int(i) % 250]
    losses = [float(loss) for loss in re.findall(r"iter \d+: loss ([\d.]+)", done.stdout)]
    told = re.findall(r"step (\d+): train loss [\d.]+, val loss ([\d.]+)", done.stdout)
    model = peer_model()
    best = model.GPT(model.GPTConfig(**state["model_args"]))
    best.load_state_dict(state["model"])
    _, _, held_out = texts(True)
    found = {
        "loss": round(mean_loss(Judged(best), held_out), 4),
        "step": state["iter_num"],
        "own estimates": {step: float(loss) for step, loss in told},
        "loop": round(STEPS * statistics.mean(took) / 1000, 2),
        "everything": round(spent, 2),
        "curve": thinned(losses),
        "threads": torch.get_num_threads(),
    }
    say({k: found[k] for k in ("loss", "step", "loop", "everything")})
    return found


def copied(theirs, ours):
    """Give nanoGPT's model the weights of ours."""
    V, state = ours.V, ours.state_dict()
    names = {"transformer.wte.weight": state["table.weight"][:V], "transformer.wpe.weight": state["table.weight"][V:]}
    names["lm_head.weight"], names["transformer.ln_f.weight"] = state["table.weight"][:V], state["blocks.norm.weight"]
    parts = {
        "ln_1": "attention.norm",
        "attn.c_attn": "attention.layer.inputs",
        "attn.c_proj": "attention.layer.output",
        "ln_2": "feed_forward.norm",
        "mlp.c_fc": "feed_forward.layer.up",
        "mlp.c_proj": "feed_forward.layer.down",
    }
    for i in range(len(ours.blocks.blocks)):
        for there, here in parts.items():
            names[f"transformer.h.{i}.{there}.weight"] = state[f"blocks.blocks.{i}.{here}.weight"]
    theirs.load_state_dict({name: weight.clone() for name, weight in names.items()})
    return theirs


def steps(blocks=10, block=20):
    """From one start, on the same batches, in turns: how far the losses part, and the milliseconds of a step."""
    known, train, _ = texts(True)
    model = peer_model()
    mine, _ = begin(len(known), 0, narrow=True)
    config = dict(block_size=T, vocab_size=len(known), n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False)
    other = copied(model.GPT(model.GPTConfig(**config)), mine)
    tokens = next(nano.windows(train, T, B, torch.Generator().manual_seed(9)))[:, :-1]
    apart = float((Judged(other)(tokens) - mine(tokens)).abs().max().detach())
    settings = dict(lr=1e-3, betas=(0.9, 0.99))
    their_optimizer = other.configure_optimizers(0.1, settings["lr"], settings["betas"], "cpu")
    drawn = nano.windows(train, T, B, torch.Generator().manual_seed(0))
    batches, taken, losses = [next(drawn) for _ in range(blocks * block)], {"ours": [], "peer": []}, {"peer": []}

    def their_step(step, x, y):
        for group in their_optimizer.param_groups:
            group["lr"] = settings["lr"] * nano.warm_up_and_cosine(step, blocks * block)
        loss = other(x, y)[1]
        loss.backward()
        nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        their_optimizer.step()
        their_optimizer.zero_grad(set_to_none=True)
        losses["peer"].append(loss.item())

    def watch(step):  # our loop rests every `block` steps, and the peer takes as many
        nonlocal since
        if step % block == 0:
            if step:
                taken["ours"].append((time.perf_counter() - since) / block * 1000)
            pairs = [(x[:, :-1].contiguous(), x[:, 1:].contiguous()) for x in batches[step : step + block]]
            begin = time.perf_counter()
            for i, (x, y) in enumerate(pairs):
                their_step(step + i, x, y)
            taken["peer"].append((time.perf_counter() - begin) / block * 1000)
            since = time.perf_counter()

    since = 0.0
    losses["ours"] = nano.train(mine, iter(batches), blocks * block, watch=watch, **settings)
    difference = np.abs(np.subtract(losses["ours"], losses["peer"]))
    found = {
        "steps": blocks * block,
        "largest difference of the first logits": float(f"{apart:.2g}"),
        "largest difference of losses": float(f"{difference.max():.2g}"),
        "last losses": {name: round(some[-1], 4) for name, some in losses.items()},
        "milliseconds": {name: summary(some[1:]) for name, some in taken.items()},
        "threads": torch.get_num_threads(),
    }
    say(found)
    return found


# ----------------------------------------------------------------------------------------------------------- counting


def stream_windows(tokens, V, n):
    """Each character of a stream with the n - 1 before it; the first ones follow start symbols."""
    padded = np.concatenate([np.full(n - 1, V), tokens]).astype(np.int32)
    grams = np.lib.stride_tricks.sliding_window_view(padded, n)
    return grams[:, :-1], grams[:, -1].astype(np.int64)


def counts():
    """The loss of Kneser-Ney models of characters, which have counted the whole training text."""
    found = {}
    for name, shakespeare in (("Shakespeare", True), ("speeches", False)):
        known, train, held_out = texts(shakespeare)
        V, n = len(known), max(ORDERS)
        ngrams, asked = NGrams(*stream_windows(train.numpy(), V, n), V), stream_windows(held_out, V, n)
        losses = {k: -np.log(KneserNey(ngrams.up_to(k)).probability(*asked)).mean() for k in ORDERS}
        found[name] = {str(k): round(float(loss), 4) for k, loss in losses.items()}
        found[f"{name}, characters"] = {"symbols": V, "train": len(train), "validation": len(held_out)}
        say(name, found[name])
    return found


# ------------------------------------------------------------------------------------------------------- the speeches


def speeches():
    """The loss after so many steps, each run with a schedule of its own length."""
    known, train, held_out = texts(False)
    found = {}
    for budget in BUDGETS:
        found[str(budget)] = []
        for seed in range(BUDGET_SEEDS):
            model, generator = begin(len(known), seed)
            nano.train(model, nano.windows(train, T, B, generator), budget)
            found[str(budget)].append(round(mean_loss(model, held_out), 4))
        say(budget, found[str(budget)])
    return {"validation": found, "characters in a step": B * T}


def plain(model, batches, steps, lr):
    """Gradient descent and nothing else."""
    for _ in range(steps):
        loss, n = next_token_loss(model, next(batches))
        (loss / n).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= lr * p.grad
                p.grad = None
    model.eval()


def parts():
    """The whole loop, and the loop less one part, at the same rate; gradient descent with the best of five rates."""
    known, train, held_out = texts(False)
    kept = {}
    variants = {
        "the whole loop": {},
        "without warm-up": dict(schedule=partial(nano.warm_up_and_cosine, warm=0)),
        "without the cosine": dict(schedule=partial(nano.warm_up_and_cosine, floor=1.0)),
        "without clipping": dict(clip=math.inf),
        "without weight decay": dict(decay=0.0),
    }

    def run(seed, work=nano.train, **options):
        model, generator = begin(len(known), seed)
        work(model, nano.windows(train, T, B, generator), SHORT, **options)
        return round(mean_loss(model, held_out), 4)

    for name, options in variants.items():
        kept[name] = [run(seed, **options) for seed in range(SHORT_SEEDS)]
        say(name, kept[name])
    tried = {f"{lr:g}": run(0, work=plain, lr=lr) for lr in PLAIN_RATES}
    finite = {lr: loss for lr, loss in tried.items() if math.isfinite(loss)}
    best = min(finite, key=finite.get)
    kept["plain gradient descent"] = [finite[best]]
    say(tried)
    return {"steps": SHORT, "validation": kept, "rates of plain descent": {lr: finite.get(lr) for lr in tried}}


PARTS = {part.__name__: part for part in (ours, peer, steps, counts, speeches, parts)}
NEEDS_PEER = ("peer", "steps")


def main() -> None:
    """Read the options, run the parts, and write the record."""
    global PEER
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--peer", type=Path, help="a folder with nanoGPT's code")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)  # one run of ours, as JSON
    parser.add_argument("--narrow", action="store_true", help=argparse.SUPPRESS)  # from nanoGPT's start
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(one(asked.one, asked.narrow)))
        return
    PEER, wanted = asked.peer and asked.peer.resolve(), asked.parts or list(PARTS)
    if PEER and not (PEER / "model.py").is_file():
        sys.exit(f"--peer: there is no model.py in that folder, {PEER.name}: give a checkout of nanoGPT")
    if not PEER and (missing := [part for part in wanted if part in NEEDS_PEER]):
        say(f"{' and '.join(missing)} passed over: give --peer FOLDER, a checkout of nanoGPT")
        wanted = [part for part in wanted if part not in NEEDS_PEER]
    if wanted:
        sys.argv = [sys.argv[0], *wanted]
        run_parts("nano_gpt", PARTS)


if __name__ == "__main__":
    main()
