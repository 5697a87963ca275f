"""How good the vectors of word2vec are: ours beside gensim's over seeds, and the Penn Treebank at d2l's settings.

    LRM_DATA=folder python bench/word2vec_quality.py    train, score and write the record word2vec_quality

The same text, width, window, noise words, epochs and subsampling for both; each score is the mean over three seeds with
the standard deviation between them. Skip-gram is also trained on the same paragraphs read backward and shuffled: what
the order of reading does. About fifteen minutes on two cores. Nothing here is timed.
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
from lrm_utils.text import Vocab, WordVectors

SEEDS = (0, 1, 2)


def score(vectors: WordVectors) -> dict[str, float]:
    """The two sets of word pairs."""
    return {name: evaluate.similarity(vectors, data.word_pairs(name)).value for name in ("wordsim353", "simlex999")}


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


def treebank() -> dict:
    """The Penn Treebank at d2l's settings: counts, pairs, neighbors of chip, and the loss of d2l's objective."""
    lines = sentences("ptb")
    vocab, ids = encode(lines, 10)
    chance = np.random.default_rng(0)
    keep = np.minimum(1, np.sqrt(1e-4 * vocab.counts.sum() / vocab.counts))  # the paper's formula, which d2l uses

    def draw():
        thinned = [line[chance.random(len(line)) < keep[line]] for line in ids]
        return thinned, tuple(map(torch.as_tensor, surroundings(thinned, WINDOW, chance)))

    def some_noise(context, seen):
        """K noise words for each context, drawn anew while one of them is a context of the same center."""
        noise, true = sampler.draw(len(context), 2 * WINDOW * K), torch.where(seen, context, -1)
        while (clash := (noise[:, :, None] == true[:, None]).any(2)).any():
            noise[clash] = sampler.draw(int(clash.sum()))
        return noise

    def loss(V, U, center, context, seen, noise):
        """The masked cross entropy of each row."""
        mask = torch.cat([seen, seen.repeat_interleave(K, 1)], 1)
        labels = torch.cat([seen, torch.zeros_like(noise, dtype=torch.bool)], 1).float()
        u = nn.functional.embedding(torch.cat([context, noise], 1), U)
        scores = torch.einsum("bd,bnd->bn", nn.functional.embedding(center, V), u)
        return masked_binary_cross_entropy(scores, labels, mask)

    sampler = NoiseSampler(noise_distribution(vocab.counts))
    thinned, batch = draw()
    chunks = zip(batch[1].split(8192), batch[2].split(8192), strict=True)
    noise = torch.cat([some_noise(*chunk) for chunk in chunks])
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
    fast = torch.cat([loss(model.V, model.U, *p, some_noise(*p[1:])) for p in parts])
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
    runs = [(5, *plan) for plan in PLANS if plan[1] == "negative sampling"]
    save(
        "word2vec_quality",
        settings={"D": D, "window": WINDOW, "k": K, "seeds": list(SEEDS)},
        scores=[row for run in runs for row in quality(*run)],
        order=reading_order(5),
        ptb=treebank(),
    )


if __name__ == "__main__":
    main()
