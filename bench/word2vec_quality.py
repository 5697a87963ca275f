"""How good the vectors of word2vec are: ours beside gensim's over seeds, and the Penn Treebank at d2l's settings.

    LRM_DATA=folder python bench/word2vec_quality.py    train, score and write the record word2vec_quality

The same text, width, window, noise words, epochs and subsampling for both; each score is the mean over three seeds with
the standard deviation between them. About five minutes on one thread. Nothing here is timed.
"""

import statistics

import numpy as np
import torch
from record import save
from torch import nn
from word2vec import CORPORA, WINDOW, D, D2lNet, K, encode, gensim, library_options, prepared, sentences

from lrm_utils import data, evaluate
from lrm_utils.models.approximate_training import NoiseSampler, masked_binary_cross_entropy, noise_distribution
from lrm_utils.models.skip_gram_and_cbow import surroundings
from lrm_utils.models.training_word2vec import PLANS, train
from lrm_utils.text import WordVectors

SEEDS = (0, 1, 2)


def score(vectors: WordVectors) -> dict[str, float]:
    """The two sets of word pairs."""
    return {name: evaluate.similarity(vectors, data.word_pairs(name)).value for name in ("wordsim353", "simlex999")}


def quality(epochs: int, architecture: str, objective: str) -> list[dict]:
    """Both similarity scores of both libraries: the mean of the seeds and their standard deviation."""
    _, min_count, sample = CORPORA["speeches"]
    lines = sentences("speeches")
    vocab, ids = encode(lines, min_count)
    plan = dict(architecture=architecture, objective=objective, D=D, window=WINDOW, k=K, epochs=epochs, sample=sample)
    found = {"ours": [], "gensim": [], "gensim at our rate": []}
    for seed in SEEDS:
        found["ours"].append(score(train(ids, vocab, seed=seed, **plan).vectors))
        rates = {"gensim": 0.025, "gensim at our rate": PLANS[architecture, objective][1]}
        for who, rate in rates.items():
            options = library_options(architecture, objective) | {"alpha": rate}
            model = prepared(lines, min_count, sample, seed, **options)
            gensim(model, lines, epochs)
            found[who].append(score(WordVectors(vocab, model.wv[vocab.words])))
    rows = []
    for name in ("wordsim353", "simlex999"):
        row = {"set": name, "architecture": architecture, "objective": objective, "epochs": epochs}
        for who, scores in found.items():
            values = [s[name] for s in scores]
            row[who] = {"mean": round(statistics.mean(values), 4), "seeds": round(statistics.stdev(values), 4)}
        rows.append(row)
        print(row, flush=True)
    return rows


def treebank() -> dict:
    """The Penn Treebank at d2l's settings: counts, pairs, neighbors of chip, and the loss of d2l's objective."""
    lines = sentences("ptb")
    vocab, ids = encode(lines, 10)
    chance = np.random.default_rng(0)
    keep = np.minimum(1, np.sqrt(1e-4 * vocab.counts.sum() / vocab.counts))  # the paper's formula, which d2l uses

    def draw():
        thinned = [line[chance.random(len(line)) < keep[line]] for line in ids]
        return thinned, tuple(map(torch.as_tensor, surroundings(thinned, WINDOW, chance)))

    def loss(V, U, center, context, seen, noise):
        """The masked cross entropy of each row; noise words among the contexts do not count."""
        clash = (noise[:, :, None] == torch.where(seen, context, -1)[:, None]).any(2)
        mask = torch.cat([seen, seen.repeat_interleave(K, 1) & ~clash], 1)
        labels = torch.cat([seen, torch.zeros_like(clash)], 1).float()
        u = nn.functional.embedding(torch.cat([context, noise], 1), U)
        scores = torch.einsum("bd,bnd->bn", nn.functional.embedding(center, V), u)
        return masked_binary_cross_entropy(scores, labels, mask)

    sampler = NoiseSampler(noise_distribution(vocab.counts))
    thinned, batch = draw()
    noise = sampler.draw(len(batch[0]), 2 * WINDOW * K)
    after = np.bincount(np.concatenate(thinned), minlength=len(vocab))

    torch.manual_seed(0)
    net = D2lNet(len(vocab))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.002)
    epochs = []
    for _ in range(10):  # d2l draws text, windows and noise once, and passes over them ten times
        total = 0.0
        for rows in torch.randperm(len(batch[0])).split(512):
            mean = loss(net.center.weight, net.context.weight, *(part[rows] for part in batch), noise[rows]).mean()
            optimizer.zero_grad()
            (mean * 512).backward()  # d2l descends on the sum over the batch
            optimizer.step()
            total += mean.item() * len(rows)
        epochs.append(round(total / len(batch[0]), 4))

    model = train(ids, vocab, D=D, window=WINDOW, k=K, epochs=10, sample=1e-4)
    _, fresh = draw()
    rows = range(0, len(fresh[0]), 4096)
    parts = [tuple(part[i : i + 4096] for part in fresh) for i in rows]
    fast = torch.cat([loss(model.V, model.U, *p, sampler.draw(len(p[0]), 2 * WINDOW * K)) for p in parts])
    return {
        "words": len(vocab),
        "tokens": sum(map(len, ids)),
        "counts": {word: [int(vocab.counts[vocab[word]]), int(after[vocab[word]])] for word in ("the", "join")},
        "centers": len(batch[0]),
        "pairs": int(batch[2].sum()),
        "batch": [512, 2 * WINDOW * (1 + K)],
        "d2l_objective": {
            "with d2l's recipe, by epoch": epochs,
            "with d2l's recipe, mean of ten epochs": round(statistics.mean(epochs), 4),
            "fast trainer, fresh windows and noise, at the end": round(float(fast.mean()), 4),
        },
        "chip": [word for word, _ in model.vectors.neighbors("chip", 8)],
    }


def main() -> None:
    """Train, score, record."""
    torch.set_num_threads(1)
    runs = [(5, *plan) for plan in PLANS if plan[1] == "negative sampling"]
    save(
        "word2vec_quality",
        settings={"D": D, "window": WINDOW, "k": K, "seeds": list(SEEDS)},
        scores=[row for run in runs for row in quality(*run)],
        ptb=treebank(),
    )


if __name__ == "__main__":
    main()
