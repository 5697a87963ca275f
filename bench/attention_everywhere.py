"""Long reviews and cloze stories: attention, its controls and its weights, over several seeds.

    python bench/attention_everywhere.py            train, score and write the record attention_everywhere
    python bench/attention_everywhere.py weights    train two levels alone, for what its weights mean; keep the rest

The settings are those of the page on attention everywhere. Every classifier passes twice over the same 4,000 reviews,
starts from GloVe, and has the learning rate, of two, that is best on the validation reviews with seed 0; tf-idf with a
logistic regression has the penalty, of three, that is best there. Readers of stories all have one rate, and pass four
times or eight times over 8,000 stories. The seeds draw the start; batches and test reviews are the same. About 20
minutes on one thread; `weights` takes about three.
"""

import json
import statistics
import sys
from itertools import combinations

import numpy as np
import torch
from record import FOLDER, save
from scipy.stats import spearmanr

from lrm_utils import data
from lrm_utils.models import attention_everywhere as ae
from lrm_utils.models.seq2seq import SPECIALS
from lrm_utils.models.svd_and_lsa import inverse_document_frequency, term_counts, tf_idf
from lrm_utils.text import Vocab

DOCUMENTS, LONGEST, D, PASSES, RATES, SEEDS = 4000, 400, 32, 2, (4e-3, 1.6e-2), (0, 1, 2)
PENALTIES, PLACES = (1e-6, 1e-5, 1e-4), np.linspace(0, 1, 7)
BLAME = "this is the worst movie i have ever seen a complete waste of time"
PRAISE = "this is one of the best movies i have ever seen a true masterpiece"
CLASSIFIERS = {
    "mean of words": lambda v: ae.FlatAttention(v, D, learned=False, recurrent=False),
    "attention over words": lambda v: ae.FlatAttention(v, D, recurrent=False),
    "GRU, last state": lambda v: ae.LastState(v, D),
    "GRU, mean": lambda v: ae.FlatAttention(v, D, learned=False),
    "GRU, attention": lambda v: ae.FlatAttention(v, D),
    "two levels, mean": lambda v: ae.HierarchicalAttention(v, D, learned=False),
    "two levels, attention": lambda v: ae.HierarchicalAttention(v, D),
}


class AtTheGap(ae.AttentionSum):
    """Attention sum whose query is the state at the gap, in place of the two last states."""

    gap = 0

    def places(self, *inputs):
        h, u, in_story, _ = self.states(*inputs)
        query = u[torch.arange(len(u)), (inputs[2] == self.gap).int().argmax(1)][:, None]
        return ae.attend(query, h, h, allowed=in_story[:, None])[1][:, 0]


READERS = {
    "attention sum": ae.AttentionSum,
    "attention sum, at the gap": AtTheGap,
    "all query words alike": lambda V, D: ae.AttentionOverAttention(V, D, weighted=False),
    "attention over attention": ae.AttentionOverAttention,
}


def long_reviews() -> tuple:
    """The reviews of the page, as ids: vocabulary, starting vectors, and (documents, labels) of the three parts."""
    glove, parts, found = data.glove(), data.reviews(), []
    for reviews, limit in zip((parts.train, parts.validation, parts.test), (DOCUMENTS, None, None), strict=True):
        kept = []
        for review in reviews:
            document = ae.document_of(review.text, glove.vocab)
            if 200 <= sum(map(len, document)) <= LONGEST and len(document) > 1:
                kept.append((document, review.label))
            if len(kept) == limit:
                break
        found.append(kept)
    words = (word for document, _ in found[0] for sentence in document for word in sentence)
    vocab = Vocab.build(words, min_count=3, specials=SPECIALS)
    vectors = np.zeros((len(vocab), glove.matrix.shape[1]), dtype=np.float32)
    for i, word in enumerate(vocab.words):
        if word in glove.vocab:
            vectors[i] = glove[word]
    ids = [([[vocab.encode(s) for s in d] for d, _ in part], np.array([y for _, y in part])) for part in found]
    return vocab, vectors, *ids


