"""GPT of chapter 9: what is refused, and what a stream is."""

import math

import numpy as np
import pytest
import torch

from lrm_utils import checkpoints
from lrm_utils.models import gpt
from lrm_utils.models.bpe_and_wordpiece import ByteBPE

TINY = dict(V=11, D=8, H=2, layers=2, limit=6, dropout=0.0)


def test_a_stream_has_a_mark_at_both_ends_of_every_text():
    tokenizer = ByteBPE([])
    end = tokenizer.id("<|endoftext|>")
    found = gpt.stream(tokenizer, ["ab", "c"])
    assert found.tolist() == [end, *tokenizer.encode("ab"), end, *tokenizer.encode("c"), end]
    assert sorted(gpt.stream(tokenizer, ["ab", "c"], seed=3)) == sorted(found)


def test_the_order_of_a_stream_follows_the_seed():
    tokenizer, texts = ByteBPE([]), [str(i) * 3 for i in range(50)]
    assert np.array_equal(gpt.stream(tokenizer, texts, 1), gpt.stream(tokenizer, texts, 1))
    assert not np.array_equal(gpt.stream(tokenizer, texts, 1), gpt.stream(tokenizer, texts, 2))


def test_the_mean_loss_is_that_of_every_token_after_its_stretch():
    torch.manual_seed(0)
    model, tokens = gpt.GPT(**TINY).double(), np.random.default_rng(0).integers(11, size=20)
    nats = []
    for start in (0, 6, 12):
        log_p = model(torch.as_tensor(tokens[None, start : start + 6]))[0].log_softmax(-1)
        nats += [-log_p[t, tokens[start + t + 1]].item() for t in range(6)]
    assert gpt.mean_loss(model, tokens) == pytest.approx(np.mean(nats), abs=1e-12)


def test_an_untrained_model_finds_all_tokens_about_equally_probable():
    torch.manual_seed(0)
    loss = gpt.mean_loss(gpt.GPT(1000, dropout=0.0, limit=32), np.random.default_rng(0).integers(1000, size=200))
    assert abs(loss - math.log(1000)) < 0.1


def test_the_weights_that_add_begin_smaller_the_deeper_a_pre_norm_model_is():
    torch.manual_seed(0)
    spread = {}
    for norm in ("pre", "post"):
        model = gpt.GPT(50, 64, 2, 8, 16, norm=norm)
        block = model.blocks.blocks[0]
        spread[norm] = [block.attention.layer.output.weight.std(), block.attention.layer.inputs.weight.std()]
    assert spread["pre"][0].item() == pytest.approx(0.02 / 4, rel=0.05)
    for other in (spread["pre"][1], *spread["post"]):
        assert other.item() == pytest.approx(0.02, rel=0.05)


def test_more_tokens_than_places_are_refused():
    with pytest.raises(ValueError, match="7 tokens do not fit 6 places: keep the last ones"):
        gpt.GPT(**TINY)(torch.zeros(1, 7, dtype=torch.long))


def test_a_cache_that_is_full_is_told_of():
    model = gpt.GPT(**TINY).eval()
    caches = model.caches()
    model(torch.zeros(1, 6, dtype=torch.long), caches)
    with pytest.raises(ValueError, match="7 tokens do not fit"):
        model(torch.zeros(1, 1, dtype=torch.long), caches)


def test_a_model_with_one_place_writes_too():
    model = gpt.GPT(11, 8, 2, 1, limit=1)
    assert len(list(gpt.generate(model, torch.zeros(2, 1, dtype=torch.long), 5))) == 5


def test_nothing_to_go_on_from_is_refused():
    with pytest.raises(ValueError, match="there must be a token to go on from"):
        next(gpt.generate(gpt.GPT(**TINY), torch.zeros(1, 0, dtype=torch.long), 3))


@pytest.mark.parametrize("temperature", [0, -1.0])
def test_a_temperature_of_zero_or_less_is_refused(temperature):
    with pytest.raises(ValueError, match="take one above 0, or `greedy`"):
        gpt.narrowed(torch.zeros(1, 3), temperature=temperature)


def test_too_short_a_text_is_refused():
    with pytest.raises(ValueError, match="10 tokens do not fill 4 rows of 8: bring more text"):
        gpt.stretches(np.arange(10), 8, 4)


def test_weights_of_something_else_are_refused():
    with pytest.raises(ValueError, match="these are not the weights of a GPT"):
        gpt.from_published({"encoder.layer.0.weight": torch.zeros(2, 2)})


def test_the_shipped_checkpoint_is_small_and_is_what_its_card_says():
    found = checkpoints.load("gpt")
    model = gpt.GPT(len(found.vocab), **found.card["settings"])
    model.load_state_dict(found.weights)
    assert (checkpoints.FOLDER / "gpt.safetensors").stat().st_size < 12e6
    assert found.card["steps"] == found.card["options"]["steps"]
    assert found.card["losses"]["speeches"] < found.card["validations"][0]["speeches"]
