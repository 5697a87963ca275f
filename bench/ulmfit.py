"""ULMFiT: accuracy against the number of labels, what each part of the recipe does, and the mean of two directions.

    python bench/ulmfit.py long         long reviews, their last 70 tokens: 100, 500, 1,000 and all labels
    python bench/ulmfit.py backward     the backward model at 500 labels, and its mean with the forward one
    python bench/ulmfit.py ablations    500 labels, one part of the recipe missing each time
    python bench/ulmfit.py short        short reviews (single sentences): 100, 500, 1,000 and all labels
    python bench/ulmfit.py edge         long reviews, from nothing, at a rate below those that `long` tries
    python bench/ulmfit.py start        500 labels, a twin of `awd-lstm` whose table began at random (from LRM_TWIN)
    python bench/ulmfit.py              all of them; parts that are not asked for are kept

`backward` and `ablations` use the rates that `long` has chosen. All need the checkpoints `awd-lstm`,
`awd-lstm-reviews` and `awd-lstm-backward-reviews`.

Everything is settled on the validation part: the rate of every kind of network, at 500 labels and with a seed that is
not used again, and the penalty of every linear model for each draw of labels. Scores are on test items, the same for
all; the labeled reviews of a seed are the same for all, too. Differences are taken item by item, the mean over seeds
first, and their error is over items: it knows nothing of another draw of labels, for which there are the seeds.
"""

import json
import math
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from record import FOLDER, run_parts
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from lrm_utils import checkpoints, data, pretrain, text
from lrm_utils.models import awd_lstm as awd
from lrm_utils.models import ulmfit as ulm

SIZES, SEEDS, CHOOSING = (100, 500, 1000), 3, 100
STEPS, STEPS_ALL = (20, 20, 20, 20, 60), (60, 60, 60, 60, 1260)
SHORT_STEPS, SHORT_STEPS_ALL, SHORT_SEEDS = (20, 20, 20, 20, 100), (100, 100, 100, 100, 600), 2
LONGEST, TEST = 70, 1000
RATES = (1e-3, 3e-3, 1e-2, 3e-2)  # what is tried
PENALTIES = (0.01, 0.1, 1.0, 10.0)  # scikit-learn's C: the inverse of a penalty
STARTS, STEPS_START = (
    {"skip-gram": 0.1, "random": 0.0},
    1100,
)  # `table` of the recipe `awd-lstm`, and a quarter of its steps


def say(*words):
    """Progress, on standard error."""
    print(*words, file=sys.stderr, flush=True)


class Task:
    """Reviews in ids and as text, and their labels."""

    def __init__(self, name, vocab, longest=None, test=None, backward=False):
        found = data.reviews(name)
        self.reviews = {"train": found.train, "validation": found.validation[:test], "test": found.test[:test]}
        self.ids = {
            part: [ulm.encoded(r.text, vocab, longest, backward) for r in some] for part, some in self.reviews.items()
        }
        self.labels = {part: np.array([r.label for r in some]) for part, some in self.reviews.items()}

    def drawn(self, n, seed):
        """The rows of n labeled reviews."""
        return np.random.default_rng(seed).permutation(len(self.labels["train"]))[:n]

    def some(self, n, seed):
        """The ids and labels of n reviews."""
        rows = self.drawn(n, seed)
        return [self.ids["train"][i] for i in rows], self.labels["train"][rows]

    def score(self, p, part="test"):
        """Which items are right, 0 or 1."""
        return (np.asarray(p)[:, 1] > 0.5).astype(int) == self.labels[part]


def tuned(task, start, n, seed, steps, lr, part="test", head_only=False, words_only=False, **options):
    """Tune a classifier on n labels; the probabilities of a part, and the model. `start` is a checkpoint."""
    torch.manual_seed(seed)
    model = ulm.Classifier(ulm.new_encoder(start, pretrained=not words_only))
    if words_only:
        model.encoder.embedding.weight.data.copy_(start.weights["encoder.embedding.weight"])
    if head_only:
        steps = (sum(steps), 0, 0, 0, 0)
    ulm.finetune(model, *task.some(n, seed), steps, lr, seed=seed, **options)
    return ulm.predict(model, task.ids[part]).numpy(), model


