"""fastText beside the library of its authors: the classifier, the word vectors, and the cost of many labels.

    python bench/fasttext_peers.py                measure everything and write the record fasttext_peers
    python bench/fasttext_peers.py presidents     measure a part anew: labels, classifier, presidents or vectors

The classifier: the same words of the same reviews, pairs of words, two million buckets, width 10, five passes, rate
0.5, for both; seconds run from the words in memory (for the library: from a file with the words) to the trained model,
so counting and hashing are in them. TF-IDF with logistic regression (scikit-learn) stands beside them. The vectors: the
speeches, width 100, window 5, five noise words, 200,000 buckets, sample 1e-3, five passes; word2vec is the trainer of
chapter 2 with the learning rate of our fastText, and both are run with twice that; agreement with GloVe is on all known
words. Ways take turns within a round. The classifiers take one thread and two, the library also twelve, its default:
each of its threads fills a tenth of the table with random numbers, so with fewer than eleven a part of the table stays
as memory was, which for a large new table is zero. For vectors ours and gensim take one thread, the library twelve.
About a quarter of an hour on an idle machine, with fasttext 0.9.3 and gensim 4.4.
"""

import os
import statistics
import sys
import tempfile
from collections import Counter
from itertools import chain
from pathlib import Path

import fasttext
import numpy as np
import torch
from gensim.models import FastText as Gensim
from record import clock, save, summary
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from lrm_utils import data, evaluate, records, text
from lrm_utils.models.fasttext import (
    Softmax,
    Subwords,
    TextFeatures,
    Tree,
    train_classifier,
    train_fasttext,
)
from lrm_utils.models.training_word2vec import train as train_word2vec
from lrm_utils.text import Vocab, WordVectors

SEEDS, VECTOR_SEEDS = 5, 3
BANDS = ((5, 6), (7, 10), (11, 30), (31, 100), (101, 1000))
LABELS = (10, 100, 1_000, 10_000, 100_000)
CLASSIFIER = {"dim": 10, "lr": 0.5, "epoch": 5, "wordNgrams": 2, "bucket": 2_000_000, "minCount": 1}
VECTORS = {"dim": 100, "ws": 5, "neg": 5, "minCount": 5, "bucket": 200_000, "t": 1e-3, "epoch": 5, "lr": 0.05}
RATE = 0.025
THREADS = {"one thread": 1, "two threads": 2, "twelve threads": 12}


def words_and_pairs(words: list[str]) -> list[str]:
    """What a linear classifier reads of a text: the same as fastText, unhashed."""
    return words + [f"{a} {b}" for a, b in zip(words, words[1:], strict=False)]


def library_labels(model, documents: list[list[str]]) -> np.ndarray:
    """What the library predicts (its own `predict` fails beside numpy 2, so its core is asked)."""
    return np.array([int(model.f.predict(" ".join(d) + "\n", 1, 0.0, "strict")[0][1][9:]) for d in documents])


def classifiers(source: str, folder: Path) -> dict:
    """Accuracy over seeds and seconds over repeats, ours and the library's, and a linear baseline."""
    reviews = data.reviews(source)
    parts = {name: [text.words(r.text) for r in getattr(reviews, name)] for name in ("train", "test")}
    labels = {name: np.array([r.label for r in getattr(reviews, name)]) for name in ("train", "test")}
    path = folder / f"{source}.txt"
    path.write_text(
        "".join(f"__label__{y} {' '.join(d)}\n" for d, y in zip(parts["train"], labels["train"], strict=True))
    )

    def ours(seed: int) -> tuple:
        features = TextFeatures(Vocab.build(chain.from_iterable(parts["train"])))
        return features, train_classifier(features.bags(parts["train"]), labels["train"], features, seed=seed)

    def library(seed: int, threads: int):
        return fasttext.train_supervised(str(path), **CLASSIFIER, thread=threads, seed=seed, verbose=0)

    found = {"ours": {"accuracy": []}} | {f"library, {n}": {"accuracy": []} for n in THREADS}
    times = {f"ours, {n}": [] for n in ("one thread", "two threads")} | {f"library, {n}": [] for n in THREADS}
    for seed in range(SEEDS):
        for name in ("two threads", "one thread"):
            torch.set_num_threads(THREADS[name])
            seconds, (features, model) = clock(ours, seed)
            times[f"ours, {name}"].append(seconds)
        guess = model.predict(features.bags(parts["test"]))
        found["ours"]["accuracy"].append(round(float((guess == labels["test"]).mean()), 4))
        for name, threads in THREADS.items():
            seconds, model = clock(library, seed, threads)
            times[f"library, {name}"].append(seconds)
            guess = library_labels(model, parts["test"])
            found[f"library, {name}"]["accuracy"].append(round(float((guess == labels["test"]).mean()), 4))
    tfidf = TfidfVectorizer(analyzer=words_and_pairs)
    linear = LogisticRegression(C=10, max_iter=1000).fit(tfidf.fit_transform(parts["train"]), labels["train"])
    score = linear.score(tfidf.transform(parts["test"]), labels["test"])
    return found | {
        "tf-idf and logistic regression": {"accuracy": round(float(score), 4)},
        "seconds": {name: summary(taken) for name, taken in times.items()},
        "reviews": {name: len(documents) for name, documents in parts.items()},
    }


