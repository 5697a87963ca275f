"""Every check passes on a correct model and fails on a broken one, with a message that names the mistake."""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from lrm_utils import check
from lrm_utils.check import CheckFailed

B, T, D, V = 2, 5, 4, 11


class Attention(nn.Module):
    """Self-attention over embedded ids, with the mistakes that people make as options."""

    def __init__(self, causal=True, offset=1, late=False, positions=False):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mix = nn.Embedding(V, D), nn.Linear(D, D)
        self.position = nn.Parameter(torch.randn(64, D) * positions)
        self.causal, self.offset, self.late = causal, offset, late

    def forward(self, ids, lengths=None):
        x = self.embed(ids) + self.position[: ids.shape[1]]  # (B, T, D)
        scores = self.mix(x) @ x.transpose(1, 2)  # (B, T, T)
        n = ids.shape[1]
        hidden = torch.zeros_like(scores, dtype=torch.bool)
        if self.causal:
            hidden |= torch.ones(n, n, dtype=torch.bool).triu(self.offset)
        if lengths is not None:
            hidden |= (torch.arange(n) >= lengths[:, None])[:, None, :]
        weights = scores.softmax(-1) * ~hidden if self.late else scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return weights @ x


@pytest.fixture
def ids():
    return torch.randint(V, (B, T), generator=torch.Generator().manual_seed(1))


def fails(*words):
    return pytest.raises(CheckFailed, match="(?s)" + ".*".join(words))


def test_close_accepts_equal_arrays_of_any_kind():
    x = np.arange(6.0).reshape(2, 3)
    check.close(torch.tensor(x), x)
    check.close(sparse.csr_array(x), x)
    check.close(sparse.csr_array(x), sparse.csr_array(x))
    check.close([np.inf, 1.0], [np.inf, 1.0])
    check.close(0.37, 0.366, 0.02)


@pytest.mark.parametrize(
    ("actual", "expected", "word"),
    [
        (np.arange(9.0).reshape(3, 3).T, np.arange(9.0).reshape(3, 3), "axes are swapped"),
        (2 * np.arange(1.0, 5), np.arange(1.0, 5), "2 times"),
        (np.arange(1.0, 5) + 3, np.arange(1.0, 5), "off by 3"),
        (-np.arange(1.0, 5), np.arange(1.0, 5), "sign"),
        ([np.nan, 1.0], [0.0, 1.0], "logarithm of 0"),
        (np.zeros((2, 3)), np.zeros((3, 2)), "shapes differ"),
        (sparse.csr_array(np.eye(3)), sparse.csr_array(np.triu(np.ones((3, 3)))), r"at \(0, 1\): 0 against 1"),
        (0.4, 0.366, "0.4 against 0.366"),
    ],
)
def test_close_names_the_mistake(actual, expected, word):
    with fails(word):
        check.close(actual, expected)


def test_close_is_relative_to_the_magnitude_and_refuses_to_compare_nothing():
    with fails("9 times|differ|against"):
        check.close([1e-7, 2e-7], [9e-7, 2e-7])
    with fails("nothing to compare"):
        check.close([], [])


def test_close_compares_infinities_in_sparse_matrices():
    infinite = sparse.csr_array([[1.0, np.inf]])
    check.close(infinite, sparse.csr_array([[1.0, np.inf]]))
    with fails(r"at \(0, 0\): 5 against 1|at \(0, 1\): 3 against inf"):
        check.close(sparse.csr_array([[5.0, 3.0]]), infinite)


def test_close_says_which_claim_fell():
    with fails("this does not hold: the counts agree", "1 of 3 entries", r"at \(1,\)"):
        check.close([1.0, 5.0, 3.0], [1.0, 2.0, 3.0], says="the counts agree")


def test_a_check_that_holds_prints_its_claim(capsys):
    check.close(1.0, 1.0, says="one is one")
    check.close(1.0, 1.0)
    assert capsys.readouterr().out == "✓ one is one\n"


