"""CoVe: what the encoder of a translator knows, and what it buys in a classifier, over seeds and numbers of labels.

    python bench/cove.py miniature     the settings of the notebook `05_attention/04_cove`, three seeds
    python bench/cove.py french        100,000 pairs of fra-eng, then SNLI and movie reviews: real text, one translator
    python bench/cove.py               both; the part that is not asked for is kept

Four questions about words in context are answered by linear probes on static vectors, on windows of them, and on
[v; state] of an untrained, a shuffled, and the trained encoder; once taught on all examples and once on the first 200.
Endings of translations after states were taken from another sentence say what the decoder uses. A biattentive
classifier then learns a task from so many labeled examples, with different things beside the word vectors. The learning
rate of each kind is the best of `RATES` on validation examples, with a seed that is not used again; scores are on test
examples. Differences between classifiers are taken item by item, the mean over seeds first; the error is over groups of
items that share a hypothesis (three in the miniature world, one elsewhere) and knows nothing of another translator.
"""

import sys

import numpy as np
import torch
from record import run_parts

import lrm_utils as lrm
from lrm_utils import data, text
from lrm_utils.data import miniature
from lrm_utils.models import attention as at
from lrm_utils.models import cove as cv
from lrm_utils.models import seq2seq as s2s

SEEDS, CHOOSING = 3, 100
RATES = (1e-3, 3e-3, 8e-3)
SMALL = dict(D=128, E=64, layers=(2, 1), B=64, steps=900, lr=1e-2)
FRENCH = dict(D=200, E=100, layers=(2, 1), B=64, steps=6000, lr=3e-3)
LABELED = (1200, 4800)
KINDS = ("static", "untrained", "CoVe")
WINDOWS = {"neighbors": 1, "nine words": 4}
PROBED = ("static", *WINDOWS, "untrained", "shuffled", "CoVe")


def say(*words):
    """Progress, on standard error."""
    print(*words, file=sys.stderr, flush=True)


def translator(seed, corpus, vectors, D, E, layers, B, steps, lr):
    """Train one translator; the model and its scores."""
    torch.manual_seed(seed)
    model = cv.Translator(cv.vector_table(corpus.source_vocab, vectors), len(corpus.target_vocab), D, E, layers)
    batches = s2s.shuffled_batches(corpus.train, B)
    history = lrm.fit(model, batches, s2s.translation_loss, steps=steps, lr=lr, schedule=s2s.ramp, clip=1.0, seed=seed)
    found = s2s.translate(model, corpus.test)
    facts = {
        "seed": seed,
        "exact": round(float(s2s.exact(found, corpus.test).mean()), 4),
        "bleu": round(s2s.bleu(found, [[p.target[1:-1].tolist()] for p in corpus.test]), 4),
        "loss": round(float(np.mean(history.losses[-50:])), 4),
    }
    if corpus.test[0].alignment:
        links = [at.links(weights) for weights in at.attended(model, corpus.test)]
        facts["aer"] = round(at.alignment_error_rate(links, [set(p.alignment) for p in corpus.test]), 4)
        facts["flips"] = {name: round(value, 4) for name, value in cv.patches(model, corpus).items()}
    say(facts)
    return model, facts


def coded(parts, vectors):
    """Examples (texts, label) in ids, words without a vector left out, and the table of vectors."""
    known = [
        [(tuple([w for w in words if w in vectors.vocab] for words in texts), label) for texts, label in part]
        for part in parts
    ]
    words = (w for texts, _ in known[0] for some in texts for w in some)
    vocab = text.Vocab.build(words, specials=s2s.SPECIALS)
    ids = [
        [(tuple(vocab.encode(some) for some in texts), label) for texts, label in part if all(texts)] for part in known
    ]
    return ids, cv.vector_table(vocab, vectors)


def pairs_of(splits, words=tuple):
    """Inference pairs as examples of two texts: train, validation, test."""
    return [
        [((words(p.premise), words(p.hypothesis)), miniature.LABELS.index(p.label)) for p in part]
        for part in (splits.train, splits.validation, splits.test)
    ]


def opinions(vectors):
    """Sentences of movie reviews as examples of one text."""
    reviews = data.reviews("mr")
    parts = (reviews.train, reviews.validation, reviews.test)
    return coded([[((text.words(r.text),), r.label) for r in part] for part in parts], vectors)


def learned(encoder, train, test, table, C, lr, seed, steps, D=64):
    """Train one classifier; which test examples it gets right."""
    features = cv.Features(table, encoder)
    model = cv.trained_classifier(features, train, C, steps, seed=seed, lr=lr, D=D)
    return cv.right(model, test).astype(float)