def linear(vocab, train, valid, test) -> dict:
    """tf-idf and logistic regression, its penalty chosen on the validation part."""

    def bags(documents):
        return term_counts([np.concatenate(document) for document in documents], len(vocab))

    counts = bags(train[0])
    idf = inverse_document_frequency(counts)
    idf[~np.isfinite(idf)] = 0
    found = {}
    for penalty in PENALTIES:
        w, b = ae.logistic_regression(tf_idf(counts, idf), train[1], penalty)
        scores = [((tf_idf(bags(d), idf) @ w + b > 0) == y).mean() for d, y in (valid, test)]
        found[penalty] = [round(float(score), 4) for score in scores]
    best = max(PENALTIES, key=lambda penalty: found[penalty][0])
    return {"penalty": best, "test": [found[best][1]], "validation, test by penalty": found}


def faithfulness(model, documents) -> tuple[dict, list, list]:
    """Do the weights agree with deleting sentences? Also the weights and the drops of each document."""
    found = [ae.leave_one_out(model, document) for document in documents]
    sizes = [np.abs(drops) for *_, drops in found]
    picks = {
        "any": [size.mean() for size in sizes],
        "longest": [s[np.argmax([len(x) for x in d])] for s, d in zip(sizes, documents, strict=True)],
        "most attended": [s[w.argmax()] for s, (_, w, _, _) in zip(sizes, found, strict=True)],
        "largest vote": [s[np.abs(v).argmax()] for s, (_, _, v, _) in zip(sizes, found, strict=True)],
        "largest move": [s.max() for s in sizes],
    }
    scores = {"moves": {name: round(float(np.mean(moves)), 4) for name, moves in picks.items()}}
    hits = [s.argmax() == w.argmax() for s, (_, w, _, _) in zip(sizes, found, strict=True)]
    scores["most attended moves most"] = round(float(np.mean(hits)), 4)
    longer = [(w, v, x) for _, w, v, x in found if len(w) > 3]
    scores["rank correlation, weight and size"] = mean_rank([(w, np.abs(x)) for w, _, x in longer])
    scores["rank correlation, vote and drop"] = mean_rank([(v, x) for _, v, x in longer])
    scores["rank correlation, sizes of vote and drop"] = mean_rank([(np.abs(v), np.abs(x)) for _, v, x in longer])
    return scores, [w for w, _, _ in longer], [x for _, _, x in longer]


def ranks(pairs) -> np.ndarray:
    """Spearman's correlation between two numbers a sentence, for each document."""
    return np.array([spearmanr(a, b).statistic for a, b in pairs])


def mean_rank(pairs) -> float:
    """The mean of these correlations over documents."""
    return round(float(np.nanmean(ranks(pairs))), 4)


def agreement(weights) -> dict:
    """Do trainings with different seeds agree? On weights, on drops, and on their sizes, which have no sign either."""
    found = {"seeds agree on weights": [], "seeds agree on drops": [], "seeds agree on sizes of drops": []}
    found["sizes of drops better by"] = []  # than weights, document by document: the mean, half its 95 % interval
    for (_, w, x), (_, other_w, other_x) in combinations(weights, 2):
        sizes = [(np.abs(a), np.abs(b)) for a, b in zip(x, other_x, strict=True)]
        pairs = list(zip(w, other_w, strict=True)), list(zip(x, other_x, strict=True)), sizes
        for name, values in zip(found, pairs, strict=False):
            found[name].append(mean_rank(values))
        gap = ranks(sizes) - ranks(pairs[0])
        half = 1.96 * np.nanstd(gap) / np.sqrt(np.isfinite(gap).sum())
        found["sizes of drops better by"].append([round(float(np.nanmean(gap)), 4), round(float(half), 4)])
    return found


def trained(make, vectors, train, rate, seed):
    """A classifier, trained."""
    torch.manual_seed(seed)
    model = make(vectors)
    ae.train_classifier(model, *train, PASSES, lr=rate, seed=seed)
    return model


