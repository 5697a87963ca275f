"""Fine-tuning GPT: what is taken over, what is refused, and what a row, a batch, and a schedule are."""

import numpy as np
import pytest
import torch

from lrm_utils import checkpoints
from lrm_utils.models import gpt
from lrm_utils.models import gpt_finetuning as ft
from lrm_utils.models.bpe_and_wordpiece import ByteBPE

TOKENIZER = ByteBPE([])
V = len(TOKENIZER)
SETTINGS = dict(D=8, H=2, layers=3, limit=12)


@pytest.fixture(scope="module")
def checkpoint():
    torch.manual_seed(0)
    weights = {name: w + 0.1 * torch.randn_like(w) for name, w in gpt.GPT(V, **SETTINGS).state_dict().items()}
    return checkpoints.Checkpoint(weights, TOKENIZER, {"settings": SETTINGS})


def ids(text):
    return TOKENIZER.encode(" " + text)


def test_the_four_kinds_of_tasks_are_written_as_in_the_paper():
    writer = ft.Writer(TOKENIZER, 64)
    s, b, c = V, V + 1, V + 2
    assert writer.classification("a") == [[s, *ids("a"), c]]
    assert writer.entailment("a", "b") == [[s, *ids("a"), b, *ids("b"), c]]
    assert writer.similarity("a", "b") == [[s, *ids("a"), b, *ids("b"), c], [s, *ids("b"), b, *ids("a"), c]]
    assert writer.choice("a", "q", ["x", "y"]) == [[s, *ids("a q"), b, *ids(o), c] for o in "xy"]
    assert writer.choice("a", "", ["x"]) == [[s, *ids("a"), b, *ids("x"), c]]


@pytest.mark.parametrize("texts", [("",), ("a", "  ")])
def test_an_empty_text_is_refused(texts):
    with pytest.raises(ValueError, match="there is nothing to read in one of"):
        ft.Writer(TOKENIZER, 64).row(*texts)


def test_marks_stand_between_tokens_and_places():
    torch.manual_seed(0)
    table = torch.randn(V + 12, 8)
    found = ft.with_marks(table, V)
    assert torch.equal(found[:V], table[:V])
    assert torch.equal(found[V + 3 :], table[V:])
    assert 0 < found[V : V + 3].std() < 0.05