def judged(name, encoders, parts, table, C, sizes, steps, group, seeds=SEEDS, D=64):
    """Choose each kind's rate on validation, train with every number of labels and seed; scores and paired gains.

    `encoders` has a list for each kind, one encoder a seed (or the same one), and the first is used for choosing.
    """
    train, validation, test = parts
    rates, runs = {}, {}
    for kind in KINDS:
        tried = {
            rate: learned(encoders[kind][0], train[: sizes[-1]], validation, table, C, rate, CHOOSING, steps, D).mean()
            for rate in RATES
        }
        rates[kind] = max(tried, key=tried.get)
        say(name, kind, {rate: round(score, 3) for rate, score in tried.items()})
        runs[kind] = {
            n: [
                learned(encoders[kind][seed], train[:n], test, table, C, rates[kind], seed, steps, D)
                for seed in range(seeds)
            ]
            for n in sizes
        }
        say(name, kind, {n: [round(r.mean(), 4) for r in some] for n, some in runs[kind].items()})
    return {
        "steps": steps,
        "rates": rates,
        "accuracy": {str(n): {k: [round(float(r.mean()), 4) for r in runs[k][n]] for k in KINDS} for n in sizes},
        "gains": {str(n): gains({k: runs[k][n] for k in KINDS}, group) for n in sizes},
        "test": len(test),
    }


def gains(found, group):
    """CoVe less each other kind, item by item, over all seeds: mean, error over groups, and each seed's."""
    out = {}
    for kind in found:
        if kind != "CoVe":
            each = np.stack(found["CoVe"]) - np.stack(found[kind])  # (seeds, items)
            whole = each[:, : each.shape[1] // group * group]
            grouped = whole.mean(0).reshape(-1, group).mean(1)
            out[kind] = {
                "gain": round(float(each.mean()), 4),
                "error": round(float(grouped.std(ddof=1) / np.sqrt(len(grouped))), 4),
                "seeds": [round(float(d), 4) for d in each.mean(1)],
            }
    return out


def answered(encoder, untrained, vectors, seed):
    """The accuracy of probes, taught on all examples and on 200."""
    sides = {"untrained": untrained, "CoVe": encoder, "shuffled": cv.shuffled_weights(encoder, seed)}
    taught, tested = cv.questions("train"), cv.questions("test")
    rng = np.random.default_rng(0)
    few = {question: [some[i] for i in rng.permutation(len(some))[:200]] for question, some in taught.items()}
    return {
        name: {k: cv.probed(part, tested, vectors, sides.get(k), window=WINDOWS.get(k, 0)) for k in PROBED}
        for name, part in (("all", taught), ("200", few))
    }


def fresh(encoder, seed):
    """An encoder of the same size with its random start."""
    torch.manual_seed(1000 + seed)
    rnn = encoder.rnn
    return cv.MTLSTM(rnn.input_size, 2 * rnn.hidden_size, rnn.num_layers)


def columns(probes):
    """Probe scores of several seeds: taught, kind, question, list over seeds."""
    return {
        taught: {
            kind: {q: [round(run[taught][kind][q], 4) for run in probes] for q in answers}
            for kind, answers in kinds.items()
        }
        for taught, kinds in probes[0].items()
    }


def in_miniature():
    """Translators of the miniature world; probes; inference there."""
    vectors, corpus = cv.enlarged(data.glove()), s2s.parallel(miniature.translation(train=16_000))
    models, facts = zip(*(translator(seed, corpus, vectors, **SMALL) for seed in range(SEEDS)), strict=True)
    encoders = {"CoVe": [model.encoder for model in models], "static": [None] * SEEDS}
    encoders["untrained"] = [fresh(e, i) for i, e in enumerate(encoders["CoVe"])]
    probes = [
        answered(e, u, vectors, seed)
        for seed, (e, u) in enumerate(zip(encoders["CoVe"], encoders["untrained"], strict=True))
    ]
    say(columns(probes))
    parts, table = coded(pairs_of(miniature.inference()), vectors)
    inference = judged("inference", encoders, parts, table, 3, LABELED, 1500, group=3)
    return {"translators": facts, "probes": columns(probes), "inference": inference}


def in_french():
    """A translator of real sentences; probes; SNLI and movie reviews."""
    vectors, corpus = data.glove(), s2s.parallel(s2s.french(), 3)
    model, facts = translator(0, corpus, vectors, **FRENCH)
    untrained = fresh(model.encoder, 0)
    encoders = {"static": [None] * SEEDS, "untrained": [untrained] * SEEDS, "CoVe": [model.encoder] * SEEDS}
    probes = columns([answered(model.encoder, untrained, vectors, 0)])["all"]
    probes = {kind: {q: probes[kind][q] for q in ("tag", "sense")} for kind in probes}  # the others are about Tolan
    found = {"translator": facts | {"pairs": len(corpus.train)}, "probes": probes}
    parts, table = opinions(vectors)
    found["reviews"] = judged("reviews", encoders, parts, table, 2, (len(parts[0]),), 1200, group=1)
    parts, table = coded(pairs_of(data.snli(), text.words), vectors)
    found["snli"] = judged("snli", encoders, parts, table, 3, (10_000,), 2000, group=1, seeds=2)
    return found


PARTS = {"miniature": in_miniature, "french": in_french}


def main() -> None:
    """Run the parts and write the record."""
    torch.set_num_threads(1)
    run_parts("cove", PARTS)


if __name__ == "__main__":
    main()
