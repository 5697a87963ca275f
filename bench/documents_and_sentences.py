"""Skip-Thoughts beside Quick-Thoughts for about a minute each, and paragraph vectors beside gensim's Doc2Vec.

    python bench/documents_and_sentences.py                       everything: about ten minutes on one thread
    python bench/documents_and_sentences.py timing                the seconds alone, on a machine that does nothing else
    python bench/documents_and_sentences.py sentences documents order    the quality alone

Every part replaces its own numbers in the record `documents_and_sentences` and leaves the others. The two sentence
models read the same sentences, start from the same word vectors and make vectors of the same width; what they have
learned is measured after so many steps, and the timing says how many seconds those take. Doc2Vec gets the settings of
the page, one worker, and the passages in a new order each epoch, as ours do by themselves; `gensim_in_order` shows what
becomes of it when it reads them by date, as they lie in the corpus. `order` asks the same of word vectors.
"""

import sys
import time

import numpy as np
import torch
from gensim.models.doc2vec import Doc2Vec, TaggedDocument
from record import save, seconds
from scipy.stats import spearmanr

from lrm_utils import data, evaluate, records, text
from lrm_utils.models.documents_and_sentences import (
    SPECIALS,
    QuickThoughts,
    SkipThoughts,
    average,
    encode_all,
    held_out_presidents,
    paragraph_vectors,
    passages,
    quick_batches,
    sif_weights,
    skip_batches,
)
from lrm_utils.models.training_word2vec import train
from lrm_utils.train import fit

SEEDS, EVERY = (0, 1, 2), 3
ERAS = (1830, 1870, 1910, 1950, 1990)
MODELS = {  # class, units, batches, sentences in a batch, learning rate, steps between looks
    "Quick-Thoughts": (QuickThoughts, 100, quick_batches, 128, 2e-3, 150),
    "Skip-Thoughts": (SkipThoughts, 200, skip_batches, 32, 1e-3, 60),
}
LOOKS = 5
PEERS = {"pv-dbow": 8, "pv-dm": 6}  # epochs


class Material:
    """The text as the notebook reads it."""

    def __init__(self):
        self.speeches = data.sotu()
        self.texts = [[w for w in map(text.words, text.sentences(s.text)) if w] for s in self.speeches]
        self.parts = [(i, part) for i, sentences in enumerate(self.texts) for part in passages(sentences)]
        documents = [[w for j in part for w in self.texts[i][j]] for i, part in self.parts]
        self.vocab = text.Vocab.build((w for d in documents for w in d), min_count=5)
        self.ids = [self.vocab.encode(d, drop_unknown=True) for d in documents]
        known = text.Vocab.build((w for t in self.texts for s in t for w in s), size=4000, specials=SPECIALS)
        self.short = [[known.encode(s)[:30] for s in t] for t in self.texts]
        pairs = data.stsb().test
        self.scores = [pair.score for pair in pairs]
        self.pairs = [known.encode(text.words(s)) for pair in pairs for s in (pair.first, pair.second)]
        self.known = known

    def shuffled(self, seed: int) -> list[np.ndarray]:
        """The passages in a random order."""
        return [self.ids[i] for i in np.random.default_rng(seed).permutation(len(self.ids))]

    def start(self) -> torch.Tensor:
        """The word vectors of the last notebook, for the words that the encoders know."""
        V = train(self.shuffled(0), self.vocab, D=100, epochs=5, seed=0).V
        start = torch.randn(len(self.known), V.shape[1], generator=torch.Generator().manual_seed(0)) / 10
        shared = [word for word in self.known.words if word in self.vocab]
        rows = torch.as_tensor(self.known.encode(shared))
        start[rows] = (V / V.norm(dim=1).mean())[torch.as_tensor(self.vocab.encode(shared))]
        return start

    def similarity(self, model) -> float:
        """Spearman's correlation on the test part of STS-B."""
        X = encode_all(model, self.pairs)
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
        return float(spearmanr((X[::2] * X[1::2]).sum(1), self.scores).statistic)

    def era(self, X: np.ndarray) -> list[float]:
        """The accuracy of a probe for the era in each fold of presidents; X has every third passage."""
        judged = [self.speeches[i] for i, _ in self.parts[::EVERY]]
        years = np.array([s.year for s in judged])
        eras = np.searchsorted(ERAS, years, side="right")
        folds = held_out_presidents([s.president for s in judged], years)
        return [evaluate.probe(X[a], eras[a], X[b], eras[b]) for a, b in folds]

    def sentence_means(self, model) -> np.ndarray:
        """Every third passage as the mean of its sentences' vectors."""
        chosen = self.parts[::EVERY]
        X = encode_all(model, [self.short[i][j] for i, part in chosen for j in part])
        ends = np.cumsum([len(part) for _, part in chosen])
        return np.array([rows.mean(0) for rows in np.split(X, ends[:-1])])


class Shuffled:
    """Documents in a new order each time they are looped over."""

    def __init__(self, documents: list[TaggedDocument], seed: int):
        self.documents, self.random = documents, np.random.default_rng(seed)

    def __iter__(self):
        return (self.documents[i] for i in self.random.permutation(len(self.documents)))


def forward(model, batch):
    """The loss of a batch, for `fit`."""
    return model(batch)


