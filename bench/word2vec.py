"""word2vec beside gensim and d2l: seconds for an epoch, quality, growth with text and vocabulary, memory.

    LRM_DATA=folder python bench/word2vec.py          compare in one run and write the record word2vec
    python bench/word2vec.py --memory ours            the peak memory of one training, in MB (gensim: --memory gensim)

Skip-gram with negative sampling on the speeches and on the Penn Treebank: the same width, window, noise words, epochs,
subsampling and number of threads for all, each library run in turn beside the other in the same process. Text and
vocabulary are ready before the clock starts; what it takes to make them is recorded apart. d2l's functions prepare
d2l's batches, and its training loop is written out below. About a quarter of an hour on two cores.
"""

import os
import random
import resource
import statistics
import subprocess
import sys
import time

import numpy as np
import torch
from gensim.models import Word2Vec as Gensim
from lrm_utils.models.training_word2vec import PLANS, train
from record import import_d2l, save
from torch import nn

from lrm_utils import data, evaluate, text
from lrm_utils.models.approximate_training import NoiseSampler, masked_binary_cross_entropy, noise_distribution
from lrm_utils.models.skip_gram_and_cbow import surroundings
from lrm_utils.text import Vocab, WordVectors

THREADS, REPEATS, SEEDS = 2, 5, (0, 1, 2)
D, WINDOW, K = 100, 5, 5
CORPORA = {"speeches": ("2.0 million words of speeches", 5, 1e-3), "ptb": ("Penn Treebank", 10, 1e-4)}


def sentences(corpus: str) -> list[list[str]]:
    """The paragraphs of the speeches, or the lines of the Penn Treebank without its unknown words."""
    if corpus == "ptb":
        return [[w for w in line if w != "<unk>"] for line in data.ptb().train]
    paragraphs = (text.words(p) for speech in data.sotu() for p in speech.text.splitlines())
    return [words for words in paragraphs if words]


def encode(lines: list[list[str]], min_count: int) -> tuple[Vocab, list[np.ndarray]]:
    """A vocabulary, and the lines as ids."""
    vocab = Vocab.build((word for line in lines for word in line), min_count)
    return vocab, [vocab.encode(line, drop_unknown=True) for line in lines]


def prepared(lines: list[list[str]], min_count: int, sample: float, seed: int = 0, **options) -> Gensim:
    """gensim's model with its vocabulary, not yet trained."""
    settings = {"sg": 1, "negative": K} | options
    model = Gensim(
        vector_size=D, window=WINDOW, min_count=min_count, sample=sample, seed=seed, workers=THREADS, **settings
    )
    model.build_vocab(lines)
    return model


def clock(work) -> float:
    """The seconds that some work takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def gensim(model: Gensim, lines: list[list[str]], epochs: int) -> float:
    """Train it; the seconds for an epoch."""
    return clock(lambda: model.train(lines, total_examples=model.corpus_count, epochs=epochs)) / epochs


def ours(ids: list[np.ndarray], vocab: Vocab, epochs: int, **options) -> float:
    """Train ours; the seconds for an epoch."""
    return clock(lambda: train(ids, vocab, D=D, window=WINDOW, k=K, epochs=epochs, **options)) / epochs


def summary(taken: list[float]) -> dict[str, float]:
    """The median of several times, with the range."""
    return {name: round(f(taken), 3) for name, f in (("median", statistics.median), ("min", min), ("max", max))}


def in_turn(works: dict, repeats: int) -> dict[str, dict[str, float]]:
    """Time several works, each once a round, so that a busy moment hits all alike."""
    taken = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            taken[name].append(work())
    return {name: summary(values) for name, values in taken.items()}


def speed(corpus: str) -> tuple[dict, dict]:
    """Seconds for an epoch of ours and gensim's, and for preparing text and vocabulary."""
    _, min_count, sample = CORPORA[corpus]
    lines = sentences(corpus)
    vocab, ids = encode(lines, min_count)
    works = {
        "ours": lambda: ours(ids, vocab, 2, sample=sample),
        "gensim": lambda: gensim(prepared(lines, min_count, sample), lines, 2),
    }
    works["gensim"]()  # once unmeasured: the first run of each loads its libraries
    works["ours"]()
    prepare = {
        "ours": lambda: clock(lambda: encode(lines, min_count)),
        "gensim": lambda: clock(lambda: prepared(lines, min_count, sample)),
    }
    return in_turn(works, REPEATS), in_turn(prepare, 3)