def test_with_all_layers_the_tuned_model_reads_text_as_the_pretrained_one(checkpoint):
    before = gpt.GPT(V, **SETTINGS).eval()
    before.load_state_dict(checkpoint.weights)
    after = ft.begin(checkpoint).eval()
    tokens = torch.randint(V, (2, 12))
    torch.testing.assert_close(after(tokens)[..., :V], before(tokens), rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", [-1, 0, 1, 2, 3, None])
def test_what_is_taken_over_is_the_table_and_the_first_blocks(checkpoint, layers):
    torch.manual_seed(5)
    made = ft.begin(checkpoint, layers).state_dict()
    torch.manual_seed(5)
    random = gpt.GPT(V + 3, **SETTINGS).state_dict()
    n = 3 if layers is None else layers
    for name, weight in checkpoint.weights.items():
        if name == "table.weight":
            assert torch.equal(made[name][:V], weight[:V] if n >= 0 else random[name][:V])
            assert torch.equal(made[name][V + 3 :], weight[V:] if n >= 0 else random[name][V + 3 :])
        else:
            block = name.split(".")[2] if name.startswith("blocks.blocks") else "last norm"
            taken = n == 3 if block == "last norm" else int(block) < n
            assert torch.equal(made[name], weight if taken else random[name])


@pytest.mark.parametrize("layers", [-2, 4])
def test_layers_that_are_not_there_are_refused(checkpoint, layers):
    with pytest.raises(ValueError, match=f"layers={layers}: take -1 .* to 3"):
        ft.begin(checkpoint, layers)


def test_the_states_of_all_rows_are_added_before_the_head():
    torch.manual_seed(0)
    model = ft.Tuned(gpt.GPT(9, 8, 2, 1, 6), outputs=2).eval()
    tokens, lengths = torch.randint(9, (3, 2, 6)), torch.tensor([[6, 4], [2, 6], [5, 5]])
    states = [
        [model.gpt.states(row[None, :n])[0, -1] for row, n in zip(rows, ns, strict=True)]
        for rows, ns in zip(tokens, lengths.tolist(), strict=True)
    ]
    expected = torch.stack([model.head(a + b) for a, b in states])
    torch.testing.assert_close(model(tokens, lengths), expected, rtol=0, atol=1e-5)


def test_all_rows_of_an_example_are_dropped_alike():
    torch.manual_seed(0)
    model = ft.Tuned(gpt.GPT(9, 64, 2, 1, 6, dropout=0.0), outputs=1, dropout=0.5).train()
    tokens = torch.randint(9, (1, 1, 6)).repeat(40, 2, 1)  # both rows say the same
    lengths = torch.full((40, 2), 6)
    model.choose = True  # a score a row
    scores = model(tokens, lengths)
    assert torch.equal(scores[:, 0], scores[:, 1])
    assert scores[:, 0].std() > 0  # but examples are not


def test_the_rate_rises_along_a_line_and_falls_along_one():
    found = [ft.warm_and_straight(step, 100) for step in range(100)]
    assert found[:10] == pytest.approx(np.arange(1, 11) / 10)
    assert np.diff(found[10:]) == pytest.approx(np.full(89, -1 / 90))
    assert found[-1] == pytest.approx(1 / 90)
    assert ft.warm_and_straight(0, 1) == 1


def test_an_epoch_has_every_example_once_with_its_own_target():
    examples = [[[i] * (2 + i % 5)] for i in range(20)]
    epoch = ft.example_batches(examples, list(range(20)), B=6)
    seen = []
    for tokens, _, targets in epoch(0):
        assert torch.equal(tokens[:, 0, 0], targets)
        seen += targets.tolist()
    assert sorted(seen) == list(range(20))
    assert seen != [i for *_, targets in epoch(1) for i in targets.tolist()]  # in another order each time


def test_answers_are_given_without_dropout():
    torch.manual_seed(0)
    model = ft.Tuned(gpt.GPT(9, 8, 2, 1, 6, dropout=0.5), outputs=2, dropout=0.5).train()
    examples = [[[1, 2, 3]], [[4, 5, 6, 7]]]
    assert torch.equal(ft.answers(model, examples), ft.answers(model.train(), examples))


def test_a_target_short_is_refused():
    with pytest.raises(ValueError, match="2 examples and 1 targets: one is needed for each"):
        ft.example_batches([[[1, 2]], [[1, 2]]], [0], B=2)


def test_examples_of_unequal_numbers_of_rows_are_refused():
    with pytest.raises(ValueError, match=r"as many rows each, not of \[1, 2\]"):
        ft.padded([[[1]], [[1], [2]]])


@pytest.mark.parametrize("kind", ["classes", "numbers", "choices"])
def test_a_tiny_task_of_every_kind_is_learned(checkpoint, kind):
    """The first letter tells the class, the number, and which row is the right one."""
    torch.manual_seed(0)
    writer, random = ft.Writer(TOKENIZER, SETTINGS["limit"]), np.random.default_rng(0)
    words = [f"{'ab'[i]}{random.integers(10)}" for i in random.integers(2, size=120)]
    if kind == "choices":
        examples = [writer.choice("x", "", [w, "ba"[w[0] == "b"] + "7"]) for w in words]
        targets = [int(w[0] == "b") for w in words]  # the row that begins with a
    else:
        examples, targets = [writer.classification(w) for w in words], [int(w[0] == "b") for w in words]
    if kind == "numbers":
        targets = [float(t) for t in targets]
    model = ft.Tuned(ft.begin(checkpoint), outputs=1 if kind == "numbers" else 2, choose=kind == "choices")
    losses = ft.tune(model, examples, targets, epochs=12, lr=1e-2, weight=0.0, B=16)
    found = ft.answers(model, examples)
    found = found[:, 0] > 0.5 if kind == "numbers" else found.argmax(1)
    assert (found == torch.tensor(targets)).float().mean() > 0.95
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 2


def test_tuning_follows_the_seed(checkpoint):
    examples = [[[V, i, V + 2]] for i in range(40)]

    def losses(seed):
        torch.manual_seed(0)
        return ft.tune(
            ft.Tuned(ft.begin(checkpoint), outputs=2), examples, [i % 2 for i in range(40)], epochs=1, seed=seed
        )

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


def test_a_context_that_is_too_long_loses_its_beginning():
    torch.manual_seed(0)
    model = gpt.GPT(20, 8, 2, 1, limit=6)
    long, ending = list(range(15)), [3, 4]
    found = ft.log_p(model, [long], [ending])
    assert torch.allclose(found, ft.log_p(model, [long[-5:]], [ending]))


@pytest.mark.parametrize(("context", "ending"), [([], [1]), ([1], [1, 2, 3, 4, 5, 6, 7])])
def test_an_ending_that_cannot_be_scored_whole_is_refused(context, ending):
    with pytest.raises(ValueError, match="a context needs a token, .* must fit 6 places"):
        ft.log_p(gpt.GPT(20, 8, 2, 1, limit=6), [context], [ending])


def test_an_ending_may_fill_all_places():
    torch.manual_seed(0)
    model, ending = gpt.GPT(20, 8, 2, 1, limit=6).eval(), [3, 4, 5, 6, 7, 8]
    log = model(torch.tensor([[1, *ending[:-1]]])).log_softmax(-1)[0]
    expected = sum(log[i, token].item() for i, token in enumerate(ending))
    assert ft.log_p(model, [[9, 1]], [ending]).item() == pytest.approx(expected, abs=1e-4)


def test_who_came_next_is_asked_of_neighbors_and_no_sentence_is_used_twice():
    documents = [". ".join(f"This is sentence number {d} {i} of it all" for i in range(21)) + "." for d in range(3)]
    found = ft.continuations(documents, seed=1)
    assert len(found) == 30 // 4
    used = []
    for context, options, right in found:
        d, i = map(int, context.split()[4:6])
        assert options[right].split()[4:6] == [str(d), str(i + 1)]
        used += [context, *options]
        assert all(int(option.split()[5]) % 2 for option in options)  # no pair reaches over the end of a document
    assert len(used) == len(set(used))
    mixed = [len({option.split()[4] for option in options}) > 1 for _, options, _ in found]
    assert np.mean(mixed) > 0.7  # strangers, not neighbors
    assert {right for *_, right in found} <= {0, 1, 2, 3}
    assert found == ft.continuations(documents, seed=1)
    assert found != ft.continuations(documents, seed=2)


def test_sentences_that_are_too_long_or_too_short_are_left_out():
    document = (
        "One two three four five six seven. Short one. " * 5 + "Here are six words of it. And six more words of it."
    )
    found = ft.continuations([document] * 4)
    assert [(c, o[r]) for c, o, r in found] == [("Here are six words of it.", "And six more words of it.")]
