"""How good the vectors of word2vec are: ours beside gensim's over seeds, and what the order of reading does.

    python bench/word2vec_quality.py    train, score and write the record word2vec_quality

The same text, width, window, noise words, epochs and subsampling for both; each score is the mean over three seeds with
the standard deviation between them. Skip-gram is also trained on the same paragraphs read backward and shuffled: what
the order of reading does. About fifteen minutes on two cores. Nothing here is timed.
"""

import statistics

import numpy as np
from record import save
from word2vec import CORPORA, WINDOW, D, K, encode, gensim, library_options, prepared, sentences

from lrm_utils import data, evaluate
from lrm_utils.models.training_word2vec import PLANS, train
from lrm_utils.text import Vocab, WordVectors

SEEDS = (0, 1, 2)


def score(vectors: WordVectors) -> dict[str, float]:
    """Two sets of word pairs, and the share of analogies among the 5,000 most frequent words that come out right."""
    pairs = {name: evaluate.similarity(vectors, data.word_pairs(name)).value for name in ("wordsim353", "simlex999")}
    return pairs | {"analogies": evaluate.analogies(vectors, data.analogies(), among=5000)["total"].value}


def summary(scores: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """For each set of pairs, the mean over the seeds and their standard deviation."""
    values = {name: [score[name] for score in scores] for name in scores[0]}
    return {
        name: {"mean": round(statistics.mean(of), 4), "seeds": round(statistics.stdev(of), 4)}
        for name, of in values.items()
    }


def theirs(lines: list[list[str]], vocab: Vocab, plan: tuple[str, str], epochs: int, rate: float, seed: int) -> dict:
    """The scores of gensim's vectors."""
    _, min_count, sample = CORPORA["speeches"]
    model = prepared(lines, min_count, sample, seed, **library_options(*plan), alpha=rate)
    gensim(model, lines, epochs)
    return score(WordVectors(vocab, model.wv[vocab.words]))


def mine(ids: list[np.ndarray], vocab: Vocab, plan: tuple[str, str], epochs: int, seed: int) -> dict:
    """The scores of our vectors."""
    names, sample = dict(zip(("architecture", "objective"), plan, strict=True)), CORPORA["speeches"][2]
    return score(train(ids, vocab, D=D, window=WINDOW, k=K, epochs=epochs, sample=sample, seed=seed, **names).vectors)


def quality(epochs: int, architecture: str, objective: str) -> list[dict]:
    """Both similarity scores of both libraries: the mean of the seeds and their standard deviation."""
    plan, lines = (architecture, objective), sentences("speeches")
    vocab, ids = encode(lines, CORPORA["speeches"][1])
    found = {
        "ours": summary([mine(ids, vocab, plan, epochs, seed) for seed in SEEDS]),
        "gensim": summary([theirs(lines, vocab, plan, epochs, 0.025, seed) for seed in SEEDS]),
        "gensim at our rate": summary([theirs(lines, vocab, plan, epochs, PLANS[plan][1], seed) for seed in SEEDS]),
    }
    facts = {"architecture": architecture, "objective": objective, "epochs": epochs}
    rows = [{"set": name} | facts | {who: scores[name] for who, scores in found.items()} for name in found["ours"]]
    print(rows, flush=True)
    return rows


def reading_order(epochs: int) -> dict[str, dict]:
    """Skip-gram with negative sampling, at one rate, on the paragraphs read backward and in a random order."""
    plan, lines = ("skip-gram", "negative sampling"), sentences("speeches")
    vocab, ids = encode(lines, CORPORA["speeches"][1])
    found = {}
    for name in ("backward", "shuffled"):
        ours, gensims = [], []
        for seed in SEEDS:
            random = np.random.default_rng(seed)
            order = range(len(lines))[::-1] if name == "backward" else random.permutation(len(lines))
            ours.append(mine([ids[i] for i in order], vocab, plan, epochs, seed))
            gensims.append(theirs([lines[i] for i in order], vocab, plan, epochs, PLANS[plan][1], seed))
        found[name] = {"ours": summary(ours), "gensim at our rate": summary(gensims)}
        print(name, found[name], flush=True)
    return found


def main() -> None:
    """Train, score, record."""
    runs = [(5, *plan) for plan in PLANS if plan[1] == "negative sampling"]
    save(
        "word2vec_quality",
        settings={"D": D, "window": WINDOW, "k": K, "seeds": list(SEEDS)},
        scores=[row for run in runs for row in quality(*run)],
        order=reading_order(5),
    )


if __name__ == "__main__":
    main()
