"""GloVe's cost has the symmetries it should, its steps are those of its gradient, and it finds what is there."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models.cooccurrence import co_occurrence
from lrm_utils.models.glove import entries, glove_cost, start, step, train_glove, weight
from lrm_utils.text import Vocab

seeds = st.integers(0, 10_000)


def drawn(seed, size=6, D=3):
    """A random symmetric table with empty cells, and random parameters."""
    random = np.random.default_rng(seed)
    X = random.gamma(0.5, 20, (size, size)) * (random.random((size, size)) < 0.7)
    X = X + X.T + np.eye(size)
    generator = torch.Generator().manual_seed(seed)
    V, U = torch.randn(2, size, D, generator=generator, dtype=torch.float64)
    b, b_tilde = torch.randn(2, size, generator=generator, dtype=torch.float64)
    return X, V, U, b, b_tilde


@given(seeds)
def test_for_symmetric_counts_centers_and_contexts_can_be_swapped(seed):
    X, V, U, b, b_tilde = drawn(seed)
    cells = entries(X)
    assert float(glove_cost(V, U, b, b_tilde, cells)) == pytest.approx(float(glove_cost(U, V, b_tilde, b, cells)))


@given(seeds, st.floats(-5, 5))
def test_a_constant_may_move_from_one_bias_to_the_other_and_vectors_may_be_turned(seed, constant):
    X, V, U, b, b_tilde = drawn(seed)
    cells, (Q, _) = entries(X), torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    cost = float(glove_cost(V, U, b, b_tilde, cells))
    assert float(glove_cost(V @ Q, U @ Q, b + constant, b_tilde - constant, cells)) == pytest.approx(cost)


@given(seeds, st.sampled_from([0.5, 10.0, 100.0]), st.floats(0.1, 1.5))
def test_the_cost_is_what_a_plain_loop_adds_up(seed, x_max, alpha):
    X, V, U, b, b_tilde = drawn(seed)
    total, n = 0.0, 0
    for i, j in np.ndindex(*X.shape):
        if X[i, j] > 0:
            f = (X[i, j] / x_max) ** alpha if X[i, j] < x_max else 1.0
            total += f * float(V[i] @ U[j] + b[i] + b_tilde[j] - np.log(X[i, j])) ** 2 / 2
            n += 1
    assert float(glove_cost(V, U, b, b_tilde, entries(X), x_max, alpha)) == pytest.approx(total / n)


def test_the_cost_of_many_cells_in_pieces_is_that_of_all_at_once():
    random = np.random.default_rng(0)
    X = random.random((400, 400)) + 0.1  # 160,000 cells: more than one piece
    V, U = torch.randn(2, 400, 2, dtype=torch.float64)
    b, b_tilde = torch.randn(2, 400, dtype=torch.float64)
    diff = V @ U.T + b[:, None] + b_tilde - torch.from_numpy(X).log()
    expected = (torch.from_numpy(weight(X, 5.0)) * diff**2).mean() / 2
    assert float(glove_cost(V, U, b, b_tilde, entries(X), 5.0)) == pytest.approx(float(expected))


@given(st.floats(0.01, 1e3), st.floats(0, 2), st.lists(st.floats(0, 1e6), min_size=2, max_size=20))
def test_weights_rise_from_0_to_1_and_stay_there(x_max, alpha, counts):
    x = np.sort(np.array(counts))
    f = weight(x, x_max, alpha)
    assert ((f >= 0) & (f <= 1)).all() and (np.diff(f) >= 0).all()
    assert (f[x >= x_max] == 1).all()


@given(seeds, st.integers(1, 20))
def test_one_step_is_minus_the_gradient_over_the_root_of_its_memory(seed, B):
    """autograd on the cost of the batch, double precision; memory 1/lr² and what was added before."""
    size, D = 6, 3
    generator = torch.Generator().manual_seed(seed)
    table = start(size, D, 0.1, generator).double()
    table[:, :5] *= 20  # away from the flat start
    table[:size, D + 1], table[size:, D] = 1, 1
    ids = torch.stack(
        [
            torch.randperm(size * size, generator=generator)[:B] // size,
            size + torch.randint(size, (B,), generator=generator),
        ]
    )
    log_x, f = torch.randn(2, B, generator=generator, dtype=torch.float64)
    f = f.abs()
    leaf = table[:, :5].clone().requires_grad_()
    i, j = ids
    V, U, b, b_tilde = leaf[i, :D], leaf[j, :D], leaf[i, D], leaf[j, D + 1]
    each = f * ((V * U).sum(1) + b + b_tilde - log_x) ** 2 / 2
    expected, memory = table[:, :5].clone(), table[:, 5:].clone()
    for n in range(B):
        (g,) = torch.autograd.grad(each[n], leaf, retain_graph=True)
        expected -= g / table[:, 5:].sqrt()
        memory += g**2
    cost = step(table, ids, log_x, f)
    assert float(cost) == pytest.approx(float(each.sum().detach()))
    torch.testing.assert_close(table[:, :5], expected)
    torch.testing.assert_close(table[:, 5:], memory)


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=2, max_size=6).filter(lambda ds: max(map(len, ds)) > 1),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_counts_are_symmetric_and_do_not_know_the_order_of_documents(documents, window, random):
    count = lambda ds: co_occurrence([np.array(d, dtype=int) for d in ds], 6, window, lambda d: 1 / d).toarray()  # noqa: E731
    X = count(documents)
    shuffled = random.sample(documents, len(documents))
    np.testing.assert_allclose(X, X.T)
    np.testing.assert_allclose(count(shuffled), X)


@settings(max_examples=5)
@given(seeds, st.integers(1, 3))
def test_the_cost_vanishes_at_the_fitted_optimum_of_a_table_of_that_rank(seed, D):
    generator = torch.Generator().manual_seed(seed)
    draw = dict(generator=generator, dtype=torch.float64)
    V, U = torch.randn(2, 24, D, **draw) / D**0.25
    b, b_tilde = 0.5 * torch.randn(2, 24, **draw)
    X = (V @ U.T + b[:, None] + b_tilde).exp().numpy()
    assert float(glove_cost(V, U, b, b_tilde, entries(X), 1.0)) == pytest.approx(0, abs=1e-20)
    vocab = Vocab(tuple(map(str, range(24))), np.ones(24, dtype=int))
    model = train_glove(X, vocab, D=D, x_max=1.0, epochs=120, seed=seed)
    assert model.costs[-1] < 1e-5 * model.costs[0]
    found = glove_cost(model.V, model.U, model.b, model.b_tilde, entries(X), 1.0)
    assert float(found) < 1e-5 * model.costs[0]


def test_the_hand_gradient_is_the_automatic_one():
    X, V, U, b, b_tilde = drawn(3)
    i, j, x = cells = entries(X)
    fdiff = weight(x) * ((V[i] * U[j]).sum(1) + b[i] + b_tilde[j] - x.log()) / len(x)
    by_hand = {
        "V": torch.zeros_like(V).index_add_(0, i, fdiff[:, None] * U[j]),
        "U": torch.zeros_like(U).index_add_(0, j, fdiff[:, None] * V[i]),
        "b": torch.zeros_like(b).index_add_(0, i, fdiff),
        "b_tilde": torch.zeros_like(b_tilde).index_add_(0, j, fdiff),
    }
    leaves = {n: t.requires_grad_() for n, t in (("V", V), ("U", U), ("b", b), ("b_tilde", b_tilde))}
    check.gradient(lambda: glove_cost(V, U, b, b_tilde, cells), leaves, by_hand)


def test_words_of_one_group_come_to_lie_together():
    """A toy language: a line uses the words of one group."""
    random = np.random.default_rng(0)
    text = [random.integers(0, 5, 12) + 5 * random.integers(4) for _ in range(400)]
    text += [random.integers(0, 20, 12) for _ in range(100)]  # and some lines mix them all
    X = co_occurrence(text, 20, 4, lambda d: 1 / d)
    model = train_glove(X, Vocab(tuple(map(str, range(20))), np.ones(20, dtype=int)), D=8, x_max=50, epochs=200)
    check.learns(model.costs)
    cosines = model.vectors.unit @ model.vectors.unit.T
    inside = np.kron(np.eye(4), np.ones((5, 5))) - np.eye(20) > 0
    assert cosines[inside].mean() > cosines[~inside & ~np.eye(20, dtype=bool)].mean() + 0.4
