"""Long reviews and cloze stories: attention, its controls and its weights, over several seeds.

    python bench/attention_everywhere.py    train, score and write the record attention_everywhere

The settings are those of the page on attention everywhere. Every classifier passes twice over the same 4,000 reviews,
starts from GloVe, and has the learning rate, of two, that is best on the validation reviews with seed 0; tf-idf with a
logistic regression has the penalty, of three, that is best there. Readers of stories all have one rate, and pass four
times or eight times over 8,000 stories. The seeds draw the start. About 20 minutes on one thread.
"""

import statistics
from itertools import combinations

import numpy as np
import torch
from record import save
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
    return scores, [w for w, _, _ in longer], [x for _, _, x in longer]


def mean_rank(pairs) -> float:
    """The mean over documents of Spearman's correlation between two numbers a sentence."""
    return round(float(np.nanmean([spearmanr(a, b).statistic for a, b in pairs])), 4)


def classify() -> dict:
    """All classifiers: rate, accuracies, effect of the place of a sentence; for the last, what its weights mean."""
    vocab, vectors, train, valid, test = long_reviews()
    against = [vocab.encode(PRAISE.split()), vocab.encode(BLAME.split())]
    found = {"tf-idf and logistic regression": linear(vocab, train, valid, test)}
    print(found, flush=True)
    place, weights = {}, []
    for name, make in CLASSIFIERS.items():

        def run(rate, seed, make=make):
            torch.manual_seed(seed)
            model = make(vectors)
            ae.train_classifier(model, *train, PASSES, lr=rate, seed=seed)
            return model, *(round(float(((ae.log_odds(model, d) > 0) == y).mean()), 4) for d, y in (valid, test))

        tried = {rate: run(rate, SEEDS[0]) for rate in RATES}
        rate = max(RATES, key=lambda r: tried[r][1])
        runs = [tried[rate]] + [run(rate, seed) for seed in SEEDS[1:]]
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
    two = list(combinations(weights, 2))
    return {
        "accuracy": found,
        "place": place,
        "weights": [scores for scores, _, _ in weights],
        "seeds agree on weights": [mean_rank(zip(a[1], b[1], strict=True)) for a, b in two],
        "seeds agree on drops": [mean_rank(zip(a[2], b[2], strict=True)) for a, b in two],
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


def main() -> None:
    """Train everything with every seed, score, record."""
    torch.set_num_threads(1)
    settings = dict(documents=DOCUMENTS, longest=LONGEST, D=D, passes=PASSES, rates=RATES, seeds=SEEDS)
    save("attention_everywhere", settings=settings, stories=read_stories(), reviews=classify())


if __name__ == "__main__":
    main()
