"""GloVe beside the reference program: seconds for an epoch, for counting and shuffling, and the cost that is reached.

    GLOVE_C=folder python bench/glove.py          compare in one run and write the record glove

GLOVE_C is a folder with the programs of github.com/stanfordnlp/GloVe, built by its own Makefile (folder/build/glove and
the others); without it the reference is reported as not run. Both get the same tokens of the speeches, a paragraph a
line, the same vocabulary, window 5 to both sides with weights 1/distance, 50 dimensions, alpha 0.75, rate 0.05. Ours
takes one thread, and so do the other models of the course; the C program is run with one and with two. Counting,
shuffling, loading and saving are timed apart from the epochs and stated for both. How good the vectors are is measured
by `bench/glove_quality.py`. About three minutes on two idle cores.
"""

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from glove_quality import WINDOW, D, paragraphs
from record import clock, save, summary
from threadpoolctl import threadpool_limits

from lrm_utils import data, evaluate
from lrm_utils.models.cooccurrence import co_occurrence, ppmi
from lrm_utils.models.glove import entries, glove_cost, train_glove
from lrm_utils.models.svd_and_lsa import truncated_svd, word_vectors
from lrm_utils.models.training_word2vec import train as train_word2vec
from lrm_utils.text import Vocab, WordVectors

THREADS, REPEATS, EPOCHS, SHORT = {"ours": [1], "reference": [1, 2]}, 5, 15, 2
ALPHA, RATE, X_MAXES = 0.75, 0.05, (10.0, 100.0)


class Reference:
    """The programs of Pennington, Socher and Manning, run in a folder that holds the same text and vocabulary."""

    def __init__(self, programs: Path, folder: Path, vocab: Vocab, documents: list[np.ndarray]):
        self.programs, self.folder, self.size = programs, folder, len(vocab)
        counts = zip(vocab.words, vocab.counts, strict=True)
        (folder / "vocab.txt").write_text("".join(f"{word} {count}\n" for word, count in counts))
        (folder / "text.txt").write_text("".join(" ".join(vocab.decode(ids)) + "\n" for ids in documents))

    def _pipe(self, program: str, source: str, target: str, *options: str) -> float:
        with open(self.folder / source, "rb") as read, open(self.folder / target, "wb") as write:
            command = [str(self.programs / program), "-memory", "2", "-verbose", "0", *options]
            run = dict(stdin=read, stdout=write, stderr=subprocess.DEVNULL, cwd=self.folder, check=True)
            return clock(subprocess.run, command, **run)[0]

    def count(self) -> float:
        """Seconds for counting."""
        window = ("-window-size", str(WINDOW), "-symmetric", "1", "-vocab-file", "vocab.txt")
        return self._pipe("cooccur", "text.txt", "counts.bin", *window)

    def shuffle(self) -> float:
        """Seconds for shuffling."""
        return self._pipe("shuffle", "counts.bin", "shuffled.bin", "-seed", "1")

    def cells(self) -> int:
        """How many cells it counted: 16 bytes each."""
        return (self.folder / "counts.bin").stat().st_size // 16

    def train(self, epochs: int, x_max: float, threads: int) -> tuple[list[float], float, list[float]]:
        """Seconds of each epoch, seconds for everything, and the cost it prints after each epoch."""
        options = {
            "input-file": "shuffled.bin",
            "vocab-file": "vocab.txt",
            "save-file": "vectors",
            "threads": threads,
            "x-max": x_max,
            "alpha": ALPHA,
            "eta": RATE,
            "iter": epochs,
            "vector-size": D,
            "binary": 1,
            "seed": 1,
            "verbose": 1,
        }
        command = [
            str(self.programs / "glove"),
            *(str(part) for name in options for part in (f"-{name}", options[name])),
        ]
        begin = time.perf_counter()
        stamps, costs = [], []
        with subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True) as run:
            for line in run.stderr:
                if line.startswith("alpha") or "iter:" in line:  # the line before the first epoch, and one after each
                    stamps.append(time.perf_counter())
                if "cost:" in line:
                    costs.append(float(line.split("cost:")[1]))
        if run.returncode or len(costs) != epochs:
            raise RuntimeError(f"the reference program ended with {run.returncode} after {len(costs)} epochs")
        return list(np.diff(stamps)), time.perf_counter() - begin, costs

    def parameters(self) -> tuple[torch.Tensor, ...]:
        """What it saved: V, U and their biases."""
        table = np.fromfile(self.folder / "vectors.bin").reshape(2, self.size, D + 1)
        return tuple(torch.from_numpy(part.copy()).float() for part in (*table[..., :D], *table[..., D]))


def wordsim(vocab: Vocab, matrix) -> float:
    """Spearman's rank correlation with WordSim-353."""
    return round(evaluate.similarity(WordVectors(vocab, np.asarray(matrix)), data.word_pairs("wordsim353")).value, 3)


