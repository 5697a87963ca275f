"""Training a Transformer: warm-up and its causes, against an RNN with attention, unseen lengths, copying, parity.

    python bench/training_a_transformer.py [PART …]     all parts, or only the named ones (the others are kept)

The parts are `warmup`, `causes`, `patience`, `network`, `rates`, `translation`, `variants`, `beams`, `lengths`,
`copying`, and `parity`. Settings are those of the notebook `06_transformer/02_training_a_transformer`, one thread, two
seeds each (or as many as `SEEDS` in the environment says; the record tells). `rates` scores the learning rates of both
translators on the 500 validation sentences; everything else is scored on the 1,000 test sentences of the miniature
world by greedy search, unless a beam is named. A run at "equal time" has as many steps as fit into the time of the
RNN's; the time of a step is measured for both, in turn, before training.
"""

import os
import statistics
import sys
from functools import partial
from itertools import islice

import numpy as np
import torch
from record import clock, run_parts
from torch import nn

import lrm_utils as lrm
from lrm_utils.data import miniature
from lrm_utils.models import attention as at
from lrm_utils.models import seq2seq as s2s
from lrm_utils.models import training_a_transformer as tt
from lrm_utils.models import transformer as tr

EDGES, LONG_EDGES = (3, 6, 9, 12, 15, 18, 21, 26), (3, 6, 9, 13, 14, 15, 17, 19, 22, 26)
SHAPE = dict(D=64, H=4, F=256, layers=2, norm="pre", dropout=0.0, tied=True)
RATE, EQUAL_RATE, RNN_RATE = 5e-3, 3e-3, 5e-3  # the best ones of the part `rates`, on validation sentences
STEPS, BATCH, PAIRS = 1600, 32, 16_000
SEEDS = int(os.environ.get("SEEDS", 2))


def corpus():
    """The miniature translation."""
    return s2s.parallel(miniature.translation(train=PAIRS))


def sizes(pairs):
    """The sizes of both vocabularies."""
    return len(pairs.source_vocab), len(pairs.target_vocab)


def adam(model, rate, betas=(0.9, 0.98)):
    """Adam with the paper's settings."""
    return torch.optim.Adam(model.parameters(), lr=rate, betas=betas, eps=1e-9)


def train(model, pairs, steps=STEPS, rate=RATE, eps=0.1, seed=0, schedule=s2s.ramp, optimizer=None, B=BATCH, **kw):
    """Fit a model to pairs; seconds and losses."""
    loss = partial(tt.smoothed_translation_loss, eps=eps)
    options = dict(steps=steps, optimizer=optimizer or adam(model, rate), schedule=schedule, seed=seed, clip=1.0) | kw
    seconds, history = clock(lrm.fit, model, s2s.shuffled_batches(pairs, B), loss, **options)
    return seconds, history.losses


def scores(model, test, edges=EDGES, search=s2s.greedy, **options):
    """The share of exact translations, all and by length, and BLEU."""
    found = s2s.translate(model, test, search, **options)
    right = s2s.exact(found, test)
    return {
        "exact": round(float(right.mean()), 4),
        "by_length": [round(x, 4) for x in s2s.by_length(right, test, edges)],
        "bleu": round(s2s.bleu(found, [[p.target[1:-1].tolist()] for p in test]), 4),
        "words": round(float(np.mean([len(f) for f in found])), 3),
        "words_by_length": [round(x, 2) for x in s2s.by_length([len(f) for f in found], test, edges)],
    }


def size(model):
    """How many parameters a model has."""
    return sum(p.numel() for p in model.parameters())


def tenths(losses, n=10):
    """Means over n steps: what a figure needs of a curve."""
    return [round(float(np.mean(losses[i : i + n])), 4) for i in range(0, len(losses), n)]


DEEP = dict(D=64, H=4, F=256, layers=4, dropout=0.0)
FEW_PAIRS = 32
RATES, FEW = (1e-3, 3e-3, 1e-2), 200


