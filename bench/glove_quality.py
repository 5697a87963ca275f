"""GloVe, skip-gram with negative sampling, and PPMI with SVD on the same text: what each finds, over seeds.

    python bench/glove_quality.py          train all with several seeds and write the record glove_quality

Models that the record has already are not trained again: delete lrm_utils/records/glove_quality.json to begin afresh.
The speeches, a paragraph a document, words seen five times or more, window 5, 50 dimensions, for all. Every model is
scored by the same rulers on the same items; about fifteen minutes on two cores. Speed is measured by `bench/glove.py`.
"""

import json
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from record import FOLDER, save
from scipy.stats import spearmanr

from lrm_utils import data, evaluate, text
from lrm_utils.models.cooccurrence import co_occurrence, ppmi
from lrm_utils.models.glove import GloVe, entries, glove_cost, train_glove
from lrm_utils.models.svd_and_lsa import truncated_svd, word_vectors
from lrm_utils.models.training_word2vec import train as train_word2vec
from lrm_utils.text import Vocab, WordVectors

D, WINDOW, MIN_COUNT, SEEDS = 50, 5, 5, 5
PAIRS = {name: data.word_pairs(name) for name in ("wordsim353", "simlex999")}
ANALOGIES = [question for section in data.analogies().values() for question in section]


def paragraphs() -> tuple[Vocab, list[np.ndarray]]:
    """The vocabulary of the speeches, and their paragraphs as ids."""
    lines = [words for speech in data.sotu() for p in speech.text.splitlines() if (words := text.words(p))]
    vocab = Vocab.build((word for line in lines for word in line), MIN_COUNT)
    return vocab, [vocab.encode(line, drop_unknown=True) for line in lines]


def reviews(vocab: Vocab) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
    """Movie reviews as ids of words that the speeches know, to see how far the vectors travel."""
    found = data.reviews()
    parts = {"train": found.train[:6000], "test": found.test}
    return {
        name: ([vocab.encode(text.words(r.text), drop_unknown=True) for r in part], np.array([r.label for r in part]))
        for name, part in parts.items()
    }


def transfer(vectors: WordVectors, corpus: dict) -> float:
    """Accuracy of a linear probe for the sentiment of a review on the mean of its words' vectors."""
    means = {name: np.stack([vectors.unit[ids].mean(0) for ids in texts]) for name, (texts, _) in corpus.items()}
    return evaluate.probe(means["train"], corpus["train"][1], means["test"], corpus["test"][1])


def scores(vectors: WordVectors, corpus: dict) -> dict[str, float]:
    """One model on all rulers."""
    found = {name: evaluate.similarity(vectors, pairs).value for name, pairs in PAIRS.items()}
    found["analogies"] = evaluate.analogy(vectors, ANALOGIES).value
    found["transfer"] = transfer(vectors, corpus)
    return found