def test_shape_reads_letters_and_numbers():
    assert check.shape(torch.zeros(2, 4, 5, 5), "B H T T", H=4) == {"H": 4, "B": 2, "T": 5}
    check.shape(np.zeros((2, 3)), "B 3")
    with fails(r"axis 3 \(T\)", "has 6 entries, expected 5"):
        check.shape(torch.zeros(2, 4, 5, 6), "B H T T")
    with fails("expected 3 axes", "found 2"):
        check.shape(torch.zeros(2, 4), "B T D")


def softmax_regression():
    torch.manual_seed(0)
    w = torch.randn(D, 3, dtype=torch.float64, requires_grad=True)
    x, y = torch.randn(B, D, dtype=torch.float64), torch.tensor([0, 2])
    p = (x @ w).softmax(1).detach()
    by_hand = x.T @ (p - nn.functional.one_hot(y, 3)) / B
    return w, lambda: nn.functional.cross_entropy(x @ w, y), by_hand


def test_gradient_accepts_the_derivation_and_refuses_a_slip():
    w, loss, by_hand = softmax_regression()
    check.gradient(loss, {"w": w}, {"w": by_hand})
    check.gradient(loss, {"w": w})
    with fails("gradient of w", "2 times", "slip in the derivation"):
        check.gradient(loss, {"w": w}, {"w": 2 * by_hand})
    with fails("gradient of w", "2 times"):
        check.gradient(lambda: 1e-7 * loss(), {"w": w}, {"w": 2e-7 * by_hand})


def test_gradient_takes_parameters_that_are_views():
    w = torch.randn(3, 4, dtype=torch.float64).T.requires_grad_()
    check.gradient(lambda: (w**3).sum(), {"w": w})


def test_gradient_finds_a_detached_term_and_an_unused_parameter():
    w, _, _ = softmax_regression()
    with fails("gradient of w at entry", "detached"):
        check.gradient(lambda: (w.detach() * w).sum(), {"w": w})
    with fails("does not depend on b"):
        check.gradient(lambda: w.sum(), {"w": w, "b": torch.zeros(2, dtype=torch.float64, requires_grad=True)})
    with fails("float32, expected torch.float64"):
        check.gradient(lambda: w.sum(), nn.Linear(2, 2))


def test_gradient_leaves_the_parameters_as_they_were():
    w, loss, _ = softmax_regression()
    before = w.detach().clone()
    check.gradient(loss, {"w": w})
    assert torch.equal(w, before)


def test_causal_model_passes(ids):
    check.causal(Attention(), ids)
    check.causal(lambda x: Attention()(x.flip(1)).flip(1), ids, backward=True)
    lstm = nn.LSTM(D, D, batch_first=True)
    check.causal(lambda x: lstm(x)[0], torch.randn(B, T, D))


def test_a_mask_that_leaks_is_refused(ids):
    for model in (Attention(causal=False), Attention(offset=2), Attention(late=True)):
        with fails("the future leaks", "mask that is missing, transposed, off by one"):
            check.causal(model, ids)
    with fails("the past leaks"):
        check.causal(Attention(), ids, backward=True)


@pytest.mark.parametrize("border", range(T - 1))
def test_a_leak_between_any_two_neighbors_is_found(ids, border):
    sound = Attention()

    def leaking(x, earlier, later):
        out = sound(x)
        out[:, earlier] += sound.embed(x[:, later])
        return out

    with fails(f"position {border} moved", "the future leaks"):
        check.causal(lambda x: leaking(x, border, border + 1), ids)
    with fails(f"position {border + 1} moved", "the past leaks"):
        check.causal(lambda x: leaking(x.flip(1), T - 2 - border, T - 1 - border).flip(1), ids, backward=True)


def test_causal_is_not_passed_by_ignoring_the_inputs(ids):
    with fails("ignore the inputs"):
        check.causal(lambda x: torch.ones(B, T, D), ids)
    with fails("neither past nor future"):
        check.causal(Attention(), ids[:, :1])


def test_causal_switches_dropout_off_and_on_again(ids):
    model = nn.Sequential(Attention(), nn.Dropout(0.5)).train()
    check.causal(model, ids)
    assert model.training


