"""BERT of chapter 10: what is refused, and what a start is."""

import math

import pytest
import torch

from lrm_utils.models import bert
from lrm_utils.models.bpe_and_wordpiece import BERT_SPECIALS, WordPiece

TOKENIZER = WordPiece([*BERT_SPECIALS, *"abcdefgh"])
TINY = dict(V=13, D=8, H=2, layers=2, limit=10, dropout=0.0)


def published(**changes):
    """What a file of TINY holds, with changes."""
    square, wide, norm = (
        {"weight": [8, 8], "bias": [8]},
        {"weight": [32, 8], "bias": [32]},
        {"weight": [8], "bias": [8]},
    )
    shapes = {}
    for i in range(2):
        block = {f"attention.self.{third}": square for third in ("query", "key", "value")}
        block |= {"attention.output.dense": square, "attention.output.LayerNorm": norm, "intermediate.dense": wide}
        block |= {"output.dense": {"weight": [8, 32], "bias": [8]}, "output.LayerNorm": norm}
        shapes |= {f"encoder.layer.{i}.{part}": both for part, both in block.items()}
    shapes |= {"embeddings.word_embeddings": {"weight": [13, 8]}, "embeddings.LayerNorm": norm, "pooler.dense": square}
    shapes |= {
        "embeddings.position_embeddings": {"weight": [10, 8]},
        "embeddings.token_type_embeddings": {"weight": [2, 8]},
    }
    found = {f"{part}.{kind}": torch.zeros(s) for part, both in shapes.items() for kind, s in both.items()}
    return {name: weight for name, weight in (found | changes).items() if weight is not None}


def test_a_whole_file_is_taken_and_the_heads_it_brings_are_left_out_where_there_are_none():
    file = published(**{"cls.predictions.bias": torch.zeros(13), "cls.seq_relationship.bias": torch.zeros(2)})
    encoder = bert.load_published(bert.Encoder(**TINY), file)
    assert all((weight == 0).all() for weight in encoder.parameters())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pooler.dense.weight": None}, "pooler.weight is missing"),
        (
            {"embeddings.word_embeddings.weight": torch.zeros(14, 8)},
            r"inputs.tokens.weight is \(14, 8\) in the file and \(13, 8\) here",
        ),
        (
            {"encoder.layer.1.output.dense.bias": torch.zeros(9)},
            r"blocks.blocks.1.feed_forward.layer.down.bias is \(9,\) in the file and \(8,\) here",
        ),
        ({"encoder.layer.0.attention.self.key.bias": None}, "cannot be put together: the file has no key"),
        (
            {"encoder.layer.2.output.dense.bias": torch.zeros(8)},
            "blocks.blocks.2.feed_forward.layer.down.bias has no place in the model",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_the_name_of_the_weight(changes, said):
    encoder = bert.Encoder(**TINY)
    before = {name: weight.clone() for name, weight in encoder.state_dict().items()}
    with pytest.raises(ValueError, match=said):
        bert.load_published(encoder, published(**changes))
    assert all(torch.equal(weight, before[name]) for name, weight in encoder.state_dict().items())


def test_a_file_without_heads_does_not_fit_a_model_that_has_them():
    with pytest.raises(ValueError, match="mlm.bias is missing, and"):
        bert.load_published(bert.BERT(**TINY), published())


def test_weights_of_something_else_are_refused():
    with pytest.raises(ValueError, match="these are not the weights of a BERT"):
        bert.from_published({"h.0.attn.c_attn.weight": torch.zeros(2, 2)})


def test_a_pair_that_is_too_long_is_refused():
    with pytest.raises(ValueError, match="12 tokens, special ones included, do not fit 10 places: `shorten`"):
        bert.pack([5] * 5, [6] * 4, TOKENIZER, 10)
    assert len(bert.pack([5] * 5, [6] * 2, TOKENIZER, 10)[0]) == 10


@pytest.mark.parametrize("pair", [([], [5]), ([5], []), ([], None)])
def test_an_empty_text_is_refused(pair):
    with pytest.raises(ValueError, match="a text is empty"):
        bert.pack(*pair, TOKENIZER, 10)


def test_no_room_for_two_texts_is_refused():
    with pytest.raises(ValueError, match="room=1 does not hold two texts"):
        bert.shorten([5], [6], 1)


def test_a_vocabulary_without_a_mask_is_refused():
    plain = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"], specials=("[PAD]", "[UNK]", "[CLS]", "[SEP]"))
    with pytest.raises(ValueError, match=r"'\[MASK\]' is not among the 5 tokens"):
        bert.masker(plain)


@pytest.mark.parametrize(
    ("rate", "mix"), [(0, (0.8, 0.1, 0.1)), (1.1, (0.8, 0.1, 0.1)), (0.15, (0.8, 0.1, 0.2)), (0.15, (1.2, -0.1, -0.1))]
)
def test_shares_that_are_none_are_refused(rate, mix):
    with pytest.raises(ValueError, match="a rate up to 1 and shares that sum to 1"):
        bert.masker(TOKENIZER, rate, mix)


def test_a_row_of_special_tokens_only_is_refused():
    with pytest.raises(ValueError, match="there is nothing to ask for"):
        bert.masker(TOKENIZER)(torch.tensor([[2, 5, 3], [2, 3, 0]]))


def test_an_unknown_word_may_be_asked_for():
    _, chosen = bert.masker(TOKENIZER)(torch.tensor([[2, 1, 3]]))
    assert chosen.tolist() == [[False, True, False]]


@pytest.mark.parametrize("documents", [[], [[[5], [6]]], [[[5]], [[6]]], [[[5], [6]], []]])
def test_too_few_documents_for_pairs_are_refused(documents):
    with pytest.raises(ValueError, match="pairs need two documents at least"):
        bert.sentence_pairs(documents)


def test_a_text_without_any_negative_is_told_of():
    with pytest.raises(ValueError, match="no sentence fits behind"):
        bert.sentence_pairs([[[5], [5], [5]], [[5], [5], [5]]])


def test_more_tokens_than_places_are_refused():
    with pytest.raises(ValueError, match="11 positions are more than the 10 of the table"):
        bert.Encoder(**TINY)(torch.zeros(1, 11, dtype=torch.long))


@pytest.mark.parametrize("option", [dict(activation="swish"), dict(positions="rotary"), dict(H=3)])
def test_settings_that_do_not_exist_are_refused(option):
    with pytest.raises(ValueError, match="take"):
        bert.BERT(**TINY | option)


def test_a_mask_that_is_not_boolean_or_has_two_axes_is_refused():
    model, tokens = bert.Encoder(**TINY), torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="not bool"):
        model(tokens, allowed=torch.ones(2, 3, 3))
    with pytest.raises(ValueError, match="write mask"):
        model(tokens, allowed=torch.ones(3, 3).bool())


