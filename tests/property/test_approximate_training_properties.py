"""What holds for every vocabulary: trees are optimal, probabilities sum to 1, losses have the right gradient."""

import math
from functools import cache

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models.approximate_training import (
    NoiseSampler,
    hierarchical_gradients,
    hierarchical_log_probabilities,
    hierarchical_loss,
    huffman,
    masked_binary_cross_entropy,
    negative_sampling_gradients,
    negative_sampling_loss,
    noise_distribution,
    spread,
)

count_lists = st.lists(st.integers(1, 10**6), min_size=2, max_size=60)
quick = settings(max_examples=60, deadline=None)


@cache
def best_cost(counts: tuple[int, ...]) -> int:
    """The least sum of count times depth over *all* binary trees: every way to split the words in two."""
    if len(counts) == 1:
        return 0
    n = len(counts)
    splits = ([i for i in range(n) if mask >> i & 1] for mask in range(1, 2 ** (n - 1)))  # the last stays right
    return sum(counts) + min(
        best_cost(tuple(counts[i] for i in left)) + best_cost(tuple(c for i, c in enumerate(counts) if i not in left))
        for left in splits
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=7))
def test_no_tree_of_any_shape_has_shorter_paths(counts):
    assert int(huffman(counts).lengths.numpy() @ np.array(counts)) == best_cost(tuple(sorted(counts)))


@quick
@given(count_lists)
def test_expected_length_lies_within_one_bit_of_the_entropy(counts):
    p = np.array(counts) / sum(counts)
    expected, entropy = p @ huffman(counts).lengths.numpy(), -(p @ np.log2(p))
    assert entropy - 1e-9 <= expected < entropy + 1


@quick
@given(count_lists)
def test_the_tree_is_full_and_every_path_leads_to_one_word(counts):
    tree, V = huffman(counts), len(counts)
    assert math.isclose((2.0 ** -tree.lengths.double()).sum().item(), 1)  # Kraft's inequality, with equality
    assert tree.nodes.shape == tree.turns.shape == (V, int(tree.lengths.max()))
    paths = [
        tuple(zip(nodes[:n], turns[:n], strict=True))
        for nodes, turns, n in zip(tree.nodes.tolist(), tree.turns.tolist(), tree.lengths.tolist(), strict=True)
    ]
    assert all(path[0][0] == 0 for path in paths)  # from the root
    assert len(set(paths)) == V
    used = {step for path in paths for step in path}
    assert used == {(node, turn) for node in range(V - 1) for turn in (1.0, -1.0)}  # both sides of every inner node
    places = torch.arange(tree.turns.shape[1])
    assert torch.equal(tree.turns != 0, places < tree.lengths[:, None])


@quick
@given(count_lists)
def test_a_more_frequent_word_never_has_a_longer_path(counts):
    lengths = huffman(counts).lengths.tolist()
    for a, long in zip(counts, lengths, strict=True):
        for b, other in zip(counts, lengths, strict=True):
            assert not (a > b and long > other)


@quick
@given(count_lists, st.integers(0, 2**31), st.floats(0.01, 30))
def test_hierarchical_probabilities_sum_to_one_for_any_vectors(counts, seed, scale):
    random = torch.Generator().manual_seed(seed)
    v = torch.randn(3, 4, dtype=torch.float64, generator=random) * scale
    nodes = torch.randn(len(counts) - 1, 4, dtype=torch.float64, generator=random)
    p = hierarchical_log_probabilities(v, nodes, huffman(counts)).exp()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-12)


@quick
@given(count_lists, st.integers(0, 2**31))
def test_untrained_a_word_costs_one_bit_a_turn(counts, seed):
    tree = huffman(counts)
    words = torch.randint(len(counts), (5,), generator=torch.Generator().manual_seed(seed))
    zero = torch.zeros(len(counts) - 1, 3, dtype=torch.float64)
    loss = hierarchical_loss(torch.randn(5, 3, dtype=torch.float64), zero, tree, words)
    assert math.isclose(loss.item(), tree.lengths[words].double().mean().item() * math.log(2))


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**31))
def test_gradients_by_hand_are_those_of_autograd(size, k, batch, seed):
    random = torch.Generator().manual_seed(seed)
    V, U, N = (torch.randn(n, 3, dtype=torch.float64, generator=random) for n in (size, size, size - 1))
    centers, contexts = (torch.randint(size, (batch,), generator=random) for _ in range(2))
    noise = torch.randint(size, (batch, k), generator=random)
    tree = huffman(torch.randint(1, 50, (size,), generator=random))
    dv, du = negative_sampling_gradients(V, U, centers, contexts, noise)
    words = torch.cat([contexts[:, None], noise], 1)
    check.gradient(
        lambda: negative_sampling_loss(V, U, centers, contexts, noise),
        {"V": V.requires_grad_(), "U": U.requires_grad_()},
        {"V": spread(dv, centers, size), "U": spread(du, words, size)},
    )
    v = V.detach()[centers].requires_grad_()
    dv, dn = hierarchical_gradients(v.detach(), N, tree, contexts)
    check.gradient(
        lambda: hierarchical_loss(v, N, tree, contexts),
        {"v": v, "N": N.requires_grad_()},
        {"v": dv, "N": spread(dn, tree.nodes[contexts], size - 1)},
    )


@quick
@given(count_lists, st.floats(0, 1.5))
def test_noise_is_a_distribution_in_the_order_of_the_counts(counts, exponent):
    p = noise_distribution(counts, exponent)
    assert math.isclose(p.sum(), 1) and (p > 0).all()
    order = np.argsort(counts, kind="stable")
    assert (np.diff(p[order]) >= -1e-15).all()


@quick
@given(count_lists, st.integers(0, 2**31))
def test_draws_are_ids_of_the_vocabulary(counts, seed):
    draws = NoiseSampler(noise_distribution(counts), seed).draw(50, 4)
    assert draws.shape == (50, 4) and 0 <= int(draws.min()) <= int(draws.max()) < len(counts)


@quick
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**31))
def test_a_row_of_the_masked_loss_is_the_mean_over_its_kept_entries(rows, columns, seed):
    random = np.random.default_rng(seed)
    scores, labels = random.normal(0, 4, (rows, columns)), random.integers(0, 2, (rows, columns))
    mask = random.integers(0, 2, (rows, columns))
    mask[np.arange(rows), random.integers(columns, size=rows)] = 1
    p = 1 / (1 + np.exp(-scores))
    prices = -np.log(np.where(labels, p, 1 - p))
    expected = [price[kept].mean() for price, kept in zip(prices, mask.astype(bool), strict=True)]
    ours = masked_binary_cross_entropy(*map(torch.as_tensor, (scores, labels, mask)))
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
