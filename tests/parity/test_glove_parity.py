"""GloVe does what others compute: torch's AdaGrad, numpy's least squares, and the C program of its authors."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from lrm_utils import data, text
from lrm_utils.models.cooccurrence import co_occurrence
from lrm_utils.models.glove import entries, glove_cost, start, step, train_glove, weight
from lrm_utils.text import Vocab

SIZE, D = 8, 3


def batch(seed=0):
    """A table away from its start, and cells of which no two share a row."""
    generator = torch.Generator().manual_seed(seed)
    table = start(SIZE, D, 0.05, generator).double()
    values, memory = table.chunk(2, 1)
    values.mul_(30)
    values[:SIZE, D + 1], values[SIZE:, D] = 1, 1
    memory.add_(50 * torch.rand(memory.shape, generator=generator, dtype=torch.float64))
    ids = torch.stack([torch.randperm(SIZE, generator=generator), SIZE + torch.randperm(SIZE, generator=generator)])
    log_x, f = torch.rand(2, SIZE, generator=generator, dtype=torch.float64)
    return table, ids, log_x, f


def test_a_step_is_that_of_torchs_adagrad():
    """torch 2.13 `Adagrad`, lr 1, eps 0, float64, 1e-12 of the values. It adds the new square before it divides, we
    after, as GloVe's program does; so its sum is set back by the new square first, and nothing else."""
    table, ids, log_x, f = batch()
    values = table[:, : D + 2].clone().requires_grad_()
    i, j = ids
    loss = (f * ((values[i] * values[j]).sum(1) - log_x) ** 2).sum() / 2
    loss.backward()
    before = table[:, D + 2 :].clone()
    constant = before.isinf()
    values.grad[constant] = 0
    optimizer = torch.optim.Adagrad([values], lr=1.0, eps=0.0)
    optimizer.state[values]["sum"].copy_(before - values.grad**2)
    optimizer.step()
    cost = step(table, ids, log_x, f)
    torch.testing.assert_close(table[:, : D + 2], values.detach(), rtol=1e-12, atol=1e-12)
    assert float(cost) == pytest.approx(float(loss.detach()), rel=1e-12)


def test_steps_are_those_of_the_c_program_restated():
    """glove.c of stanfordnlp/GloVe (2025), its arithmetic in double precision for one cell after another: squares of
    rate times gradient beside 1. It leaves the rate out for biases; here they have it. Equal to 1e-10."""
    table, *_ = batch()
    table[:, D + 2 :][table[:, D + 2 :].isfinite()] = 400.0
    W, eta = table[:, : D + 2].numpy().copy(), 0.05
    squares = np.ones_like(W)
    random = np.random.default_rng(0)
    for _ in range(200):
        i, j, x = random.integers(SIZE), SIZE + random.integers(SIZE), random.gamma(1, 10)
        diff = W[i, :D] @ W[j, :D] + W[i, D] + W[j, D + 1] - np.log(x)
        fdiff = diff if x > 10 else (x / 10) ** 0.75 * diff
        for b in range(D):
            first, second = eta * fdiff * W[j, b], eta * fdiff * W[i, b]
            W[i, b] -= first / np.sqrt(squares[i, b])
            W[j, b] -= second / np.sqrt(squares[j, b])
            squares[i, b] += first**2
            squares[j, b] += second**2
        for row, column in ((i, D), (j, D + 1)):
            W[row, column] -= eta * fdiff / np.sqrt(squares[row, column])
            squares[row, column] += (eta * fdiff) ** 2
        log_x, f = torch.tensor([np.log(x)]), torch.tensor([float(weight(np.array(x), 10))], dtype=torch.float64)
        step(table, torch.tensor([[i], [j]]), log_x, f)
    np.testing.assert_allclose(table[:, : D + 2].numpy(), W, atol=1e-10)


def test_at_the_weighted_least_squares_solution_the_gradient_vanishes():
    """numpy 2.4 `lstsq`, centers and their biases solved for with contexts fixed; gradient below 1e-12."""
    random = np.random.default_rng(0)
    X = random.gamma(1, 20, (SIZE, SIZE)) + 0.1
    U, b_tilde = random.standard_normal((SIZE, D)), random.standard_normal(SIZE)
    root = np.sqrt(weight(X, 30.0))
    design = np.column_stack([U, np.ones(SIZE)])
    rows = [
        np.linalg.lstsq(root[i, :, None] * design, root[i] * (np.log(X[i]) - b_tilde), rcond=None)[0]
        for i in range(SIZE)
    ]
    V = torch.tensor(np.array(rows)[:, :D], requires_grad=True)
    b = torch.tensor(np.array(rows)[:, D], requires_grad=True)
    cost = glove_cost(V, torch.tensor(U), b, torch.tensor(b_tilde), entries(X), 30.0)
    cost.backward()
    assert max(V.grad.abs().max(), b.grad.abs().max()) < 1e-12


@pytest.mark.skipif("GLOVE_C" not in os.environ, reason="GLOVE_C names no folder with the built C program")
def test_counts_and_cost_are_those_of_the_c_program(tmp_path):
    """stanfordnlp/GloVe on every twentieth speech: the same cells to 1e-9, and after 10 epochs a cost within 3 %."""
    lines = [text.words(p) for speech in data.sotu()[::20] for p in speech.text.splitlines()]
    vocab = Vocab.build((w for line in lines for w in line), min_count=5)
    ids = [vocab.encode(line, drop_unknown=True) for line in lines]
    (tmp_path / "vocab").write_text("".join(f"{w} {n}\n" for w, n in zip(vocab.words, vocab.counts, strict=True)))
    (tmp_path / "text").write_text("".join(" ".join(vocab.decode(line)) + "\n" for line in ids))
    build = Path(os.environ["GLOVE_C"]).resolve() / "build"

    def run(program, source, target, *options):
        with open(tmp_path / source, "rb") as read, open(tmp_path / target, "wb") as write:
            command = [build / program, "-verbose", "0", "-memory", "1", *options]
            subprocess.run(command, stdin=read, stdout=write, stderr=subprocess.DEVNULL, cwd=tmp_path, check=True)

    run("cooccur", "text", "counts", "-window-size", "5", "-vocab-file", "vocab")
    run("shuffle", "counts", "shuffled", "-seed", "1")
    theirs = np.fromfile(tmp_path / "counts", np.dtype([("i", "<i4"), ("j", "<i4"), ("x", "<f8")]))
    X = co_occurrence(ids, len(vocab), 5, lambda d: 1 / d)
    i, j, x = (part.numpy() for part in entries(X))
    order = np.lexsort((theirs["j"], theirs["i"]))
    assert np.array_equal(theirs["i"][order] - 1, i) and np.array_equal(theirs["j"][order] - 1, j)
    np.testing.assert_allclose(theirs["x"][order], x, rtol=1e-9)
    options = "-input-file shuffled -vocab-file vocab -threads 1 -iter 10 -vector-size 20 -x-max 10 -binary 1 -seed 1"
    printed = subprocess.run(
        [build / "glove", *options.split()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    cost = float(printed.stderr.split("cost:")[-1].split()[0])
    assert train_glove(X, vocab, D=20, x_max=10, epochs=10).costs[-1] < 1.03 * cost
