"""Sequence to sequence on the miniature translation: the wirings, widths, directions, and feeding back in training.

    python bench/seq2seq.py [NAME …]     all variants, or only the named ones (the others are kept as they are)

Settings are those of the notebook `05_attention/01_seq2seq`, one to three seeds a variant, one thread. Every
run is scored on the 1,000 test sentences by greedy search: the share translated exactly, all and by length of the
source, and BLEU.
"""

from functools import partial

import torch
from record import clock, run_parts

import lrm_utils as lrm
from lrm_utils.data import Splits, miniature
from lrm_utils.models import seq2seq as s2s

EDGES = (3, 6, 9, 12, 15, 18, 21, 26)
VARIANTS = {
    "basic": dict(embedded=False),
    "basic, embedding's start": dict(embedded=False, start=True),
    "tied": dict(embedded=False, tied=True),
    "embedding": dict(),
    "embedding tied": dict(tied=True),
    "embedding, D = 64": dict(D=64),
    "embedding, D = 256": dict(D=256, seeds=1),
    "embedding, 6,000 steps": dict(steps=6000, seeds=1),
    "embedding, 6,000 steps, 32,000 pairs": dict(steps=6000, pairs=32_000, seeds=1),
    "source reversed": dict(reverse=True, seeds=2),
    "two directions": dict(bidirectional=True, seeds=1),
    "fed back 0.25": dict(feed=0.25, seeds=2),
    "fed back 0.25, not learning": dict(feed=0.25, learn=False, seeds=1),
    "fed back 1.0": dict(feed=1.0, seeds=1),
}


def build(corpus, D=128, start=False, **options):
    """A model; with `start`, one-hot vectors meet the product of the weights that `embedding` starts with."""
    sizes = len(corpus.source_vocab), len(corpus.target_vocab)
    model = s2s.Seq2Seq(*sizes, D, **options)
    if start:
        with torch.no_grad():
            for rnn, V in ((model.encoder.rnn, sizes[0]), (model.decoder, sizes[1])):
                plain = torch.nn.GRU(D, D)
                rnn.weight_ih_l0.copy_(plain.weight_ih_l0 @ torch.randn(V, D).T)
    return model


def run(seed, tied=False, reverse=False, feed=0.0, learn=True, steps=1500, pairs=8000, **options):
    """Train one variant and score it."""
    splits = miniature.translation(train=pairs)
    if reverse:
        turned = ([s2s.Translation(p.source[::-1], p.target, ()) for p in part] for part in vars(splits).values())
        splits = Splits(*map(tuple, turned))
    corpus = s2s.parallel(splits, joint=tied)
    torch.manual_seed(seed)
    model = build(corpus, tied=tied, **options)

    def loss(model, batch):
        if not feed:
            return s2s.translation_loss(model, batch)
        target = batch["target"]
        logits = s2s.unroll(model, batch["source"], batch["source_lengths"], target[:, :-1], feed, learn)
        return s2s.masked_loss(logits, target[:, 1:], batch["target_lengths"] - 1)

    batches = s2s.shuffled_batches(corpus.train, 64)
    seconds, history = clock(
        lrm.fit, model, batches, loss, steps=steps, lr=3e-3, schedule=s2s.ramp, clip=1.0, seed=seed
    )
    found = s2s.translate(model, corpus.test)
    right = s2s.exact(found, corpus.test)
    return {
        "seed": seed,
        "exact": round(float(right.mean()), 4),
        "by_length": [round(x, 4) for x in s2s.by_length(right, corpus.test, EDGES)],
        "bleu": round(s2s.bleu(found, [[p.target[1:-1].tolist()] for p in corpus.test]), 4),
        "loss": round(sum(history.losses[-50:]) / 50, 4),
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seconds": round(seconds, 1),
    }


def runs(seeds=3, **options):
    """Runs of one variant that differ in the seed."""
    return [run(seed, **options) for seed in range(seeds)]


def main() -> None:
    """Run the variants and write the record."""
    torch.set_num_threads(1)
    parts = {name: partial(runs, **options) for name, options in VARIANTS.items()}
    run_parts("seq2seq", parts, inside="runs", edges=EDGES)


if __name__ == "__main__":
    main()