def summary(rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over seeds, for every ruler."""
    names = rows[0]
    return {
        name: {
            "mean": round(float(np.mean([row[name] for row in rows])), 4),
            "seeds": round(float(np.std([row[name] for row in rows], ddof=1)), 4) if len(rows) > 1 else None,
        }
        for name in names
    }


def two_tables(model: GloVe) -> dict[str, WordVectors]:
    """Center vectors, context vectors, their sum, and one after the other: a sum without the cross terms."""
    V, U = model.V.numpy(), model.U.numpy()
    tables = {"V": V, "U": U, "V + U": V + U, "[V; U]": np.concatenate([V, U], 1)}
    return {name: WordVectors(model.vocab, table) for name, table in tables.items()}


def apart(model: GloVe) -> dict[str, float]:
    """How far the two tables of one training differ: as vectors, and in the cosines that they give word pairs."""
    cosine = torch.cosine_similarity(model.V, model.U).numpy()
    tables = two_tables(model)
    found = {"cosine of v and u": float(cosine.mean())}
    first, second = (evaluate.pair_cosines(tables[name], PAIRS["simlex999"])[0] for name in "VU")
    return found | {"rank correlation of their cosines": float(spearmanr(first, second).statistic)}


def look_inside(vocab: Vocab, X, corpus: dict) -> dict[str, dict]:
    """The two tables of GloVe one by one, how far they are apart, and the cost they end with, over seeds."""
    tables, distance, costs, cells = {}, [], [], entries(X)
    for seed in range(SEEDS):
        model = train_glove(X, vocab, D=D, x_max=10, seed=seed)
        for name, vectors in two_tables(model).items():
            tables.setdefault(name, []).append(scores(vectors, corpus))
        distance.append(apart(model))
        costs.append(round(float(glove_cost(model.V, model.U, model.b, model.b_tilde, cells, 10)), 6))
    return {
        "tables": {name: summary(rows) for name, rows in tables.items()},
        "by_seed": {name: [round(row["wordsim353"], 4) for row in rows] for name, rows in tables.items()},
        "apart": summary(distance),
        "cost_after": costs,
    }


def plans(vocab: Vocab, documents: list[np.ndarray], X) -> dict[str, tuple[int, Callable[[int], WordVectors]]]:
    """Every model by name: how many seeds, and how to make its vectors from a seed."""

    def random(seed: int) -> WordVectors:
        return WordVectors(vocab, np.random.default_rng(seed).standard_normal((len(vocab), D)))

    def counted(seed: int, k: float, counts) -> WordVectors:
        U, s, _ = truncated_svd(ppmi(counts, alpha=0.75, k=k).astype(np.float32), D, tolerance=1e-3, seed=seed)
        return WordVectors(vocab, word_vectors(U, s, D))

    def glove(seed: int, x_max: float, epochs: int) -> WordVectors:
        return train_glove(X, vocab, D=D, x_max=x_max, epochs=epochs, seed=seed).vectors

    def sgns(seed: int, epochs: int, shuffled: bool = False) -> WordVectors:
        order = np.random.default_rng(seed).permutation(len(documents)) if shuffled else range(len(documents))
        return train_word2vec([documents[i] for i in order], vocab, D=D, epochs=epochs, seed=seed).vectors

    flat = co_occurrence(documents, len(vocab), WINDOW)
    found = {"random vectors": (SEEDS, random)}
    for k in (1, 2, 5):
        for name, counts in (("1/distance", X), ("flat", flat)):
            found[f"PPMI-SVD, k = {k}, {name}"] = 1, partial(counted, k=k, counts=counts)
    for x_max, epochs, seeds in ((1, 15, SEEDS), (10, 15, SEEDS), (100, 15, 3), (10, 50, 3)):
        found[f"GloVe, x_max = {x_max}, {epochs} epochs"] = seeds, partial(glove, x_max=x_max, epochs=epochs)
    for epochs in (5, 15):
        found[f"SGNS, {epochs} epochs"] = SEEDS, partial(sgns, epochs=epochs)
    found["SGNS, 5 epochs, paragraphs shuffled"] = SEEDS, partial(sgns, epochs=5, shuffled=True)
    return found


def main() -> None:
    """Train and score what the record does not have yet, and record it."""
    torch.set_num_threads(1)
    file = FOLDER / "glove_quality.json"
    old = json.loads(file.read_text()) if file.exists() else {"models": {}}
    vocab, documents = paragraphs()
    corpus = reviews(vocab)
    X = co_occurrence(documents, len(vocab), WINDOW, lambda d: 1 / d)
    models = {}
    for name, (seeds, make) in plans(vocab, documents, X).items():
        models[name] = old["models"].get(name) or summary([scores(make(seed), corpus) for seed in range(seeds)])
        print(name, {ruler: found["mean"] for ruler, found in models[name].items()}, flush=True)
    names = ("tables", "by_seed", "apart", "cost_after")
    details = {name: old[name] for name in names} if "tables" in old else look_inside(vocab, X, corpus)
    known = {name: [p for p in pairs if p.first in vocab and p.second in vocab] for name, pairs in PAIRS.items()}
    known["analogies"] = [q for q in ANALOGIES if all(w in vocab for w in (q.a, q.b, q.c, q.d))]
    asked = {name: len(items) for name, items in known.items()} | {"transfer": len(corpus["test"][1])}
    settings = {"D": D, "window": WINDOW, "min_count": MIN_COUNT, "noise_words": 5, "svd_power": 0.5}
    save("glove_quality", settings=settings, asked=asked, models=models, **details)


if __name__ == "__main__":
    main()
