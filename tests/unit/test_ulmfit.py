"""ULMFiT: rates, pooling, the head, reading in chunks, freezing, and tuning."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lrm_utils import check, text
from lrm_utils.checkpoints import Checkpoint
from lrm_utils.models import awd_lstm as awd
from lrm_utils.models import ulmfit as ulm

STILL = dict(words=0.0, inputs=0.0, hidden=0.0, weights=0.0)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def encoder(V=30, D=8, H=12, layers=3, **rates):
    return awd.AWDLSTM(V, D, H, layers, **(STILL | rates))


def documents(V=30, lengths=(30, 17, 8, 1, 25)):
    return torch.randint(V, (len(lengths), max(lengths))), torch.tensor(lengths)


def stored(work, *arguments):
    """The bytes that autograd keeps for the way back."""
    kept, alive = {}, []

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        work(*arguments)
    return sum(kept.values())


# rates


def test_the_slanted_triangle_peaks_after_a_tenth_of_the_steps_and_starts_at_a_32nd():
    factors = [ulm.slanted_triangular(t, 200) for t in range(200)]
    assert np.argmax(factors) == 20 and max(factors) == 1
    assert factors[0] == pytest.approx(1 / 32)
    assert factors[-1] == pytest.approx((1 + 31 / 180) / 32)


def test_a_rise_that_is_no_whole_number_of_steps_is_rounded_down():
    assert np.argmax([ulm.slanted_triangular(t, 15) for t in range(15)]) == 1


@pytest.mark.parametrize("cut_frac", [0, 1, 1.5, -0.1])
def test_a_rise_that_takes_no_or_all_steps_is_refused(cut_frac):
    with pytest.raises(ValueError, match="cut_frac"):
        ulm.slanted_triangular(0, 100, cut_frac)


def test_each_group_learns_more_slowly_by_the_factor_than_the_next():
    groups = [[nn.Parameter(torch.zeros(i + 1))] for i in range(5)]
    rates = [group["lr"] for group in ulm.discriminative(groups, 0.01)]
    assert rates == pytest.approx([0.01 / 2.6**4, 0.01 / 2.6**3, 0.01 / 2.6**2, 0.01 / 2.6, 0.01])
    assert [group["params"][0] is g[0] for group, g in zip(ulm.discriminative(groups, 1), groups, strict=True)]


def test_the_groups_of_a_language_model_hold_every_parameter_once():
    model = awd.AWDLanguageModel(encoder())
    groups = ulm.lm_groups(model)
    found = [id(p) for group in groups for p in group]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
    assert groups[0][0] is model.encoder.embedding.weight and groups[-1] == [model.bias]
    assert groups[1][0] is model.encoder.layers[0].lstm.weight_ih_l0


def test_the_groups_of_a_classifier_hold_every_parameter_once_from_the_words_up():
    model = ulm.Classifier(encoder())
    groups = model.groups()
    found = [id(p) for group in groups for p in group]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
    assert len(groups) == 5
    assert groups[0][0] is model.encoder.embedding.weight
    assert {id(p) for p in groups[-1]} == {id(p) for p in model.head.parameters()}


# documents


def test_documents_are_read_as_the_language_model_reads_them():
    vocab = text.Vocab.build("good film not bad".split(), specials=("</s>", "<unk>"))
    ids = ulm.encoded("Good film. Not very bad.", vocab)
    assert vocab.decode(ids) == ["</s>", "good", "film", "</s>", "not", "<unk>", "bad", "</s>"]
    assert ulm.encoded("Good film. Not very bad.", vocab, backward=True) == ids[::-1]
    assert ulm.encoded("Good film. Not very bad.", vocab, longest=3) == ids[-3:]
    assert ulm.encoded("Good film. Not very bad.", vocab, 3, backward=True) == ids[-3:][::-1]


def test_concat_pooling_by_hand():
    states = torch.tensor([[[1.0], [4.0], [2.0], [9.0]], [[-3.0], [9.0], [9.0], [9.0]]])
    pooled = ulm.concat_pool(states, torch.tensor([3, 1]))
    torch.testing.assert_close(pooled, torch.tensor([[2, 4, 7 / 3], [-3, -3, -3]]))


@pytest.mark.parametrize("T", [1, 7, 8, 30, 70])
@pytest.mark.parametrize("keep", [1, 2, 100])
def test_reading_in_chunks_gives_the_pooled_states_of_one_pass(T, keep):
    reader, (x, n) = encoder(), documents()
    check.close(ulm.bpt3c(reader, x, n, T, keep), ulm.concat_pool(reader(x)[0], n), 1e-6)


def test_within_one_chunk_the_gradient_is_that_of_full_backpropagation():
    reader, (x, n) = encoder(), documents()
    losses = ulm.bpt3c(reader, x, n, 30, 1).square().sum(), ulm.concat_pool(reader(x)[0], n).square().sum()
    ours, theirs = (torch.autograd.grad(loss, list(reader.parameters())) for loss in losses)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_document_gets_the_gradient_of_its_own_last_chunks_whoever_shares_its_batch():
    reader = encoder()
    x, n = documents(lengths=(40, 6))

    def gradient(rows):
        pooled = ulm.bpt3c(reader, x[rows, : n[rows].max()], n[rows], 10, 2)
        return torch.autograd.grad(pooled[-1].sum(), reader.embedding.weight)[0]

    check.close(gradient([0, 1]), gradient([1]), 1e-6)
    assert gradient([0, 1]).abs().sum() > 0


def test_words_before_the_kept_chunks_get_no_gradient_and_still_matter():
    reader = encoder()
    x = torch.arange(30)[None]
    n = torch.tensor([30])
    gradient = torch.autograd.grad(ulm.bpt3c(reader, x, n, 10, 1).sum(), reader.embedding.weight)[0]
    assert (gradient[:20] == 0).all() and (gradient[20:].abs().sum(1) > 0).all()
    other = x.clone()
    other[:, 0] = 29
    assert not torch.allclose(ulm.bpt3c(reader, x, n, 10, 1), ulm.bpt3c(reader, other, n, 10, 1))


def test_no_gradient_crosses_a_cut_even_into_a_kept_chunk():
    reader = encoder()
    last = ulm.bpt3c(reader, torch.arange(30)[None], torch.tensor([30]), 10, 3)[:, :8]  # the last state alone
    gradient = torch.autograd.grad(last.sum(), reader.embedding.weight)[0]
    assert (gradient[:20] == 0).all() and (gradient[20:].abs().sum(1) > 0).all()


def test_memory_is_bounded_by_the_kept_chunks():
    reader = encoder()

    def needed(length, T, keep):
        return stored(ulm.bpt3c, reader, torch.randint(30, (2, length)), torch.tensor([length] * 2), T, keep)

    assert needed(400, 10, 2) == pytest.approx(needed(20, 10, 2), rel=0.05)
    assert needed(400, 400, 1) > 10 * needed(400, 10, 2)


def test_memory_is_bounded_when_lengths_in_a_batch_differ():
    reader = encoder()
    x = torch.randint(30, (4, 400))
    even = stored(ulm.bpt3c, reader, x, torch.tensor([400] * 4), 10, 2)
    assert stored(ulm.bpt3c, reader, x, torch.tensor([400, 15, 200, 3]), 10, 2) <= 1.05 * even


def test_an_empty_document_is_refused():
    model = ulm.Classifier(encoder())
    with pytest.raises(ValueError, match="empty"):
        model(torch.zeros(2, 3, dtype=int), torch.tensor([3, 0]))


@pytest.mark.parametrize("options", [dict(T=0), dict(keep=0)])
def test_a_classifier_without_a_chunk_is_refused(options):
    with pytest.raises(ValueError, match="chunk"):
        ulm.Classifier(encoder(), **options)


def test_each_block_of_the_head_has_its_own_dropout(monkeypatch):
    asked, dropout = [], F.dropout
    monkeypatch.setattr(F, "dropout", lambda x, p, training: asked.append((p, training)) or dropout(x, p, training))
    head = ulm.Head(4, 2, drops=(0.3, 0.2))
    head(torch.randn(5, 12))
    head.eval()(torch.randn(5, 12))
    assert asked == [(0.3, True), (0.2, True), (0.3, False), (0.2, False)]


# freezing and tuning


@pytest.mark.parametrize("lowest", range(5))
def test_frozen_parts_are_bit_identical_after_a_stage_and_the_others_move(lowest):
    model = ulm.Classifier(encoder(), C=3)
    groups = model.groups()
    before = [[p.detach().clone() for p in group] for group in groups]
    ulm.unfreeze(groups, lowest)
    rates = ulm.discriminative(groups[lowest:], 0.1)
    batches = ulm.labeled_batches(documents()[0].tolist(), [0, 1, 2, 0, 1], 5)
    ulm.fit(model, batches, ulm.class_loss, steps=2, optimizer=torch.optim.AdamW(rates, weight_decay=0.1), clip=1.0)
    same = [
        all(torch.equal(a, b) for a, b in zip(old, new, strict=True)) for old, new in zip(before, groups, strict=True)
    ]
    assert same == [i < lowest for i in range(5)]


def reviews(N=60):
    """Documents in which word 3 says yes and word 4 says no."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, N)
    some = [random.integers(5, 30, random.integers(4, 9)).tolist() for _ in range(N)]
    for document, label in zip(some, labels, strict=True):
        document[random.integers(len(document))] = 3 if label else 4
    return some, labels