def short(
    seed=0, rate=3e-3, warmup=0, norm="post", optimizer=None, betas=(0.9, 0.98), prepare=None, clip=None, steps=FEW
):
    """A deep and narrow model, trained for a short while at a constant rate after the warm-up."""
    pairs = corpus()
    torch.manual_seed(seed)
    model = tr.Transformer(*sizes(pairs), **DEEP, norm=norm) if norm else recurrent(pairs)
    optimizer = optimizer(model, rate) if optimizer else adam(model, rate, betas)
    if prepare:
        prepare(model, pairs, optimizer)
    try:
        _, losses = train(
            model, pairs.train, steps, eps=0.0, seed=seed, optimizer=optimizer, clip=clip, B=FEW_PAIRS,
            schedule=lambda step, _: min(1.0, (step + 1) / warmup) if warmup else 1.0,
        )  # fmt: skip
    except FloatingPointError:
        return {"seed": seed, "losses": None, "end": None}
    return {"seed": seed, "losses": tenths(losses), "end": round(float(np.mean(losses[-30:])), 4)}


def fill(model, pairs, optimizer, steps=100, squares_only=False):
    """Let Adam see gradients without moving any weight: its estimates are ready when training begins.

    With `squares_only` the mean of the gradients starts from 0 again, as in the experiment of Liu et al. (2020).
    """
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    batches = iter(s2s.shuffled_batches(pairs.train, FEW_PAIRS)(1000))
    for _ in range(steps):
        total, count = s2s.translation_loss(model, next(batches))
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    if squares_only:
        for state in optimizer.state.values():
            state["exp_avg"].zero_()


