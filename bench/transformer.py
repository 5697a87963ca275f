"""The Transformer's blocks beside PyTorch's and d2l's, what attention costs as texts grow, and what the scaling does.

    python bench/transformer.py            measure everything and write the record transformer
    python bench/transformer.py --quick    a few repeats of everything, written nowhere: does it run?

Training steps (forward, backward, Adam) of stacks of encoder blocks are timed in turn in one process, so that a busy
moment hits all alike, in training mode, with the same dropout in the same places:

- `torch` drops attention weights, hidden units of the feed-forward layer, and the outputs of sublayers; `ours` does so;
- `d2l` drops attention weights and outputs, but not hidden units; `ours as d2l` does the same;
- `ours as the paper` drops outputs only, which nobody else is compared with.

Peak memory is read from VmHWM in a process of its own for each length, less that of the same process without attention.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time

import torch
from record import import_d2l, save
from torch import nn
from torch.nn import functional as F

from lrm_utils.models.transformer import (
    MultiHeadAttention,
    Stack,
    fast_attention,
    scaled_dot_product,
    windowed_attention,
    xavier,
)

SHAPES = [dict(B=n, T=2048 // n, D=128, H=4, F=512, layers=4) for n in (16, 8, 4)]
DROPOUTS, THREADS, REPEATS = (0.0, 0.1), (1,), 15
LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
B, D, H, WINDOW, KERNEL = 1, 128, 4, 32, 3
LOOKUP_WIDTHS, LOOKUP_STEPS, LOOKUP_SEEDS = (8, 32, 128, 512), 200, 3
RATES = {"sgd": (0.01, 0.1, 1.0, 10.0), "adam": (1e-4, 1e-3, 1e-2)}


def in_turn(works: dict, repeats: int) -> dict[str, dict[str, float]]:
    """Time several works in turn; median, fastest and slowest milliseconds of each. The first round warms up."""
    taken = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            taken[name].append(1e3 * (time.perf_counter() - begin))
    return {
        name: {"median": round(statistics.median(t[1:]), 3), "min": round(min(t[1:]), 3), "max": round(max(t[1:]), 3)}
        for name, t in taken.items()
    }


class D2L(nn.Module):
    """A stack of d2l's encoder blocks; its layers are lazy, so it must see a batch before the optimizer is built."""

    def __init__(self, d2l, D, H, F, layers, dropout):
        super().__init__()
        blocks = [d2l.TransformerEncoderBlock(D, F, H, dropout, use_bias=True) for _ in range(layers)]
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        """(B, T, D) to (B, T, D), without a mask."""
        for block in self.blocks:
            x = block(x, None)
        return x


def stacks(d2l, D, H, F, layers, dropout) -> dict[str, nn.Module]:
    """The five stacks, see above."""
    as_d2l = Stack(layers, D, H, F, dropout=dropout, inner_dropout=dropout)
    for block in as_d2l.blocks:
        block.feed_forward.layer.dropout = nn.Identity()
    layer = nn.TransformerEncoderLayer(D, H, F, dropout, batch_first=True)
    return {
        "torch": nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
        "ours": Stack(layers, D, H, F, dropout=dropout, inner_dropout=dropout),
        "d2l": D2L(d2l, D, H, F, layers, dropout),
        "ours as d2l": as_d2l,
        "ours as the paper": Stack(layers, D, H, F, dropout=dropout),
    }


def training(d2l, repeats: int) -> list[dict]:
    """Training tokens a second for each shape, dropout and number of threads."""
    found = []
    for threads in THREADS:
        torch.set_num_threads(threads)
        for shape in SHAPES:
            for dropout in DROPOUTS:
                torch.manual_seed(0)
                x, y = torch.randn(2, shape["B"], shape["T"], shape["D"])
                models = stacks(d2l, *(shape[n] for n in ("D", "H", "F", "layers")), dropout)
                models["d2l"](x)
                works = {}
                for name, model in models.items():
                    works[name] = step_of(model.train(), torch.optim.Adam(model.parameters(), 1e-4), x, y)
                taken = in_turn(works, repeats)
                speed = {n: round(shape["B"] * shape["T"] / (1e-3 * t["median"])) for n, t in taken.items()}
                ratios = {
                    "ours / torch": round(speed["ours"] / speed["torch"], 3),
                    "ours as d2l / d2l": round(speed["ours as d2l"] / speed["d2l"], 3),
                }
                print(threads, shape, dropout, speed, ratios, file=sys.stderr, flush=True)
                one = dict(threads=threads, **shape, dropout=dropout)
                found.append(one | dict(milliseconds=taken, tokens_per_second=speed, ratios=ratios))
    torch.set_num_threads(1)
    return found


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor):
    """One training step on a batch, as a function to be timed."""

    def step() -> None:
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()

    return step


