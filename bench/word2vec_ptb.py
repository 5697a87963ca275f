"""The Penn Treebank at d2l's settings: what subsampling leaves, the losses of d2l's recipe and ours, what is near chip.

    LRM_DATA=folder python bench/word2vec_ptb.py    train, score and write the record word2vec_ptb

d2l draws text, windows and noise once, trains ten epochs on them with Adam, and prints the mean loss over all ten. The
same is done here; then both models are asked about windows and noise that were drawn anew. About five minutes.
"""

import statistics

import numpy as np
import torch
from record import save
from torch import nn
from word2vec import WINDOW, D, D2lNet, K, encode, sentences

from lrm_utils.models.approximate_training import NoiseSampler, masked_binary_cross_entropy, noise_distribution
from lrm_utils.models.skip_gram_and_cbow import surroundings
from lrm_utils.models.training_word2vec import train


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
    fresh = list(zip(*(part.split(4096) for part in draw()[1]), strict=True))  # windows that neither has seen
    fresh = [(*part, some_noise(*part[1:])) for part in fresh]

    def unseen(V, U):
        with torch.no_grad():
            return round(float(torch.cat([loss(V, U, *part) for part in fresh]).mean()), 4)

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
            "on fresh windows and noise, d2l's recipe": unseen(net.center.weight, net.context.weight),
            "on fresh windows and noise, the fast trainer": unseen(model.V, model.U),
        },
        "chip": [word for word, _ in model.vectors.neighbors("chip", 8)],
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    save("word2vec_ptb", settings={"D": D, "window": WINDOW, "k": K, "epochs": 10, "seed": 0}, **treebank())
