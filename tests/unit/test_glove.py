"""What GloVe refuses, each with one sentence that says what to do, and values that are known beforehand."""

import numpy as np
import pytest
import torch
from scipy import sparse

from lrm_utils.models.glove import entries, glove_cost, start, step, train_glove, weight
from lrm_utils.text import Vocab

VOCAB = Vocab(("a", "b", "c"), np.array([3, 2, 1]))
COUNTS = np.array([[0.0, 2, 1], [2, 4, 0], [1, 0, 0.5]])


def planted(size=40, D=3, seed=0):
    """A table that vectors of D numbers explain without a rest, and those vectors."""
    draw = dict(generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    V, U = torch.randn(2, size, D, **draw) / D**0.25
    b, b_tilde = torch.randn(2, size, **draw)
    X = (V @ U.T + b[:, None] + b_tilde).exp().numpy()
    return X, (V, U, b, b_tilde), Vocab(tuple(map(str, range(size))), np.ones(size, dtype=int))


@pytest.mark.parametrize(
    "counts,options,message",
    [
        (np.zeros((3, 3)), {}, "the table is empty: no pair of words was ever seen"),
        (np.zeros((0, 0)), {}, "the table is empty"),
        (sparse.csr_array((3, 3)), {}, "the table is empty"),
        (np.ones((3, 4)), {}, r"shape \(3, 4\) are no table of words by words: it must be square"),
        (sparse.csr_array(np.ones((4, 3))), {}, r"shape \(4, 3\).*square"),
        (np.ones(9), {}, r"shape \(9,\).*square"),
        (np.where(COUNTS == 4, np.nan, COUNTS), {}, "negative, infinite or NaN"),
        (np.where(COUNTS == 4, np.inf, COUNTS), {}, "negative, infinite or NaN"),
        (np.where(COUNTS == 4, -1, COUNTS), {}, "numbers of at least 0"),
        (sparse.csr_array(-COUNTS), {}, "negative"),
        (np.ones((4, 4)), {}, "counts of 4 words do not fit 3 words in vocab"),
        (COUNTS, {"x_max": 0}, "x_max=0.*x_max must be above 0"),
        (COUNTS, {"x_max": -5}, "x_max=-5"),
        (COUNTS, {"x_max": float("nan")}, "x_max=nan"),
        (COUNTS, {"alpha": -0.75}, "alpha=-0.75.*alpha at least 0"),
        (COUNTS.tolist() + [[0, 0, 0]], {}, r"shape \(4, 3\).*square"),
        (np.ones((4, 4)).tolist(), {}, "counts of 4 words do not fit 3 words in vocab"),
        (COUNTS, {"D": 0}, "D=0.*at least 1"),
        (COUNTS, {"D": 2.5}, "D=2.5.*must be whole numbers"),
        (COUNTS, {"epochs": 1.5}, "epochs=1.5.*must be whole numbers"),
        (COUNTS, {"epochs": 0}, "epochs=0.*at least 1"),
        (COUNTS, {"batch": 0}, "batch=0.*at least 1"),
        (COUNTS, {"lr": 0}, "lr=0 above 0"),
        (COUNTS, {"lr": -0.1}, "lr=-0.1 above 0"),
        (COUNTS, {"lr": float("nan")}, "lr=nan above 0"),
        (COUNTS, {"lr": 1e-30}, "lr=1e-30 above 0.*1e-15 is too little"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_the_reason(counts, options, message):
    with pytest.raises(ValueError, match=message):
        train_glove(counts, VOCAB, **options)


def test_a_rate_that_is_too_high_is_told_with_what_to_do():
    X, _, vocab = planted()
    with pytest.raises(FloatingPointError, match=r"cost became .* in epoch 1: .*lower lr=50 or batch=4096, or divide"):
        train_glove(X, vocab, D=3, x_max=1, lr=50)


def test_a_table_may_be_a_list_of_rows():
    listed, given = (train_glove(table, VOCAB, D=2, epochs=2) for table in (COUNTS.tolist(), COUNTS))
    assert torch.equal(listed.V, given.V)


def test_a_single_number_has_a_weight_too():
    assert float(weight(5.0, 10, 1)) == 0.5 and float(weight(50, 10)) == 1


def test_the_weight_is_a_power_below_the_threshold_and_one_from_it_on():
    """The two cases are often printed the wrong way round."""
    x = np.array([0, 1e-12, 1, 16, 99.999, 100, 101, 1e9])
    assert weight(x, 100, 0.5) == pytest.approx([0, 1e-7, 0.1, 0.4, 0.999995, 1, 1, 1])
    assert weight(x[2:4]) == pytest.approx([0.01**0.75, 0.16**0.75])
    assert weight(torch.tensor([5.0, 50.0]), 10, 1).tolist() == [0.5, 1]


def test_the_cost_is_the_mean_over_cells_above_zero_of_half_the_weighted_square():
    """By hand: all parameters 0 but b = 1 for word a, x_max 4, alpha 1."""
    V = U = torch.zeros(3, 2)
    b, b_tilde = torch.tensor([1.0, 0, 0]), torch.zeros(3)
    prices = [
        0.5 * min(x / 4, 1) * (bias - np.log(x)) ** 2 for x, bias in ((2, 1), (1, 1), (2, 0), (4, 0), (1, 0), (0.5, 0))
    ]
    assert float(glove_cost(V, U, b, b_tilde, entries(COUNTS), 4, 1)) == pytest.approx(sum(prices) / 6)


def test_cells_are_found_in_dense_and_sparse_tables_alike_and_zeros_are_left_out():
    stored = sparse.coo_array(([1.5, 0.5, 0.0, 3.0], ([0, 0, 1, 2], [1, 1, 0, 2])), (3, 3))  # in pieces, and a zero
    for table in (stored, stored.tocsr(), stored.tocsc(), stored.toarray()):
        i, j, x = entries(table)
        assert (i.tolist(), j.tolist(), x.tolist()) == ([0, 2], [1, 2], [2.0, 3.0])
    assert stored.nnz == 4  # what was given is left alone


def test_whole_numbers_are_counts_too():
    model = train_glove(np.array([[0, 2], [2, 1]]), Vocab(("a", "b"), np.array([2, 1])), D=2, epochs=2)
    assert np.isfinite(model.costs).all()


def test_tables_need_not_be_symmetric():
    model = train_glove(np.triu(np.ones((3, 3))), VOCAB, D=2, epochs=3)
    assert model.costs[-1] < model.costs[0]


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e19])
def test_counts_of_any_size_are_no_trouble(scale):
    X, _, vocab = planted()
    model = train_glove(X * scale, vocab, D=3, x_max=scale, epochs=30)
    assert model.costs[-1] < 0.5 * model.costs[0]


def test_the_seed_decides_everything():
    one, same, other = (train_glove(COUNTS, VOCAB, D=2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.V, same.V) and torch.equal(one.U, same.U) and one.costs == same.costs
    assert torch.equal(one.b, same.b) and torch.equal(one.b_tilde, same.b_tilde)
    assert not torch.equal(one.V, other.V)


def test_training_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train_glove(COUNTS, VOCAB, D=2, epochs=1)
    assert torch.equal(torch.rand(3), expected)


def test_the_start_is_small_and_uniform_with_constants_that_never_move():
    table = start(2000, 4, 0.05, torch.Generator().manual_seed(0))
    values, memory = table.chunk(2, 1)
    assert table.shape == (4000, 12)
    assert (values[:2000, 5] == 1).all() and (values[2000:, 4] == 1).all()
    assert memory[:2000, 5].isinf().all() and memory[2000:, 4].isinf().all()
    drawn = torch.cat([values[:2000, :5].flatten(), values[2000:, [0, 1, 2, 3, 5]].flatten()])
    assert drawn.abs().max() <= 0.125 and drawn.std() == pytest.approx(0.25 / 12**0.5, rel=0.02)
    assert drawn.mean() == pytest.approx(0, abs=0.003)
    assert memory[memory.isfinite()].unique().tolist() == pytest.approx([400])


def test_one_step_by_hand():
    """One cell, D = 1: v = 2, b = 1; u = 3, b~ = -1; log x = 4, f = 0.5, h = 4: diff = 2, f diff = 1."""
    inf = torch.inf
    table = torch.tensor([[2.0, 1, 1, 4, 4, inf], [3.0, 1, -1, 4, inf, 4]])
    cost = step(table, torch.tensor([[0], [1]]), torch.tensor([4.0]), torch.tensor([0.5]))
    assert float(cost) == pytest.approx(0.5 * 0.5 * 2**2)
    expected = [[2 - 3 / 2, 1 - 1 / 2, 1, 4 + 9, 4 + 1, inf], [3 - 2 / 2, 1, -1 - 1 / 2, 4 + 4, inf, 4 + 1]]
    assert table.tolist() == [pytest.approx(row) for row in expected]


def test_a_row_that_comes_up_twice_in_a_batch_takes_both_steps():
    draw = dict(generator=torch.Generator().manual_seed(0))
    table = start(4, 3, 0.05, draw["generator"])
    ids, log_x, f = torch.tensor([[0, 0, 1], [5, 6, 5]]), torch.rand(3, **draw), torch.rand(3, **draw)
    together, alone = table.clone(), torch.zeros_like(table)
    step(together, ids, log_x, f)
    for n in range(3):
        single = table.clone()
        step(single, ids[:, n : n + 1], log_x[n : n + 1], f[n : n + 1])
        alone += (single - table).nan_to_num()
    torch.testing.assert_close((together - table).nan_to_num(), alone)


def test_the_vectors_for_use_are_the_sum_of_both_tables():
    model = train_glove(COUNTS, VOCAB, D=2)
    assert np.array_equal(model.vectors.matrix, (model.V + model.U).numpy())
    with pytest.raises(ValueError, match="'covfefe' is not in the vocabulary"):
        model.vectors["covfefe"]


def test_no_batch_has_more_cells_than_a_third_of_the_words(monkeypatch):
    import lrm_utils.models.glove as module

    seen, plain = [], module.step
    monkeypatch.setattr(module, "step", lambda table, ids, *rest: seen.append(ids.clone()) or plain(table, ids, *rest))
    X, _, vocab = planted(size=30)
    module.train_glove(X, vocab, D=2, epochs=2, batch=4096)
    assert {ids.shape[1] for ids in seen} == {10}
    visited = torch.cat(seen, 1)
    cells = set(zip(*visited.tolist(), strict=True))
    assert visited.shape[1] == 2 * 900 and cells == {(i, j + 30) for i in range(30) for j in range(30)}
    first = torch.cat(seen, 1)[:, :900]
    assert first[0].tolist() != sorted(first[0].tolist())  # in random order


def test_a_cell_that_is_stored_in_pieces_counts_once_and_the_table_is_left_alone():
    """A row-wise table may hold (0, 1) twice, unsorted: 0.5 and 1.5."""
    pieces = sparse.csr_array((np.array([0.5, 3.0, 1.5]), np.array([1, 0, 1]), np.array([0, 3, 3])), (2, 2))
    i, j, x = entries(pieces)
    assert (i.tolist(), j.tolist(), x.tolist()) == ([0, 0], [0, 1], [3.0, 2.0])
    assert pieces.data.tolist() == [0.5, 3.0, 1.5]


def test_the_costs_of_training_are_means_over_cells():
    """With steps too small to matter, the cost of an epoch is `glove_cost` at its end."""
    X, _, vocab = planted()
    model = train_glove(X, vocab, D=3, x_max=1, epochs=1, lr=1e-6)
    tables = model.V, model.U, model.b, model.b_tilde
    assert model.costs == pytest.approx([float(glove_cost(*tables, entries(X), 1))], rel=1e-4)
