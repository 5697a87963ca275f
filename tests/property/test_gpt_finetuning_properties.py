"""What holds of fine-tuning GPT for any text, any examples, and any weight of the text's loss."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrm_utils.models import gpt
from lrm_utils.models import gpt_finetuning as ft
from lrm_utils.models.bpe_and_wordpiece import ByteBPE

TOKENIZER = ByteBPE([("t", "h"), ("th", "e"), ("Ġ", "the")])
LIMIT = 24
texts = st.text(min_size=1, max_size=60).filter(str.strip)
MARKS = st.sampled_from([*ft.MARKS, "<|endoftext|>", "the"])


@pytest.fixture(scope="module")
def writer():
    return ft.Writer(TOKENIZER, LIMIT)


@settings(max_examples=100, deadline=None)
@given(some=st.lists(st.one_of(texts, st.lists(MARKS, min_size=1, max_size=4).map(" ".join)), min_size=1, max_size=3))
def test_marks_never_collide_with_text(writer, some):
    """Whatever a text says, even the names of the marks, its tokens are below theirs."""
    row, V = writer.row(*some), len(TOKENIZER)
    marks = [i for i in row if i >= V]
    assert marks == [writer.start, *[writer.between] * (len(some) - 1), writer.classify]
    assert (row[0], row[-1]) == (writer.start, writer.classify)
    assert len(row) <= LIMIT


@settings(max_examples=100, deadline=None)
@given(some=st.lists(texts, min_size=1, max_size=3))
def test_a_row_says_what_it_was_given_as_far_as_it_fits(writer, some):
    whole = [TOKENIZER.encode(" " + text.strip()) for text in some]
    row, parts = writer.row(*some), [[]]
    for i in row[1:-1]:
        parts.append([]) if i == writer.between else parts[-1].append(i)
    assert len(parts) == len(whole)
    for part, tokens in zip(parts, whole, strict=True):
        assert part == tokens[: len(part)]
        assert part or not tokens
    if sum(map(len, whole)) + len(some) + 1 <= LIMIT:
        assert parts == whole
    else:
        assert LIMIT - len(some) < len(row) <= LIMIT  # no more is cut than must be
        cut = {len(part) for part, tokens in zip(parts, whole, strict=True) if len(part) < len(tokens)}
        assert cut == {max(map(len, parts))}  # the longest are cut, and to one length


def model_of(choose=False, outputs=3, seed=0, dropout=0.0):
    torch.manual_seed(seed)
    made = ft.Tuned(gpt.GPT(17, 8, 2, 2, LIMIT, dropout=dropout), outputs, choose, dropout).double()
    for weight in made.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    return made.eval()


examples = st.integers(1, 3).flatmap(
    lambda R: st.lists(
        st.lists(st.lists(st.integers(0, 16), min_size=2, max_size=LIMIT), min_size=R, max_size=R),
        min_size=1,
        max_size=4,
    )
)


@settings(max_examples=40, deadline=None)
@given(some=examples, choose=st.booleans())
def test_padding_changes_no_score_and_no_loss(some, choose):
    model = model_of(choose)
    with torch.no_grad():
        scores, of_text = model(*ft.padded(some), text=True)
        one_by_one = [model(*ft.padded([example]), text=True) for example in some]
    torch.testing.assert_close(scores, torch.cat([s for s, _ in one_by_one]), rtol=0, atol=1e-10)
    torch.testing.assert_close(of_text, torch.stack([loss for _, loss in one_by_one]).mean(), rtol=0, atol=1e-10)
    torch.testing.assert_close(ft.answers(model, some, B=2), scores, rtol=0, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(first=texts, second=texts, seed=st.integers(0, 99))
def test_similarity_does_not_depend_on_which_sentence_comes_first(writer, first, second, seed):
    torch.manual_seed(seed)
    made = ft.Tuned(gpt.GPT(len(TOKENIZER) + len(ft.MARKS), 8, 2, 1, LIMIT), outputs=1).double().eval()
    pair = [writer.similarity(first, second), writer.similarity(second, first)]
    a, b = ft.answers(made, pair)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(some=examples, weight=st.floats(0.01, 3), choose=st.booleans())
def test_the_gradient_of_l3_is_that_of_l2_plus_weight_times_that_of_l1(some, weight, choose):
    model = model_of(choose)
    tokens, lengths = ft.padded(some)
    targets = torch.zeros(len(some), dtype=torch.long)
    parts = list(model.gpt.parameters())

    def gradient(loss):
        found = torch.autograd.grad(loss, parts, allow_unused=True)
        return torch.cat(
            [torch.zeros(p.numel()) if g is None else g.flatten() for g, p in zip(found, parts, strict=True)]
        )

    both = gradient(ft.objective(weight)(model, (tokens, lengths, targets)))
    task = gradient(ft.objective(0)(model, (tokens, lengths, targets)))
    of_text = gradient(model(tokens, lengths, text=True)[1])
    assert of_text.norm() > 0
    torch.testing.assert_close(both, task + weight * of_text, rtol=1e-9, atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(contexts=st.lists(st.lists(st.integers(0, 16), min_size=1, max_size=8), min_size=1, max_size=5), data=st.data())
def test_the_log_probability_of_an_ending_is_a_sum_of_conditionals(contexts, data):
    """The chain rule, token by token, whatever else is in the batch."""
    model = model_of().gpt
    endings = [data.draw(st.lists(st.integers(0, 16), min_size=1, max_size=6)) for _ in contexts]
    found = ft.log_p(model, contexts, endings, B=2)
    for total, context, ending in zip(found.tolist(), contexts, endings, strict=True):
        whole = torch.tensor([[*context, *ending]])
        with torch.no_grad():
            log = model(whole).log_softmax(-1)[0]
        expected = sum(log[len(context) + i - 1, token].item() for i, token in enumerate(ending))
        assert total == pytest.approx(expected, abs=1e-5)