def test_tuning_unfreezes_from_the_top_down():
    model, moved = ulm.Classifier(encoder()), []
    before = [[p.detach().clone() for p in group] for group in model.groups()]

    def after(stage):
        moved.append([any(not torch.equal(a, b) for a, b in zip(*pair, strict=True)) for pair in
                      zip(before, model.groups(), strict=True)])  # fmt: skip

    losses = ulm.finetune(model, *reviews(), steps=(2, 2, 2, 2, 3), after=after)
    assert moved == [[i >= 4 - stage for i in range(5)] for stage in range(5)]
    assert len(losses) == 11
    assert all(p.requires_grad for p in model.parameters())


def test_without_gradual_unfreezing_all_parts_move_at_once():
    model, stages = ulm.Classifier(encoder()), []
    before = model.encoder.embedding.weight.detach().clone()
    losses = ulm.finetune(model, *reviews(), steps=(2, 3), gradual=False, after=stages.append)
    assert stages == [0] and len(losses) == 5
    assert not torch.equal(before, model.encoder.embedding.weight)


def test_as_many_stages_as_parts_are_needed():
    with pytest.raises(ValueError, match="2 stages for 5 parts"):
        ulm.finetune(ulm.Classifier(encoder()), *reviews(), steps=(2, 3))


def test_tuning_learns_a_word_that_decides():
    model = ulm.Classifier(encoder(D=16, H=24))
    some, labels = reviews(200)
    losses = ulm.finetune(model, some[:150], labels[:150], (10, 10, 10, 10, 120), lr=0.02, factor=1.0)
    check.learns(losses, below=math.log(2))
    right = ulm.predict(model, some[150:]).argmax(1).numpy() == labels[150:]
    assert right.mean() > 0.8