def speed_of_four() -> dict[str, dict]:
    """Seconds for an epoch of every architecture and objective, ours and gensim's, on the speeches."""
    _, min_count, sample = CORPORA["speeches"]
    lines = sentences("speeches")
    vocab, ids = encode(lines, min_count)
    works = {}
    for architecture, objective in PLANS:
        options = {"sg": int(architecture == "skip-gram"), "negative": K, "hs": 0}
        if objective == "hierarchical softmax":
            options |= {"negative": 0, "hs": 1}
        plan = dict(architecture=architecture, objective=objective, sample=sample)
        works[f"{architecture}, {objective}: ours"] = lambda plan=plan: ours(ids, vocab, 1, **plan)
        works[f"{architecture}, {objective}: gensim"] = lambda options=options: gensim(
            prepared(lines, min_count, sample, **options), lines, 1
        )
    return in_turn(works, 3)


class D2lNet(nn.Module):
    """Two embeddings, and the scores of candidates for each center, as d2l has them."""

    def __init__(self, size: int):
        super().__init__()
        self.center, self.context = nn.Embedding(size, D), nn.Embedding(size, D)
        for table in (self.center, self.context):
            nn.init.xavier_uniform_(table.weight)

    def forward(self, center, candidates):
        return torch.bmm(self.center(center), self.context(candidates).permute(0, 2, 1))


def d2l_epochs(repeats: int) -> dict[str, dict]:
    """Seconds of d2l's training loop for one epoch of the Penn Treebank, and of preparing its data."""
    d2l = import_d2l()
    lines = [list(line) for line in data.ptb().train]
    random.seed(0)
    begin = time.perf_counter()
    vocab = d2l.Vocab(lines, min_freq=10)
    subsampled, counter = d2l.subsample(lines, vocab)
    centers, contexts = d2l.get_centers_and_contexts([vocab[line] for line in subsampled], WINDOW)
    negatives = d2l.get_negatives(contexts, vocab, counter, K)
    preparing = time.perf_counter() - begin
    examples = list(zip(centers, contexts, negatives, strict=True))

    def epoch() -> None:
        for batch in torch.utils.data.DataLoader(examples, 512, shuffle=True, collate_fn=d2l.batchify):
            center, candidates, mask, label = batch
            scores = net(center, candidates).reshape(label.shape)
            out = nn.functional.binary_cross_entropy_with_logits(scores, label.float(), mask.float(), reduction="none")
            loss = out.mean(1) / mask.sum(1) * mask.shape[1]
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()

    net = D2lNet(len(vocab))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.002)
    taken = [clock(epoch) for _ in range(repeats)]
    return {"epoch": summary(taken), "prepare": round(preparing, 2), "centers": len(centers)}


def score(vectors: WordVectors) -> dict[str, float]:
    """The two sets of word pairs."""
    return {name: evaluate.similarity(vectors, data.word_pairs(name)).value for name in ("wordsim353", "simlex999")}


def quality(epochs: int) -> list[dict]:
    """Both similarity scores of both libraries: the mean of the seeds and their standard deviation."""
    _, min_count, sample = CORPORA["speeches"]
    lines = sentences("speeches")
    vocab, ids = encode(lines, min_count)
    found = {"ours": [], "gensim": []}
    for seed in SEEDS:
        model = train(ids, vocab, D=D, window=WINDOW, k=K, epochs=epochs, sample=sample, seed=seed)
        found["ours"].append(score(model.vectors))
        model = prepared(lines, min_count, sample, seed)
        gensim(model, lines, epochs)
        found["gensim"].append(score(WordVectors(vocab, model.wv[vocab.words])))
    rows = []
    for name in ("wordsim353", "simlex999"):
        row = {"set": name, "epochs": epochs}
        for who, scores in found.items():
            values = [s[name] for s in scores]
            row[who] = {"mean": round(statistics.mean(values), 4), "seeds": round(statistics.stdev(values), 4)}
        rows.append(row)
    return rows