def classify() -> dict:
    """All classifiers: rate, accuracies, effect of the place of a sentence; for the last, what its weights mean."""
    vocab, vectors, train, valid, test = long_reviews()
    against = [vocab.encode(PRAISE.split()), vocab.encode(BLAME.split())]
    found = {"tf-idf and logistic regression": linear(vocab, train, valid, test)}
    print(found, flush=True)
    place, weights = {}, []
    for name, make in CLASSIFIERS.items():

        def scored(rate, seed, make=make):
            model = trained(make, vectors, train, rate, seed)
            return model, *(round(float(((ae.log_odds(model, d) > 0) == y).mean()), 4) for d, y in (valid, test))

        tried = {rate: scored(rate, SEEDS[0]) for rate in RATES}
        rate = max(RATES, key=lambda r: tried[r][1])
        runs = [tried[rate]] + [scored(rate, seed) for seed in SEEDS[1:]]
        found[name] = {
            "rate": rate,
            "test": [run[2] for run in runs],
            "mean": round(statistics.mean(run[2] for run in runs), 4),
            "validation by rate": {r: tried[r][1] for r in RATES},
        }
        moves = ae.effect_of_place(runs[0][0], test[0][:150], test[1][:150], against, PLACES).mean(1)
        place[name] = [round(float(move), 3) for move in moves]
        print(name, found[name], place[name], flush=True)
        if name == "two levels, attention":
            weights = [faithfulness(run[0], test[0]) for run in runs]
    return {
        "accuracy": found,
        "place": place,
        "weights": [scores for scores, _, _ in weights],
        **agreement(weights),
        "items": {"train": len(train[0]), "validation": len(valid[0]), "test": len(test[0])},
    }


def read_stories() -> dict:
    """The readers: accuracies after four and after eight passes."""
    stories = data.miniature.cloze(train=8000)
    words = (word for item in stories.train for word in (*item.context, *item.query))
    vocab = Vocab.build(words, specials=SPECIALS)
    AtTheGap.gap = vocab["_"]
    truth = np.array([vocab[item.answer] for item in stories.test])
    found = {}
    for passes in (4, 8):
        for name, make in READERS.items():
            for seed in SEEDS:
                torch.manual_seed(seed)
                model = make(len(vocab), D)
                ae.train_reader(model, stories.train, vocab, passes, seed=seed)
                score = float((ae.answers(model, stories.test, vocab) == truth).mean())
                found.setdefault(f"{passes} passes", {}).setdefault(name, []).append(round(score, 4))
            print(passes, name, found[f"{passes} passes"][name], flush=True)
    return found


def weigh_again() -> dict:
    """What the weights of two levels mean, from new trainings, which must score as before; the rest as it is."""
    record = json.loads((FOLDER / "attention_everywhere.json").read_text())
    reviews, name = record["reviews"], "two levels, attention"
    _, vectors, train, _, test = long_reviews()
    weights = []
    for seed, before in zip(SEEDS, reviews["accuracy"][name]["test"], strict=True):
        model = trained(CLASSIFIERS[name], vectors, train, reviews["accuracy"][name]["rate"], seed)
        score = round(float(((ae.log_odds(model, test[0]) > 0) == test[1]).mean()), 4)
        print(f"seed {seed}: accuracy {score}, in the record {before}", flush=True)
        if score != before:
            raise RuntimeError("this is not the training of the record: run all of it again, without `weights`")
        weights.append(faithfulness(model, test[0]))
    reviews |= {"weights": [scores for scores, _, _ in weights], **agreement(weights)}
    return {part: record[part] for part in ("settings", "stories", "reviews")}


def main() -> None:
    """Train everything with every seed, score, record."""
    torch.set_num_threads(1)
    if sys.argv[1:] == ["weights"]:
        return save("attention_everywhere", **weigh_again())
    settings = dict(documents=DOCUMENTS, longest=LONGEST, D=D, passes=PASSES, rates=RATES, seeds=SEEDS)
    save("attention_everywhere", settings=settings, stories=read_stories(), reviews=classify())


if __name__ == "__main__":
    main()
