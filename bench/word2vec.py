"""word2vec beside gensim and d2l: seconds for an epoch, growth with text and vocabulary, memory.

    LRM_DATA=folder python bench/word2vec.py          compare in one run and write the record word2vec
    python bench/word2vec.py --memory ours            the peak memory of one training, in MB (gensim: --memory gensim)

Skip-gram with negative sampling on the speeches and on the Penn Treebank: the same width, window, noise words, epochs
and subsampling for all, each library run in turn beside the other in the same process. gensim and d2l get two threads;
ours takes one, however many there are. Text and vocabulary are ready before the clock starts; what it takes to make
them is recorded apart. d2l's functions prepare d2l's batches, and its training loop is written out below. About six
minutes on two cores; how good the vectors are is measured by `bench/word2vec_quality.py`.
"""

import random
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from gensim.models import Word2Vec as Gensim
from record import clock, import_d2l, save, summary
from torch import nn

from lrm_utils import data, text
from lrm_utils.models.training_word2vec import PLANS, train
from lrm_utils.text import Vocab

THREADS, REPEATS = {"ours": 1, "gensim": 2, "d2l's loop": 2}, 5
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
        vector_size=D,
        window=WINDOW,
        min_count=min_count,
        sample=sample,
        seed=seed,
        workers=THREADS["gensim"],
        **settings,
    )
    model.build_vocab(lines)
    return model


def library_options(architecture: str, objective: str) -> dict[str, int]:
    """What gensim calls our architectures and objectives."""
    tree = objective == "hierarchical softmax"
    return {"sg": int(architecture == "skip-gram"), "negative": 0 if tree else K, "hs": int(tree)}


def gensim(model: Gensim, lines: list[list[str]], epochs: int) -> float:
    """Train it; the seconds for an epoch."""
    return clock(lambda: model.train(lines, total_examples=model.corpus_count, epochs=epochs))[0] / epochs


def ours(ids: list[np.ndarray], vocab: Vocab, epochs: int, **options) -> float:
    """Train ours; the seconds for an epoch."""
    return clock(lambda: train(ids, vocab, D=D, window=WINDOW, k=K, epochs=epochs, **options))[0] / epochs


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
        "ours": lambda: clock(lambda: encode(lines, min_count))[0],
        "gensim": lambda: clock(lambda: prepared(lines, min_count, sample))[0],
    }
    return in_turn(works, REPEATS), in_turn(prepare, 3)


def speed_of_four() -> dict[str, dict]:
    """Seconds for an epoch of every architecture and objective, ours and gensim's, on the speeches."""
    _, min_count, sample = CORPORA["speeches"]
    lines = sentences("speeches")
    vocab, ids = encode(lines, min_count)
    works = {}
    for architecture, objective in PLANS:
        options = library_options(architecture, objective)
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
    taken = [clock(epoch)[0] for _ in range(repeats)]
    return {"epoch": summary(taken), "prepare": round(preparing, 2), "centers": len(centers)}


def growth() -> dict[str, list]:
    """Seconds for an epoch by tokens (pieces of the speeches) and by vocabulary (a million tokens of Zipf's law)."""
    _, min_count, sample = CORPORA["speeches"]
    vocab, ids = encode(sentences("speeches"), min_count)

    def median(documents, vocab, sample):
        return round(
            statistics.median(clock(lambda: train(documents, vocab, epochs=1, sample=sample))[0] for _ in "123"), 3
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
        sizes.append([size, median(np.split(drawn, 20_000), words, None)])  # every size reads the same tokens
    return {"tokens": tokens, "vocabulary": sizes}


def peak(who: str) -> None:
    """Train once on the speeches and print the process's peak memory in MB."""
    _, min_count, sample = CORPORA["speeches"]
    lines = sentences("speeches")
    if who == "ours":
        vocab, ids = encode(lines, min_count)
        train(ids, vocab, epochs=1, sample=sample)
    else:
        gensim(prepared(lines, min_count, sample), lines, 1)
    status = Path("/proc/self/status").read_text()  # unlike getrusage, this forgets the process that started it
    print(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024)


def memory(who: str) -> int:
    """The peak memory of a process of its own."""
    run = subprocess.run([sys.executable, __file__, "--memory", who], capture_output=True, text=True, check=True)
    return int(run.stdout)


def main() -> None:
    """Measure, compare, record."""
    torch.set_num_threads(THREADS["d2l's loop"])
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
        "settings": {"D": D, "window": WINDOW, "k": K, "threads": THREADS, "repeats": REPEATS},
        "corpora": {name: title for name, (title, *_) in CORPORA.items()},
        "speed": seconds,
        "of_gensim": {c: round(r["ours"]["median"] / r["gensim"]["median"], 3) for c, r in seconds.items()},
        "faster_than_d2l": round(seconds["ptb"]["d2l's loop"]["median"] / seconds["ptb"]["ours"]["median"], 1),
        "prepare": preparing,
        "growth": growth(),
        "four": speed_of_four(),
        "peak_mb": {who: memory(who) for who in ("ours", "gensim")},
    }
    save("word2vec", **facts)


if __name__ == "__main__":
    main()
