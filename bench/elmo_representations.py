"""ELMo: what the layers of the biLM know, how a task should mix and place them, and how many labels they save.

    python bench/elmo_representations.py             all parts, about an hour on one thread
    python bench/elmo_representations.py probes      senses, parts of speech, and opinions, layer by layer, with rivals
    python bench/elmo_representations.py tables      layer weighting and placement, in the form of the paper's tables
    python bench/elmo_representations.py gamma       with and without the scale of the mix
    python bench/elmo_representations.py efficiency  accuracy against the share of labels; epochs to the baseline
    python bench/elmo_representations.py tuned       the biLM tuned on the text of a task first

The record names the checkpoint that it was made with; `LRM_CHECKPOINTS` is another folder to look for it. Tagged
sentences are those of the English Web Treebank, in lower case and without punctuation. The rates of the task networks
are the best of `RATES` on validation sentences, with a seed that is not used again; the same sentences tell
`efficiency` when a network is done and judge its epochs, and `tuned` measures perplexity on them. The penalty of each
probe is the best of `PENALTIES`, taught by a part of its first sample and judged on another.
"""

import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch
from record import run_parts
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import lrm_utils as lrm
from lrm_utils import checkpoints, data, evaluate, pretrain, records, text
from lrm_utils.data import miniature
from lrm_utils.models import bilm as lm
from lrm_utils.models import elmo_representations as er
from lrm_utils.models.cove import Occurrence

CHOOSING, SEEDS, STEPS = 100, 5, 250
RATES = (3e-3, 1e-2)
PENALTIES = (1e-3, 1e-2, 1e-1)
SGD_RATES = (0.3, 1.0)
TAGGED, LABELS = 300, 1000  # sentences to learn from in the tables
MOST = 5000  # steps, where a network is trained until it gets no better
CHECKPOINT = checkpoints.load("elmo", Path(os.environ.get("LRM_CHECKPOINTS", checkpoints.FOLDER)))


def say(*words):
    """Progress, on standard error."""
    print(*words, file=sys.stderr, flush=True)


@cache
def static():
    """Skip-gram vectors of the biLM's own text."""
    return er.skip_gram(pretrain.general())


@cache
def embedder(seed=None):
    """The trained biLM, or with a seed an untrained one of its size."""
    if seed is None:
        return er.Embedder(er.pretrained(CHECKPOINT), CHECKPOINT.vocab)
    torch.manual_seed(1000 + seed)
    return er.Embedder(er.built(CHECKPOINT), CHECKPOINT.vocab)


def rounded(values):
    """A list of numbers with four digits."""
    return [round(float(v), 4) for v in np.atleast_1d(values)]


# ---------------------------------------------------------------------------------------------------------- the data
@cache
def treebank():
    """Tagged sentences, lower case, without punctuation; and the list of their tags."""
    parts = data.ud_english()
    train, validation, test = (er.plain(part) for part in (parts.train, parts.validation, parts.test))
    order = np.random.default_rng(0).permutation(len(train))
    train = [train[i] for i in order]
    return train, validation, test, sorted({tag for _, tags in train for tag in tags})


def tag_examples(sentences, reader):
    """Tagged sentences as examples of a task."""
    tags = treebank()[3]
    answers = [[tags.index(tag) for tag in some] for _, some in sentences]
    return er.task_examples([words for words, _ in sentences], answers, reader, static())


def opinion_sentences():
    """MR: labeled sentences to learn from, to choose by (the last 800 of the training part), and to judge."""
    reviews = data.reviews("mr")

    def spoken(part):
        return [(words, r.label) for r in part if (words := text.words(r.text))]

    return spoken(reviews.train[:-800]), spoken(reviews.train[-800:]), spoken(reviews.validation + reviews.test)


def opinion_examples(sentences, reader):
    """Labeled sentences as examples of a task."""
    return er.task_examples(*zip(*sentences, strict=True), reader, static())


# -------------------------------------------------------------------------------------------------------- the probes
def layers_at(occurrences, reader):
    """The layers of each occurrence, (occurrences, L + 1, 2 D)."""
    return reader.at([o.words for o in occurrences], [o.position for o in occurrences]).numpy()


def letters(occurrences):
    """Layer 0 of all words around some occurrences, as static vectors."""
    return er.spelled((w for o in occurrences for w in o.words), embedder())


