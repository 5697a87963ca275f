"""Skip-gram and CBOW: numbers worked out by hand, gradients against autograd, and a clear error for each bad input."""

import numpy as np
import pytest
import torch

from lrm_utils import check
from lrm_utils.models.cooccurrence import co_occurrence
from lrm_utils.models.skip_gram_and_cbow import (
    average,
    bags,
    cbow_gradients,
    cbow_loss,
    cross_entropy,
    cross_entropy_gradients,
    known,
    skip_gram_gradients,
    skip_gram_loss,
    surroundings,
)
from lrm_utils.text import Vocab

log = np.log
MODELS = [(skip_gram_loss, skip_gram_gradients), (cbow_loss, cbow_gradients)]
both = pytest.mark.parametrize(("loss", "gradients"), MODELS, ids=["skip-gram", "cbow"])


@pytest.fixture
def sentence():
    """The man loves his son, with the vectors of the page: every exponential is a whole number."""
    U = torch.tensor([[log(2), 0], [log(4), log(2)], [0, log(5)], [log(2), 0], [0, 0]])
    V = torch.tensor([[1, 0], [-1, 2], [1, 0], [1, 2], [-1, 0]], dtype=torch.float64)
    batch = torch.tensor([2]), torch.tensor([[0, 1, 3, 4]]), torch.ones(1, 4, dtype=torch.bool)
    return V, U, *batch


