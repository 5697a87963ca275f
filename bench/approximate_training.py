"""One training step of skip-gram by the size of the vocabulary: full softmax, negative sampling, hierarchical softmax.

    python bench/approximate_training.py            measure and write the record approximate_training
    python bench/approximate_training.py --quick    a rehearsal of seconds: two sizes, nothing is written

The words are the most frequent ones of the speeches, with their real counts; pairs of center and context are drawn by
these counts. Every method has the same batch and width, gradients by hand, and plain steps that write only the rows
with a gradient, on one thread. The record also holds how many rows of the output table a step reads for one pair.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import sys
from collections import Counter

import numpy as np
import torch
from record import save, seconds

from lrm_utils import data, text
from lrm_utils.models.approximate_training import (
    NoiseSampler,
    hierarchical_gradients,
    huffman,
    negative_sampling_gradients,
    noise_distribution,
)

SIZES = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 26_000)
BATCH, D, K, RATE, REPEATS, ROUNDS = 256, 100, 5, 0.001, 5, 20


def full_softmax(V, U, centers, contexts) -> None:
    """Score every word, and move every word."""
    v = V[centers]
    error = torch.softmax(v @ U.T, 1)
    error[torch.arange(len(v)), contexts] -= 1
    V.index_add_(0, centers, error @ U, alpha=-RATE)
    U -= RATE * (error.T @ v)


def negative_sampling(V, U, centers, contexts, sampler) -> None:
    """Move the true context and K noise words."""
    noise = sampler.draw(len(centers), K)
    dv, du = negative_sampling_gradients(V, U, centers, contexts, noise)
    V.index_add_(0, centers, dv, alpha=-RATE)
    U.index_add_(0, torch.cat([contexts[:, None], noise], 1).flatten(), du.flatten(0, 1), alpha=-RATE)


def hierarchical_softmax(V, nodes_table, centers, contexts, tree) -> None:
    """Move the nodes on the path to the context."""
    dv, dn = hierarchical_gradients(V[centers], nodes_table, tree, contexts)
    V.index_add_(0, centers, dv, alpha=-RATE)
    nodes_table.index_add_(0, tree.nodes[contexts].flatten(), dn.flatten(0, 1), alpha=-RATE)


def measure(counts: np.ndarray) -> dict:
    """The time of a step and the rows it reads, for a vocabulary with these counts."""
    V, U, nodes_table = (torch.randn(n, D) / D for n in (len(counts), len(counts), len(counts) - 1))
    words, tree = NoiseSampler(counts / counts.sum(), seed=0), huffman(counts)
    noise, centers, contexts = NoiseSampler(noise_distribution(counts), seed=1), words.draw(BATCH), words.draw(BATCH)
    steps = {
        "full softmax": lambda: full_softmax(V, U, centers, contexts),
        "negative sampling": lambda: negative_sampling(V, U, centers, contexts, noise),
        "hierarchical softmax": lambda: hierarchical_softmax(V, nodes_table, centers, contexts, tree),
    }
    times = {}
    for name, step in steps.items():
        step()  # once unmeasured
        taken = seconds(lambda step=step: [step() for _ in range(ROUNDS)], REPEATS)
        times[name] = {key: round(1000 * value / ROUNDS, 2) for key, value in taken.items()}
    expected = float(tree.lengths.numpy() @ counts / counts.sum())
    return {
        "words": len(counts),
        "milliseconds": times,
        "path": round(expected, 3),
        "longest_path": int(tree.lengths.max()),
    }


def main() -> None:
    """Measure every size and record."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tally = Counter(word for speech in data.sotu() for word in text.words(speech.text))
    counts = np.array(sorted(tally.values(), reverse=True), dtype=float)
    quick = "--quick" in sys.argv[1:]
    runs = [measure(counts[:size]) for size in (SIZES[:2] if quick else SIZES)]
    if quick:
        print(runs)
        return
    save("approximate_training", batch=BATCH, width=D, noise_words=K, seed=0, runs=runs)


if __name__ == "__main__":
    main()