def senses_told(taught, tested):
    """The nearest mean of each sense, layer by layer, with its rivals; untrained ones three times."""
    first = er.Senses(np.zeros((len(taught), 1)), taught).first(tested)
    found = {"first sense": [np.mean([a == o.label for a, o in zip(first, tested, strict=True)])]}
    for kind, vectors in (("skip-gram", static()), ("layer 0", letters(taught + tested))):
        near = [er.windows(some, vectors, 5).mean(1) for some in (taught, tested)]
        found[f"window, {kind}"] = [er.told_apart(near[0], taught, near[1], tested).mean()]
    for seed in (None, 0, 1, 2):
        sides = [layers_at(some, embedder(seed)) for some in (taught, tested)]
        kind = "biLM" if seed is None else "untrained"
        for j in range(3):
            score = er.told_apart(sides[0][:, j], taught, sides[1][:, j], tested).mean()
            found.setdefault(f"{kind}, layer {j}", []).append(score)
        if seed is None:
            joined = [some.reshape(len(some), -1) for some in sides]
            found["biLM, all three"] = [er.told_apart(joined[0], taught, joined[1], tested).mean()]
            one, two = (er.told_apart(sides[0][:, j], taught, sides[1][:, j], tested) for j in (1, 2))
            gain = two.astype(float) - one
            found["layer 2 - layer 1"] = [gain.mean(), gain.std(ddof=1) / np.sqrt(len(gain))]
    return {kind: rounded(values) for kind, values in found.items()}


def chosen_penalties(inputs, y, size):
    """For each kind of input the best penalty of a probe that learns from one part and is judged on the next."""
    return {
        kind: max(
            PENALTIES,
            key=lambda p, X=X: evaluate.probe(X[:size], y[:size], X[size : 2 * size], y[size : 2 * size], penalty=p),
        )
        for kind, (X, _) in inputs.items()
    }