def from_nothing(task, start, n, seed, steps, lr, part="test"):
    """The same network with random weights, all at one rate, as many steps, along the same triangle."""
    torch.manual_seed(seed)
    model = ulm.Classifier(ulm.new_encoder(start, pretrained=False))
    losses = ulm.finetune(model, *task.some(n, seed), steps, lr, factor=1.0, gradual=False, seed=seed)
    say(f"from nothing, {n} labels, rate {lr:g}: training loss at the end {np.mean(losses[-10:]):.3f}")
    return ulm.predict(model, task.ids[part]).numpy(), model


NETWORKS = {"ULMFiT": tuned, "scratch": from_nothing}


def best_rate(name, task, start, n, steps, rates, work, **options):
    """The rate with the best validation accuracy, and what was tried."""
    found = {}
    for lr in rates:
        p, _ = work(task, start, n, CHOOSING, steps, lr, part="validation", **options)
        found[lr] = round(float(task.score(p, "validation").mean()), 4)
    say(name, found)
    return max(found, key=found.get), {f"{lr:g}": score for lr, score in found.items()}


# ---------------------------------------------------------------------------------------------------- plain baselines


def regression(train, labels, others):
    """Logistic regressions of several penalties; a list of probabilities for each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = [LogisticRegression(C=C, max_iter=2000).fit(train, labels) for C in PENALTIES]
    return [[model.predict_proba(x) for x in others] for model in fitted]


def linear(task, features, n, seed):
    """The best penalty on validation; the probabilities of the test items."""
    rows = task.drawn(n, seed)
    found = regression(*features(rows))
    scores = [task.score(validation, "validation").mean() for validation, _ in found]
    return found[int(np.argmax(scores))][1]


def tf_idf(task, longest=None):
    """Features: words and pairs of words, weighted by rarity. `longest` cuts as the networks' input is cut."""
    worded = {part: [text.words(r.text)[-(longest or 0) :] for r in some] for part, some in task.reviews.items()}

    def features(rows):
        vectorizer = TfidfVectorizer(analyzer=with_pairs, sublinear_tf=True, min_df=2 if len(rows) > 2000 else 1)
        train = vectorizer.fit_transform([worded["train"][i] for i in rows])
        return (
            train,
            task.labels["train"][rows],
            [vectorizer.transform(worded[part]) for part in ("validation", "test")],
        )

    return features


def with_pairs(words):
    """Words, and neighbors joined."""
    return [*words, *(f"{a} {b}" for a, b in zip(words, words[1:], strict=False))]


def glove(task, longest=None):
    """Features: the mean vector of the words, standardized."""
    vectors = data.glove()

    def mean(review):
        rows = [vectors.vocab.ids[w] for w in text.words(review.text)[-(longest or 0) :] if w in vectors.vocab]
        return vectors.matrix[rows].mean(0) if rows else np.zeros(vectors.matrix.shape[1])

    means = {part: np.stack([mean(r) for r in some]) for part, some in task.reviews.items()}

    def features(rows):
        train = means["train"][rows]
        center, spread = train.mean(0), train.std(0) + 1e-8
        others = [(means[part] - center) / spread for part in ("validation", "test")]
        return (train - center) / spread, task.labels["train"][rows], others

    return features


# ----------------------------------------------------------------------------------------------------------- the parts


def gains(right, ours="ULMFiT"):
    """Ours less each other kind, item by item: mean, error over items, and each seed's."""
    found = {}
    for kind, others in right.items():
        if kind != ours:
            each = np.stack(right[ours]).astype(float) - np.stack(others)[: len(right[ours])]
            items = each.mean(0)
            found[kind] = {
                "gain": round(float(items.mean()), 4),
                "error": round(float(items.std(ddof=1) / math.sqrt(len(items))), 4),
                "seeds": [round(float(x), 4) for x in each.mean(1)],
            }
    return found


