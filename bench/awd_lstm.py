"""AWD-LSTM: each regularizer switched off, averaged SGD and its trigger, and the checkpoint on all test speeches.

    python bench/awd_lstm.py [PART …]     all parts, or only the named ones (the others are kept)

The parts are `ablations`, `alone`, `asgd`, and `test`. All but the last train small models on the last 40,000 tokens of
the training speeches (1,000 words, settings of the notebook `08_ulmfit/01_awd_lstm`), one thread, and report the
perplexity on the last 10,000 tokens of the validation speeches after every epoch (or every 60 steps), for each seed.
`test` reads the shipped checkpoint and chapter 1's Kneser-Ney model on all test speeches, at chapter 1's vocabulary: a
few minutes.
"""

import math
import sys

import numpy as np
import torch
from record import run_parts

import lrm_utils as lrm
from lrm_utils import checkpoints, data, text
from lrm_utils.models import awd_lstm as awd
from lrm_utils.models.language_models import KneserNey, NGrams, windows

SEEDS, EPOCHS, B, T, LR = 2, 8, 20, 35, 1e-2
ON = dict(words=0.1, inputs=0.3, hidden=0.2, weights=0.4, output=0.3, alpha=1.0, beta=0.5, random=True)
OFF = dict.fromkeys(ON, 0.0) | dict(random=False)


def say(*words):
    """Progress, on standard error."""
    print(*words, file=sys.stderr, flush=True)


def speeches():
    """The sentences of every message in chapter 1's three parts, none of them cut."""
    years = sorted({speech.year for speech in data.sotu()})
    order = np.random.default_rng(0).permutation(years).tolist()
    part = dict.fromkeys(order[:24], 1) | dict.fromkeys(order[24:48], 2)
    parts = [], [], []
    for speech in data.sotu():
        found = map(text.words, text.sentences(speech.text))
        parts[part.get(speech.year, 0)].append([sentence for sentence in found if sentence])
    return parts


def joined(documents):
    """All words one after the other, with the ends of sentences."""
    return [word for document in documents for sentence in document for word in (*sentence, "</s>")]


def small_text(backward=False):
    """Rows to train on, rows to choose by, and how often each of 1,000 words occurs."""
    train, validation, _ = speeches()
    train, validation = joined(train)[-40_000:], joined(validation)[-10_000:]
    vocab = text.Vocab.build(train, size=1000, specials=("</s>", "<unk>"))
    rows, held_out = awd.rows_of(vocab.encode(train), B), awd.rows_of(vocab.encode(validation), 10)
    if backward:
        rows, held_out = rows.flip(1), held_out.flip(1)
    return rows, held_out, torch.bincount(rows.flatten(), minlength=len(vocab))


def build(counts, settings, layers=2, tied=True):
    """A small language model with some of the regularizers."""
    rates = {name: settings[name] for name in ("words", "inputs", "hidden", "weights")}
    model = awd.AWDLanguageModel(awd.AWDLSTM(len(counts), 64, 128, layers, **rates), settings["output"], tied)
    awd.start_as_unigram(model, counts)
    return model


def perplexity(model, rows):
    """Of every token but the first of a row."""
    return math.exp(-awd.log_probabilities(model, rows).mean().item())


def train(seed, small, settings, tied=True, epochs=EPOCHS):
    """Perplexities on validation after every epoch, and on what was trained on at the end."""
    rows, held_out, counts = small
    torch.manual_seed(seed)
    model = build(counts, settings, tied=tied)
    found = lrm.fit(
        model,
        lambda epoch: awd.chunks(rows, T, np.random.default_rng((seed, epoch)) if settings["random"] else None),
        awd.lm_loss(settings["alpha"], settings["beta"]),
        epochs=epochs,
        lr=LR,
        clip=1.0,
        carry=True,
        validate=lambda model: perplexity(model, held_out),
        seed=seed,
    )
    return {
        "seed": seed,
        "validation": [round(v["loss"], 2) for v in found.validation],
        "train": round(perplexity(model, rows), 2),
    }


def ablations():
    """All of them, none, all but one; weights that are not tied; and the text from the other end."""
    forward, backward = small_text(), small_text(backward=True)
    plans = {"none": (forward, OFF, True), "all": (forward, ON, True)}
    plans |= {f"all but {name}": (forward, ON | {name: OFF[name]}, True) for name in ON}
    plans |= {"all, not tied": (forward, ON, False), "all, backward": (backward, ON, True)}
    found = {name: [] for name in plans}
    for seed in range(SEEDS):
        for name, (small, settings, tied) in plans.items():
            found[name].append(train(seed, small, settings, tied))
            say(seed, name, found[name][-1]["validation"][-1], found[name][-1]["train"])
    return {"settings": ON, "runs": found}


def alone():
    """One regularizer at a time, and no other."""
    small, found = small_text(), {name: [] for name in ON}
    for seed in range(SEEDS):
        for name in ON:
            found[name].append(train(seed, small, OFF | {name: ON[name]}))
            say(seed, "only", name, found[name][-1]["validation"][-1], found[name][-1]["train"])
    return found


