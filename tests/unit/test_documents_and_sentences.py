"""Sentences and documents: means by hand, gradients against autograd, objectives that learn, clear errors."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lrm_utils import check, evaluate
from lrm_utils.models.documents_and_sentences import (
    ParagraphVectors,
    QuickThoughts,
    SentenceEncoder,
    SkipThoughts,
    average,
    blocks,
    common_direction,
    dbow_gradients,
    descend,
    dm_gradients,
    encode_all,
    expand_vocabulary,
    held_out_presidents,
    inputs,
    paragraph_vectors,
    passages,
    quick_batches,
    sif_weights,
    skip_batches,
    small_random,
    step,
    without,
)
from lrm_utils.text import pad
from lrm_utils.train import fit

E = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])


@pytest.fixture(scope="module")
def themes():
    """Sixty documents of 40 words on three themes of ten words each, and thirty words that all of them use."""
    random = np.random.default_rng(0)
    documents = [
        np.where(random.random(40) < 0.6, 10 * (d % 3) + random.integers(0, 10, 40), random.integers(30, 60, 40))
        for d in range(60)
    ]
    return documents, np.bincount(np.concatenate(documents), minlength=60)


@pytest.fixture(scope="module")
def story():
    """Texts in which a sentence of one kind follows itself: each text has a kind, and its sentences its words."""
    random = np.random.default_rng(0)
    return [[4 + 8 * (t % 4) + random.integers(0, 8, random.integers(3, 7)) for _ in range(12)] for t in range(24)]


def start(rows=36, width=8):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(0)) / 2


# Means


def test_a_mean_is_the_mean_and_weights_count_as_often_as_the_word_occurs():
    check.close(average([[0, 1], [2]], E), [[0.5, 0.5], [2, 2]])
    check.close(average([[0, 0, 1]], E), [[2 / 3, 1 / 3]])
    check.close(average([[0, 0, 1]], E, weights=[1, 4, 0]), [[2 / 6, 4 / 6]])


def test_sif_weights_by_hand():
    check.close(sif_weights([1, 3], a=0.25), [0.5, 0.25])
    assert sif_weights([5, 0])[1] == 1


def test_what_is_taken_away_is_the_shared_direction_and_nothing_else():
    X = np.array([[3.0, 0.1], [2.0, -0.1], [4.0, 0.05]])
    direction = common_direction(X)
    check.close(np.abs(direction), np.abs(np.linalg.svd(X)[2][0]), 1e-9)
    check.close(direction @ direction, 1)
    left = without(X, direction)
    check.close(left @ direction, np.zeros(3), 1e-9)
    across = np.array([-direction[1], direction[0]])
    check.close(left @ across, X @ across)


@pytest.mark.parametrize(
    ("documents", "weights", "says"),
    [([[0], []], None, "document 1 has no word"), ([[2]], [1, 1, 0], "document 0 has no word"), ([], None, "empty")],
)
def test_a_document_without_a_word_is_refused(documents, weights, says):
    with pytest.raises(ValueError, match=says):
        average(documents, E, weights)


def test_a_word_outside_the_table_is_refused():
    with pytest.raises(ValueError, match="do not fit"):
        average([[3]], E)


@pytest.mark.parametrize(("counts", "a"), [([1, 2], 0), ([1, 2], -1), ([0, 0], 1), ([-1, 3], 1)])
def test_sif_refuses_what_is_no_frequency(counts, a):
    with pytest.raises(ValueError, match="above 0"):
        sif_weights(counts, a)


# Passages and folds


def test_passages_hold_each_sentence_once_and_join_a_short_rest():
    sentences = [[0] * n for n in (50, 60, 120, 40, 170, 30)]
    assert passages(sentences, 200) == [[0, 1, 2], [3, 4, 5]]
    assert passages([[0] * 10] * 3, 200) == [[0, 1, 2]]
    assert passages([[0] * 100] * 3, 100) == [[0], [1], [2]]


def test_no_president_and_no_neighboring_year_is_on_both_sides():
    presidents = [name for name in "abcdefgh" for _ in range(4)]
    years = 1900 + np.arange(32)
    folds = list(held_out_presidents(presidents, years, folds=4, gap=2))
    assert sum(test.sum() for _, test in folds) == 32  # each passage is tested once
    for train, test in folds:
        assert train.any()
        assert not {presidents[i] for i in np.flatnonzero(train)} & {presidents[i] for i in np.flatnonzero(test)}
        assert np.abs(years[train][:, None] - years[test]).min() == 3  # not closer, and not farther than asked
    with pytest.raises(ValueError, match="cannot be dealt"):
        list(held_out_presidents(["a"], [1900]))


# Paragraph vectors


def double(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()


REAL = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.float64)


def plain_loss(h, u, n, k):
    """One true word and its noise, straight from the formula."""
    return -F.logsigmoid(u @ h) - k / len(n) * F.logsigmoid(-n @ h).sum()


def test_pv_dbow_gradients_are_those_of_autograd_in_float64():
    made = {"d": double(3, 8), "u": double(3, 4, 8, seed=1), "n": double(6, 8, seed=2)}

    def loss():
        d, u, n = made.values()
        return sum(plain_loss(d[b], u[b, t], n, 5) for b, t in REAL.nonzero().tolist())

    value, *by_hand = dbow_gradients(*made.values(), REAL, 5)
    check.close(value, loss())
    check.gradient(loss, made, dict(zip(made, by_hand, strict=True)), tolerance=1e-10)


def test_pv_dm_gradients_are_those_of_autograd_in_float64():
    made = {"h": double(3, 4, 8), "u": double(3, 4, 8, seed=1), "n": double(6, 8, seed=2)}

    def loss():
        h, u, n = made.values()
        return sum(plain_loss(h[b, t], u[b, t], n, 5) for b, t in REAL.nonzero().tolist())

    value, *by_hand = dm_gradients(*made.values(), REAL, 5)
    check.close(value, loss())
    check.gradient(loss, made, dict(zip(made, by_hand, strict=True)), tolerance=1e-10)


def test_blocks_hold_every_kept_word_once_and_never_two_documents():
    documents = [np.array([7, 8, 9, 10, 11]), np.array([1, 2]), np.array([3])]
    words, document, first, begin, end = blocks(documents, np.ones(12), np.random.default_rng(0), 3)
    assert words.tolist() == [7, 8, 9, 10, 11, 1, 2, 3]
    assert (document.tolist(), first.tolist()) == ([0, 0, 1, 2], [0, 3, 5, 7])
    assert (begin.tolist(), end.tolist()) == ([0, 0, 5, 7], [5, 5, 7, 8])


def test_a_word_sees_what_is_in_reach_inside_its_document_and_not_itself():
    inside = torch.tensor([[True, True, True, False, False, False, False]])
    A = inputs(torch.arange(-2, 5), inside, 3, 2, np.random.default_rng(0))
    assert A.shape == (1, 3, 7)
    assert (A[0, 0, 2], A[0, 1, 3], A[0, 2, 4]) == (0, 0, 0)
    assert A[0, :, 3:].sum() == 0 and A[0, 0, 1] == 1
    many = inputs(torch.arange(-2, 5), torch.ones(4000, 7, dtype=torch.bool), 3, 2, np.random.default_rng(0))
    check.close(many.mean(0)[0, :5], [0.5, 1, 0, 1, 0.5], tolerance=0.05)  # reach 1 and reach 2 are as frequent


class Noise:
    """Always the same noise words."""

    def draw(self, *shape):
        return torch.arange(2, 4).repeat(shape[0] // 2)


def test_one_step_of_pv_dm_moves_every_input_by_the_whole_gradient():
    D, V, U = (double(n, 4, seed=n + i).detach().float() for i, n in enumerate((1, 5, 5)))
    tables = [x.clone() for x in (D, V, U)]
    model = ParagraphVectors(*tables, np.ones(5), "pv-dm", 1, 3, 0.1, 1.0, [])
    block = [torch.tensor([x]) for x in (0, 0, 0, 2)]  # one document of two words: 0 1
    step(model, model.vectors, torch.tensor([0, 1]), block, Noise(), np.random.default_rng(0), 0.1, False)
    h = [((D[0] + V[1]) / 2).requires_grad_(), ((D[0] + V[0]) / 2).requires_grad_()]
    leaf = U.clone().requires_grad_()
    loss = sum(plain_loss(h[t], leaf[t], leaf[2:4], 3) for t in (0, 1))
    g0, g1, gU = torch.autograd.grad(loss, (*h, leaf))
    check.close(model.vectors[0], D[0] - 0.1 * (g0 + g1), 1e-5)
    check.close(model.V[:2], V[:2] - 0.1 * torch.stack([g1, g0]), 1e-5)
    check.close(model.U, U - 0.1 * gU, 1e-5)


def test_one_step_of_pv_dbow_is_one_step_of_gradient_descent():
    D, U = (double(n, 4, seed=n).detach().float() for n in (2, 5))
    model = ParagraphVectors(D.clone(), U.clone(), U.clone(), np.ones(5), "pv-dbow", 1, 3, 0.1, 1.0, [])
    block = [torch.tensor(x) for x in ([0, 1], [0, 2], [0, 2], [2, 3])]  # documents 0 1 and 4
    step(model, model.vectors, torch.tensor([0, 1, 4]), block, Noise(), np.random.default_rng(0), 0.1, False)
    d, u = D.clone().requires_grad_(), U.clone().requires_grad_()
    loss = sum(plain_loss(d[i], u[w], u[2:4], 3) for i, w in ((0, 0), (0, 1), (1, 4)))
    gd, gu = torch.autograd.grad(loss, (d, u))
    check.close(model.vectors, D - 0.1 * gd, 1e-5)
    check.close(model.U, U - 0.1 * gu, 1e-5)


def test_the_learning_rate_falls_in_a_line_and_never_below_a_250th(themes, monkeypatch):
    import lrm_utils.models.documents_and_sentences as module

    rates = []
    monkeypatch.setattr(module, "step", lambda *args: rates.append(args[6]) or 0.0)
    model = ParagraphVectors(*[small_random(60, 4, 0)] * 3, themes[1].astype(float), "pv-dbow", 5, 5, 0.05, 1.0, [])
    descend(model, model.vectors, themes[0], 4, 0, L=8, B=100)  # 300 blocks: three steps an epoch
    check.close(rates, 0.05 * (1 - np.arange(12) / 12), 1e-12)
    descend(model, model.vectors, themes[0], 1000, 0, L=8, B=300)
    check.close(rates[-1], 0.05 * 0.004, 1e-12)


def test_frequent_words_are_dropped_by_word2vecs_rule(monkeypatch, themes):
    import lrm_utils.models.documents_and_sentences as module

    seen = []
    monkeypatch.setattr(
        module, "blocks", lambda documents, keep, *rest: seen.append(keep) or blocks(*(documents, keep, *rest))
    )
    paragraph_vectors(*themes, epochs=1, sample=1e-3)
    p = themes[1] / themes[1].sum()
    check.close(seen[0], np.minimum(1, (np.sqrt(p / 1e-3) + 1) * 1e-3 / p))


@pytest.mark.parametrize("architecture", ["pv-dbow", "pv-dm"])
def test_paragraph_vectors_know_their_theme_and_infer_it(themes, architecture):
    documents, counts = themes
    model = paragraph_vectors(documents, counts, architecture, D=8, epochs=25, sample=1.0)
    labels = np.arange(60) % 3
    X = model.vectors.numpy()
    assert evaluate.probe(X[:30], labels[:30], X[30:], labels[30:]) > 0.9
    kept = model.U.clone(), model.V.clone(), model.vectors.clone()
    again = model.infer(documents, epochs=20, seed=5).numpy()
    assert evaluate.retrieval(again, X, range(60))["recall@1"] > 0.6
    assert all(map(torch.equal, kept, (model.U, model.V, model.vectors)))  # only new rows were trained
    assert torch.equal(model.infer(documents[:2], seed=1), model.infer(documents[:2], seed=1))


@pytest.mark.parametrize("architecture", ["pv-dbow", "pv-dm"])
def test_the_first_loss_is_that_of_a_coin_thrown_for_each_word(themes, architecture):
    model = paragraph_vectors(*themes, architecture, D=8, k=7, epochs=1, sample=1.0)
    check.close(model.losses[0], 8 * np.log(2), 1e-5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (dict(k=0), "k=0"),
        (dict(D=0), "D=0"),
        (dict(window=0), "window=0"),
        (dict(epochs=0), "epochs=0"),
        (dict(architecture="pv-dmm"), "there is no 'pv-dmm'"),
        (dict(documents=[]), "the corpus is empty"),
        (dict(documents=[[1], []]), "document 1 has no known word"),
        (dict(documents=[[1], [60]]), "document 1 has an id outside"),
        (dict(documents=[[-1]]), "document 0 has an id outside"),
    ],
)
def test_paragraph_vectors_refuse_what_they_cannot_learn_from(themes, options, says):
    with pytest.raises(ValueError, match=says):
        paragraph_vectors(**(dict(documents=themes[0], counts=themes[1]) | options))


def test_inference_refuses_a_document_of_unknown_words(themes):
    model = paragraph_vectors(*themes, D=4, epochs=1)
    for documents, says in (([[]], "document 0 has no known word"), ([], "needs a document")):
        with pytest.raises(ValueError, match=says):
            model.infer(documents)
    with pytest.raises(ValueError, match="one epoch"):
        model.infer([[1]], epochs=0)


def test_training_that_diverges_says_so(themes):
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        paragraph_vectors(*themes, D=8, epochs=30, lr=1e6, sample=1.0)


# Encoders


def test_skip_thoughts_loss_is_the_cross_entropy_of_both_neighbors(story):
    torch.manual_seed(0)
    model = SkipThoughts(start(), 6)
    batch = next(skip_batches(story, 5, seed=0))
    total, count = model(batch)
    s, expected, words = model.encode(batch["ids"], batch["lengths"]), 0.0, 0
    for name, decoder in (("before", model.before), ("after", model.after)):
        for row, sentence in enumerate(batch[name]):
            sentence = sentence[sentence != 0]
            states = model.decode(decoder, s[row : row + 1], sentence[None, :-1])[0]
            expected = expected + F.cross_entropy(model.output(states), sentence[1:], reduction="sum")
            words += len(sentence) - 1
    assert count == words
    check.close(total, expected, 1e-3)


def test_skip_batches_pair_each_sentence_with_its_own_neighbors(story):
    seen = []
    for batch in skip_batches(story, 7, seed=0):
        for ids, n, before, after in zip(*batch.values(), strict=True):
            rows = [x[x != 0].tolist() for x in (before, after)]
            assert all(x[0] == 2 and x[-1] == 3 for x in rows)
            seen.append((rows[0][1:-1], ids[:n].tolist(), rows[1][1:-1]))
    wanted = [tuple(s.tolist() for s in t[i - 1 : i + 2]) for t in story for i in range(1, len(t) - 1)]
    assert sorted(seen) == sorted(wanted)
    with pytest.raises(ValueError, match="three sentences"):
        next(skip_batches([[np.array([4])]], 2, seed=0))


def test_quick_thoughts_choose_neighbors_inside_a_text_only():
    torch.manual_seed(0)
    model = QuickThoughts(start(), 6)
    texts = [[np.array([4, 5]), np.array([6])], [np.array([7]), np.array([8, 9]), np.array([5])]]
    (batch,) = list(quick_batches(texts, 5, seed=0))
    total, count = model(batch)
    assert batch["text"].tolist() == [0, 0, 1, 1, 1] and count == 6
    f, g = model.f(batch["ids"], batch["lengths"]), model.g(batch["ids"], batch["lengths"])
    expected = 0.0
    for i, j in ((0, 1), (1, 0), (2, 3), (3, 2), (3, 4), (4, 3)):
        others = [m for m in range(5) if m != i]
        scores = torch.stack([f[i] @ g[m] for m in others])
        expected = expected - torch.log_softmax(scores, 0)[others.index(j)]
    check.close(total, expected, 1e-4)
    check.close(model.encode(batch["ids"], batch["lengths"]), torch.cat([f, g], -1))


def test_quick_batches_are_consecutive_stretches(story):
    flat = [s.tolist() for t in story for s in t]
    found = list(quick_batches(story, 40, seed=3))
    assert len(found) >= len(flat) // 40 - 1
    for batch in found:
        rows = [row[:n].tolist() for row, n in zip(batch["ids"], batch["lengths"], strict=True)]
        assert any(flat[i : i + 40] == rows for i in range(len(flat) - 39))
    for size, texts in ((2, story), (400, story)):
        with pytest.raises(ValueError, match="needs 3 sentences or more"):
            next(quick_batches(texts, size, seed=0))


def test_pv_dm_beats_its_untrained_loss(themes):
    check.learns(paragraph_vectors(*themes, "pv-dm", D=16, epochs=40, sample=1.0).losses)


def test_pv_dbow_beats_its_untrained_loss(themes):
    check.learns(paragraph_vectors(*themes, "pv-dbow", D=16, epochs=40, sample=1.0).losses)


def run(model, make, story, steps):
    return fit(model, lambda epoch: make(story, 24, epoch), lambda m, b: m(b), steps=steps, lr=0.01, seed=0).losses


def test_skip_thoughts_beats_its_untrained_loss(story):
    torch.manual_seed(0)
    check.learns(run(SkipThoughts(start(), 16), skip_batches, story, 60), below=np.log(36))


def test_quick_thoughts_beats_its_untrained_loss(story):
    torch.manual_seed(0)
    model = QuickThoughts(start(), 16)
    fixed = list(quick_batches(story, 24, seed=9))

    @torch.no_grad()
    def mean_loss():
        losses, counts = zip(*(model(batch) for batch in fixed), strict=True)
        return float(sum(losses)) / sum(counts)

    before = mean_loss()
    run(model, quick_batches, story, 60)
    check.learns([before, mean_loss()], below=np.log(23) - 0.2)


def test_all_sentences_are_encoded_in_their_own_order():
    torch.manual_seed(0)
    model = QuickThoughts(start(), 5)
    sentences = [np.array(s) for s in ([4], [5, 6, 7], [8, 9], [4, 4, 4, 4], [6])]
    together = encode_all(model, sentences, size=2)
    for row, sentence in zip(together, sentences, strict=True):
        check.close(row, model.encode(*pad([sentence]))[0], 1e-5)


def test_an_empty_sentence_is_refused():
    encoder = SentenceEncoder(start(), 4)
    with pytest.raises(ValueError, match="sentence 1 of the batch is empty"):
        encoder(*pad([[4, 5], []]))


def test_expansion_finds_the_map_and_sends_new_words_along():
    torch.manual_seed(0)
    encoder = SentenceEncoder(start(), 4)
    table = encoder.embedding.weight.detach().numpy()
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    wide = expand_vocabulary(encoder, np.arange(20), table[:20] @ turn, table[20:25] @ turn)
    assert wide.embedding.weight.shape == (41, 8)
    check.close(wide.embedding.weight[36:], table[20:25], 1e-4)  # the map was learned from the first 20 alone
    check.close(wide.embedding.weight[:36], table, 0)
    ids, lengths = pad([[21, 4], [7]])
    moved = ids.clone()
    moved[0, 0] = 37
    check.close(wide(moved, lengths), encoder(ids, lengths), 1e-4)
    assert encoder.embedding.weight.shape == (36, 8)
