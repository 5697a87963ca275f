"""What one training step of skip-gram with the full softmax costs, by the size of the vocabulary.

    python bench/softmax_cost.py    time the steps and write the record softmax_cost

A step is the loss, both gradients, and the update of both tables for a batch of centers with ten contexts each, on one
thread in float32. The record also holds the same step with the sum over the vocabulary left out: gathers, products of
the pairs alone, and the update of the rows that took part, which is the least that any method must do.
"""

import statistics
import time

import torch
from record import save

from lrm_utils.models.skip_gram_and_cbow import skip_gram_gradients

SIZES = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
D, B, CONTEXTS, REPEATS = 100, 64, 10, 9


def full_step(V: torch.Tensor, U: torch.Tensor, centers: torch.Tensor, contexts: torch.Tensor) -> None:
    """One step of gradient descent with the gradients of the page."""
    for table, gradient in zip((V, U), skip_gram_gradients(V, U, centers, contexts), strict=True):
        table.sub_(gradient, alpha=0.1)


def pairs_only(V: torch.Tensor, U: torch.Tensor, centers: torch.Tensor, contexts: torch.Tensor) -> None:
    """The same for the pairs that were seen, as if no other word had to be scored."""
    v, u = V[centers], U[contexts]  # (B, D) and (B, C, D)
    error = torch.einsum("bd,bcd->bc", v, u).sigmoid() - 1
    V.index_add_(0, centers, torch.einsum("bc,bcd->bd", error, u), alpha=-0.1 / contexts.numel())
    U.index_add_(0, contexts.flatten(), (error[..., None] * v[:, None]).flatten(0, 1), alpha=-0.1 / contexts.numel())


def main() -> None:
    """Measure, record."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps = {"full softmax": full_step, "pairs only": pairs_only}
    tables = {size: [(torch.rand(size, D) - 0.5) / D for _ in range(2)] for size in SIZES}
    batches = {size: (torch.randint(size, (B,)), torch.randint(size, (B, CONTEXTS))) for size in SIZES}
    taken = {name: {size: [] for size in SIZES} for name in steps}
    for _ in range(REPEATS + 1):  # in turn, so that a busy moment hits all alike
        for size in SIZES:
            for name, step in steps.items():
                begin = time.perf_counter()
                step(*tables[size], *batches[size])
                taken[name][size].append(1e6 * (time.perf_counter() - begin) / B)
    microseconds = {  # the first round warms up
        name: [
            {"median": round(statistics.median(v[1:]), 2), "min": round(min(v[1:]), 2), "max": round(max(v[1:]), 2)}
            for v in by_size.values()
        ]
        for name, by_size in taken.items()
    }
    save(
        "softmax_cost",
        vocabulary=list(SIZES),
        width=D,
        centers=B,
        contexts=CONTEXTS,
        repeats=REPEATS,
        threads=1,
        microseconds_per_center=microseconds,
    )


if __name__ == "__main__":
    main()
