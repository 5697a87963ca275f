"""What the two ways around the softmax cost in quality: all three trained on the same pairs of the speeches.

    python bench/approximate_quality.py    train, score and write the record approximate_quality

The settings are those of the page on approximate training: the 3,000 most frequent words, every tenth speech held out,
the same start, pairs, steps and falling rate for each, Adam on full tables of gradients. Each model is scored by the
nats it pays for the context in 20,000 held-out pairs, with its scores made into a distribution over all words. Three
seeds, which draw the start, the pairs and the noise; about ten minutes on one thread.
"""

import statistics

import numpy as np
import torch
from record import save
from torch.nn import functional as F

from lrm_utils import data, text
from lrm_utils.models.approximate_training import (
    NoiseSampler,
    hierarchical_gradients,
    hierarchical_log_probabilities,
    huffman,
    negative_sampling_gradients,
    noise_distribution,
    spread,
)
from lrm_utils.models.cooccurrence import co_occurrence
from lrm_utils.models.skip_gram_and_cbow import cross_entropy_gradients

WORDS, D, BATCH, STEPS, RATE, K, SEEDS = 3_000, 50, 2_048, 2_500, 0.01, 5, (0, 1, 2)


class Pairs:
    """Pairs of center and context, drawn in proportion to their counts."""

    def __init__(self, X, seed: int):
        cells = X.sorted_indices().tocoo()
        self.sampler = NoiseSampler(cells.data / cells.data.sum(), seed)
        self.rows, self.columns = torch.as_tensor(cells.row).long(), torch.as_tensor(cells.col).long()

    def draw(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn = self.sampler.draw(size)
        return self.rows[drawn], self.columns[drawn]


def full_softmax(V, U, centers, contexts):
    """Gradients of the full softmax; pairs with the same center share its row of scores."""
    words, row = centers.unique(return_inverse=True)
    seen = torch.zeros(len(words), len(U)).index_put_((row, contexts), torch.tensor(1.0), accumulate=True)
    dH, dU = cross_entropy_gradients(V[words], U, seen)
    return spread(dH, words, len(V)), dU


def objectives(counts: np.ndarray, seed: int) -> dict:
    """For each objective: rows of its output table, its gradients, and log p of all words for some centers."""
    p, tree = noise_distribution(counts), huffman(counts)
    sampler, prior = NoiseSampler(p, 100 + seed), torch.log(torch.as_tensor(p)).float()

    def by_noise(V, U, centers, contexts):
        noise = sampler.draw(len(centers), K)
        dv, du = negative_sampling_gradients(V, U, centers, contexts, noise)
        return spread(dv, centers, len(V)), spread(du, torch.cat([contexts[:, None], noise], 1), len(U))

    def by_tree(V, N, centers, contexts):
        dv, dn = hierarchical_gradients(V[centers], N, tree, contexts)
        return spread(dv, centers, len(V)), spread(dn, tree.nodes[contexts], len(N))

    return {
        "full softmax": (len(counts), full_softmax, lambda v, U: F.log_softmax(v @ U.T, 1)),
        "negative sampling": (len(counts), by_noise, lambda v, U: F.log_softmax(v @ U.T + prior, 1)),
        "hierarchical softmax": (
            len(counts) - 1,
            by_tree,
            lambda v, N: hierarchical_log_probabilities(v, N, tree),
        ),
    }


def train(name: str, X, X_test, counts: np.ndarray, seed: int) -> list[float]:
    """The held-out nats a word, before training and after each hundred steps."""
    rows, gradients, log_p = objectives(counts, seed)[name]
    centers, contexts = Pairs(X_test, seed=2).draw(20_000)
    random = torch.Generator().manual_seed(seed)
    tables = [(torch.rand(len(counts), D, generator=random) - 0.5) / D, torch.zeros(rows, D)]
    pairs, optimizer = Pairs(X, seed), torch.optim.Adam(tables)

    def nats() -> float:
        words, row = centers.unique(return_inverse=True)
        all_words = torch.cat([log_p(tables[0][part], tables[1]) for part in words.split(100)])
        return round(float(-all_words[row, contexts].mean()), 4)

    found = [nats()]
    for t in range(STEPS):
        for table, gradient in zip(tables, gradients(*tables, *pairs.draw(BATCH)), strict=True):
            table.grad = gradient
        optimizer.param_groups[0]["lr"] = RATE * (1 - t / STEPS)
        optimizer.step()
        if (t + 1) % 100 == 0:
            found.append(nats())
    return found


def main() -> None:
    """Train all three with every seed, score, record."""
    torch.set_num_threads(1)
    documents = [text.words(speech.text) for speech in data.sotu()]
    parts = [d for i, d in enumerate(documents) if i % 10], documents[::10]
    vocab = text.Vocab.build((w for document in parts[0] for w in document), size=WORDS)
    X, X_test = (co_occurrence([vocab.encode(d, drop_unknown=True) for d in part], WORDS, 5) for part in parts)
    curves, ends = {}, {}
    for name in objectives(vocab.counts, 0):
        curves[name] = [train(name, X, X_test, vocab.counts, seed) for seed in SEEDS]
        last = [curve[-1] for curve in curves[name]]
        ends[name] = {"mean": round(statistics.mean(last), 4), "seeds": round(statistics.stdev(last), 4)}
        print(name, ends[name], flush=True)
    settings = dict(words=WORDS, D=D, batch=BATCH, steps=STEPS, rate=RATE, k=K, seeds=list(SEEDS))
    save("approximate_quality", settings=settings, nats=ends, curves=curves)


if __name__ == "__main__":
    main()