def tags_told(sample=4000, samples=3):
    """A linear probe of single vectors, taught by each of three samples of words; tested on the same words."""
    train, _, test, _ = treebank()
    every = [Occurrence(words, i, tag) for words, tags in train for i, tag in enumerate(tags)]
    tested = [Occurrence(words, i, tag) for words, tags in test for i, tag in enumerate(tags)][:6000]
    y_test, found, penalties = np.array([o.label for o in tested]), {}, {}
    for number in range(samples):
        taught = every[number * sample : (number + 1) * sample]
        y = np.array([o.label for o in taught])
        inputs = {"skip-gram": [er.windows(some, static(), 0)[:, 0] for some in (taught, tested)]}
        for kind, vectors in (("skip-gram", static()), ("layer 0", letters(taught + tested))):
            near = [er.windows(some, vectors, 2).reshape(len(some), -1) for some in (taught, tested)]
            inputs[f"window, {kind}"] = near
        for kind, reader in (("untrained", embedder(number)), ("biLM", embedder())):
            sides = [layers_at(some, reader) for some in (taught, tested)]
            inputs |= {f"{kind}, layer {j}": [some[:, j] for some in sides] for j in range(3)}
        inputs["biLM, all three"] = [some.reshape(len(some), -1) for some in sides]
        penalties = penalties if number else chosen_penalties(inputs, y, sample // 4)
        for kind, (X, X_test) in inputs.items():
            found.setdefault(kind, []).append(evaluate.probe(X, y, X_test, y_test, penalties[kind]))
        usual = {}
        for o in taught:
            usual.setdefault(o.word, []).append(o.label)
        said = [max(set(usual[o.word]), key=usual[o.word].count) if o.word in usual else "NOUN" for o in tested]
        found.setdefault("most frequent", []).append(np.mean(np.array(said) == y_test))
        say("tags", number, {kind: round(float(v[-1]), 3) for kind, v in found.items()})
    return {kind: rounded(values) for kind, values in found.items()} | {
        "words": [sample, len(tested)],
        "penalties": penalties,
    }


def opinions_told(samples=3):
    """A dense layer on the mean of a sentence's vectors, taught by each of three samples of sentences."""
    train, _, test = opinion_sentences()
    y_test, found, penalties = np.array([label for _, label in test]), {}, {}
    for number in range(samples):
        taught = train[number * LABELS : (number + 1) * LABELS]
        y = np.array([label for _, label in taught])
        sides = [[words for words, _ in some] for some in (taught, test)]
        inputs = {"skip-gram": [np.stack([er.rows_of(s, static()).mean(0) for s in some]) for some in sides]}
        for kind, reader in (("untrained", embedder(number)), ("biLM", embedder())):
            means = [reader.pooled(some).numpy() for some in sides]
            inputs |= {f"{kind}, layer {j}": [some[:, j] for some in means] for j in range(3)}
        inputs["biLM, all three"] = [some.reshape(len(some), -1) for some in means]
        penalties = penalties if number else chosen_penalties(inputs, y, LABELS // 2)
        for kind, (X, X_test) in inputs.items():
            found.setdefault(kind, []).append(evaluate.probe(X, y, X_test, y_test, penalties[kind]))
        counted = TfidfVectorizer(analyzer=lambda words: words, sublinear_tf=True)
        rows = counted.fit_transform(sides[0]), counted.transform(sides[1])
        plain = LogisticRegression(C=10.0, max_iter=1000).fit(rows[0], y)
        found.setdefault("tf-idf", []).append(plain.score(rows[1], y_test))
        say("opinions", number, {kind: round(float(v[-1]), 3) for kind, v in found.items()})
    return {kind: rounded(values) for kind, values in found.items()} | {
        "sentences": [LABELS, len(test)],
        "penalties": penalties,
    }


def probes():
    """Senses, parts of speech, opinions."""
    sensed, long = miniature.senses(train=2000, validation=0, test=1000), data.reviews("imdb")
    small = [[Occurrence(e.words, e.position, e.sense) for e in part] for part in (sensed.train, sensed.test)]
    names = er.named(long.train[6000:], 60), er.named(long.validation + long.test, 40)
    found = {"miniature": senses_told(*small), "names": senses_told(*names)}
    say(found)
    return found | {"tags": tags_told(), "opinions": opinions_told()}


# -------------------------------------------------------------------------------------------------------- the tables
def last(examples, times=1.0):
    """The same examples with their last layer only, or with layers that are so many times as large."""
    return [e._replace(h=times * e.h[-1:]) for e in examples]


VARIANTS = {  # the examples, the settings, and whose rate is taken
    "baseline": (False, dict(at=()), "baseline"),
    "last only": (True, dict(at=("input",)), "input"),
    "all, λ = 1": (False, dict(at=("input",), lam=1.0), "input"),
    "all, λ = 0.001": (False, dict(at=("input",), lam=0.001), "input"),
    "both": (False, dict(at=("input", "output"), lam=0.001), "both"),
    "output": (False, dict(at=("output",), lam=0.001), "output"),
    "all, normed": (False, dict(at=("input",), lam=0.001, norm=True), "input"),
}


def compared(train, choosing, test, C, name):
    """Choose the rates; train every variant with every seed."""
    settings = {"baseline": dict(at=())} | {
        end: dict(at=ends, lam=0.001)
        for end, ends in {"input": ("input",), "output": ("output",), "both": ("input", "output")}.items()
    }
    rates, found, mixes = {}, {}, {}
    for end, options in settings.items():
        tried = {
            lr: er.answered(er.trained_task(train, C, STEPS, lr, seed=CHOOSING, **options), choosing).mean()
            for lr in RATES
        }
        rates[end] = max(tried, key=tried.get)
        say(name, end, {lr: round(float(v), 3) for lr, v in tried.items()})
    for variant, (top, options, end) in VARIANTS.items():
        sides = [last(some) if top else some for some in (train, test)]
        models = [er.trained_task(sides[0], C, STEPS, rates[end], seed=seed, **options) for seed in range(SEEDS)]
        found[variant] = rounded([er.answered(model, sides[1]).mean() for model in models])
        mixes[variant] = {
            place: {
                "s": rounded(np.mean([m.mixes[place].s.tolist() for m in models], 0)),
                "gamma": rounded([m.mixes[place].gamma.item() for m in models]),
            }
            for place in options["at"]
        }
        say(name, variant, found[variant], mixes[variant])
    return {"rates": rates, "accuracy": found, "mixes": mixes}


def tag_parts(number=TAGGED):
    """Tagged examples to learn from, to choose by, and to judge, and the number of tags."""
    train, validation, test, tags = treebank()
    return *(tag_examples(s, embedder()) for s in (train[:number], validation[:500], test[:1000])), len(tags)


def tables():
    """Layer weighting and placement on two tasks."""
    train, choosing, test = (opinion_examples(some, embedder()) for some in opinion_sentences_few())
    found = {"opinions": compared(train, choosing, test, 2, "opinions")}
    found["tags"] = compared(*tag_parts(), "tags")
    return found


def opinion_sentences_few():
    """As `opinion_sentences`, with the labels of the tables."""
    train, choosing, test = opinion_sentences()
    return train[:LABELS], choosing, test


# ------------------------------------------------------------------------------------------------------------- gamma
def tagger(train, C, lr, seed, sgd, scaled):
    """A tagger with ELMo at its input, trained by Adam or by plain gradient descent."""
    if not sgd:
        return er.trained_task(train, C, STEPS, lr, lam=0.001, seed=seed, scaled=scaled)
    torch.manual_seed(seed)
    model = er.TaskRNN(train[0].x.shape[1], C, layers=len(train[0].h), W=train[0].h.shape[-1], scaled=scaled)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)
    lrm.fit(
        model,
        er.example_batches(train, 32),
        er.task_loss(0.001),
        steps=STEPS,
        optimizer=optimizer,
        clip=1.0,
        schedule=lambda step, steps: 1 - step / steps,
        seed=seed,
    )
    return model


def gamma():
    """Taggers with the scale learned and held at 1, for layers of several sizes."""
    whole, found = tag_parts(), []
    C = whole[3]
    plans = [("all", 1, False), ("last", 1, False), ("last", 0.1, False), ("last", 10, False)]
    plans += [("all", 1, True), ("last", 1, True)]
    for layers, times, sgd in plans:
        train, choosing, test = (
            [e._replace(h=times * (e.h if layers == "all" else e.h[-1:])) for e in some] for some in whole[:3]
        )
        row = {"layers": layers, "times": times, "optimizer": "SGD" if sgd else "Adam", "gamma": []}
        for kind, scaled in (("learned", True), ("fixed", False)):
            rates = SGD_RATES if sgd else RATES
            tried = {lr: er.answered(tagger(train, C, lr, CHOOSING, sgd, scaled), choosing).mean() for lr in rates}
            lr = row[f"rate, {kind}"] = max(tried, key=tried.get)
            models = [tagger(train, C, lr, seed, sgd, scaled) for seed in range(3)]
            row[kind] = rounded([er.answered(m, test).mean() for m in models])
            if scaled:
                row["gamma"] = rounded([m.mixes["input"].gamma.item() for m in models])
        say(row)
        found.append(row)
    return found


# -------------------------------------------------------------------------------------------------------- efficiency
def at_its_best(train, choosing, C, lr, seed, at):
    """A network trained at a constant rate until 500 steps bring nothing on validation; its best state and step."""
    torch.manual_seed(seed)
    layers, _, W = train[0].h.shape
    model = er.TaskRNN(train[0].x.shape[1], C, layers=layers, W=W, pool=not train[0].y.ndim, at=at)
    history = lrm.fit(
        model,
        er.example_batches(train, 32),
        er.task_loss(0.001),
        steps=MOST,
        lr=lr,
        clip=1.0,
        seed=seed,
        validate=lambda model: 1 - float(er.answered(model.eval(), choosing).mean()),
        validate_every=100,
        patience=5,
    )
    return model, 100 * (1 + int(np.argmin(history.metrics["loss"])))


def shares_of(parts, C, sizes, rates, name):
    """Accuracy with so many labeled sentences: static vectors alone, beside an untrained and the trained biLM."""
    found = {}
    for kind in ("static", "untrained", "ELMo"):
        at = () if kind == "static" else ("input",)
        train, choosing, test = parts[kind]
        found[kind] = {}
        for n in sizes:
            scores, steps = [], []
            for seed in range(3):
                start = seed * (len(train) - n) // 2  # other sentences for every seed, unless it is all of them
                some = train[start : start + n]
                model, best = at_its_best(some, choosing, C, rates["input" if at else "baseline"], seed, at)
                scores.append(er.answered(model, test).mean())
                steps.append(best)
            found[kind][str(n)] = {"accuracy": rounded(scores), "steps": steps}
            say(name, kind, n, found[kind][str(n)])
    return found


def efficiency():
    """Shares of labels on both tasks, and the epochs until ELMo passes the best of the baseline."""
    rates = {task: part["rates"] for task, part in records.load("elmo_representations")["tables"].items()}
    readers = {"untrained": embedder(0), "ELMo": embedder()}
    found = {}
    for task, sizes in (("opinions", (68, 341, 1365, 6024)), ("tags", (62, 313, 1254, 6272))):
        if task == "opinions":
            train, choosing, judged = opinion_sentences()
            make, C = opinion_examples, 2
        else:
            train, choosing, judged, tags = treebank()
            choosing, judged, make, C = choosing[:500], judged[:1000], tag_examples, len(tags)
        parts = {k: [make(some, r) for some in (train[: max(sizes)], choosing, judged)] for k, r in readers.items()}
        found[task] = shares_of(parts | {"static": parts["ELMo"]}, C, sizes, rates[task], task)
    return found | {"epochs": epochs_to_baseline(rates["tags"])}


def epochs_to_baseline(rates, number=500, epochs=24):
    """The validation accuracy after every epoch at a constant rate, with and without ELMo, three seeds."""
    train, choosing, _, C = tag_parts(number)
    found = {}
    for kind, at in (("static", ()), ("ELMo", ("input",))):
        found[kind] = []
        for seed in range(3):
            torch.manual_seed(seed)
            model = er.TaskRNN(train[0].x.shape[1], C, at=at)
            history = lrm.fit(
                model,
                er.example_batches(train, 32),
                er.task_loss(0.001),
                epochs=epochs,
                clip=1.0,
                seed=seed,
                lr=rates["input" if at else "baseline"],
                validate=lambda m: 1 - float(er.answered(m, choosing).mean()),
            )
            found[kind].append([round(1 - v, 4) for v in history.metrics["loss"]])
        say(kind, found[kind])
    return found


# ------------------------------------------------------------------------------------------------------------- tuned
def tuned(steps=120):
    """The biLM goes on for about one pass over the words of the treebank, without tags; perplexity and tags after."""
    train, validation, test, tags = treebank()
    sizes = CHECKPOINT.card["settings"]
    model = lm.LanguageModel(er.built(CHECKPOINT), lm.Softmax(len(CHECKPOINT.vocab), sizes["D"]))
    model.load_state_dict(CHECKPOINT.weights)
    words = [w for w, _ in train], [w for w, _ in validation[:500]]
    lexicon = lm.Lexicon.of([*words[0], *words[1]], CHECKPOINT.vocab)
    model.eval()
    perplexity = {"before": {k: round(v, 1) for k, v in lm.perplexities(model, lexicon, words[1]).items()}}
    lrm.fit(
        model,
        lm.sentence_batches(lexicon, words[0], 1536),
        lm.joint_loss(lexicon, 6144),
        steps=steps,
        lr=5e-4,
        schedule=pretrain.warm_and_cool,
        clip=1.0,
    )
    perplexity["after"] = {k: round(v, 1) for k, v in lm.perplexities(model, lexicon, words[1]).items()}
    say(perplexity)
    readers = {"before": embedder(), "after": er.Embedder(model.bilm.requires_grad_(False), CHECKPOINT.vocab)}
    accuracy = {}
    rate = records.load("elmo_representations")["tables"]["tags"]["rates"]
    for kind, reader in readers.items():
        few, judged = tag_examples(train[:TAGGED], reader), tag_examples(test[:1000], reader)
        accuracy[kind] = rounded(
            [
                er.answered(er.trained_task(few, len(tags), STEPS, rate["input"], lam=0.001, seed=seed), judged).mean()
                for seed in range(SEEDS)
            ]
        )
        say(kind, accuracy[kind])
    return {"steps": steps, "perplexity": perplexity, "accuracy": accuracy}


PARTS = {"probes": probes, "tables": tables, "gamma": gamma, "efficiency": efficiency, "tuned": tuned}


def main() -> None:
    """Run the parts and write the record."""
    torch.set_num_threads(1)
    run_parts("elmo_representations", PARTS, checkpoint=CHECKPOINT.card["sha256"][:12], steps=STEPS)


if __name__ == "__main__":
    main()
