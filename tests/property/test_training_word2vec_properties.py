"""The fast trainer sees every pair that it should, descends on the loss it states, and learns in all four ways."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare
from torch.nn import functional as F

from lrm_utils import check
from lrm_utils.models.approximate_training import hierarchical_loss, huffman, negative_sampling_loss
from lrm_utils.models.skip_gram_and_cbow import surroundings
from lrm_utils.models.training_word2vec import (
    PLANS,
    HierarchicalSoftmax,
    NegativeSampling,
    band,
    blocks,
    descend,
    flatten,
    keep_probability,
    load_word2vec,
    logistic_gradients,
    logistic_loss,
    save_word2vec,
    step,
    train,
)
from lrm_utils.text import Vocab, WordVectors

documents = st.lists(st.lists(st.integers(0, 8), max_size=12), min_size=1, max_size=6).filter(
    lambda ds: max(map(len, ds)) > 1
)


class Dice:
    """A generator whose reaches are given."""

    def __init__(self, reach):
        self.reach = reach

    def integers(self, low, high, size):
        assert ((low <= self.reach) & (self.reach < high)).all() and len(self.reach) == size
        return self.reach


@given(documents, st.integers(1, 5), st.integers(1, 9), st.randoms(use_true_random=False))
def test_the_bands_hold_the_pairs_that_a_plain_loop_finds(documents, window, L, random):
    lengths = [len(d) for d in documents]
    reach = np.array([random.randint(1, window) for _ in range(sum(lengths))])
    expected, place = [], 0
    for document in documents:
        for i, center in enumerate(document):
            for j, context in enumerate(document):
                if i != j and abs(i - j) <= reach[place + i]:
                    expected.append((center, context))
        place += len(document)
    ids, left, right = blocks(*flatten(documents, 9), window, L, Dice(reach))
    block, center, place = band(left, right, window).nonzero(as_tuple=True)
    found = zip(ids[block, center + window].tolist(), ids[block, place].tolist(), strict=True)
    assert sorted(found) == sorted(expected)


def test_bands_and_surroundings_hold_equally_many_pairs_when_reaches_are_drawn():
    """Two generators, the same law: over a long text the shares of pairs at each distance agree."""
    text = [np.arange(40) % 9 for _ in range(500)]
    mask = surroundings(text, 4, np.random.default_rng(0))[2]
    ids, left, right = blocks(*flatten(text, 9), 4, 16, np.random.default_rng(1))
    near = band(left, right, 4)
    by_distance = [near[:, torch.arange(16), torch.arange(16) + 4 + d].sum() for d in (-4, -3, -2, -1, 1, 2, 3, 4)]
    assert np.array(by_distance) == pytest.approx(mask.sum(0), rel=0.03)


def test_each_reach_is_drawn_equally_often():
    ids, left, right = blocks(*flatten([np.zeros(60_000, dtype=int)], 1), 5, 32, np.random.default_rng(0))
    inner = left.flatten()[100:59_000].numpy()
    assert chisquare(np.bincount(inner, minlength=6)[1:]).pvalue > 0.001


def test_subsampling_keeps_what_the_formula_says():
    counts = np.array([900_000, 90_000, 9_000, 990, 10])
    f, t = counts / counts.sum(), 1e-3
    keep = keep_probability(counts, t)
    assert keep == pytest.approx([min(1, (t / x) ** 0.5 + t / x) for x in f])
    stayed = np.random.default_rng(0).random(counts[0]) < keep[0]
    assert binomtest(int(stayed.sum()), int(counts[0]), (t / f[0]) ** 0.5 + t / f[0]).pvalue > 0.001
    assert keep_probability(counts, None).tolist() == [1, 1, 1, 1, 1]


def test_a_training_run_thins_the_text_anew_in_every_epoch(monkeypatch):
    import lrm_utils.models.training_word2vec as module

    seen = []
    plain = module.blocks
    monkeypatch.setattr(module, "blocks", lambda tokens, *rest: seen.append(tokens.copy()) or plain(tokens, *rest))
    text, vocab = repeated(np.random.default_rng(0))
    module.train(text, vocab, D=4, epochs=2, sample=0.01)
    counts, N = vocab.counts, vocab.counts.sum()
    kept = keep_probability(counts, 0.01) @ counts
    assert all(abs(len(tokens) - kept) < 5 * np.sqrt(N) for tokens in seen) and kept < 0.8 * N
    assert not np.array_equal(*(tokens[:100] for tokens in seen))


def test_blocks_are_read_in_the_order_of_the_text(monkeypatch):
    """Shuffled blocks cost 0.03 on SimLex-999, and would no longer be what gensim is compared with."""
    import lrm_utils.models.training_word2vec as module

    seen = []
    monkeypatch.setattr(module, "step", lambda V, U, around, *rest, **options: seen.append(around[:, 5:-5].flatten()))
    text = [np.arange(start, start + 50) for start in range(0, 1000, 50)]
    vocab = Vocab(tuple(map(str, range(1000))), np.ones(1000, dtype=int))
    module.train(text, vocab, sample=None, epochs=2, batch=64)
    epoch = torch.cat(seen[: len(seen) // 2])[:1000]
    check.close(epoch, np.arange(1000), tolerance=0)


def steps_of(monkeypatch, **options):
    """What the trainer hands to its steps: V, the objective, and the rate of each."""
    import lrm_utils.models.training_word2vec as module

    seen = []

    def record(V, U, around, near, architecture, objective, rate, watch):
        seen.append((V.clone(), objective, rate))

    monkeypatch.setattr(module, "step", record)
    text, vocab = repeated(np.random.default_rng(0))
    module.train(text, vocab, D=4, sample=None, batch=64, **options)
    return seen


def test_the_rate_falls_along_one_line_to_zero_over_all_epochs(monkeypatch):
    rates = np.array([rate for _, _, rate in steps_of(monkeypatch, epochs=3, lr=0.3)])
    check.close(rates, 0.3 * (1 - np.arange(len(rates)) / len(rates)), tolerance=1e-9)


def test_the_seed_decides_the_start_and_the_noise_and_the_exponent_reaches_it(monkeypatch):
    (V, goal, _), *_ = steps_of(monkeypatch, epochs=1, seed=3, exponent=0.5)
    (W, other, _), *_ = steps_of(monkeypatch, epochs=1, seed=4, exponent=1.0)
    assert not torch.equal(V, W)
    assert [g.sampler.generator.initial_seed() for g in (goal, other)] == [3, 4]
    vocab = repeated(np.random.default_rng(0))[1]
    for objective, exponent in ((goal, 0.5), (other, 1.0)):
        weights = vocab.counts**exponent
        check.close(objective.sampler.cumulated, np.cumsum(weights) / weights.sum(), tolerance=1e-9)


def some_blocks(seed=0, window=2, L=6):
    random = np.random.default_rng(seed)
    text = [random.integers(0, 9, 11) for _ in range(4)]
    ids, left, right = blocks(*flatten(text, 9), window, L, random)
    return ids, band(left, right, window)


COUNTS = np.array([40, 30, 20, 10, 9, 8, 7, 6, 5])


class Double:
    """An objective whose answers are in double precision, with the noise drawn once."""

    def __init__(self, objective):
        self.objective, self.rows = objective, objective.rows
        self.drawn = None

    def judge(self, centers, pairs):
        rows, weight, positive = self.drawn or self.objective.judge(centers, pairs)
        self.drawn = self.drawn or (rows, weight, positive)
        return rows, weight.double(), positive.double()


@pytest.mark.parametrize("architecture,objective", PLANS, ids=str)
def test_one_step_is_the_gradient_of_the_stated_loss(architecture, objective):
    """The loss written out pair by pair with the functions of the notebooks before; autograd in double precision."""
    around, near = some_blocks()
    near = near.double()
    goal = NegativeSampling(COUNTS, 3, shared=4) if objective == "negative sampling" else HierarchicalSoftmax(COUNTS)
    goal, generator = Double(goal), torch.Generator().manual_seed(0)
    V = torch.randn(9, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    U = torch.randn(goal.rows, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    new_V, new_U = V.detach().clone(), U.detach().clone()
    watched = step(new_V, new_U, around, near, architecture, goal, 1e-3, watch=True)
    rows = goal.drawn[0]

    losses = []
    for b, l in np.ndindex(*near.shape[:2]):
        places, center = near[b, l].nonzero()[:, 0], around[b, l + 2]
        inputs = V[around[b, places]]
        if not len(places):
            continue
        if architecture == "cbow":
            inputs = inputs.mean(0, keepdim=True)
        for x in inputs:
            if objective == "negative sampling":
                noise = U[rows[b, near.shape[1] :]]  # the block's shared words, weighed to 3 a prediction
                losses.append(F.softplus(-x @ U[center]) + 3 / 4 * F.softplus(noise @ x).sum())
            else:
                losses.append(hierarchical_loss(x[None], U, huffman(COUNTS), center[None]))
    total = torch.stack(losses).sum()
    dV, dU = torch.autograd.grad(total, (V, U))
    torch.testing.assert_close(new_V, V.detach() - 1e-3 * dV, rtol=0, atol=1e-9)
    torch.testing.assert_close(new_U, U.detach() - 1e-3 * dU, rtol=0, atol=1e-9)
    assert watched == pytest.approx(total.item() / len(losses), rel=1e-6)


def test_negative_sampling_with_noise_of_its_own_is_the_loss_of_the_last_notebook():
    V, U = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0)).double()
    noise = torch.tensor([[1, 5, 7]])
    weight, positive = torch.ones(1, 4, 1).double(), torch.tensor([[[1.0], [0], [0], [0]]]).double()
    rows = torch.cat([torch.tensor([[3]]), noise], 1)
    ours = logistic_loss(V[[2]][None], U[rows], weight, positive)
    assert float(ours) == pytest.approx(float(negative_sampling_loss(V, U, [2], [3], noise)))


def test_the_hand_gradient_is_the_automatic_one():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 4, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randn(3, 5, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(3, 5, 4, generator=generator, dtype=torch.float64)
    dx, dy = logistic_gradients(x.detach(), y.detach(), weight, weight / 3)
    check.gradient(lambda: logistic_loss(x, y, weight, weight / 3), {"x": x, "y": y}, {"x": dx, "y": dy})


def test_shared_noise_weighs_k_for_each_prediction_and_is_distributed_as_stated():
    goal = NegativeSampling(COUNTS, 5, shared=64, exponent=0.5)
    around, near = some_blocks()
    rows, weight, positive = goal.judge(around[:, 2:-2], near)
    assert torch.equal(positive[:, :6], near) and not positive[:, 6:].any()
    torch.testing.assert_close(weight[:, 6:].sum(1), 5 * near.sum(1))
    drawn = torch.cat([goal.judge(around[:, 2:-2], near)[0][:, 6:].flatten() for _ in range(100)])
    expected = COUNTS**0.5 / (COUNTS**0.5).sum() * len(drawn)
    assert chisquare(torch.bincount(drawn, minlength=9).numpy(), expected).pvalue > 0.001


def test_rows_that_come_up_often_are_damped_and_others_are_not():
    table = torch.zeros(3, 2)
    ids = torch.tensor([[0] * 10 + [1]])
    descend(table, ids, torch.ones(1, 11, 2), torch.full((1, 11), 100.0), rate=0.1, most=50)
    assert table[0].tolist() == pytest.approx([-10 * 50 / 1000] * 2)  # judged 1,000 times: at 50 / 1,000
    assert table[1].tolist() == pytest.approx([-0.1] * 2)
    assert table[2].tolist() == [0, 0]


def repeated(random, groups=4, size=5, lines=300):
    """A toy language: a line uses the words of one group, so words of a group are alike."""
    text = [random.integers(0, size, 12) + size * random.integers(groups) for _ in range(lines)]
    counts = np.bincount(np.concatenate(text), minlength=groups * size)
    return text, Vocab(tuple(map(str, range(groups * size))), counts)


def learns(architecture, objective):
    text, vocab = repeated(np.random.default_rng(0))
    model = train(text, vocab, D=16, epochs=12, architecture=architecture, objective=objective, sample=None, batch=64)
    check.learns(model.losses)
    unit = model.vectors.unit
    inside = np.kron(np.eye(4), np.ones((5, 5))) - np.eye(20) > 0
    cosines = unit @ unit.T
    assert cosines[inside].mean() > cosines[~inside & ~np.eye(20, dtype=bool)].mean() + 0.4


def test_skip_gram_with_negative_sampling_beats_its_untrained_loss():
    learns("skip-gram", "negative sampling")


def test_cbow_with_negative_sampling_beats_its_untrained_loss():
    learns("cbow", "negative sampling")


def test_skip_gram_with_hierarchical_softmax_beats_its_untrained_loss():
    learns("skip-gram", "hierarchical softmax")


def test_cbow_with_hierarchical_softmax_beats_its_untrained_loss():
    learns("cbow", "hierarchical softmax")


@pytest.mark.parametrize("architecture,objective", PLANS, ids=str)
def test_a_large_batch_of_few_words_does_not_diverge(architecture, objective):
    """Twenty words in batches of a thousand: without damping, every row would take hundreds of steps at once."""
    text, vocab = repeated(np.random.default_rng(0))
    model = train(text, vocab, D=8, epochs=40, architecture=architecture, objective=objective, sample=None, batch=4096)
    assert model.losses[-1] < model.losses[0] and model.V.abs().max() < 20


words = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6).filter(
    lambda w: w.split() == [w]
)


@given(st.lists(words, min_size=1, max_size=5, unique=True), st.integers(1, 4), st.booleans(), st.data())
def test_files_keep_every_word_and_every_bit(tmp_path_factory, words, D, binary, data):
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    matrix = np.array([[data.draw(numbers) for _ in range(D)] for _ in words], dtype=np.float32)
    path = tmp_path_factory.mktemp("files") / "vectors"
    save_word2vec(WordVectors(Vocab(tuple(words), np.ones(len(words))), matrix), path, binary)
    back = load_word2vec(path, binary)
    assert back.vocab.words == tuple(words)
    assert np.array_equal(back.matrix, matrix)
