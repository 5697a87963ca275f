"""GloVe, skip-gram with negative sampling, and PPMI with SVD on the same text: what each finds, over seeds.

    python bench/glove_quality.py          train all with several seeds and write the record glove_quality

The speeches, a paragraph a document, words seen five times or more, window 5, 50 dimensions, for all. Every model is
scored by the same rulers on the same items, with the standard error that the choice of items leaves: a bootstrap over
word pairs; for analogies over the pairs of words from which the questions of a section are made, so that questions that
share a pair stay together. Two models are compared draw by draw. About twenty minutes on one core. Speed is measured
by `bench/glove.py`.
"""

from collections.abc import Callable, Iterator
from functools import partial
from unittest import mock

import numpy as np
import torch
from record import save
from scipy.stats import spearmanr

import lrm_utils.models.glove as module
from lrm_utils import data, evaluate, text
from lrm_utils.models.cooccurrence import co_occurrence, ppmi
from lrm_utils.models.glove import GloVe, entries, glove_cost, train_glove
from lrm_utils.models.similarity_and_analogy import WordSpace, analogies
from lrm_utils.models.svd_and_lsa import truncated_svd, word_vectors
from lrm_utils.models.training_word2vec import train as train_word2vec
from lrm_utils.text import Vocab, WordVectors

D, WINDOW, MIN_COUNT, SEEDS, DRAWS = 50, 5, 5, 5, 1000
PAIRS = {name: data.word_pairs(name) for name in ("wordsim353", "simlex999")}
SECTIONS = data.analogies()
GLOVE, SGNS, PPMI = "GloVe, x_max = 10, 15 epochs", "SGNS, 15 epochs", "PPMI-SVD, k = 2, 1/distance"
COMPARED = (
    (SGNS, GLOVE),
    (PPMI, GLOVE),
    (PPMI, SGNS),
    (SGNS, "GloVe, x_max = 1, 15 epochs"),
    (PPMI, "GloVe, x_max = 1, 15 epochs"),
    (SGNS, "GloVe, x_max = 10, [V; U]"),
    (PPMI, "GloVe, x_max = 10, [V; U]"),
    ("SGNS, 5 epochs, paragraphs shuffled", "SGNS, 5 epochs"),
)


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


class Questions:
    """The analogy questions whose words are known, and their weights in every draw of a bootstrap.

    A section pairs up a list of word pairs, each with each. A draw takes that many pairs with replacement, and a
    question counts as often as both of its pairs were drawn.
    """

    def __init__(self, vocab: Vocab):
        random, weights, self.asked = np.random.default_rng(0), [], []
        for section in SECTIONS.values():
            known = [q for q in section if all(w in vocab for w in (q.a, q.b, q.c, q.d))]
            pairs = sorted({pair for q in known for pair in ((q.a, q.b), (q.c, q.d))})
            if known:
                place = {pair: n for n, pair in enumerate(pairs)}
                drawn = random.multinomial(len(pairs), np.full(len(pairs), 1 / len(pairs)), DRAWS)
                first, second = (
                    np.array([place[p] for p in side]) for side in zip(*map(self.pairs, known), strict=True)
                )
                weights.append(drawn[:, first] * drawn[:, second])
                self.asked += known
        self.weights = np.concatenate(weights, 1).astype(np.float32)
        self.truth = np.array([vocab[q.d] for q in self.asked])

    @staticmethod
    def pairs(question) -> tuple[tuple[str, str], tuple[str, str]]:
        """The two word pairs of a question."""
        return (question.a, question.b), (question.c, question.d)

    def __call__(self, vectors: WordVectors) -> tuple[float, np.ndarray]:
        """The share answered rightly, and the same in every draw."""
        correct = (analogies(WordSpace(vectors), self.asked)[0][:, 0] == self.truth).astype(np.float32)
        value = evaluate.analogy(vectors, self.asked).value
        if abs(correct.mean() - value) > 1e-3:
            raise RuntimeError(f"two ways to ask analogies differ: {correct.mean():.4f} and {value:.4f}")
        return value, self.weights @ correct / self.weights.sum(1)