def shrink(model, pairs, optimizer, share=0.1):
    """Let every layer add little to its residual at first: a tenth of its output."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, tr.Residual):
                layer = module.layer
                last = layer.down if isinstance(layer, tr.FeedForward) else layer.output
                last.weight.mul_(share)


def warmup():
    """Both norms, with and without warm-up, at several rates."""
    return {
        f"{norm}, {rate:g}, {'warm-up' if steps else 'none'}": [short(seed, rate, steps, norm) for seed in range(SEEDS)]
        for norm in ("post", "pre")
        for rate in RATES
        for steps in (0, 100)
    }


def causes():
    """At the rate where post-norm needs its warm-up: one thing changed at a time."""
    settings = {
        "nothing": {},
        "warm-up": dict(warmup=100),
        "both averages filled before": dict(prepare=fill),
        "only squares filled before": dict(prepare=partial(fill, squares_only=True)),
        "six tenths of the rate": dict(rate=0.6 * 3e-3),
        "rectified Adam": dict(
            optimizer=lambda m, r: torch.optim.RAdam(m.parameters(), lr=r, betas=(0.9, 0.98), eps=1e-9)
        ),
        "beta2 = 0.999": dict(betas=(0.9, 0.999)),
        "gradient clipped at 1": dict(clip=1.0),
        "layers add a half at first": dict(prepare=partial(shrink, share=0.5)),
        "layers add a tenth at first": dict(prepare=shrink),
        "pre-norm": dict(norm="pre"),
    }
    return {name: [short(seed, **options) for seed in range(SEEDS)] for name, options in settings.items()}


def patience(steps=1600):
    """Post-norm without a warm-up, for eight times as long: does it get out?"""
    return [short(seed, steps=steps) for seed in range(SEEDS)]


def network():
    """The RNN with attention in the same trial: does it need a warm-up?"""
    return {
        name: [short(seed, 3e-3, steps, norm=None) for seed in range(SEEDS)]
        for name, steps in (("none", 0), ("warm-up", 100))
    }


def recurrent(pairs, D=128):
    """The RNN with attention of chapter 5."""
    return at.AttentionSeq2Seq(*sizes(pairs), D)


def step(model, optimizer, batch):
    """One training step."""
    total, count = tt.smoothed_translation_loss(model, batch)
    optimizer.zero_grad()
    (total / count).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def step_time(models, pairs, rounds=30):
    """The median seconds of a training step of each model, measured in turn on the same batches."""
    works = [(model, adam(model, 1e-5)) for model in models]
    batches = islice(s2s.shuffled_batches(pairs.train, BATCH)(0), rounds)
    taken = [[clock(step, *work, batch)[0] for work in works] for batch in batches]
    return [round(statistics.median(times), 4) for times in zip(*taken, strict=True)]


EQUAL = dict(SHAPE, D=88, F=224)  # as many parameters as the RNN


def rates(seed=100):
    """Validation scores of three translators by learning rate."""
    pairs, found = corpus(), {}
    plans = {
        "RNN": (2000, partial(recurrent, pairs)),
        "Transformer": (2000, partial(tr.Transformer, *sizes(pairs), **EQUAL)),
        "small one": (STEPS, partial(tr.Transformer, *sizes(pairs), **SHAPE)),
    }
    for name, (steps, build) in plans.items():
        for rate in (1.5e-3, 3e-3, 5e-3, 8e-3):
            torch.manual_seed(seed)
            model = build()
            train(model, pairs.train, steps, rate, seed=seed)
            got = scores(model, pairs.validation)
            found[f"{name}, {rate:g}"] = {"steps": steps, "seed": seed, "exact": got["exact"], "bleu": got["bleu"]}
            print(name, rate, got["exact"], file=sys.stderr, flush=True)
    return found


def translation():
    """RNN and Transformer with as many parameters, for as many examples, and for as long."""
    pairs, found = corpus(), {}
    build = {
        "RNN": partial(recurrent, pairs),
        "equal": partial(tr.Transformer, *sizes(pairs), **EQUAL),
        "small": partial(tr.Transformer, *sizes(pairs), **SHAPE),
    }
    slow, fast, small = step_time([build[kind]() for kind in build], pairs)
    plans = {  # name: model, options, steps
        "RNN": ("RNN", dict(rate=3e-3, eps=0.0, B=64), 1000),
        "RNN, our recipe": ("RNN", dict(rate=RNN_RATE), 2000),
        "Transformer, equal examples": ("equal", dict(rate=EQUAL_RATE), 2000),
        "Transformer, equal time": ("equal", dict(rate=EQUAL_RATE), round(2000 * slow / fast)),
        "small one, equal time": ("small", {}, round(2000 * slow / small)),
        "small one, as on this page": ("small", {}, STEPS),
    }
    for name, (kind, options, steps) in plans.items():
        found[name] = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model = build[kind]()
            seconds, losses = train(model, pairs.train, steps, seed=seed, **options)
            facts = dict(seed=seed, steps=steps, parameters=size(model), seconds=round(seconds, 1))
            found[name].append(facts | scores(model, pairs.test) | {"losses": tenths(losses, 50)})
    return found | {"step": {"RNN": slow, "Transformer": fast, "small one": small}}


def perplexity(model, test):
    """exp of the mean cross-entropy a token of the test pairs, without smoothing."""
    with torch.no_grad():
        parts = [s2s.translation_loss(model, s2s.collate(test[i : i + 250])) for i in range(0, len(test), 250)]
    return round(float(np.exp(sum(p[0].item() for p in parts) / sum(p[1].item() for p in parts))), 4)


def variants():
    """One thing changed at a time from the settings of the page."""
    pairs, found = corpus(), {}
    settings = {
        "as on the page": ({}, {}),
        "no label smoothing": ({}, dict(eps=0.0)),
        "dropout 0.1": (dict(dropout=0.1), {}),
        "post-norm": (dict(norm="post"), {}),
        "8,000 pairs": ({}, dict(pairs=pairs.train[:8000])),
        "64 a batch, 800 steps": ({}, dict(B=64, steps=STEPS // 2)),
        "down like a root": ({}, dict(schedule=lambda step, _: min((step + 1) / 100, (100 / (step + 1)) ** 0.5))),
        "the paper's schedule": ({}, dict(rate=1.0, schedule=tt.warmup_schedule(SHAPE["D"], 600))),
    }
    for name, (shape, options) in settings.items():
        found[name] = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model = tr.Transformer(*sizes(pairs), **(SHAPE | shape))
            train(model, **(dict(pairs=pairs.train, seed=seed) | options))
            found[name].append({"seed": seed, "perplexity": perplexity(model, pairs.test)} | scores(model, pairs.test))
    return found


def beams():
    """Widths and length penalties, with and without label smoothing, after a quarter of the steps."""
    pairs, found = corpus(), {"references": round(float(np.mean([len(p.target) - 2 for p in corpus().test])), 3)}
    for eps in (0.0, 0.1):
        torch.manual_seed(0)
        model = tr.Transformer(*sizes(pairs), **SHAPE)
        train(model, pairs.train, STEPS // 4, eps=eps)
        for width in (1, 2, 4, 8):
            for alpha in (0.0, 0.6, 1.0, 2.0):
                got = scores(model, pairs.test, search=s2s.beam_search, width=width, alpha=alpha, limit=40)
                found[f"{eps}, {width}, {alpha}"] = {k: got[k] for k in ("exact", "bleu", "words")}
    return found


POSITIONS = {"sinusoidal": "sinusoidal", "learned": "learned", "none": None}


def lengths(longest=12):
    """Trained on sources of up to 12 words, tested on all."""
    pairs, found = corpus(), {}
    some = [pair for pair in pairs.train if len(pair.source) <= longest]
    plans = {name: partial(tr.Transformer, *sizes(pairs), **SHAPE, positions=kind) for name, kind in POSITIONS.items()}
    plans["RNN"] = partial(recurrent, pairs)
    for name, build in plans.items():
        found[name] = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model = build()
            options = dict(rate=RNN_RATE) if name == "RNN" else {}
            train(model, some, seed=seed, **options)
            found[name].append({"seed": seed} | scores(model, pairs.test, LONG_EDGES))
    right = [len(pair.target) - 2 for pair in pairs.test]
    return found | {"pairs": len(some), "references": s2s.by_length(right, pairs.test, LONG_EDGES)}


SMALL = dict(D=64, H=4, F=128, layers=2, norm="pre", dropout=0.0)


def task(make, V, buckets, steps, longest, plans):
    """Train models on a task up to a length and test them on longer ones: the share exact in each bucket of lengths.

    Test rows that are in the training part are passed over where there are others; `new` says how many were new.
    """
    found, new = {}, []
    for name, build in plans.items():
        found[name] = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model, rows = build(V), make(16_000, 1, longest, seed=seed)
            rate = 3e-3 if name.startswith("RNN") else 2e-3
            train(model, rows, steps, rate=rate, eps=0.0, seed=seed, B=64)
            seen, facts, new = {tuple(row.source) for row in rows}, {"exact": [], "first": [], "words": []}, []
            for low, high in buckets:
                drawn = make(2000, low, high, seed=1000)
                fresh = [row for row in drawn if tuple(row.source) not in seen]
                test = (fresh + drawn)[:200]
                said = s2s.translate(model, test, limit=high + 5)
                first = [len(s) > 0 and s[0] == row.target[1] for s, row in zip(said, test, strict=True)]
                new.append(min(1.0, len(fresh) / 200))
                facts["exact"].append(round(float(s2s.exact(said, test).mean()), 4))
                facts["first"].append(round(float(np.mean(first)), 4))
                facts["words"].append(round(float(np.mean([len(s) for s in said])), 2))
            found[name].append({"seed": seed} | facts)
    return found | {"buckets": buckets, "new": new}


def plans(recurrents):
    """Transformers with each kind of positions, and recurrent networks."""
    named = {n: lambda V, kind=kind: tr.Transformer(V, V, **SMALL, positions=kind) for n, kind in POSITIONS.items()}
    return named | recurrents


def copying():
    """Copying letters: trained on up to 12, tested on up to 24."""
    buckets = ((1, 4), (5, 8), (9, 12), (13, 13), (14, 14), (15, 16), (17, 20), (21, 24))
    networks = {"RNN": lambda V: at.AttentionSeq2Seq(V, V, 64)}
    return task(tt.copy_pairs, 14, buckets, 1500, 12, plans(networks))


def parity():
    """Is the number of ones odd? Trained on up to 12 bits, tested on up to 40."""
    buckets = ((1, 4), (5, 8), (9, 12), (13, 13), (14, 16), (17, 24), (25, 40))
    networks = {"RNN without attention": lambda V: s2s.Seq2Seq(V, V, 64)}
    return task(tt.parity_pairs, 6, buckets, 1500, 12, plans(networks))


ALL = (warmup, causes, patience, network, rates, translation, variants, beams, lengths, copying, parity)
PARTS = {part.__name__: part for part in ALL}


def main() -> None:
    """Run the parts and write the record."""
    torch.set_num_threads(1)
    run_parts("training_a_transformer", PARTS, edges=EDGES, long_edges=LONG_EDGES)


if __name__ == "__main__":
    main()
