"""The bidirectional language model keeps its promises: questions and answers, candidates, batches, spelled outputs."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lrm_utils as lrm
from lrm_utils import text
from lrm_utils.models import bilm

SENTENCES = [s.split() for s in ("we want peace", "we want gold and peace", "gold", "war and war and war and war")]
VOCAB = text.Vocab.build((w for s in SENTENCES for w in s), specials=("</s>", "<unk>"))  # eight of them


def language_model(V=8, dropout=0.0):
    torch.manual_seed(0)
    return bilm.LanguageModel(bilm.BiLM([(1, 4), (2, 6)], 6, 8, dropout=dropout), bilm.Softmax(V, 6))


def test_every_word_and_one_edge_are_asked_in_each_direction():
    lexicon = bilm.Lexicon.of(SENTENCES, VOCAB)
    batch = lexicon.collate(SENTENCES[:2])
    words = lexicon.targets[batch["words"]]
    places = torch.arange(2 * 7).view(2, 7, 1).float()  # as the states
    (ahead, behind), (after, before) = bilm.questions(places, places, words, batch["lengths"])
    assert VOCAB.decode(after) == ["we", "want", "peace", "</s>", "we", "want", "gold", "and", "peace", "</s>"]
    assert VOCAB.decode(before) == ["</s>", "we", "want", "peace", "</s>", "we", "want", "gold", "and", "peace"]
    assert ahead[:, 0].tolist() == [0, 1, 2, 3, 7, 8, 9, 10, 11, 12]
    assert behind[:, 0].tolist() == [1, 2, 3, 4, 8, 9, 10, 11, 12, 13]


def test_the_second_layer_adds_to_the_first_and_the_first_to_nothing():
    torch.manual_seed(0)
    stack = bilm.Direction(4, 8, layers=2, dropout=0.0)
    x = torch.randn(2, 5, 4)
    first, second = stack(x)
    torch.testing.assert_close(first, stack.layers[0](x))
    torch.testing.assert_close(second, first + stack.layers[1](first))


@pytest.mark.parametrize("way", [0, 1])
def test_products_of_conditionals_sum_to_one_over_all_texts(way):
    model, V = language_model(4).double().eval(), 4
    every = torch.tensor(list(itertools.product(range(V), repeat=3)))
    edge = torch.zeros(len(every), 1, dtype=torch.long)
    framed = torch.cat([every, edge] if way else [edge, every], 1)
    lengths = torch.full((len(every),), 4)
    spellings = bilm.spell(["</s>", "a", "b", "c"])
    top = model.bilm(spellings, framed, lengths)[-1].chunk(2, -1)
    states, targets = bilm.questions(*top, framed, lengths)
    log_p = model.softmax(states[way]).log_softmax(-1).gather(-1, targets[way, :, None])
    assert log_p.view(-1, 3).sum(1).exp().sum().item() == pytest.approx(1, abs=1e-9)


def test_the_joint_loss_is_half_the_sum_of_both_directions():
    model, lexicon = language_model().eval(), bilm.Lexicon.of(SENTENCES, VOCAB)
    batch = lexicon.collate(SENTENCES)
    total, N = bilm.joint_loss(lexicon)(model, batch)
    ahead, behind = (np.log(p) for p in bilm.perplexities(model, lexicon, SENTENCES).values())
    assert sum(len(s) + 1 for s in SENTENCES) == N
    assert total.item() / N == pytest.approx((ahead + behind) / 2, abs=1e-5)


def test_perplexity_does_not_depend_on_how_sentences_are_batched():
    model, lexicon = language_model().eval(), bilm.Lexicon.of(SENTENCES, VOCAB)
    one, all_ = (bilm.perplexities(model, lexicon, SENTENCES, size) for size in (1, 10))
    assert one == pytest.approx(all_, rel=1e-5)


def test_scores_trained_on_candidates_are_calibrated_over_all_words_however_many_are_drawn():
    """With K q in place of the chance to come up, frequent words got up to twice their share at K = 3000."""
    p = 1 / torch.arange(1, 61.0) ** 1.3
    p = p / p.sum()
    for K in (40, 3000):
        torch.manual_seed(0)
        z, none = torch.zeros(60, requires_grad=True), nn.Embedding.from_pretrained(torch.zeros(60, 1))
        optimizer = torch.optim.Adam([z], lr=0.1)
        for step in range(400):
            optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 400)
            y = torch.multinomial(p, 500, replacement=True)
            optimizer.zero_grad()
            (bilm.sampled_loss(torch.zeros(500, 1), y, none, z, K) / 500).backward()
            optimizer.step()
        q = z.detach().softmax(0)
        assert (p * (p / q).log()).sum() < 0.02
        assert q[:3].sum().item() == pytest.approx(p[:3].sum().item(), rel=0.06)


def test_the_target_competes_with_itself_only_once():
    torch.manual_seed(0)
    softmax = bilm.Softmax(3, 2)
    states = torch.randn(5, 2)
    everywhere = bilm.sampled_loss(states, torch.zeros(5, dtype=torch.long), softmax.vectors, softmax.bias, 4000)
    full = F.cross_entropy(softmax(states), torch.zeros(5, dtype=torch.long), reduction="sum")
    torch.testing.assert_close(everywhere, full, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("correction", [0, 3])
def test_a_table_of_spelled_vectors_gives_the_scores_of_the_spelling_softmax(correction):
    torch.manual_seed(0)
    softmax = bilm.CNNSoftmax(VOCAB.words, 6, correction)
    states = torch.randn(4, 6)
    torch.testing.assert_close(bilm.as_table(softmax)(states), softmax(states), rtol=0, atol=1e-5)
    some = torch.tensor([3, 3, 0, 5])
    torch.testing.assert_close(softmax.vectors(some), bilm.as_table(softmax).weight[some], rtol=0, atol=1e-5)


def test_only_a_correction_tells_words_of_equal_letters_apart_and_it_begins_at_nothing():
    torch.manual_seed(0)
    states = torch.randn(8, 6)
    plain, corrected = (bilm.CNNSoftmax(["lead", "lead"], 6, n) for n in (0, 2))
    for softmax in (plain, corrected):
        scores = softmax(states)
        assert torch.equal(scores[:, 0], scores[:, 1])
    F.cross_entropy(corrected(states), torch.zeros(8, dtype=torch.long)).backward()
    assert corrected.c.weight.grad.abs().min() > 0, "and can be learned from there"
    nn.init.normal_(corrected.c.weight)
    scores = corrected(states)
    assert (scores[:, 0] - scores[:, 1]).abs().min() > 1e-4


def test_the_order_of_batches_depends_on_the_seed_and_on_the_epoch():
    sentences = [["gold"] * n for n in range(1, 30)]
    lexicon = bilm.Lexicon.of(sentences, VOCAB)

    def order(seed, epoch):
        batches = bilm.sentence_batches(lexicon, sentences, 60, seed)(epoch)
        return [batch["lengths"].tolist() for batch in batches]

    assert order(1, 1) == order(1, 1)
    assert order(1, 1) != order(2, 1) and order(1, 1) != order(1, 2) and order(None, 1) != order(1, 1)


def test_each_epoch_has_every_sentence_once_in_batches_of_bounded_size():
    sentences = [["gold"] * n for n in np.random.default_rng(0).integers(1, 30, 200)]
    lexicon = bilm.Lexicon.of(sentences, VOCAB)
    batches = list(bilm.sentence_batches(lexicon, sentences, tokens=120)(3))
    found = sorted(n - 2 for batch in batches for n in batch["lengths"].tolist())
    assert found == sorted(map(len, sentences))
    assert max(batch["words"].shape[0] * batch["lengths"].min() for batch in batches) <= 120
    again = list(bilm.sentence_batches(lexicon, sentences, tokens=120)(3))
    assert all(torch.equal(a["words"], b["words"]) for a, b in zip(batches, again, strict=True))
    other = list(bilm.sentence_batches(lexicon, sentences, tokens=120)(4))
    assert any(a["words"].shape != b["words"].shape for a, b in zip(batches, other, strict=False))


@pytest.mark.parametrize("K", [None, 50])
def test_it_learns_a_tiny_text_by_heart(K):
    model, lexicon = language_model(), bilm.Lexicon.of(SENTENCES, VOCAB)
    before = bilm.perplexities(model.eval(), lexicon, SENTENCES)
    lrm.fit(model, [lexicon.collate(SENTENCES)], bilm.joint_loss(lexicon, K), steps=150, lr=2e-2)
    after = bilm.perplexities(model, lexicon, SENTENCES)
    assert all(after[way] < 0.4 * before[way] for way in before)


def test_the_highway_carries_when_shut_and_changes_when_open():
    layer, x = bilm.Highway(5), torch.randn(9, 5)
    layer.gate.bias.data.fill_(-1e4)
    torch.testing.assert_close(layer(x), x)
    layer.gate.bias.data.fill_(1e4)
    torch.testing.assert_close(layer(x), F.relu(layer.change(x)))
    assert (bilm.Highway(5).gate.bias < 0).all()


def test_the_published_size_has_as_many_weights_as_published():
    filters = [(1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)]
    with torch.device("meta"):
        model = bilm.BiLM(filters, D=512, H=4096, highways=2)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(93.6, abs=0.1)


def test_words_that_are_too_long_are_cut_and_keep_their_marks():
    row = bilm.spell(["x" * 100], longest=10)[0].tolist()
    assert row == [bilm.BEGIN, *[ord("x")] * 8, bilm.END]


def test_the_edge_of_a_sentence_is_spelled_like_no_word():
    edge, word = bilm.spell(["</s>", "<s>"])
    assert edge[1] == bilm.EDGE
    assert bilm.EDGE not in word


def test_bad_input_is_answered_in_one_sentence():
    with pytest.raises(ValueError, match="an empty word cannot be spelled"):
        bilm.spell(["gold", ""])
    lexicon = bilm.Lexicon.of(SENTENCES, VOCAB)
    with pytest.raises(ValueError, match="'silver' is not in this lexicon"):
        lexicon.collate([["silver"]])
    with pytest.raises(ValueError, match="must not be shorter than a filter"):
        bilm.CharacterCNN([(7, 4)], 4)(bilm.spell(["gold"], longest=6))


def test_tanh_by_sigma_is_tanh_from_one_end_to_the_other():
    x = torch.cat([torch.linspace(-20, 20, 4001), torch.tensor([-1e30, -0.0, 1e30])])
    torch.testing.assert_close(bilm.tanh_(x.clone()), x.tanh(), rtol=0, atol=2e-7)
