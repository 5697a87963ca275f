"""Negative sampling, the noise, and the Huffman tree: known values, and errors that say what to do."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F

from lrm_utils import check
from lrm_utils.models.approximate_training import (
    HuffmanTree,
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

COUNTS = [500, 200, 90, 40, 20, 9, 3, 1]
SCORES = torch.tensor([[1.1, -2.2, 3.3, -4.4]] * 2)
LABELS = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])


@pytest.fixture
def tables():
    random = torch.Generator().manual_seed(0)
    return [torch.randn(8, 5, dtype=torch.float64, generator=random).requires_grad_() for _ in "VU"]


@pytest.fixture
def pairs():
    """Centers and contexts that repeat, and noise that hits a true context and draws a word twice."""
    return torch.tensor([0, 3, 3, 7]), torch.tensor([1, 1, 5, 0]), torch.tensor([[1, 4], [2, 2], [6, 0], [7, 5]])


def test_masked_cross_entropy_of_the_textbook_example():
    np.testing.assert_allclose(masked_binary_cross_entropy(SCORES, LABELS, MASK), [0.9352, 1.8462], atol=5e-5)


def test_masked_entries_have_no_influence():
    changed = torch.where(MASK.bool(), SCORES, 99.0)
    other = torch.where(MASK.bool(), LABELS, 1 - LABELS)
    before = masked_binary_cross_entropy(SCORES, LABELS, MASK)
    torch.testing.assert_close(masked_binary_cross_entropy(changed, other, MASK), before)


def test_masked_cross_entropy_of_extreme_scores_is_finite():
    scores = torch.tensor([[500.0, -500.0]])
    torch.testing.assert_close(
        masked_binary_cross_entropy(scores, torch.tensor([[0, 1]]), torch.ones(1, 2)), torch.tensor([500.0])
    )


def test_a_row_that_is_masked_everywhere_is_refused():
    with pytest.raises(ValueError, match="row 1 is masked everywhere"):
        masked_binary_cross_entropy(SCORES, LABELS, torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0]]))


def test_tables_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        masked_binary_cross_entropy(SCORES, LABELS[:1], MASK)


@pytest.mark.parametrize("wrong", [0.5, 2, -1, float("nan")])
def test_a_mask_that_is_neither_0_nor_1_is_refused(wrong):
    mask = MASK.float()
    mask[0, 1] = wrong
    with pytest.raises(ValueError, match="a mask holds 1 where an entry counts and 0 where not"):
        masked_binary_cross_entropy(SCORES, LABELS, mask)


def test_negative_sampling_loss_is_binary_cross_entropy_with_logits(tables, pairs):
    V, U = tables
    centers, contexts, noise = pairs
    words = torch.cat([contexts[:, None], noise], 1)
    scores = (V[centers][:, None] * U[words]).sum(-1)
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1
    expected = F.binary_cross_entropy_with_logits(scores, labels, reduction="none").sum(1).mean()
    torch.testing.assert_close(negative_sampling_loss(V, U, centers, contexts, noise), expected)


def test_untrained_negative_sampling_costs_a_coin_toss_a_question(pairs):
    zeros = torch.zeros(8, 5)
    assert negative_sampling_loss(zeros, zeros, *pairs).item() == pytest.approx(3 * math.log(2))


def test_negative_sampling_takes_numpy_ids(tables, pairs):
    ours = negative_sampling_loss(*tables, *(ids.numpy() for ids in pairs))
    torch.testing.assert_close(ours, negative_sampling_loss(*tables, *pairs))


def test_gradients_of_negative_sampling_are_those_of_autograd(tables, pairs):
    V, U = tables
    centers, contexts, noise = pairs
    dv, du = negative_sampling_gradients(V.detach(), U.detach(), *pairs)
    words = torch.cat([contexts[:, None], noise], 1)
    by_hand = {"V": spread(dv, centers, len(V)), "U": spread(du, words, len(U))}
    check.gradient(lambda: negative_sampling_loss(V, U, *pairs), {"V": V, "U": U}, by_hand)


def test_spread_adds_repeated_rows_and_leaves_the_others_zero():
    rows = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]])
    table = spread(rows, torch.tensor([[0, 2], [2, 2]]), 4)
    torch.testing.assert_close(table, torch.tensor([[1.0, 2.0], [0, 0], [15.0, 18.0], [0, 0]]))


def test_no_noise_words_is_an_error_that_names_the_infinite_optimum(tables, pairs):
    centers, contexts, noise = pairs
    for function in (negative_sampling_loss, negative_sampling_gradients):
        with pytest.raises(ValueError, match="infinitely long"):
            function(*tables, centers, contexts, noise[:, :0])


@pytest.mark.parametrize(("which", "what"), [(0, "centers"), (1, "contexts and noise"), (2, "contexts and noise")])
@pytest.mark.parametrize("wrong", [8, -1])
def test_ids_outside_the_tables_are_refused(tables, pairs, which, what, wrong):
    pairs = [ids.clone() for ids in pairs]
    pairs[which].view(-1)[0] = wrong
    with pytest.raises(ValueError, match=f"{what}.*ids from .* rows 0 to 7"):
        negative_sampling_loss(*tables, *pairs)


@pytest.mark.parametrize("which", range(3))
def test_centers_contexts_and_noise_of_unequal_lengths_are_refused(tables, pairs, which):
    """A single center beside many contexts would be broadcast without a word."""
    for length in (1, 2):
        given = [part[:length] if i == which else part for i, part in enumerate(pairs)]
        with pytest.raises(ValueError, match="must agree: one row for each true pair"):
            negative_sampling_loss(*tables, *given)


def test_an_empty_batch_is_refused(tables):
    none = torch.zeros(0, dtype=torch.long)
    with pytest.raises(ValueError, match="the batch is empty"):
        negative_sampling_loss(*tables, none, none, none.reshape(0, 2))


def test_noise_of_exponent_one_is_the_frequency_and_of_zero_is_uniform():
    np.testing.assert_allclose(noise_distribution(COUNTS, 1.0), np.array(COUNTS) / sum(COUNTS))
    np.testing.assert_allclose(noise_distribution(COUNTS, 0.0), np.full(8, 1 / 8))


def test_noise_is_the_count_to_the_three_quarters():
    np.testing.assert_allclose(noise_distribution([16, 1]), [8 / 9, 1 / 9])


@pytest.mark.parametrize("scale", [1e-20, 1e19])
def test_noise_does_not_depend_on_the_unit_of_the_counts(scale):
    np.testing.assert_allclose(noise_distribution(np.array(COUNTS) * scale), noise_distribution(COUNTS))


@pytest.mark.parametrize("wrong", [0, -2, float("nan"), float("inf")])
def test_counts_that_are_not_positive_are_refused(wrong):
    with pytest.raises(ValueError, match="word 1 has a count of"):
        noise_distribution([3, wrong, 5])
    with pytest.raises(ValueError, match="every count must be above 0"):
        huffman([3, wrong, 5])


@pytest.mark.parametrize("counts", [[7], [], [[1, 2], [3, 4]]])
def test_a_vocabulary_of_one_word_or_none_is_refused(counts):
    with pytest.raises(ValueError, match="two words or more"):
        noise_distribution(counts)
    with pytest.raises(ValueError, match="two words or more"):
        huffman(counts)


def test_draws_pass_a_chi_square_test():
    p = noise_distribution(COUNTS)
    draws = np.bincount(NoiseSampler(p, seed=0).draw(200_000), minlength=8)
    assert stats.chisquare(draws, 200_000 * p).pvalue > 0.001


@pytest.mark.parametrize("exponent", [0.7, 0.8, 1.0])
def test_draws_with_a_wrong_exponent_fail_the_chi_square_test(exponent):
    draws = np.bincount(NoiseSampler(noise_distribution(COUNTS, exponent), seed=0).draw(200_000), minlength=8)
    assert stats.chisquare(draws, 200_000 * noise_distribution(COUNTS)).pvalue < 1e-6


def test_draws_repeat_with_the_seed_and_go_on():
    p = noise_distribution(COUNTS)
    one, same, other = NoiseSampler(p, 5), NoiseSampler(p, 5), NoiseSampler(p, 6)
    first = one.draw(4, 25)
    assert first.shape == (4, 25) and first.dtype == torch.int64
    torch.testing.assert_close(same.draw(4, 25), first)
    assert not torch.equal(one.draw(4, 25), first)
    assert not torch.equal(other.draw(4, 25), first)


def test_a_word_without_probability_is_never_drawn():
    draws = NoiseSampler([0, 0.5, 0, 0.5, 0], seed=0).draw(10_000)
    assert set(draws.tolist()) == {1, 3}


def test_the_ends_of_the_line_belong_to_words(monkeypatch):
    """The largest number below 1 that can be drawn still hits the last word, and 0 the first."""
    sampler = NoiseSampler(np.full(10, 0.1), seed=0)
    for dart, word in ((0.0, 0), (1 - 2**-53, 9)):
        monkeypatch.setattr(torch, "rand", lambda shape, dart=dart, **_: torch.full(shape, dart, dtype=torch.float64))
        assert sampler.draw(1).item() == word


def test_a_dart_on_a_border_never_hits_a_word_without_probability(monkeypatch):
    sampler = NoiseSampler([0.0, 0.5, 0.0, 0.5], seed=0)
    for dart, word in ((0.0, 1), (0.5, 3)):
        monkeypatch.setattr(torch, "rand", lambda shape, dart=dart, **_: torch.full(shape, dart, dtype=torch.float64))
        assert sampler.draw(1).item() == word


def test_darts_are_fine_enough_for_the_rarest_word(monkeypatch):
    """Single precision has 2**24 places for a dart: words rarer than that would come too often or never."""
    asked, rand = {}, torch.rand
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: asked.update(options) or rand(*shape, **options))
    NoiseSampler([0.5, 0.5], seed=0).draw(3)
    assert asked["dtype"] == torch.float64


@pytest.mark.parametrize("p", [[0.5, 0.6], [1.5, -0.5], [[0.5, 0.5]], [float("nan"), 1.0]])
def test_what_is_no_distribution_is_refused(p):
    with pytest.raises(ValueError, match="sums to 1"):
        NoiseSampler(p)


def test_a_small_tree_by_hand():
    """8, 4, 2, 1, 1: the rarest hang lowest, and their lengths are their surprise in bits."""
    tree = huffman([8, 4, 2, 1, 1])
    assert tree.lengths.tolist() == [1, 2, 3, 4, 4]
    assert tree.nodes.tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert tree.turns.abs().sum(1).tolist() == [1, 2, 3, 4, 4]
    assert tree.turns[3, :3].tolist() == tree.turns[4, :3].tolist() and tree.turns[3, 3] == -tree.turns[4, 3]
    assert tree.nodes.dtype == tree.lengths.dtype == torch.int64 and tree.turns.dtype == torch.float32


def test_two_words_part_at_the_root():
    tree = huffman([3, 9])
    assert tree.nodes.tolist() == [[0], [0]] and sorted(tree.turns.flatten().tolist()) == [-1, 1]


def test_the_tree_is_frozen():
    with pytest.raises(AttributeError):
        huffman(COUNTS).nodes = None
    assert isinstance(huffman(COUNTS), HuffmanTree)


def test_path_probabilities_by_hand():
    """Three words: one turn to the first, two to the others, with scores that can be written down."""
    tree = huffman([5, 2, 1])
    v, nodes = torch.tensor([1.0, 0.0]).double(), torch.tensor([[0.7, 9.0], [-0.4, 9.0]]).double()
    p = hierarchical_log_probabilities(v, nodes, tree).exp()
    top, low = (1 / (1 + math.exp(-s)) for s in (0.7, -0.4))
    first = top if tree.turns[0, 0] > 0 else 1 - top
    second = (1 - first) * (low if tree.turns[1, 1] > 0 else 1 - low)
    np.testing.assert_allclose(p, [first, second, 1 - first - second])


def test_left_is_the_sigmoid_of_a_positive_score():
    tree = huffman([3, 9])
    p = hierarchical_log_probabilities(torch.ones(1), torch.full((1, 1), 5.0), tree).exp()
    left = int(tree.turns[:, 0].argmax())
    assert p[left].item() == pytest.approx(1 / (1 + math.exp(-5)))


def test_hierarchical_loss_is_minus_the_log_of_the_full_distribution():
    random = torch.Generator().manual_seed(1)
    v, nodes = (torch.randn(n, 5, dtype=torch.float64, generator=random) for n in (6, 7))
    tree, words = huffman(COUNTS), torch.tensor([0, 1, 7, 7, 4, 2])
    log_p = hierarchical_log_probabilities(v, nodes, tree)
    torch.testing.assert_close(hierarchical_loss(v, nodes, tree, words), -log_p[torch.arange(6), words].mean())
    torch.testing.assert_close(hierarchical_loss(v, nodes, tree, words.numpy()), -log_p[range(6), words].mean())


def test_log_probabilities_keep_the_axes_of_the_input():
    tree, nodes = huffman(COUNTS), torch.randn(7, 5)
    assert hierarchical_log_probabilities(torch.randn(5), nodes, tree).shape == (8,)
    assert hierarchical_log_probabilities(torch.randn(2, 3, 5), nodes, tree).shape == (2, 3, 8)


def test_gradients_along_the_path_are_those_of_autograd():
    random = torch.Generator().manual_seed(2)
    v, nodes = (torch.randn(n, 5, dtype=torch.float64, generator=random).requires_grad_() for n in (5, 7))
    tree, words = huffman(COUNTS), torch.tensor([0, 7, 6, 7, 1])
    dv, dn = hierarchical_gradients(v.detach(), nodes.detach(), tree, words)
    by_hand = {"v": dv, "nodes": spread(dn, tree.nodes[words], len(nodes))}
    check.gradient(lambda: hierarchical_loss(v, nodes, tree, words), {"v": v, "nodes": nodes}, by_hand)


def test_nodes_off_the_path_have_no_gradient():
    tree, words = huffman(COUNTS), torch.tensor([0, 1])
    _, dn = hierarchical_gradients(torch.randn(2, 5), torch.randn(7, 5), tree, words)
    table = spread(dn, tree.nodes[words], 7)
    on_path = {n for w in words for n in tree.nodes[w, : tree.lengths[w]].tolist()}
    assert {n for n in range(7) if table[n].any()} == on_path and len(on_path) < 7


@pytest.mark.parametrize("wrong", [8, -1])
def test_words_that_are_not_on_the_tree_are_refused(wrong):
    tree, v, nodes = huffman(COUNTS), torch.randn(2, 5), torch.randn(7, 5)
    for function in (hierarchical_loss, hierarchical_gradients):
        with pytest.raises(ValueError, match="words: ids from .* rows 0 to 7"):
            function(v, nodes, tree, torch.tensor([0, wrong]))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_word_for_each_input_vector_is_asked_for(rows):
    v, nodes = torch.zeros(rows, 5), torch.zeros(len(COUNTS) - 1, 5)
    for of_the_tree in (hierarchical_loss, hierarchical_gradients):
        with pytest.raises(ValueError, match=f"{rows} input vectors need as many words, not 3"):
            of_the_tree(v, nodes, huffman(COUNTS), [0, 1, 2])


def test_the_expected_loss_has_its_minimum_at_shifted_pmi():
    """Levy & Goldberg (2014): with noise by frequency the expected gradient vanishes at s = PMI - log k."""
    X = np.array([[4.0, 9, 2], [9, 1, 7], [2, 7, 30]])
    k, V, U = 3, torch.zeros(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    pmi = np.log(X * X.sum() / np.outer(X.sum(1), X.sum(0)))
    V += torch.as_tensor(pmi - np.log(k))
    p, total = noise_distribution(X.sum(0), 1.0), torch.zeros(3, 3, dtype=torch.float64)
    for w, c in np.ndindex(3, 3):  # every true pair by its count, every noise word by its chance
        for j in range(3):
            noise = torch.full((1, k), j)  # k times the same word: its expected share of k draws
            dv, _ = negative_sampling_gradients(V, U, torch.tensor([w]), torch.tensor([c]), noise)
            total[w] += X[w, c] * p[j] * dv[0]
    np.testing.assert_allclose(total / X.sum(), 0, atol=1e-12)