def curve(task, start, plan, rates, longest=None):
    """Accuracies of all kinds; `plan` has for each number of labels the seeds and the steps."""
    plain = {"TF-IDF": tf_idf(task, longest=longest), "GloVe": glove(task, longest)}
    out = {"accuracy": {}, "gains": {}, "probabilities": {}, "test": len(task.labels["test"])}
    for n, (seeds, steps) in plan.items():
        size, right, kept = n or len(task.labels["train"]), {}, []
        for kind, work in NETWORKS.items():
            right[kind] = []
            for seed in range(seeds):
                p, _ = work(task, start, size, seed, steps, rates[kind])
                right[kind].append(task.score(p))
                if kind == "ULMFiT" and n == 500:  # for the mean with the backward model
                    kept.append([round(float(x), 3) for x in p[:, 1]])
            say(size, kind, [round(float(r.mean()), 4) for r in right[kind]])
        for kind, features in plain.items():
            right[kind] = [task.score(linear(task, features, size, seed)) for seed in range(seeds)]
            say(size, kind, [round(float(r.mean()), 4) for r in right[kind]])
        name = str(n) if n else "all"
        for kind, some in right.items():
            out["accuracy"].setdefault(kind, {})[name] = [round(float(r.mean()), 4) for r in some]
        out["gains"][name] = gains(right)
        if kept:
            out["probabilities"][name] = kept
    out["labels"] = len(task.labels["train"])
    return out


def chosen_rates(task, start, steps, n=500):
    """The best rate of each kind of network."""
    rates, tried = {}, {}
    for kind, work in NETWORKS.items():
        rates[kind], tried[kind] = best_rate(kind, task, start, n, steps, RATES, work)
    return rates, tried


def whole_curve(task, steps, steps_all, seeds, longest=None):
    """Rates, and the curve over all numbers of labels."""
    start = checkpoints.load("awd-lstm-reviews")
    rates, tried = chosen_rates(task, start, steps)
    plan = dict.fromkeys(SIZES, (seeds, steps)) | {None: (1, steps_all)}
    facts = {"rates": rates, "tried": tried, "steps": steps, "steps all": steps_all, "longest": longest}
    return facts | curve(task, start, plan, rates, longest)


def task_of(name="imdb", longest=LONGEST, test=TEST, backward=False):
    """The reviews of a part; all checkpoints have the same words."""
    return Task(name, checkpoints.load("awd-lstm").vocab, longest, test, backward)


def long():
    """Long reviews, their last tokens; at the end TF-IDF with all labels on whole reviews."""
    task = task_of()
    found = whole_curve(task, STEPS, STEPS_ALL, SEEDS, LONGEST)
    whole = linear(task, tf_idf(task), len(task.labels["train"]), 0)
    return found | {"TF-IDF, whole reviews": round(float(task.score(whole).mean()), 4)}


def short():
    """Short reviews, all of them."""
    found = whole_curve(task_of("mr", None, None), SHORT_STEPS, SHORT_STEPS_ALL, SHORT_SEEDS)
    del found["probabilities"]
    return found


def kept(part):
    """What a part has written."""
    path = FOLDER / "ulmfit.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    return record[part] if part in record else sys.exit(f"run the part `{part}` first")


def edge():
    """A network from nothing at a third of the lowest rate: validation accuracy, 500 labels."""
    task, start = task_of(), checkpoints.load("awd-lstm-reviews")
    return {"tried": best_rate("scratch", task, start, 500, STEPS, (min(RATES) / 3,), from_nothing)[1]}


def backward():
    """The backward model at 500 labels, and the mean with the forward one of the record."""
    start, before, task = checkpoints.load("awd-lstm-backward-reviews"), kept("long"), task_of(backward=True)
    right = {"both": [], "forward": [], "backward": []}
    for seed, p in enumerate(before["probabilities"]["500"]):
        forward = np.stack([1 - np.array(p), p], 1)
        back, _ = tuned(task, start, 500, seed, STEPS, before["rates"]["ULMFiT"])
        for kind, q in (("both", (forward + back) / 2), ("forward", forward), ("backward", back)):
            right[kind].append(task.score(q))
    accuracy = {kind: [round(float(r.mean()), 4) for r in some] for kind, some in right.items()}
    say(accuracy)
    return {"labels": 500, "accuracy": accuracy, "gains": gains(right, "both")}


