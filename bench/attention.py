"""Attention on the miniature translation: scores, wirings, windows, and hard attention, trained alike.

    python bench/attention.py [NAME …]     all variants, or only the named ones (the others are kept as they are)

Settings are those of the notebook `05_attention/02_attention`, 1,000 steps of 64 pairs, one thread; one to three seeds
a variant. Scored on the 1,000 test sentences by greedy search: the share translated
exactly, all and by length; the alignment error rate of the largest weights, as read and with each target word linked
by the weights of the step before.
"""

from functools import partial

import torch
from record import clock, run_parts

import lrm_utils as lrm
from lrm_utils.data import miniature
from lrm_utils.models import attention as at
from lrm_utils.models import seq2seq as s2s

D, EDGES = 128, (3, 6, 9, 12, 15, 18, 21, 26)


def additive():
    return at.Attention(at.AdditiveScore(D))


def general():
    return at.Attention(at.GeneralScore(D))


VARIANTS = {  # name: (decoder, bidirectional, options of hard_loss, seeds)
    "before, additive": (lambda: at.Before(D, additive()), True, None, 3),
    "before, general": (lambda: at.Before(D, general()), True, None, 2),
    "before, dot": (lambda: at.Before(D, at.Attention(at.DotScore())), True, None, 2),
    "before, cosine": (lambda: at.Before(D, at.Attention(at.CosineScore())), True, None, 2),
    "before, bare cosine": (lambda: at.Before(D, at.Attention(at.CosineScore(1.0))), True, None, 1),
    "before, two heads": (
        lambda: at.Before(D, at.Attention(at.AdditiveScore(D), at.AdditiveScore(D))),
        True,
        None,
        1,
    ),
    "before, one direction": (lambda: at.Before(D, additive()), False, None, 1),
    "after, general": (lambda: at.After(D, general()), True, None, 1),
    "fed, general": (lambda: at.Fed(D, general()), True, None, 1),
    "next, additive": (lambda: at.Next(D, additive()), True, None, 1),
    "local, monotonic": (lambda: at.After(D, at.LocalAttention(at.GeneralScore(D), D, 3, False)), True, None, 1),
    "local, predictive": (lambda: at.After(D, at.LocalAttention(at.GeneralScore(D), D, 3)), True, None, 1),
    "hard, all places": (lambda: at.After(D, general()), True, dict(enumerate_all=True), 1),
    "hard, 4 draws, others": (lambda: at.After(D, general()), True, dict(samples=4), 1),
    "hard, 1 draw, none": (lambda: at.After(D, general()), True, dict(samples=1, baseline="none"), 1),
}


def run(seed, decoder, bidirectional, hard):
    """Train one variant and score it."""
    corpus = s2s.parallel(miniature.translation())
    torch.manual_seed(seed)
    sizes = len(corpus.source_vocab), len(corpus.target_vocab)
    model = at.AttentionSeq2Seq(*sizes, D, decoder(), bidirectional)

    def loss(model, batch):
        return s2s.translation_loss(model, batch) if hard is None else at.hard_loss(model, batch, **hard)

    batches = s2s.shuffled_batches(corpus.train, 64)
    seconds, history = clock(lrm.fit, model, batches, loss, steps=1000, lr=3e-3, schedule=s2s.ramp, clip=1.0, seed=seed)
    right = s2s.exact(s2s.translate(model, corpus.test), corpus.test)
    maps = at.attended(model, corpus.test)
    gold = [set(pair.alignment) for pair in corpus.test]
    first = [{link for link in g if link[1] > 0} for g in gold]  # shifted, the first word has no row
    return {
        "seed": seed,
        "exact": round(float(right.mean()), 4),
        "by_length": [round(x, 4) for x in s2s.by_length(right, corpus.test, EDGES)],
        "aer": round(at.alignment_error_rate([at.links(w) for w in maps], gold), 4),
        "aer_shifted": round(at.alignment_error_rate([at.links(w, shift=1) for w in maps], first), 4),
        "loss": round(sum(history.losses[-50:]) / 50, 4),
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 1),
    }


def runs(decoder, bidirectional, hard, seeds):
    """Runs of one variant that differ in the seed."""
    return [run(seed, decoder, bidirectional, hard) for seed in range(seeds)]


def main() -> None:
    """Run the variants and write the record."""
    torch.set_num_threads(1)
    parts = {name: partial(runs, *setting) for name, setting in VARIANTS.items()}
    run_parts("attention", parts, inside="runs", edges=EDGES)


if __name__ == "__main__":
    main()