def scores(vectors: WordVectors, questions: Questions, corpus: dict) -> dict[str, tuple[float, np.ndarray]]:
    """One model on all rulers: the value, and the value in every draw of the items."""
    found = {}
    for name, pairs in PAIRS.items():
        cosines = evaluate.pair_cosines(vectors, pairs)
        found[name] = evaluate.similarity(vectors, pairs).value, evaluate.rank_correlations(*cosines, samples=DRAWS)
    found["analogies"] = questions(vectors)
    accuracy, n = transfer(vectors, corpus), len(corpus["test"][1])
    return found | {"transfer": (accuracy, np.random.default_rng(0).binomial(n, accuracy, DRAWS) / n)}


def summary(values: list[float]) -> dict[str, float]:
    """Mean and standard deviation over seeds."""
    spread = round(float(np.std(values, ddof=1)), 4) if len(values) > 1 else None
    return {"mean": round(float(np.mean(values)), 4), "seeds": spread}


def table(rows: list[dict[str, tuple[float, np.ndarray]]]) -> dict[str, dict[str, float]]:
    """For every ruler mean and deviation over seeds, and the standard error of a score from the choice of items."""
    return {
        ruler: summary([row[ruler][0] for row in rows])
        | {"error": round(float(np.mean([row[ruler][1].std() for row in rows])), 4)}
        for ruler in rows[0]
    }


def difference(rows: list[dict], others: list[dict]) -> dict[str, dict[str, float]]:
    """One model less another on the same items: mean over seeds, and its standard error from items and seeds."""
    found = {}
    for ruler in (*PAIRS, "analogies"):
        means = [np.mean([row[ruler][0] for row in side]) for side in (rows, others)]
        draws = np.subtract(*(np.mean([row[ruler][1] for row in side], 0) for side in (rows, others)))
        seeds = [np.var([r[ruler][0] for r in side], ddof=1) / len(side) for side in (rows, others) if len(side) > 1]
        error = np.sqrt(draws.var() + sum(seeds))
        found[ruler] = {"difference": round(float(means[0] - means[1]), 4), "error": round(float(error), 4)}
    return found


def turned(table: np.ndarray, onto: np.ndarray) -> np.ndarray:
    """A table turned as a whole (and mirrored if need be) to lie as close as possible to another."""
    left, _, right = np.linalg.svd(table.T @ onto)
    return table @ (left @ right)


def apart(model: GloVe, other: GloVe) -> dict[str, float]:
    """How far the two tables of a training differ, and three controls for their sum, on WordSim-353.

    `other` is the same model from another seed. "within" ranks pairs by the two cosines inside the tables, "across" by
    the two cosines between a center and a context.
    """
    V, U = model.V.numpy(), model.U.numpy()
    tables = {name: WordVectors(model.vocab, part) for name, part in (("V", V), ("U", U))}
    first, second = (evaluate.pair_cosines(part, PAIRS["simlex999"])[0] for part in tables.values())
    known = [p for p in PAIRS["wordsim353"] if p.first in model.vocab and p.second in model.vocab]
    i, j = (
        np.array([model.vocab[word] for word in side])
        for side in zip(*((p.first, p.second) for p in known), strict=True)
    )
    v, u, judged = tables["V"].unit, tables["U"].unit, [p.score for p in known]
    within = (v[i] * v[j]).sum(1) + (u[i] * u[j]).sum(1)
    across = (v[i] * u[j]).sum(1) + (u[i] * v[j]).sum(1)
    sum_of_seeds = WordVectors(model.vocab, V + turned(other.V.numpy(), V))
    return {
        "cosine of v and u": float(torch.cosine_similarity(model.V, model.U).mean()),
        "rank correlation of their cosines": float(spearmanr(first, second).statistic),
        "within": float(spearmanr(within, judged).statistic),
        "across": float(spearmanr(across, judged).statistic),
        "V + V of another seed": evaluate.similarity(sum_of_seeds, PAIRS["wordsim353"]).value,
    }


def steps_of_one_for_biases(X, vocab: Vocab, x_max: float) -> list[float] | str:
    """The costs by epoch if biases begin with steps of 1, as in the program, instead of 0.05; or how it failed."""
    plain = module.start

    def start(rows: int, D: int, lr: float, generator: torch.Generator) -> torch.Tensor:
        found = plain(rows, D, lr, generator)
        found[:rows, D + 2 + D] = found[rows:, D + 2 + D + 1] = 1.0
        return found

    with mock.patch.object(module, "start", start):
        try:
            return [round(cost, 6) for cost in module.train_glove(X, vocab, D=D, x_max=x_max).costs]
        except FloatingPointError as error:
            return str(error).split(":")[0]