def presidents(folder: Path) -> dict:
    """How often the president of a paragraph is guessed, by softmax and by a tree of labels, ours and the library's."""
    said = [(text.words(p), speech.president) for speech in data.sotu() for p in speech.text.splitlines()]
    said = [(words, name) for words, name in said if len(words) >= 20]
    said = [said[i] for i in np.random.default_rng(0).permutation(len(said))]
    names = [name for name, _ in Counter(name for _, name in said).most_common()]
    labels, cut = np.array([names.index(name) for _, name in said]), len(said) // 10
    train, test = ([words for words, _ in part] for part in (said[cut:], said[:cut]))
    features = TextFeatures(Vocab.build(w for words in train for w in words), 200_000)
    bags, test_bags, path = features.bags(train), features.bags(test), folder / "presidents.txt"
    path.write_text("".join(f"__label__{y} {' '.join(d)}\n" for d, y in zip(train, labels[cut:], strict=True)))
    found = {name: [] for name in ("ours, softmax", "ours, tree", "library, softmax", "library, tree")}
    for seed in range(3):
        for name, objective, loss in (("softmax", Softmax, "softmax"), ("tree", Tree, "hs")):
            options = {"D": 30, "lr": 1.0, "epochs": 10, "objective": objective, "seed": seed}
            guess = train_classifier(bags, labels[cut:], features, **options).predict(test_bags)
            found[f"ours, {name}"].append(round(float((guess == labels[:cut]).mean()), 4))
            options = {"dim": 30, "lr": 1.0, "epoch": 10, "wordNgrams": 2, "bucket": 200_000, "loss": loss}
            guess = library_labels(
                fasttext.train_supervised(str(path), thread=12, seed=seed, verbose=0, **options), test
            )
            found[f"library, {name}"].append(round(float((guess == labels[:cut]).mean()), 4))
    tfidf = TfidfVectorizer(analyzer=words_and_pairs, sublinear_tf=True)
    linear = LinearSVC(C=0.5).fit(tfidf.fit_transform(train), labels[cut:])
    score = linear.score(tfidf.transform(test), labels[:cut])
    return found | {"tf-idf, linear": [round(float(score), 4)]}


def scores(vectors: WordVectors) -> dict[str, float]:
    """Word vectors on the rulers of the course."""
    sections = data.analogies()
    grammar = [q for name, section in sections.items() if name.startswith("gram") for q in section]
    meaning = [q for name, section in sections.items() if not name.startswith("gram") for q in section]
    found = {name: evaluate.similarity(vectors, data.word_pairs(name)).value for name in ("wordsim353", "simlex999")}
    found |= {"grammar": evaluate.analogy(vectors, grammar).value, "meaning": evaluate.analogy(vectors, meaning).value}
    return {name: round(value, 4) for name, value in found.items()}