def growth() -> dict[str, list]:
    """Seconds for an epoch by tokens (pieces of the speeches) and by vocabulary (a million tokens of Zipf's law)."""
    _, min_count, sample = CORPORA["speeches"]
    vocab, ids = encode(sentences("speeches"), min_count)

    def median(documents, vocab, sample):
        return round(
            statistics.median(clock(lambda: train(documents, vocab, epochs=1, sample=sample)) for _ in "123"), 3
        )

    ends, total = np.cumsum([len(line) for line in ids]), sum(map(len, ids))
    pieces = [ids[: int(np.searchsorted(ends, total * share))] for share in (1 / 8, 1 / 4, 1 / 2, 1)]
    tokens = [[sum(map(len, piece)), median(piece, vocab, sample)] for piece in pieces]
    sizes = []
    for size in (2_000, 8_000, 32_000, 128_000):
        p = 1 / np.arange(2, size + 2)
        drawn = np.random.default_rng(0).choice(size, 1_000_000, p=p / p.sum())
        counts = np.maximum(1, np.bincount(drawn, minlength=size))
        words = Vocab(tuple(map(str, range(size))), counts)
        sizes.append([size, median(np.split(drawn, 20_000), words, 1e-3)])
    return {"tokens": tokens, "vocabulary": sizes}


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

    model = train(ids, vocab, D=D, window=WINDOW, k=K, epochs=10, sample=1e-4, lr=0.05)
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


def peak(who: str) -> None:
    """Train once on the speeches and print the process's peak memory in MB."""
    _, min_count, sample = CORPORA["speeches"]
    lines = sentences("speeches")
    if who == "ours":
        vocab, ids = encode(lines, min_count)
        train(ids, vocab, epochs=1, sample=sample)
    else:
        gensim(prepared(lines, min_count, sample), lines, 1)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)


def memory(who: str) -> int:
    """The peak memory of a process of its own."""
    run = subprocess.run([sys.executable, __file__, "--memory", who], capture_output=True, text=True, check=True)
    return int(run.stdout)


def main() -> None:
    """Measure, compare, record."""
    torch.set_num_threads(THREADS)
    if "--memory" in sys.argv:
        return peak(sys.argv[-1])
    seconds, preparing = {}, {}
    for corpus in CORPORA:
        seconds[corpus], preparing[corpus] = speed(corpus)
        print(corpus, seconds[corpus], preparing[corpus], flush=True)
    d2l = d2l_epochs(3)
    seconds["ptb"]["d2l's loop"], preparing["ptb"]["d2l's loop"] = d2l["epoch"], d2l["prepare"]
    print(d2l, flush=True)
    facts = {
        "settings": {"D": D, "window": WINDOW, "k": K, "threads": THREADS, "repeats": REPEATS, "seeds": list(SEEDS)},
        "corpora": {name: title for name, (title, *_) in CORPORA.items()},
        "speed": seconds,
        "of_gensim": {c: round(r["ours"]["median"] / r["gensim"]["median"], 3) for c, r in seconds.items()},
        "faster_than_d2l": round(seconds["ptb"]["d2l's loop"]["median"] / seconds["ptb"]["ours"]["median"], 1),
        "prepare": preparing,
        "growth": growth(),
        "four": speed_of_four(),
        "peak_mb": {who: memory(who) for who in ("ours", "gensim")},
        "quality": [row for epochs in (5, 20) for row in quality(epochs)],
        "ptb": treebank(),
    }
    save("word2vec", **facts)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))
    main()