def constant(step, steps):
    """A rate that does not change."""
    return 1.0


def left(encoder, start, rows):
    """The perplexity of a text when an encoder is put back under the softmax of its language model."""
    model = awd.AWDLanguageModel(encoder)
    model.bias.data = start.weights["bias"].clone()
    return math.exp(-awd.log_probabilities(model.eval(), rows).mean())


def ablations():
    """500 labels: the recipe, and the recipe less one part; where all layers learn at one rate, it is chosen anew."""
    start, general = checkpoints.load("awd-lstm-reviews"), checkpoints.load("awd-lstm")
    vocab = start.vocab
    task, recipe = task_of(), kept("long")["rates"]["ULMFiT"]
    reviews = awd.rows_of(np.concatenate([d[1:] for d in task.ids["validation"]]), 10)[:, :400]
    speeches = awd.rows_of(pretrain.stream(pretrain.speeches(8)[1], vocab), 10)[:, :400]
    naive = dict(factor=1.0, schedule=constant, gradual=False)
    variants = {
        "the whole recipe": (start, {}),
        "head only, all else frozen": (start, dict(head_only=True)),
        "without gradual unfreezing": (start, dict(gradual=False)),
        "without discriminative": (start, dict(factor=1.0)),
        "without slanted triangle": (start, dict(schedule=constant)),
        "naive: without all three": (start, naive),
        "without stage 2": (general, {}),
        "its word vectors alone": (start, dict(words_only=True, factor=1.0, gradual=False)),
    }
    out = {}
    for name, (begin, options) in variants.items():
        lr, tried = recipe, {}
        if options.get("factor") == 1.0:
            lr, tried = best_rate(name, task, begin, 500, STEPS, RATES, tuned, **options)
        runs = [tuned(task, begin, 500, seed, STEPS, lr, **options) for seed in range(SEEDS)]
        right = [task.score(p) for p, _ in runs]
        out[name] = {
            "rate": lr,
            "tried": tried,
            "accuracy": [round(float(r.mean()), 4) for r in right],
            "perplexity": [round(left(model.encoder, begin, reviews), 2) for _, model in runs],
            "speeches": [round(left(model.encoder, begin, speeches), 2) for _, model in runs],
            "before": [round(left(ulm.new_encoder(begin), begin, rows), 2) for rows in (reviews, speeches)],
        }
        if name == "the whole recipe":
            whole = right
        else:
            out[name]["gain"] = gains({"this": right, "whole": whole}, "this")["whole"]
        say(name, out[name])
    return {"labels": 500, "steps": STEPS, "runs": out}


def start():
    """A twin of `awd-lstm` whose table began at random; like "without stage 2" of the ablations in all else."""
    folder = os.environ.get("LRM_TWIN")
    if not folder:
        say("no twin, its part is kept; to make one: python -m lrm_utils.pretrain awd-lstm --set table=0 --out twin")
        return kept("start")
    twin, task = checkpoints.load("awd-lstm", Path(folder)), task_of()
    lr, tried = best_rate("twin", task, twin, 500, STEPS, RATES, tuned)
    right = [task.score(tuned(task, twin, 500, seed, STEPS, lr)[0]) for seed in range(SEEDS)]
    losses = {part: round(twin.card["losses"][part], 4) for part in ("speeches", "reviews")}
    return {"losses": losses, "rate": lr, "tried": tried, "accuracy": [round(float(r.mean()), 4) for r in right]}


PARTS = {part.__name__: part for part in (long, backward, ablations, short, edge, start)}


def main() -> None:
    """Run the parts and write the record."""
    torch.set_num_threads(1)
    run_parts("ulmfit", PARTS)


if __name__ == "__main__":
    main()