def word_vectors(folder: Path) -> dict:
    """Seconds for a training and scores over seeds: ours, the library's, gensim's, and word2vec."""
    lines = [words for speech in data.sotu() for p in speech.text.splitlines() if (words := text.words(p))]
    lines = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))]
    vocab = Vocab.build((w for line in lines for w in line), 5)
    documents = [vocab.encode(line, drop_unknown=True) for line in lines]
    path = folder / "speeches.txt"
    subwords = Subwords(vocab, VECTORS["bucket"])

    def from_gensim(seed: int) -> np.ndarray:
        options = dict(vector_size=100, window=5, negative=5, min_count=5, sample=1e-3, bucket=VECTORS["bucket"])
        model = Gensim(lines, sg=1, epochs=VECTORS["epoch"], seed=seed, workers=1, **options)
        return np.stack([model.wv[word] for word in vocab.words])

    def from_library(seed: int) -> np.ndarray:
        model = fasttext.train_unsupervised(str(path), model="skipgram", thread=12, verbose=0, **VECTORS)
        return np.stack([model.get_word_vector(word) for word in vocab.words])

    ways = {
        "ours": lambda seed: train_fasttext(documents, subwords, lr=RATE, seed=seed).vectors.matrix,
        "library": from_library,
        "gensim": from_gensim,
        "word2vec": lambda seed: train_word2vec(documents, vocab, lr=RATE, seed=seed).vectors.matrix,
        "ours, twice the rate": lambda seed: train_fasttext(documents, subwords, lr=2 * RATE, seed=seed).vectors.matrix,
        "word2vec, twice the rate": lambda seed: (
            train_word2vec(documents, vocab, lr=2 * RATE, seed=seed).vectors.matrix
        ),
    }
    glove, counts = data.glove(), dict(zip(vocab.words, vocab.counts.tolist(), strict=True))
    times, found = {name: [] for name in ways}, {name: [] for name in ways}
    for seed in range(VECTOR_SEEDS):
        order = np.random.default_rng(seed).permutation(len(lines))  # the library takes no seed here
        path.write_text("".join(" ".join(lines[i]) + "\n" for i in order))
        for name, way in ways.items():
            seconds, matrix = clock(way, seed)
            times[name].append(seconds)
            vectors = WordVectors(vocab, matrix)
            found[name].append(scores(vectors) | {"agreement": placed(vectors, counts, glove)})
            print(name, round(seconds, 1), found[name][-1], flush=True)
    return {"seconds": {name: summary(taken) for name, taken in times.items()}, "scores": found}


def placed(vectors: WordVectors, counts: dict[str, int], glove: WordVectors) -> dict[str, float]:
    """How well words of the vocabulary are placed, by how often they were seen: mean agreement with GloVe."""
    known = [word for word in vectors.vocab.words if word in glove.vocab]
    anchors = [word for word in vectors.vocab.words[100:1200] if word in glove.vocab][:1000]
    others = [word for word in vectors.vocab.words[1200:5000] if word in glove.vocab]
    found = {}
    for low, high in BANDS:
        words = [w for w in known if low <= counts[w] <= high and w.isalpha() and len(w) > 2 and w not in anchors]
        found[f"{low}-{high}"] = round(float(evaluate.agreement(vectors, glove, words, anchors, others).mean()), 4)
    return found


def label_cost() -> dict:
    """Milliseconds for a step on 32 texts as the labels grow, softmax and tree; counts fall off as words' do."""
    found = {"counts": list(LABELS), "softmax": [], "tree": [], "turns": []}
    for C in LABELS:
        counts = np.maximum(1, 1e6 / np.arange(1, C + 1)).astype(int)
        labels = torch.as_tensor(np.random.default_rng(0).choice(C, 32, p=counts / counts.sum()))
        h, rounds = torch.randn(32, 30, generator=torch.Generator().manual_seed(0)), 30
        for name, objective in (("softmax", Softmax(counts)), ("tree", Tree(counts))):
            W = torch.zeros(objective.rows, 30)
            taken = [clock(objective.step, h, W, labels, 0.1)[0] for _ in range(rounds)]
            found[name].append(round(1e3 * statistics.median(taken), 4))
        found["turns"].append(round(float(np.average(objective.tree.lengths, weights=counts)), 2))
    return found


def main(parts: list[str]) -> None:
    """Measure the parts that are named, or all; parts that are not keep what the record has."""
    torch.set_num_threads(1)
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        works = {
            "labels": label_cost,
            "classifier": lambda: {source: classifiers(source, folder) for source in ("mr", "imdb")},
            "presidents": lambda: presidents(folder),
            "vectors": lambda: word_vectors(folder),
        }
        old = {} if not parts else records.load("fasttext_peers")
        results = {part: work() if not parts or part in parts else old[part] for part, work in works.items()}
    settings = {"classifier": CLASSIFIER, "vectors": VECTORS, "rate": RATE}
    save("fasttext_peers", load=load, settings=settings, **results)


if __name__ == "__main__":
    main(sys.argv[1:])