@pytest.fixture
def mean_batch():
    """Words that repeat as centers and contexts, a word beside itself, masked places whose ids must not count."""
    generator = torch.Generator().manual_seed(3)
    V, U = (torch.randn(6, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in "VU")
    contexts = torch.tensor([[1, 1, 4, 5], [3, 0, 2, 2], [5, 5, 5, 5], [0, 4, 1, 3]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    return V, U, torch.tensor([0, 3, 3, 2]), contexts, mask


def test_the_sentence_of_the_page_has_the_probabilities_worked_out_by_hand(sentence):
    assert skip_gram_loss(*sentence).item() == pytest.approx(-log(0.2 * 0.4 * 0.2 * 0.1) / 4)
    assert cbow_loss(*sentence).item() == pytest.approx(-log(0.5))


def test_the_step_of_the_first_exercise_is_the_one_in_its_solution(sentence):
    V, U, *batch = sentence
    dV, _ = skip_gram_gradients(V, U, *batch)
    check.close(4 * dV[2], [0.8 * log(2), 0.6 * log(2) + 0.4 * log(5)])
    stepped = V.clone()
    stepped[2] -= 0.5 * 4 * dV[2]
    assert torch.exp(-4 * skip_gram_loss(stepped, U, *batch)).item() == pytest.approx(0.0027, abs=5e-5)


@both
def test_gradients_by_hand_are_those_of_autograd(loss, gradients, mean_batch):
    V, U, *batch = mean_batch
    by_hand = dict(zip("VU", gradients(V, U, *batch), strict=True))
    check.gradient(lambda: loss(V, U, *batch), {"V": V, "U": U}, by_hand, tolerance=1e-10)


@both
def test_gradients_leave_their_inputs_alone(loss, gradients, mean_batch):
    before = [x.clone() for x in mean_batch]
    gradients(*mean_batch)
    loss(*mean_batch)
    assert all(torch.equal(a, b) for a, b in zip(before, mean_batch, strict=True))


@both
def test_what_stands_in_masked_places_does_not_matter(loss, gradients, mean_batch):
    V, U, centers, contexts, mask = mean_batch
    other = torch.where(mask, contexts, (contexts + 1) % 6)
    assert loss(V, U, centers, other, mask).item() == loss(*mean_batch).item()
    for one, two in zip(gradients(V, U, centers, other, mask), gradients(*mean_batch), strict=True):
        assert torch.equal(one, two)


@both
def test_large_scores_do_not_overflow(loss, gradients, mean_batch):
    V, U, *batch = mean_batch
    V, U = (1e4 * table.detach().float() for table in (V, U))
    assert loss(V, U, *batch).isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(V, U, *batch))


def test_a_context_that_stands_twice_in_a_window_counts_twice():
    V, U = torch.randn(2, 4, 3, dtype=torch.float64)
    one = torch.tensor([0]), torch.tensor([[1, 1, 2]]), torch.ones(1, 3, dtype=torch.bool)
    H, share = average(V, *one[1:])
    check.close(H[0], (2 * V[1] + V[2]) / 3)
    check.close(share, torch.full((1, 3), 1 / 3))
    assert bags(*one[1:], U).tolist() == [[0, 2, 1, 0]]


def test_pairs_and_centers_with_one_context_are_the_same():
    """Contexts may be given as (B,): pairs, and then no mask is needed."""
    V, U = torch.randn(2, 5, 3, dtype=torch.float64)
    centers, contexts = torch.tensor([0, 1, 4]), torch.tensor([2, 2, 0])
    assert skip_gram_loss(V, U, centers, contexts) == skip_gram_loss(
        V, U, centers, contexts[:, None], torch.ones(3, 1, dtype=torch.bool)
    )
    for one, two in zip(
        skip_gram_gradients(V, U, centers, contexts),
        skip_gram_gradients(V, U, centers, contexts[:, None], torch.ones(3, 1, dtype=torch.bool)),
        strict=True,
    ):
        assert torch.equal(one, two)


def test_a_mean_over_pairs_weighs_every_pair_alike():
    """A center with three contexts weighs three times as much as one with a single context."""
    V, U = torch.randn(2, 5, 3, dtype=torch.float64)
    centers, contexts = torch.tensor([0, 1]), torch.tensor([[2, 3, 4], [3, 0, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]], dtype=torch.bool)
    pairs = torch.tensor([0, 0, 0, 1]), torch.tensor([2, 3, 4, 3])
    check.close(skip_gram_loss(V, U, centers, contexts, mask), skip_gram_loss(V, U, *pairs))


def test_the_loss_over_a_text_is_the_loss_over_its_table():
    ids = [np.random.default_rng(0).integers(0, 8, 60)]
    V, U = torch.randn(2, 8, 3, dtype=torch.float64)
    X = torch.tensor(co_occurrence(ids, 8, 3).toarray())
    batch = [torch.as_tensor(x) for x in surroundings(ids, 3)]
    check.close(skip_gram_loss(V, U, *batch), cross_entropy(V, U, X))
    for one, two in zip(skip_gram_gradients(V, U, *batch), cross_entropy_gradients(V, U, X), strict=True):
        check.close(one, two)


def test_no_vectors_beat_the_conditional_entropy_and_the_counted_ones_reach_it():
    """With log counts as scores the model is the table: the loss is the conditional entropy, the gradient 0."""
    ids = [np.random.default_rng(1).integers(0, 5, 400)]
    X = co_occurrence(ids, 5, 2).toarray()
    counted = X / X.sum(1, keepdims=True)
    entropy = -(X * np.log(counted)).sum() / X.sum()
    V, U, X = torch.tensor(np.log(X)), torch.eye(5, dtype=torch.float64), torch.tensor(X)
    check.close(cross_entropy(V, U, X), entropy)
    for gradient in cross_entropy_gradients(V, U, X):
        check.close(gradient, torch.zeros(5, 5), 1e-12)
    for seed in range(20):
        other = torch.randn(5, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert cross_entropy(V + 0.1 * other, U, X) > entropy


@both
def test_a_vocabulary_of_one_word_is_certain(loss, gradients):
    V, U = torch.randn(2, 1, 3)
    batch = torch.tensor([0, 0]), torch.zeros(2, 2, dtype=torch.int64), torch.ones(2, 2, dtype=torch.bool)
    assert loss(V, U, *batch).item() == 0
    assert all((gradient == 0).all() for gradient in gradients(V, U, *batch))


@both
@pytest.mark.parametrize("wrong", [-1, 6, 10**6])
def test_an_id_outside_the_table_is_named(loss, gradients, mean_batch, wrong):
    V, U, centers, contexts, mask = mean_batch
    for bad in ((torch.full_like(centers, wrong), contexts), (centers, torch.full_like(contexts, wrong))):
        for function in (loss, gradients):
            with pytest.raises(ValueError, match=rf"{wrong} .*do not fit a table of 6 words, 0 to 5"):
                function(V, U, *bad, mask)


@both
def test_an_empty_batch_is_an_error(loss, gradients, mean_batch):
    V, U, centers, contexts, mask = mean_batch
    for function in (loss, gradients):
        with pytest.raises(ValueError, match="the batch is empty|each center needs a context"):
            function(V, U, centers[:0], contexts[:0].reshape(0, 4), mask[:0])


def test_a_center_without_contexts_is_an_error_to_cbow(mean_batch):
    V, U, centers, contexts, mask = mean_batch
    mask = mask.clone()
    mask[1] = False
    for function in (cbow_loss, cbow_gradients):
        with pytest.raises(ValueError, match="each center needs a context"):
            function(V, U, centers, contexts, mask)


def test_masks_of_another_shape_are_errors(mean_batch):
    V, U, centers, contexts, mask = mean_batch
    with pytest.raises(ValueError, match=r"mask of torch.bool \(4, 3\) does not fit ids \(4, 4\)"):
        skip_gram_loss(V, U, centers, contexts, mask[:, :3])
    with pytest.raises(ValueError, match=r"mask of torch.bool \(4, 3\) does not fit ids \(4, 4\)"):
        cbow_loss(V, U, centers, contexts, mask[:, :3])


@both
@pytest.mark.parametrize("weights", [[2, -1], [1.0, 0.5], [1, 0]])
def test_a_mask_is_true_or_false_and_no_weight(loss, gradients, weights):
    V, U = torch.randn(2, 5, 3)
    for function in (loss, gradients):
        with pytest.raises(ValueError, match="must be True or False for each of them"):
            function(V, U, torch.tensor([0]), torch.tensor([[1, 2]]), torch.tensor([weights]))


@both
def test_what_surroundings_returns_can_be_passed_on_as_it_is(loss, gradients):
    V, U = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(0))
    arrays = surroundings([np.array([0, 3, 1, 5, 3])], 2)
    tensors = [torch.as_tensor(x) for x in arrays]
    assert loss(V, U, *arrays) == loss(V, U, *tensors)
    for one, two in zip(gradients(V, U, *arrays), gradients(V, U, *tensors), strict=True):
        assert torch.equal(one, two)


@both
def test_contexts_of_another_number_of_centers_are_an_error(loss, gradients, mean_batch):
    """Without the check, a single row of contexts would be handed to every center."""
    V, U, centers, contexts, mask = mean_batch
    for bad in ((centers, contexts[:1], mask[:1]), (centers[:1], contexts, mask)):
        for function in (loss, gradients):
            with pytest.raises(ValueError, match=r"\d inputs need as many rows of answers, not \d"):
                function(V, U, *bad)


def test_a_batch_that_is_masked_everywhere_is_an_error(mean_batch):
    V, U, centers, contexts, mask = mean_batch
    for function in (skip_gram_loss, skip_gram_gradients):
        with pytest.raises(ValueError, match="every place is masked"):
            function(V, U, centers, contexts, torch.zeros_like(mask))


def test_known_returns_the_ids():
    ids = torch.tensor([[0, 4], [2, 2]])
    assert known(ids, 5) is ids


@pytest.mark.parametrize("window", [0, -3])
def test_a_window_below_one_is_an_error(window):
    with pytest.raises(ValueError, match=f"a window of {window} holds no neighbor; it must be at least 1"):
        surroundings([np.arange(3)], window)


@pytest.mark.parametrize("documents", [[], [[]], [np.array([], dtype=int)] * 2])
def test_an_empty_corpus_is_an_error(documents):
    with pytest.raises(ValueError, match="the corpus is empty"):
        surroundings(documents, 2)


@pytest.mark.parametrize("document", [[0, -1, 2], [0.5, 1.0], [0.0, 1.0]])
def test_ids_must_be_whole_numbers_from_zero(document):
    with pytest.raises(ValueError, match="whole numbers from 0 on"):
        surroundings([np.array(document)], 2)


def test_empty_documents_and_single_words_leave_nothing_behind():
    empty = np.array([], dtype=int)
    found = surroundings([empty, np.array([7]), np.array([1, 2]), empty], 2)
    assert [x.tolist() for x in found] == [
        [1, 2],
        [[0, 0, 2, 0], [0, 1, 0, 0]],
        [[False, False, True, False], [False, True, False, False]],
    ]
    centers, contexts, mask = surroundings([np.array([7]), np.array([3])], 2)
    assert centers.shape == (0,) and contexts.shape == mask.shape == (0, 4)


def test_documents_may_come_one_by_one_and_as_lists():
    """A generator is read once, and an empty list, which NumPy takes for floats, is an empty document."""
    expected = [x.tolist() for x in surroundings([np.arange(3), np.array([4, 0])], 2)]
    assert expected[0] == [0, 1, 2, 4, 0]
    for documents in ((d for d in ([0, 1, 2], [4, 0])), [[0, 1, 2], [], [4, 0]]):
        assert [x.tolist() for x in surroundings(documents, 2)] == expected


def test_a_window_longer_than_the_document_just_sees_all_of_it():
    centers, contexts, mask = surroundings([np.arange(1, 4)], 10)
    assert centers.tolist() == [1, 2, 3]
    assert [row[real].tolist() for row, real in zip(contexts, mask, strict=True)] == [[2, 3], [1, 3], [1, 2]]
    assert contexts.shape == (3, 20)


def test_types_are_those_promised():
    centers, contexts, mask = surroundings([np.arange(4, dtype=np.int32)], 2)
    assert (centers.dtype, contexts.dtype, mask.dtype) == (np.int64, np.int64, np.bool_)


def test_an_unseen_word_never_becomes_an_id():
    with pytest.raises(ValueError, match="'sons' is not in the vocabulary .*the nearest spellings are son"):
        Vocab.build("the man loves his son".split()).encode(["sons"])
