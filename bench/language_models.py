"""What more training buys the neural language model of chapter 1, beside Kneser-Ney on the same text and vocabulary.

    python bench/language_models.py            train for each budget and write the record language_models
    python bench/language_models.py --quick    a rehearsal of a minute: tiny budgets, nothing is written

One thread, the speeches, the split, and the settings of the notebook: its own training is the first point of the
record, and the notebook checks that the two agree. The record also holds the time to count all n-grams up to order 5 in
sorted tables, and those of order 5 alone with a dictionary.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import sys
import time
from collections import Counter

import numpy as np
import torch
from record import save, seconds
from torch.nn import functional as F

import lrm_utils as lrm
from lrm_utils import data, text
from lrm_utils.models.language_models import NNLM, KneserNey, NGrams, warm_up_and_decay, windows

V, N, D, H = 3_000, 5, 48, 96
BATCH, RATE, SEED = 512, 0.008, 0
STEPS, BUDGETS = 1_600, (1, 2, 4, 8, 16)


def split() -> list[list[np.ndarray]]:
    """The sentences of the speeches as ids, in three parts by year: train, validation, test."""
    years = sorted({speech.year for speech in data.sotu()})
    order = np.random.default_rng(0).permutation(years).tolist()
    part = dict.fromkeys(order, 0) | dict.fromkeys(order[:24], 1) | dict.fromkeys(order[24:48], 2)
    parts = [[], [], []]
    for speech in data.sotu():
        parts[part[speech.year]] += filter(None, map(text.words, text.sentences(speech.text)))
    vocab = text.Vocab.build((w for sentence in parts[0] for w in sentence), size=V, specials=("</s>", "<unk>"))
    return [[vocab.encode(sentence) for sentence in sentences] for sentences in parts]


def perplexity(p: np.ndarray) -> float:
    """exp of the mean negative log probability."""
    return float(np.exp(-np.log(p).mean()))


def mixed(p: np.ndarray, q: np.ndarray, rounds: int = 50) -> float:
    """The weight of p in the best mixture of p and q, by EM."""
    weight = 0.5
    for _ in range(rounds):
        weight = float((weight * p / (weight * p + (1 - weight) * q)).mean())
    return weight


def train(contexts: np.ndarray, words: np.ndarray, steps: int) -> NNLM:
    """The recipe of the notebook, for any number of steps."""
    torch.manual_seed(SEED)
    model = NNLM(V, N, D, H)
    model.start_as_unigram(words)
    h, w = torch.as_tensor(contexts).long(), torch.as_tensor(words)

    def batches(epoch):
        return ((h[rows], w[rows]) for rows in text.batches(len(w), BATCH, seed=epoch))

    def loss(model, batch):
        return F.cross_entropy(model(batch[0]), batch[1])

    lrm.fit(model, batches, loss, steps=steps, lr=RATE, schedule=warm_up_and_decay, seed=SEED)
    return model


def main() -> None:
    """Train for each budget, compare with Kneser-Ney, record."""
    torch.set_num_threads(1)
    steps = 20 if "--quick" in sys.argv[1:] else STEPS
    parts = split()
    (train_h, train_w), validation, test = (windows(part, V, N) for part in parts)
    kn = KneserNey(NGrams(train_h, train_w, V))
    kn_validation, kn_test = (kn.probability(*part) for part in (validation, test))
    unigram = KneserNey(NGrams(train_h[:, :0], train_w, V)).probability(*test)
    runs = []
    for budget in BUDGETS:
        begin = time.perf_counter()
        model = train(train_h, train_w, budget * steps)
        taken = time.perf_counter() - begin
        p_validation, p_test = (model.probability(*part) for part in (validation, test))
        weight = mixed(p_validation, kn_validation)
        run = {
            "steps": budget * steps,
            "epochs": round(budget * steps * BATCH / len(train_w), 3),
            "nnlm": round(perplexity(p_test), 2),
            "weight": round(weight, 3),
            "mix": round(perplexity(weight * p_test + (1 - weight) * kn_test), 2),
            "seconds": round(taken),
        }
        print(run, flush=True)
        runs.append(run)
    rows = np.concatenate([train_h, train_w[:, None]], 1).tolist()
    facts = {
        "seed": SEED,
        "settings": {"V": V, "n": N, "D": D, "H": H, "batch": BATCH, "rate": RATE},
        "tokens": {"train": len(train_w), "validation": len(validation[1]), "test": len(test[1])},
        "unigram": round(perplexity(unigram), 2),
        "kneser_ney": round(perplexity(kn_test), 2),
        "runs": runs,
        "count_seconds": {
            "sorted tables, orders 1 to 5": seconds(lambda: NGrams(train_h, train_w, V), 3),
            "a dictionary, order 5 alone": seconds(lambda: Counter(map(tuple, rows)), 3),
        },
    }
    if steps == STEPS:
        save("language_models", **facts)
    else:
        print(facts)


if __name__ == "__main__":
    main()