def plans(vocab: Vocab, documents: list[np.ndarray], X, kept: dict) -> Iterator[tuple[int, Callable[[int], dict]]]:
    """Every training: how many seeds, and how to make vectors, by name, from a seed. `kept` gets models of GloVe."""

    def random(seed: int) -> dict[str, WordVectors]:
        return {"random vectors": WordVectors(vocab, np.random.default_rng(seed).standard_normal((len(vocab), D)))}

    def counted(seed: int, name: str, k: float, counts) -> dict[str, WordVectors]:
        U, s, _ = truncated_svd(ppmi(counts, alpha=0.75, k=k).astype(np.float32), D, tolerance=1e-3, seed=seed)
        return {f"PPMI-SVD, k = {k}, {name}": WordVectors(vocab, word_vectors(U, s, D))}

    def glove(seed: int, x_max: float, epochs: int) -> dict[str, WordVectors]:
        model = train_glove(X, vocab, D=D, x_max=x_max, epochs=epochs, seed=seed)
        found = {f"GloVe, x_max = {x_max}, {epochs} epochs": model.vectors}
        if (x_max, epochs) == (10, 15):
            kept[seed] = model
            V, U = model.V.numpy(), model.U.numpy()
            for name, part in (("V", V), ("U", U), ("[V; U]", np.concatenate([V, U], 1))):
                found[f"GloVe, x_max = 10, {name}"] = WordVectors(vocab, part)
        return found

    def sgns(seed: int, epochs: int, shuffled: bool = False) -> dict[str, WordVectors]:
        order = np.random.default_rng(seed).permutation(len(documents)) if shuffled else range(len(documents))
        found = train_word2vec([documents[i] for i in order], vocab, D=D, epochs=epochs, seed=seed).vectors
        return {f"SGNS, {epochs} epochs" + ", paragraphs shuffled" * shuffled: found}

    flat = co_occurrence(documents, len(vocab), WINDOW)
    yield SEEDS, random
    for k in (1, 2, 5):
        for name, counts in (("1/distance", X), ("flat", flat)):
            yield 1, partial(counted, name=name, k=k, counts=counts)
    for x_max, epochs, seeds in ((1, 15, SEEDS), (10, 15, SEEDS), (100, 15, 3), (10, 50, 3)):
        yield seeds, partial(glove, x_max=x_max, epochs=epochs)
    for epochs, shuffled in ((5, False), (15, False), (5, True)):
        yield SEEDS, partial(sgns, epochs=epochs, shuffled=shuffled)


def main() -> None:
    """Train, score and record."""
    torch.set_num_threads(1)
    vocab, documents = paragraphs()
    corpus, questions = reviews(vocab), Questions(vocab)
    X = co_occurrence(documents, len(vocab), WINDOW, lambda d: 1 / d)
    rows, kept, cells = {}, {}, entries(X)
    for seeds, make in plans(vocab, documents, X, kept):
        for seed in range(seeds):
            for name, vectors in make(seed).items():
                rows.setdefault(name, []).append(scores(vectors, questions, corpus))
                print(name, {ruler: round(value, 3) for ruler, (value, _) in rows[name][-1].items()}, flush=True)
    looks = [apart(kept[seed], kept[(seed + 1) % SEEDS]) for seed in range(SEEDS)]
    costs = [glove_cost(m.V, m.U, m.b, m.b_tilde, cells, 10) for m in kept.values()]
    known = {name: [p for p in pairs if p.first in vocab and p.second in vocab] for name, pairs in PAIRS.items()}
    asked = {name: len(items) for name, items in known.items()}
    asked |= {"analogies": len(questions.asked), "transfer": len(corpus["test"][1])}
    settings = {"D": D, "window": WINDOW, "min_count": MIN_COUNT, "noise_words": 5, "svd_power": 0.5, "draws": DRAWS}
    save(
        "glove_quality",
        settings=settings,
        asked=asked,
        models={name: table(found) for name, found in rows.items()},
        by_seed={name: [round(row["wordsim353"][0], 4) for row in found] for name, found in rows.items()},
        differences=[{"one": a, "other": b} | difference(rows[a], rows[b]) for a, b in COMPARED],
        apart={name: summary([look[name] for look in looks]) for name in looks[0]},
        cost_after=[round(float(cost), 6) for cost in costs],
        steps_of_one_for_biases={f"{x_max:g}": steps_of_one_for_biases(X, vocab, x_max) for x_max in (10.0, 100.0)},
    )


if __name__ == "__main__":
    main()