def descend(seed, small, steps=900, every=60, lr=20.0, n=3, trigger=True):
    """Plain steps at a constant rate, one layer, half of the dropout; perplexities of the weights and of their mean."""
    rows, held_out, counts = small
    torch.manual_seed(seed)
    model = build(counts, {name: rate / 2 for name, rate in ON.items()}, layers=1)
    optimizer = awd.NTASGD(model.parameters(), lr, n)
    found = {"seed": seed, "weights": [], "mean": [], "averaged": []}

    def validate(model):
        found["weights"].append(round(perplexity(model, held_out), 2))
        with awd.mean_weights(optimizer):
            found["mean"].append(round(perplexity(model, held_out), 2))
        found["averaged"].append(optimizer.param_groups[0]["averaged"])
        optimizer.watch(found["weights"][-1])
        return found["weights"][-1]

    lrm.fit(
        model,
        lambda epoch: awd.chunks(rows, T, np.random.default_rng((seed, epoch))),
        awd.lm_loss(0.0, 0.0),
        steps=steps,
        optimizer=optimizer,
        schedule=None if trigger else lambda step, steps: 1 - step / steps,
        clip=0.25,
        carry=True,
        validate=validate,
        validate_every=every,
        seed=seed,
    )
    return found


def asgd():
    """The trigger at work, and the same number of steps with a rate that falls along a line to 0 instead."""
    small, found = small_text(), {"triggered": [], "falling rate": []}
    for seed in range(3):
        found["triggered"].append(descend(seed, small))
        found["falling rate"].append(descend(seed, small, trigger=False))
        say(seed, *(runs[-1]["weights"][-1] for runs in found.values()), found["triggered"][-1]["mean"][-1])
    return found


def renamed(vocab, big):
    """The ids of `big` for the words of `vocab`, and the ids that count as `<unk>`: its own and all other words."""
    known = torch.tensor([big[word] for word in vocab.words])
    rest = torch.ones(len(big), dtype=torch.bool)
    rest[known] = False
    return known, torch.cat([torch.tensor([big["<unk>"]]), rest.nonzero()[:, 0]])


def read_on(model, ids, unk, end, rows=20):
    """log p of every token of one long text, read as so many rows; each begins after the token before it."""
    length = math.ceil(len(ids) / rows)
    padded = torch.cat([torch.tensor([end]), ids, torch.zeros(rows * length - len(ids), dtype=ids.dtype)])
    pieces = torch.stack([padded[i * length : (i + 1) * length + 1] for i in range(rows)])
    return awd.log_probabilities(model, pieces, unk=unk).flatten()[: len(ids)].double().numpy()


def read_alone(model, sentences, unk, end, B=50):
    """log p of every token when each sentence is read by itself, in the order of the text."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    found = [None] * len(sentences)
    for start in range(0, len(order), B):
        some = order[start : start + B]
        padded, _ = text.pad([[end, *sentences[i].tolist()] for i in some])
        for i, row in zip(some, awd.log_probabilities(model, padded, unk=unk), strict=True):
            found[i] = row[: len(sentences[i])]
    return torch.cat(found).double().numpy()


def mixed(log_p, log_q, weight):
    """Log of a weighted mean of two probabilities."""
    return np.logaddexp(np.log(weight) + log_p, np.log1p(-weight) + log_q)


def test():
    """The checkpoint and Kneser-Ney on all test speeches; the mixture's weight is chosen on validation speeches."""
    checkpoint, parts = checkpoints.load("awd-lstm"), speeches()
    settings, big = checkpoint.card["settings"], checkpoint.vocab
    model = awd.AWDLanguageModel(awd.AWDLSTM(len(big), settings["D"], settings["H"], settings["layers"]))
    model.load_state_dict(checkpoint.weights)
    model.eval()
    vocab = text.Vocab.build((w for d in parts[0] for s in d for w in s), 5, specials=("</s>", "<unk>"))
    V, end, (known, unk) = len(vocab), big["</s>"], renamed(vocab, big)
    counted = [[vocab.encode(s) for d in part for s in d] for part in parts]
    reviews = [vocab.encode(s) for d in review_sentences() for s in d]
    kneser_ney = KneserNey(NGrams(*windows(counted[0], V, 5), V))
    informed = KneserNey(NGrams(*windows(counted[0] + reviews, V, 5), V))

    def read(sentences):
        closed = [known[np.append(s, 0)] for s in sentences]
        log_q, log_r = (np.log(m.probability(*windows(sentences, V, 5))) for m in (kneser_ney, informed))
        return read_on(model, torch.cat(closed), unk, end), log_q, log_r, closed

    log_p, log_q, _, _ = read(counted[1][:2000])
    weights = [round(0.05 * i, 2) for i in range(1, 20)]
    weight = max(weights, key=lambda w: mixed(log_p, log_q, w).mean())
    log_p, log_q, log_r, closed = read(counted[2])
    scores = {
        "AWD-LSTM": log_p,
        "AWD-LSTM, each sentence alone": read_alone(model, closed, unk, end),
        "Kneser-Ney": log_q,
        "Kneser-Ney with reviews": log_r,
        "mixture": mixed(log_p, log_q, weight),
    }
    facts = {name: round(math.exp(-values.mean()), 2) for name, values in scores.items()}
    return {"tokens": len(log_p), "weight": weight, "sha256": checkpoint.card["sha256"], "perplexities": facts}


def review_sentences():
    """The reviews that the checkpoint was trained on."""
    from lrm_utils import pretrain

    reviews, long = pretrain.review_texts(), len(data.reviews("imdb").train)
    return reviews[:6000] + reviews[long:]


PARTS = {part.__name__: part for part in (ablations, alone, asgd, test)}


def main() -> None:
    """Run the parts and write the record."""
    torch.set_num_threads(1)
    run_parts("awd_lstm", PARTS, epochs=EPOCHS)


if __name__ == "__main__":
    main()