def test_padding_that_is_masked_passes_and_padding_that_is_not_is_refused(ids):
    lengths = torch.tensor([3, 5])
    check.padding(Attention(causal=False), ids, lengths)
    with fails("padding leaks"):
        check.padding(lambda x, n: Attention(causal=False)(x), ids, lengths)
    with fails("padding leaks"):
        check.padding(lambda x, n: Attention(causal=False)(x, n).mean(1), ids, lengths)

    def diluted(x, n):
        real = torch.arange(x.shape[1]) < n[:, None]
        return (Attention().embed(x) * real[..., None]).sum(1) / x.shape[1]  # masked well, but divided by T

    with fails("two more columns of padding", "padding leaks"):
        check.padding(diluted, ids, lengths)
    with fails("no row has any padding"):
        check.padding(Attention(), ids, torch.tensor([T, T]))
    with fails("ignore the inputs"):
        check.padding(lambda x, n: torch.ones(B, 3), ids, lengths)


def test_permutation_tells_models_that_know_order_from_those_that_do_not(ids):
    check.permutation(Attention(causal=False), ids)
    check.permutation(lambda x: Attention(causal=False)(x).sum(1), ids, invariant=True)
    for model in (Attention(causal=True), Attention(causal=False, positions=True)):
        with fails("something that knows order"):
            check.permutation(model, ids)
    ring = nn.Conv1d(D, D, 3, padding=1, padding_mode="circular")  # knows its neighbors, but not where it begins
    for model, invariant in ((lambda x: ring(x.mT).mT, False), (lambda x: ring(x.mT).relu().mean(2), True)):
        with fails("something that knows order"):
            check.permutation(model, torch.randn(B, T, D), invariant=invariant)
    with fails("ignore the inputs"):
        check.permutation(lambda x: torch.ones(B, T, D), ids)
    blind = Attention(causal=False)
    last = torch.arange(T)[:, None] == T - 1
    with fails(f"swapping positions {T - 2} and {T - 1}"):  # only the last position knows where it stands
        check.permutation(lambda x: blind(x) + last, ids)


def test_sums_to_one_accepts_a_distribution_and_names_what_is_wrong():
    p = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    check.sums_to_one(p)
    check.sums_to_one(p, allowed=np.array([[True, True, False], [True, True, True]]))
    with fails(r"at \(2,\) sums to 0.5", "wrong axis"):
        check.sums_to_one(p, axis=0)
    with fails("forbidden entry has probability 0.5"):
        check.sums_to_one(p, allowed=np.array([True, True, False]))
    with fails("negative"):
        check.sums_to_one([1.5, -0.5])
    with fails("not finite"):
        check.sums_to_one([np.nan, 1.0])


def test_learns_wants_a_loss_that_falls_below_the_baseline():
    check.learns([3.0, 2.0, 1.0], below=1.5)
    check.learns([3.0, *[1.0] * 18, 1.6], below=1.5)  # the end is the mean of the last tenth, not one noisy batch
    passed = 0
    for seed in range(200):
        try:
            check.learns(np.random.default_rng(seed).normal(5, 1, 300))
            passed += 1
        except CheckFailed:
            pass
    assert passed <= 4, "noise is not learning"
    with fails("went from 3 to 3.5"):
        check.learns([3.0, 3.5])
    with fails("not below the baseline 0.5"):
        check.learns([3.0, 1.0], below=0.5)
    with fails("nan at step 1"):
        check.learns([3.0, float("nan"), 1.0])
    with fails("too few"):
        check.learns([3.0])


def test_near_names_the_words_it_found():
    check.near("silver", ["coin", "silver"])
    with fails("'silver' is not among coin, gown"):
        check.near("silver", ["coin", "gown"])


def test_above_holds_for_every_entry_and_names_the_first_that_is_not():
    check.above(0.6, 0.5)
    check.above(np.array([1.0, 2.0]), np.array([0.5, 1.5]))
    with pytest.raises(check.CheckFailed, match="0.5 is not above 0.5"):
        check.above(0.5, 0.5)
    with pytest.raises(check.CheckFailed, match=r"1 at \(1,\) is not above 1.5"):
        check.above([2.0, 1.0, 0.0], 1.5)


def test_above_refuses_what_is_no_number_and_what_is_nothing():
    with pytest.raises(check.CheckFailed, match="nan is not above"):
        check.above(float("nan"), 0)
    with pytest.raises(check.CheckFailed, match="nothing to compare"):
        check.above([], 0)