def count_vectors(X) -> np.ndarray:
    """The vectors of chapter 1: shifted PPMI and its singular vectors."""
    U, s, _ = truncated_svd(ppmi(X, alpha=0.75, k=2).astype(np.float32), D)
    return word_vectors(U, s, D)


def times(vocab: Vocab, documents: list[np.ndarray], reference: Reference | None) -> tuple[dict, dict]:
    """Seconds of every stage, each program in turn; and of the other models of the course, for comparison."""
    names = ["ours", *(f"reference, {n} thread" + "s" * (n > 1) for n in THREADS["reference"])]
    taken = {who: {stage: [] for stage in ("count", "prepare", "epoch")} for who in names}
    others = {name: [] for name in ("PPMI and SVD, from counts", "SGNS, an epoch")}
    train_word2vec(documents[:500], vocab, D=D, epochs=1)  # once unmeasured: the first run loads libraries
    for _ in range(REPEATS):
        mine = taken["ours"]
        seconds, X = clock(co_occurrence, documents, len(vocab), WINDOW, lambda d: 1 / d)
        mine["count"].append(seconds)
        one = clock(train_glove, X, vocab, D=D, x_max=10, epochs=1)[0]
        several = clock(train_glove, X, vocab, D=D, x_max=10, epochs=1 + SHORT)[0]
        mine["epoch"].append((several - one) / SHORT)
        mine["prepare"].append(max(0.0, one - mine["epoch"][-1]))
        if reference:
            counting, shuffling = reference.count(), reference.shuffle()
            for who, threads in zip(names[1:], THREADS["reference"], strict=True):
                epochs, whole, _ = reference.train(SHORT, 10, threads)
                taken[who]["count"].append(counting)
                taken[who]["epoch"].append(statistics.mean(epochs))
                taken[who]["prepare"].append(shuffling + whole - sum(epochs))
        others["PPMI and SVD, from counts"].append(clock(count_vectors, X)[0])
        others["SGNS, an epoch"].append(clock(train_word2vec, documents, vocab, D=D, epochs=1)[0])
    found = {who: {stage: summary(t) for stage, t in stages.items() if t} for who, stages in taken.items()}
    return {who: stages or "not run" for who, stages in found.items()}, {name: summary(t) for name, t in others.items()}


def costs(vocab: Vocab, X, reference: Reference | None) -> dict[str, dict]:
    """The cost that each reaches in 15 epochs: in the last epoch, as the program prints it, and after it."""
    cells, found = entries(X), {}
    for x_max in X_MAXES:
        model = train_glove(X, vocab, D=D, x_max=x_max, alpha=ALPHA, epochs=EPOCHS, lr=RATE)
        runs = {"ours": (model.costs, (model.V, model.U, model.b, model.b_tilde))}
        if reference:
            printed = reference.train(EPOCHS, x_max, max(THREADS["reference"]))[2]
            runs["reference"] = printed, reference.parameters()
        found[f"{x_max:g}"] = {
            who: {
                "by_epoch": [round(cost, 6) for cost in by_epoch],
                "after": round(float(glove_cost(*tables, cells, x_max, ALPHA)), 6),
                "wordsim353": wordsim(vocab, tables[0] + tables[1]),
            }
            for who, (by_epoch, tables) in runs.items()
        } | ({} if reference else {"reference": "not run"})
    return found


def main() -> None:
    """Measure, compare, record."""
    torch.set_num_threads(1)
    with threadpool_limits(1):  # numpy and scipy, too
        measure()


def measure() -> None:
    """All of it, on the threads that `main` allows."""
    vocab, documents = paragraphs()
    X = co_occurrence(documents, len(vocab), WINDOW, lambda d: 1 / d)
    with tempfile.TemporaryDirectory() as folder:
        programs = os.environ.get("GLOVE_C")
        reference = Reference(Path(programs) / "build", Path(folder), vocab, documents) if programs else None
        seconds, others = times(vocab, documents, reference)
        print(seconds, others, flush=True)
        reached = costs(vocab, X, reference)
        cells = {"ours": X.nnz, "reference": reference.cells() if reference else "not run"}
    facts = {
        "settings": {"D": D, "window": WINDOW, "alpha": ALPHA, "rate": RATE, "epochs": EPOCHS, "batch": 4096}
        | {"threads": THREADS, "repeats": REPEATS, "words": len(vocab), "tokens": sum(map(len, documents))},
        "reference": "stanfordnlp/GloVe at 52f7dbc, gcc -O3 -march=native" if programs else "not run",
        "cells": cells,
        "seconds": seconds,
        "others": others,
        "cost": reached,
    }
    save("glove", **facts)


if __name__ == "__main__":
    main()
