"""GPT of chapter 9 beside Hugging Face transformers 5.22 and tokenizers 0.23."""

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTModel
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from lrm_utils import checkpoints, data
from lrm_utils.models import gpt
from lrm_utils.models.bpe_and_wordpiece import GPT2

V, D, H, LAYERS, LIMIT = 97, 24, 3, 3, 64


def scattered(model):
    """The model with weights far from their start, so that nothing agrees by being near 0 or 1."""
    torch.manual_seed(1)
    for weight in model.parameters():
        weight.data += 0.4 * torch.randn_like(weight)
    return model.eval()


@pytest.fixture(scope="module")
def pair():
    config = GPT2Config(vocab_size=V, n_positions=LIMIT, n_embd=D, n_layer=LAYERS, n_head=H, eos_token_id=None)
    theirs = scattered(GPT2LMHeadModel(config))
    ours = gpt.GPT(V, D, H, LAYERS, LIMIT).eval()
    ours.load_state_dict(gpt.from_published(theirs.state_dict()))
    return ours, theirs


@torch.no_grad()
def test_logits_equal_those_of_gpt2_with_copied_weights(pair):
    ours, theirs = pair
    tokens = torch.randint(V, (5, LIMIT))
    expected = theirs(tokens).logits
    assert expected.std() > 1  # they are not all alike
    torch.testing.assert_close(ours(tokens), expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@torch.no_grad()
def test_fifty_greedy_tokens_are_those_of_gpt2(pair):
    ours, theirs = pair
    prompt = torch.randint(V, (4, 7))
    expected = theirs.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=50,
        min_new_tokens=50,
        do_sample=False,
        pad_token_id=0,
    )
    found = torch.stack(list(gpt.generate(ours, prompt, 50)), 1)
    assert torch.equal(found, expected[:, 7:])
    assert len(found.unique()) > 10


def test_the_training_loss_and_its_gradient_are_those_of_gpt2(pair):
    ours, theirs = pair
    batch = torch.randint(V, (3, 20))
    total, n = gpt.next_token_loss(ours, batch)
    expected = theirs(batch, labels=batch).loss
    torch.testing.assert_close(total / n, expected, rtol=1e-5, atol=1e-6)
    (found,) = torch.autograd.grad(total / n, ours.table.weight)
    tokens, places = torch.autograd.grad(expected, [theirs.transformer.wte.weight, theirs.transformer.wpe.weight])
    torch.testing.assert_close(found, torch.cat([tokens, places]), rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_states_equal_those_of_the_first_gpt_with_copied_weights():
    config = OpenAIGPTConfig(vocab_size=V, n_positions=LIMIT, n_embd=D, n_layer=LAYERS, n_head=H)
    theirs = scattered(OpenAIGPTModel(config))
    ours = gpt.GPT(V, D, H, LAYERS, LIMIT, norm="post").eval()
    ours.load_state_dict(gpt.from_published(theirs.state_dict()))
    tokens = torch.randint(V, (5, LIMIT))
    expected = theirs(tokens).last_hidden_state
    torch.testing.assert_close(ours.states(tokens), expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("published", gpt.PUBLISHED)
def test_the_published_sizes_are_those_of_the_default_configurations(published):
    config = {"GPT": OpenAIGPTConfig, "GPT-2": GPT2Config}[published]()
    asked = gpt.PUBLISHED[published]
    assert (config.vocab_size, config.n_embd, config.n_head, config.n_layer, config.n_positions) == tuple(
        asked[name] for name in ("V", "D", "H", "layers", "limit")
    )


def test_byte_level_bpe_of_the_checkpoint_is_that_of_the_tokenizers_library():
    ours = checkpoints.load("gpt").vocab
    merges = [tuple(pair) for pair in ours.state["merges"]]
    model = models.BPE(vocab={token: i for i, token in enumerate(ours.tokens)}, merges=merges)
    theirs = Tokenizer(model)
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = decoders.ByteLevel()
    texts = [speech.text[:3000] for speech in data.sotu()[::25]]
    texts += [review.text for review in data.reviews("imdb").test[:50]] + ["naïve 🙂\n\n  l'été ½ <|endoftext|> \t x"]
    for text in texts:
        assert ours.encode(text) == theirs.encode(text).ids
        assert ours.decode(ours.encode(text)) == text == theirs.decode(theirs.encode(text).ids)
    assert GPT2.findall("I'll go") == ["I", "'ll", " go"]


PROCESSORS = {
    "temperature": (dict(temperature=0.7), TemperatureLogitsWarper(0.7)),
    "top k": (dict(top_k=7), TopKLogitsWarper(7)),
    "top p": (dict(top_p=0.8), TopPLogitsWarper(0.8)),
    "nearly all": (dict(top_p=0.999), TopPLogitsWarper(0.999)),
    "repetition": (dict(repetition=1.3), RepetitionPenaltyLogitsProcessor(1.3)),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_what_may_be_drawn_is_what_the_library_lets_through(name):
    options, theirs = PROCESSORS[name]
    torch.manual_seed(2)
    seen, logits = torch.randint(V, (40, 12)), 3 * torch.randn(40, V)
    expected = theirs(seen, logits.clone())
    found = gpt.narrowed(logits, seen, **options)
    assert torch.equal(found.isfinite(), expected.isfinite())
    torch.testing.assert_close(found.softmax(-1), expected.softmax(-1), rtol=1e-5, atol=1e-7)


def test_in_training_numbers_are_dropped_where_gpt2_drops_them():
    """Over 400 rows in training, the spread of every logit is that of the library's, up to chance."""
    torch.manual_seed(3)
    rates = dict(resid_pdrop=0.2, embd_pdrop=0.2, attn_pdrop=0.2)
    theirs = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=LIMIT, n_embd=D, n_layer=2, n_head=H, **rates))
    theirs = scattered(theirs).train()
    ours = gpt.GPT(V, D, H, 2, LIMIT, dropout=0.2).train()
    ours.load_state_dict(gpt.from_published(theirs.state_dict()))
    tokens = torch.randint(V, (1, 12)).repeat(400, 1)
    with torch.no_grad():
        found, expected = ours(tokens).std(0).mean(), theirs(tokens).logits.std(0).mean()
    assert found.item() == pytest.approx(expected.item(), rel=0.02)
