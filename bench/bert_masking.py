"""What becomes of hidden tokens: a comparison that a page has no time for.

A BERT of two layers and width 64 reads the sentences of the miniature world's tagging task, with five mixes of
[MASK], random and unchanged tokens and five seeds each. On sentences it has not read: its loss where it sees [MASK],
where it sees the word itself, and where it sees a wrong one; and how well a logistic regression reads the part of
speech of ambiguous words off its frozen states. The untrained network is the control.

    python bench/bert_masking.py
"""

import numpy as np
import torch
from record import run_parts
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from lrm_utils import pretrain, text
from lrm_utils.data import miniature
from lrm_utils.models.bert import BERT, masker
from lrm_utils.models.bpe_and_wordpiece import BERT_SPECIALS, WordPiece
from lrm_utils.train import fit

MIXES = {
    "80/10/10": (0.8, 0.1, 0.1),
    "100/0/0": (1.0, 0.0, 0.0),
    "80/20/0": (0.8, 0.2, 0.0),
    "80/0/20": (0.8, 0.0, 0.2),
    "0/100/0": (0.0, 1.0, 0.0),
}
SEEDS = range(5)


class World:
    """The tagged sentences as ids, and which words have more than one tag."""

    def __init__(self):
        self.world = miniature.tagging()
        words = sorted({word for part in (self.world.train, self.world.test) for s in part for word in s.words})
        self.tokenizer = WordPiece([*BERT_SPECIALS, *words])
        tags = {}
        for sentence in self.world.train:
            for word, tag in zip(sentence.words, sentence.tags, strict=True):
                tags.setdefault(word, set()).add(tag)
        self.ambiguous = {word for word, several in tags.items() if len(several) > 1}
        self.train, self.test = self.ids(self.world.train), self.ids(self.world.test)

    def ids(self, sentences):
        start, end = self.tokenizer.id("[CLS]"), self.tokenizer.id("[SEP]")
        return [[start, *(self.tokenizer.ids[word] for word in s.words), end] for s in sentences]


def read_blanks(world, mix, seed, steps=400, B=64, **options):
    """A BERT that has read the training sentences with that mix."""
    torch.manual_seed(seed)
    model = BERT(len(world.tokenizer), 64, 2, H=4, limit=40, dropout=0.0, **options)
    hide, sizes = masker(world.tokenizer, mix=mix), [len(row) for row in world.train]

    def epoch(number):
        for rows in text.batches(len(sizes), B, 1000 * seed + number, sizes):
            yield text.pad([world.train[i] for i in rows], world.tokenizer.pad)

    def loss(model, batch):
        tokens, lengths = batch
        read, chosen = hide(tokens)
        logits, _ = model(read, None, lengths, chosen)
        return F.cross_entropy(logits, tokens[chosen], reduction="sum"), len(logits)

    if steps:
        fit(model, epoch, loss, steps=steps, lr=2e-3, schedule=pretrain.warm_and_cool, clip=1.0, seed=seed)
    return model.eval()


@torch.no_grad()
def asked(model, world):
    """The loss of the true word, and how often it is named, where there is [MASK], the word itself, a wrong word."""
    tokens, lengths = text.pad(world.test, world.tokenizer.pad)
    found = {}
    for name, mix in (("blank", (1, 0, 0)), ("itself", (0, 0, 1)), ("wrong", (0, 1, 0))):
        read, chosen = masker(world.tokenizer, mix=mix)(tokens, torch.Generator().manual_seed(0))
        logits, _ = model(read, None, lengths, chosen)
        found[name] = F.cross_entropy(logits, tokens[chosen]).item()
        found[f"{name}, named"] = (logits.argmax(-1) == tokens[chosen]).double().mean().item()
    return found


@torch.no_grad()
def states(model, world, rows, sentences):
    """The last states of all words, their tags, and whether they are ambiguous."""
    tokens, lengths = text.pad(rows, world.tokenizer.pad)
    last, inner = model.states(tokens, None, lengths)[-1], ~torch.isin(tokens, torch.tensor([0, 2, 3]))
    words = [word for s in sentences for word in s.words]
    return last[inner].numpy(), np.array([t for s in sentences for t in s.tags]), [w in world.ambiguous for w in words]


def probe(model, world, train=500):
    """The share of ambiguous words whose tag a logistic regression reads off the frozen states."""
    X, tags, _ = states(model, world, world.train[:train], world.world.train[:train])
    seen, wanted, ambiguous = states(model, world, world.test, world.world.test)
    guessed = LogisticRegression(max_iter=2000).fit(X, tags).predict(seen)
    return float((guessed == wanted)[ambiguous].mean())


def mixes():
    world, found = World(), {}
    for name, mix in (*MIXES.items(), ("untrained", (1.0, 0.0, 0.0))):
        found[name] = []
        for seed in SEEDS:
            model = read_blanks(world, mix, seed, steps=0 if name == "untrained" else 400)
            run = asked(model, world) | {"probe": probe(model, world)}
            found[name].append({key: round(value, 4) for key, value in run.items()})
            print(name, seed, found[name][-1], flush=True)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_parts("bert_masking", {"mixes": mixes})