def test_the_same_seed_gives_the_same_classifier():
    def run(seed):
        torch.manual_seed(0)
        model = ulm.Classifier(encoder(inputs=0.3))
        ulm.finetune(model, *reviews(), steps=(2, 2, 2, 2, 2), seed=seed)
        return model.head.linears[0].weight

    assert torch.equal(run(0), run(0)) and not torch.equal(run(0), run(1))


def test_every_stage_is_a_training_of_its_own_with_the_settings_asked_for(monkeypatch):
    asked, fit = [], ulm.fit
    monkeypatch.setattr(ulm, "fit", lambda *given, **options: asked.append(options) or fit(*given, **options))
    model, steps = ulm.Classifier(encoder()), (2, 1, 3, 1, 2)
    ulm.finetune(model, *reviews(), steps, lr=0.5, factor=2.0, schedule=ulm.slanted_triangular, clip=0.7, seed=5)
    for stage, options in enumerate(asked):
        groups = options["optimizer"].param_groups
        assert [g["initial_lr"] for g in groups] == pytest.approx([0.5 / 2**i for i in range(stage, -1, -1)])
        assert {g["betas"] for g in groups} == {(0.7, 0.99)}
        assert options["schedule"] is ulm.slanted_triangular
        assert (options["steps"], options["clip"], options["seed"]) == (steps[stage], 0.7, 5 + stage)
    assert len({id(options["optimizer"]) for options in asked}) == 5


def test_the_batches_of_two_epochs_differ():
    some, labels = reviews(40)
    first, second = ([b[0].tolist() for b in ulm.labeled_batches(some, labels, 8)(epoch)] for epoch in (0, 1))
    assert first != second


def test_no_batch_has_a_single_document():
    some, labels = reviews(33)
    sizes = [len(y) for epoch in range(3) for _, _, y in ulm.labeled_batches(some, labels, 32)(epoch)]
    assert sizes == [32] * 3


def test_predictions_keep_the_order_of_the_documents_and_do_not_depend_on_the_batch():
    model = ulm.Classifier(encoder(), C=3, T=4, keep=1)
    some, _ = reviews(23)
    together = ulm.predict(model, some, B=5)
    check.sums_to_one(together)
    check.close(together, torch.cat([ulm.predict(model, [document]) for document in some]), 1e-5)


def test_the_mean_of_two_classifiers():
    mean = ulm.averaged(torch.tensor([[0.2, 0.8]]), np.array([[0.6, 0.4]], np.float32))
    torch.testing.assert_close(mean, torch.tensor([[0.4, 0.6]]))


def test_an_encoder_is_made_from_a_language_model():
    model = awd.AWDLanguageModel(encoder())
    vocab = text.Vocab.build(str(i) for i in range(30))
    start = Checkpoint(model.state_dict(), vocab, {"settings": dict(D=8, H=12, layers=3)})
    made, fresh = ulm.new_encoder(start), ulm.new_encoder(start, pretrained=False)
    x = documents()[0]
    assert torch.equal(made.eval()(x)[0], model.encoder.eval()(x)[0])
    assert not torch.equal(fresh.eval()(x)[0], made(x)[0])
    assert (made.words, made.inputs, made.hidden) == (0.05, 0.2, 0.15)
    assert [layer.p for layer in made.layers] == [0.2, 0.2, 0.2]


def test_the_loss_is_the_cross_entropy_of_the_classes():
    model = ulm.Classifier(encoder(), C=3).eval()
    x, n = documents()
    y = torch.tensor([0, 1, 2, 0, 1])
    assert ulm.class_loss(model, (x, n, y)).item() == pytest.approx(F.cross_entropy(model(x, n), y).item())