def timing(material: Material) -> dict:
    """Sentences a second of both models, and seconds for an epoch of ours and gensim's paragraph vectors."""
    start, speeds = torch.randn(len(material.known), 100), {}
    for name, (kind, H, make, size, lr, _) in MODELS.items():
        steps = 20 if name == "Quick-Thoughts" else 12
        few = [b for b, _ in zip(make(material.short, size, 0), range(steps), strict=False)]
        model = kind(start, H)
        fit(model, few, forward, steps=3, lr=lr, clip=5.0)
        taken = seconds(lambda m=model, f=few, r=lr: fit(m, f, forward, epochs=1, lr=r, clip=5.0), repeats=3)
        fastest, slowest = taken["min"], taken["max"]
        rates = {"median": taken["median"], "min": slowest, "max": fastest}
        speeds[name] = {key: round(steps * size / value) for key, value in rates.items()}
    epoch = {}
    for name in PEERS:
        ours = seconds(lambda n=name: paragraph_vectors(material.ids, material.vocab.counts, n, epochs=1), repeats=2)
        peer, tagged = doc2vec(material, name, 0, epochs=1)
        begin = time.perf_counter()
        peer.train(tagged, total_examples=len(tagged), epochs=1)
        epoch[name] = {"ours": ours["median"], "gensim": round(time.perf_counter() - begin, 2)}
    return {"sentences_per_second": speeds, "seconds_an_epoch": epoch}


def sentences(material: Material) -> dict:
    """Loss and STS-B after so many steps, for several seeds, and the era at the end."""
    start, runs = material.start(), {}
    for name, (kind, H, make, size, lr, every) in MODELS.items():
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = kind(start, H)
            before = material.similarity(model)
            history = fit(
                model,
                lambda epoch, m=make, n=size: m(material.short, n, epoch),
                forward,
                steps=every * LOOKS,
                lr=lr,
                clip=5.0,
                validate=lambda m: {"stsb": material.similarity(m)},
                validate_every=every,
                seed=seed,
            )
            losses = np.array(history.losses).reshape(LOOKS, every)[:, -20:].mean(1)
            run = {
                "seed": seed,
                "steps": [0] + [v["step"] for v in history.validation],
                "loss": [round(history.losses[0], 3)] + [round(float(x), 3) for x in losses],
                "stsb": [round(before, 4)] + [round(v["stsb"], 4) for v in history.validation],
                "era": [round(x, 4) for x in material.era(material.sentence_means(model))],
            }
            runs.setdefault(name, []).append(run)
            print(name, run, flush=True)
    return {"batch": {name: m[3] for name, m in MODELS.items()}, "runs": runs}


def doc2vec(material: Material, name: str, seed: int, epochs: int) -> tuple[Doc2Vec, list[TaggedDocument]]:
    """gensim's model with our settings, its vocabulary built; the words are ids in disguise."""
    tagged = [TaggedDocument([str(w) for w in words], [i]) for i, words in enumerate(material.ids)]
    model = Doc2Vec(
        dm=int(name == "pv-dm"), dm_mean=1, vector_size=100, window=5, negative=5, sample=1e-4, min_count=1, alpha=0.05,
        min_alpha=0.05 * 0.004, epochs=epochs, workers=1, seed=seed + 1,
    )  # fmt: skip
    model.build_vocab(tagged)
    return model, tagged


def documents(material: Material) -> dict:
    """Era and how often an inferred training passage lands nearest to itself, ours and gensim's."""
    asked = list(range(0, len(material.ids), 19))
    found = {}
    for name, epochs in PEERS.items():
        for seed in SEEDS:
            ours = paragraph_vectors(material.ids, material.vocab.counts, name, epochs=epochs, seed=seed)
            again = ours.infer([material.ids[i] for i in asked]).numpy()
            results = {"ours": (ours.vectors.numpy(), again)}
            for who in ("gensim", "gensim_in_order") if seed == SEEDS[0] else ("gensim",):
                peer, tagged = doc2vec(material, name, seed, epochs)
                order = Shuffled(tagged, seed) if who == "gensim" else tagged
                peer.train(order, total_examples=len(tagged), epochs=epochs)
                again = np.array([peer.infer_vector(tagged[i].words, epochs=20) for i in asked])
                results[who] = peer.dv.vectors, again
            for who, (vectors, again) in results.items():
                run = {
                    "seed": seed,
                    "itself": round(evaluate.retrieval(again, vectors, asked)["recall@1"], 4),
                    "era": [round(x, 4) for x in material.era(vectors[::EVERY])],
                }
                found.setdefault(name, {}).setdefault(who, []).append(run)
                print(name, who, run, flush=True)
    return {"paragraph_vectors": found}


def order(material: Material) -> dict:
    """Word vectors from passages as they lie and shuffled: the era of a passage by the SIF mean, and SimLex-999."""
    weights, found = sif_weights(material.vocab.counts), {}
    for name in ("in order", "shuffled"):
        for seed in SEEDS:
            passages = material.ids if name == "in order" else material.shuffled(seed)
            words = train(passages, material.vocab, D=100, epochs=5, seed=seed)
            era = material.era(average(material.ids[::EVERY], words.V, weights))
            simlex = evaluate.similarity(words.vectors, data.word_pairs("simlex999")).value
            run = {"seed": seed, "era": [round(x, 4) for x in era], "simlex999": round(simlex, 4)}
            found.setdefault(name, []).append(run)
            print(name, run, flush=True)
    return found


def main() -> None:
    """Measure the parts that are asked for, and keep the others."""
    torch.set_num_threads(1)
    parts = {"timing": timing, "sentences": sentences, "documents": documents, "order": order}
    asked = sys.argv[1:] or list(parts)
    try:
        facts = records.load("documents_and_sentences")
    except ValueError:
        facts = {}
    material = Material()
    for name in asked:
        facts[name] = parts[name](material)
        save("documents_and_sentences", **{part: facts[part] for part in parts if part in facts})


if __name__ == "__main__":
    main()
