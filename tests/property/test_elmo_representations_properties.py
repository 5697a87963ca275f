"""ELMo: what must hold for every mix, every batch, and every set of senses."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils import check
from lrm_utils.models import elmo_representations as er
from lrm_utils.models.bilm import BiLM
from lrm_utils.models.cove import Occurrence
from lrm_utils.text import Vocab

VOCAB = Vocab(("</s>", "<unk>"), np.ones(2, dtype=int))
torch.manual_seed(0)
EMBEDDER = er.Embedder(BiLM([(1, 4), (2, 6)], D=4, H=6).requires_grad_(False), VOCAB)
words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=8).filter(
    lambda w: w != "</s>"
)
sentences = st.lists(st.lists(words, min_size=1, max_size=7), min_size=1, max_size=6)
scores = st.lists(st.floats(-200, 200), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(scores)
def test_mix_weights_are_positive_and_sum_to_1(w):
    mix = er.ScalarMix(len(w)).double()
    mix.w.data = torch.tensor(w, dtype=torch.double)
    check.sums_to_one(mix.s)


@settings(max_examples=60, deadline=None)
@given(scores, st.floats(-3, 3), st.floats(-50, 50))
def test_a_shift_of_all_scores_changes_nothing_and_gamma_only_scales(w, gamma, shift):
    mix, h = er.ScalarMix(len(w)).double(), torch.randn(len(w), 3, 4, dtype=torch.double)
    mix.w.data = torch.tensor(w, dtype=torch.double)
    plain = mix(h)
    mix.w.data, mix.gamma.data = mix.w.data + shift, torch.tensor(gamma, dtype=torch.double)
    torch.testing.assert_close(mix(h), gamma * plain)


@settings(max_examples=60, deadline=None)
@given(scores)
def test_without_gamma_no_mix_is_longer_than_its_longest_layer(w):
    mix, h = er.ScalarMix(len(w)).double(), torch.randn(len(w), 3, 4, dtype=torch.double)
    mix.w.data = torch.tensor(w, dtype=torch.double)
    assert (mix(h).norm(dim=-1) <= h.norm(dim=-1).amax(0) + 1e-9).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3), st.floats(0.1, 3))
def test_gradients_reach_the_scores_and_gamma(w, gamma):
    torch.manual_seed(0)
    mix, h = er.ScalarMix(3).double(), torch.randn(3, 4, 5, dtype=torch.double)
    mix.w.data, mix.gamma.data = torch.tensor(w).double(), torch.tensor(gamma).double()
    target = torch.randn(4, 5, dtype=torch.double)
    check.gradient(lambda: (mix(h) - target).square().sum(), mix, tolerance=1e-5)


@settings(max_examples=40, deadline=None)
@given(sentences)
def test_no_sentence_depends_on_its_neighbors_in_a_batch(some):
    together = EMBEDDER(some)
    for sentence, h in zip(some, together, strict=True):
        torch.testing.assert_close(h, EMBEDDER([sentence])[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(EMBEDDER.pooled(some), torch.stack([h.mean(1) for h in together]))


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("at", [(), ("input",), ("output",), ("input", "output")])
def test_padding_changes_no_answer_wherever_elmo_is_put(at, pool):
    torch.manual_seed(0)
    model = er.TaskRNN(6, 3, D=8, at=at, W=4, pool=pool).eval()
    read = lambda x, n: model(x, torch.stack([x[..., :4], x[..., 1:5], x[..., 2:]], 1), n)  # noqa: E731
    check.padding(read, torch.randn(4, 6, 6), torch.tensor([6, 4, 2, 1]))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 10))
def test_every_example_comes_once_an_epoch(lengths, size):
    some = [
        er.Example(torch.full((n, 1), float(i)), torch.zeros(1, n, 1), torch.tensor(i)) for i, n in enumerate(lengths)
    ]
    seen = [int(y) for batch in er.example_batches(some, size)(0) for y in batch["y"]]
    assert sorted(seen) == list(range(len(lengths)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=30), st.floats(0.01, 100)
)
def test_the_nearest_sense_does_not_depend_on_the_scale_of_vectors(rows, scale):
    taught = [Occurrence((word,), 0, sense) for word, sense in rows]
    X = np.random.default_rng(len(rows)).standard_normal((len(rows), 5))
    said = er.Senses(X, taught).nearest(X, taught)
    assert er.Senses(scale * X, taught).nearest(X / scale, taught) == said
    assert all((o.word, a) in set(rows) for o, a in zip(taught, said, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), min_size=1, max_size=30))
def test_with_one_vector_for_a_word_the_nearest_sense_is_the_first(rows):
    taught = [Occurrence((word,), 0, sense) for word, sense in rows]
    X = np.array([[1.0, 2.0, 3.0] if word == "a" else [3.0, -1.0, 0.1] for word, _ in rows])
    senses = er.Senses(X, taught)
    assert senses.nearest(X, taught) == senses.first(taught)