ATTENTIONS = {
    "explicit": lambda q, k, v: scaled_dot_product(q, k, v)[0],
    "fast": fast_attention,
}


def heads(T: int) -> list[torch.Tensor]:
    """Random queries, keys and values that want a gradient."""
    torch.manual_seed(0)
    return [torch.randn(B, H, T, D // H, requires_grad=True) for _ in range(3)]


def attention_times(repeats: int) -> dict[str, list]:
    """Milliseconds of attention alone, forward and backward, by length."""
    found = {name: [] for name in ATTENTIONS}
    for T in LENGTHS:
        parts = heads(T)
        works = {n: (lambda f=f, p=parts: f(*p).sum().backward()) for n, f in ATTENTIONS.items()}
        for name, taken in in_turn(works, repeats if T < 2048 else max(2, repeats // 3)).items():
            found[name].append(taken)
    return found


def peak_megabytes(name: str, T: int) -> float:
    """The most memory that a fresh process holds when it runs one attention forward and backward."""
    run = subprocess.run([sys.executable, __file__, "--peak", name, str(T)], capture_output=True, text=True, check=True)
    return float(json.loads(run.stdout.splitlines()[-1]))


def peak(name: str, T: int) -> None:
    """Run in a process of its own: one attention, or none, and print the peak in MB."""
    torch.set_num_threads(1)
    parts = heads(T)
    if name != "none":
        ATTENTIONS[name](*(p[:, :, :8] for p in parts)).sum().backward()  # load what is loaded once
        ATTENTIONS[name](*parts).sum().backward()
    else:
        sum((p * p).sum() for p in parts).backward()
    with open("/proc/self/status") as status:
        kilobytes = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(json.dumps(round(kilobytes / 1024, 1)))


def attention_memory(lengths) -> dict[str, list[float]]:
    """Megabytes above what the process has without attention, by length."""
    found = {name: [] for name in ATTENTIONS}
    for T in lengths:
        without = peak_megabytes("none", T)
        for name in ATTENTIONS:
            found[name].append(round(max(0.0, peak_megabytes(name, T) - without), 1))
        print(T, {n: v[-1] for n, v in found.items()}, file=sys.stderr, flush=True)
    return found


class Windowed(MultiHeadAttention):
    """Self-attention to WINDOW positions on either side."""

    def forward(self, x):
        """(B, T, D) to (B, T, D)."""
        return self.join(windowed_attention(*self.split(x), WINDOW))


class Convolution(nn.Module):
    """A convolution over KERNEL positions, all D channels in and out."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(D, D, KERNEL, padding="same")

    def forward(self, x):
        """(B, T, D) to (B, T, D)."""
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


def layers() -> dict:
    """One layer of each kind, of the same width."""
    gru, lstm = nn.GRU(D, D, batch_first=True), nn.LSTM(D, D, batch_first=True)

    def step_by_step(x):
        with torch.backends.mkldnn.flags(enabled=False):  # without oneDNN's kernel for all steps in one call
            return lstm(x)[0]

    return {
        "self-attention": MultiHeadAttention(D, H),
        f"self-attention, window {WINDOW}": Windowed(D, H),
        "GRU": lambda x: gru(x)[0],
        "LSTM": lambda x: lstm(x)[0],
        "LSTM, step by step": step_by_step,
        f"convolution of {KERNEL}": Convolution(),
    }


def layer_times(repeats: int) -> dict:
    """Milliseconds of one layer, forward and backward, by length, on one and on two threads."""
    found = {}
    for threads in THREADS:
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        kinds, times = layers(), {}
        for T in LENGTHS:
            x = torch.randn(B, T, D, requires_grad=True)
            works = {n: (lambda f=f, x=x: f(x).sum().backward()) for n, f in kinds.items()}
            for name, taken in in_turn(works, repeats if T < 2048 else max(2, repeats // 3)).items():
                times.setdefault(name, []).append(taken)
        found[str(threads)] = times
        print(threads, {n: [t["median"] for t in v] for n, v in times.items()}, file=sys.stderr, flush=True)
    torch.set_num_threads(1)
    return found


class Lookup(nn.Module):
    """Scores of S keys for one query; `kind` is dot, scaled or additive."""

    def __init__(self, D, kind):
        super().__init__()
        self.kind = kind
        self.query, self.key = (xavier(nn.Linear(D, D, bias=False)) for _ in range(2))
        self.v = nn.Linear(D, 1, bias=False)

    def forward(self, x, keys):
        """(B, D) and (B, S, D) to weights (B, S)."""
        q, k = self.query(x), self.key(keys)
        if self.kind == "additive":
            return self.v(torch.tanh(q[:, None] + k))[..., 0].softmax(-1)
        scores = (k @ q[..., None])[..., 0]
        return (scores / math.sqrt(q.shape[-1]) if self.kind == "scaled" else scores).softmax(-1)


def lookup(D, kind, how, rate, steps=LOOKUP_STEPS, seed=0, B=64, S=16) -> float:
    """Learn to find the key that belongs to a query; the mean loss of the last tenth of the steps.

    Each query is a fixed random matrix times one of S random keys; the values are fair coins, and the attention must
    return that of the right key. Looking at all 16 alike costs 0.661, a little less than log 2: the right one is among
    them.
    """
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model, M, rows = Lookup(D, kind), torch.randn(D, D, generator=random) / math.sqrt(D), torch.arange(B)
    make = torch.optim.SGD if how == "sgd" else torch.optim.Adam
    optimizer, losses = make(model.parameters(), rate), []
    for _ in range(steps):
        keys, right = torch.randn(B, S, D, generator=random), torch.randint(S, (B,), generator=random)
        values = torch.randint(2, (B, S), generator=random).float()
        found = (model(keys[rows, right] @ M, keys) * values).sum(-1).clamp(1e-6, 1 - 1e-6)
        loss = F.binary_cross_entropy(found, values[rows, right])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return statistics.mean(losses[-steps // 10 :])


def lookups(seeds: int, widths) -> list[dict]:
    """The loss of each kind of score at each width, optimizer and rate, several seeds."""
    found = []
    for D in widths:
        for kind in ("dot", "scaled", "additive"):
            for how, rates in RATES.items():
                for rate in rates:
                    losses = [round(lookup(D, kind, how, rate, seed=seed), 4) for seed in range(seeds)]
                    found.append(dict(width=D, kind=kind, optimizer=how, rate=rate, losses=losses))
                    print(found[-1], file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure, record."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true", help="few repeats, nothing written")
    arguments.add_argument("--peak", nargs=2, metavar=("NAME", "T"), help="used by the script itself")
    options = arguments.parse_args()
    if options.peak:
        return peak(options.peak[0], int(options.peak[1]))
    repeats, seeds, d2l = (2, 1, import_d2l()) if options.quick else (REPEATS, LOOKUP_SEEDS, import_d2l())
    torch.set_num_threads(1)
    facts = dict(
        training=training(d2l, repeats),
        lengths=list(LENGTHS),
        layer=dict(B=B, D=D, H=H, window=WINDOW, kernel=KERNEL, milliseconds=layer_times(repeats)),
        attention=dict(milliseconds=attention_times(repeats), megabytes=attention_memory(LENGTHS)),
        lookup=dict(steps=LOOKUP_STEPS, runs=lookups(seeds, LOOKUP_WIDTHS[: 2 if options.quick else None])),
        repeats=repeats,
    )
    if not options.quick:
        save("transformer", **facts)


if __name__ == "__main__":
    main()
