"""What the output layer of chapter 7 costs and buys: a table of vectors, a character CNN, and one with a correction."""

import numpy as np
import torch
from record import run_parts

import lrm_utils as lrm
from lrm_utils import pretrain, text
from lrm_utils.models import bilm

SHAPE = dict(filters=[(1, 16), (2, 32), (3, 64), (4, 64)], D=64, H=128)
KINDS = {"table": None, "characters": 0, "characters and correction": 16}
SEEDS, STEPS, TOKENS, K = (0, 1), 300, 768, 1024


def speeches():
    """Forty training speeches and sentences of the validation speeches, with their vocabulary and lexicon."""
    train, validation, _ = pretrain.speeches()
    train = [sentence for document in train[::5] for sentence in document]
    held_out = [sentence for document in validation for sentence in document][:400]
    vocab = text.Vocab.build((w for s in train for w in s), min_count=5, specials=pretrain.SPECIALS)
    return train, held_out, vocab, bilm.Lexicon.of([*train, *held_out], vocab)


def new_model(kind, vocab, seed):
    """A small biLM with one of the three output layers."""
    torch.manual_seed(seed)
    D, correction = SHAPE["D"], KINDS[kind]
    output = bilm.Softmax(len(vocab), D) if correction is None else bilm.CNNSoftmax(vocab.words, D, correction)
    return bilm.LanguageModel(bilm.BiLM(**SHAPE), output)


def train(model, lexicon, sentences, seed, steps=STEPS):
    """The losses of a short training with sampled candidates."""
    batches = bilm.sentence_batches(lexicon, sentences, TOKENS, seed)
    schedule = pretrain.warm_and_cool if steps == STEPS else lambda step, _: pretrain.warm_and_cool(step, STEPS)
    loss = bilm.joint_loss(lexicon, K)
    return lrm.fit(model, batches, loss, steps=steps, lr=3e-3, schedule=schedule, clip=1.0, seed=seed).losses


def one_letter_apart(words):
    """Pairs of words of five letters or more that differ in a single letter, neither the first nor the last."""
    places = {}
    for i, word in enumerate(words):
        for at in range(1, len(word) - 1):
            if len(word) >= 5:
                places.setdefault((word[:at], word[at + 1 :]), []).append(i)
    return np.array([(some[0], other) for some in places.values() for other in some[1:]])


@torch.no_grad()
def likeness(model, vocab):
    """The mean cosine of output vectors: of words that are spelled nearly alike, and of any two.

    What all vectors have in common moves all scores alike and changes no probability: it is taken away first.
    """
    vectors = model.softmax.vectors(torch.arange(len(vocab)))
    vectors = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1)
    pairs = one_letter_apart(vocab.words)
    chance = np.random.default_rng(0).integers(2, len(vocab), (2000, 2))
    return {
        name: round(float((vectors[some[:, 0]] * vectors[some[:, 1]]).sum(1).mean()), 3)
        for name, some in (("alike", pairs), ("any", chance))
    }


def measure(kind):
    """Two trainings with one output layer."""
    train_sentences, held_out, vocab, lexicon = speeches()
    found = []
    for seed in SEEDS:
        model = new_model(kind, vocab, seed)
        before = likeness(model, vocab)
        losses = train(model, lexicon, train_sentences, seed)
        found.append(
            {
                "losses": [round(float(np.mean(losses[i : i + 20])), 4) for i in range(0, STEPS, 20)],
                "perplexities": {k: round(v, 2) for k, v in bilm.perplexities(model, lexicon, held_out).items()},
                "cosines before": before,
                "cosines": likeness(model, vocab),
            }
        )
    output = sum(p.numel() for p in model.softmax.parameters())
    return {"words": len(vocab), "parameters": output, "runs": found}


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_parts("bilm", {kind: lambda kind=kind: measure(kind) for kind in KINDS}, inside="softmax")