def test_lengths_and_a_mask_hold_together():
    torch.manual_seed(0)
    model, tokens = bert.Encoder(**TINY).eval(), torch.randint(13, (2, 6))
    lengths, allowed = torch.tensor([6, 4]), torch.ones(1, 6, 6).bool().tril()
    alone = model(tokens[1:, :4], allowed=allowed[:, :4, :4])[0]
    for mask in (allowed, allowed[:, None]):  # for all heads, and head by head
        torch.testing.assert_close(model(tokens, lengths=lengths, allowed=mask)[0][1:, :4], alone)


def test_an_untrained_model_guesses_in_both_tasks():
    torch.manual_seed(0)
    model, tokens = bert.BERT(1000, 64, limit=20, dropout=0.0), torch.randint(1000, (50, 20))
    batch = dict(tokens=tokens, segments=None, lengths=None, chosen=torch.rand(50, 20) < 0.15, original=tokens)
    first, second = bert.both_losses(model, batch | {"labels": torch.arange(50) % 2})
    assert first.item() == pytest.approx(math.log(1000), abs=0.1)
    assert second.item() == pytest.approx(math.log(2), abs=0.02)
    assert all((p == 0).all() for name, p in model.named_parameters() if p.ndim == 1 and name.endswith("bias"))


def test_without_its_norm_the_sum_has_no_dropout_either():
    torch.manual_seed(0)
    inputs = bert.Inputs(13, 8, 10, norm=False, dropout=0.5).train()
    tokens = torch.randint(13, (2, 5))
    assert torch.equal(inputs(tokens), inputs.total(tokens))


def test_a_tied_head_has_no_table_and_an_untied_one_has():
    names = [set(dict(bert.BERT(**TINY, tied=tied).named_parameters())) for tied in (True, False)]
    assert names[1] - names[0] == {"mlm.table"}
