"""Fine-tuning the shipped GPT on four kinds of tasks, beside a start from nothing and baselines without a network.

    python bench/gpt_finetuning.py plain        baselines without a network; the GPT untuned, by likelihood
    python bench/gpt_finetuning.py opinions     movie reviews: the shipped GPT and the same network from nothing; the
                                                weight of the text's loss
    python bench/gpt_finetuning.py few          the same with 500 labels; how many layers are taken over
    python bench/gpt_finetuning.py few_rates    500 labels: the weight of the text's loss, each at a rate of its own
    python bench/gpt_finetuning.py forgetting   what the text's loss keeps; the rate comes from the record of `few`
    python bench/gpt_finetuning.py inference    does one sentence follow from another? (miniature world)
    python bench/gpt_finetuning.py similarity   how alike are two sentences? (STS-B)
    python bench/gpt_finetuning.py choice       which of four sentences comes next in a speech?
    python bench/gpt_finetuning.py choice_layers, choice_longer     the same with fewer layers; with more epochs
    python bench/gpt_finetuning.py              all of them; parts that are not asked for are kept

Each kind of start has a rate of its own, chosen on validation data among the runs of seed 0; where the best one lies
at the edge of those tried, the next one is tried, too. A seed is another draw of the marks and the head, of dropout, of
the order, and of the labels where not all are used. Scores are on test items, the same for all; errors of differences
are over items, and know nothing of another training. One thread, so that two parts can run side by side.
"""

import sys
from dataclasses import dataclass

import numpy as np
import torch
from record import clock, run_parts
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from lrm_utils import checkpoints, data, evaluate, pretrain, records
from lrm_utils.data import miniature
from lrm_utils.models import gpt
from lrm_utils.models import gpt_finetuning as ft

SHIPPED = checkpoints.load("gpt")
TOKENIZER = SHIPPED.vocab
WRITER = ft.Writer(TOKENIZER, SHIPPED.card["settings"]["limit"])
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)  # the middle ones are tried first
STARTS = {"shipped": None, "from nothing": -1}  # layers that are taken over
SEEDS, FEW, FEW_SEEDS, FEW_EPOCHS = 2, 500, 3, 8
PARTS_OF_DATA = ("train", "validation", "test")


@dataclass
class Task:
    """Examples in rows, their targets, and what a model for them looks like, in three parts."""

    examples: dict
    targets: dict
    options: dict
    epochs: int

    def score(self, scores, part="test"):
        """Which items are right, 0 or 1; or for numbers the predictions themselves."""
        scores = scores.numpy()
        if self.numbers:
            return scores[:, 0]
        return (scores.argmax(1) == np.array(self.targets[part])).astype(float)

    @property
    def numbers(self):
        """Whether the targets are numbers and not classes."""
        return isinstance(self.targets["train"][0], float)

    def value(self, found, part="test"):
        """Accuracy, or Spearman's correlation."""
        return float(spearmanr(found, self.targets[part]).statistic if self.numbers else found.mean())


def say(*words):
    """Progress, on standard error."""
    print(*words, file=sys.stderr, flush=True)


def opinions():
    """Is a sentence of a review favorable?"""
    found = data.reviews("mr")
    parts = {part: getattr(found, part) for part in PARTS_OF_DATA}
    return Task(
        {part: [WRITER.classification(r.text) for r in some] for part, some in parts.items()},
        {part: [r.label for r in some] for part, some in parts.items()},
        dict(outputs=2),
        epochs=3,
    )


def inference():
    """Does the premise make the hypothesis true, false, or neither?"""
    found = miniature.inference()
    parts = {part: getattr(found, part) for part in PARTS_OF_DATA}
    return Task(
        {
            part: [WRITER.entailment(" ".join(p.premise), " ".join(p.hypothesis)) for p in some]
            for part, some in parts.items()
        },
        {part: [miniature.LABELS.index(p.label) for p in some] for part, some in parts.items()},
        dict(outputs=3),
        epochs=4,
    )


def similarity():
    """How alike are two sentences, from 0 to 1?"""
    found = data.stsb()
    parts = {part: getattr(found, part) for part in PARTS_OF_DATA} | {"train": found.train[::2]}
    return Task(
        {part: [WRITER.similarity(p.first, p.second) for p in some] for part, some in parts.items()},
        {part: [p.score / 5 for p in some] for part, some in parts.items()},
        dict(outputs=1),
        epochs=5,
    )


def next_sentences():
    """Which of four sentences comes next in a speech? Passages, options, and the place of the right one."""
    train, validation, test = (ft.continuations(texts) for texts in pretrain.speech_texts())
    return {"train": train[:1500], "validation": validation, "test": test}


def choice():
    """The same as a task."""
    parts = next_sentences()
    return Task(
        {part: [WRITER.choice(passage, "", options) for passage, options, _ in some] for part, some in parts.items()},
        {part: [right for *_, right in some] for part, some in parts.items()},
        dict(choose=True),
        epochs=2,
    )


TASKS = dict(opinions=opinions, inference=inference, similarity=similarity, choice=choice)


def train(task, layers=None, lr=3e-4, weight=0.0, seed=0, n=None, epochs=None):
    """A model, fine-tuned with `n` labels, or all."""
    torch.manual_seed(seed)
    model = ft.Tuned(ft.begin(SHIPPED, layers), **task.options)
    examples, targets = task.examples["train"], task.targets["train"]
    if n:
        chosen = np.random.default_rng(seed).permutation(len(examples))[:n]
        examples, targets = [examples[i] for i in chosen], [targets[i] for i in chosen]
    seconds, losses = clock(ft.tune, model, examples, targets, epochs or task.epochs, lr, weight, seed=seed)
    loss = f"loss {np.mean(losses[:20]):.3f} to {np.mean(losses[-20:]):.3f}"
    say(f"layers {layers} lr {lr} weight {weight} seed {seed} n {n}: {seconds:.0f} s, {loss}")
    return model


def tuned(task, *arguments, **options):
    """Fine-tune; what it scores, item by item, on validation and test items."""
    model = train(task, *arguments, **options)
    found = {part: task.score(ft.answers(model, task.examples[part]), part) for part in ("validation", "test")}
    say(*(f"{part} {task.value(some, part):.4f}" for part, some in found.items()))
    return found


def best_rate(task, **options):
    """The rate with the best score on validation data, what all scored there, and the test scores of its run."""
    runs, tried = {}, RATES[2:4]
    while tried:
        runs |= {lr: tuned(task, lr=lr, **options) for lr in tried}
        scores = {lr: task.value(run["validation"], "validation") for lr, run in sorted(runs.items())}
        best = max(scores, key=scores.get)
        place = RATES.index(best)
        tried = [lr for lr in RATES[max(0, place - 1) : place + 2] if lr not in runs]
    return best, {lr: round(score, 4) for lr, score in scores.items()}, runs[best]["test"]


def starts(task, seeds=SEEDS, **options):
    """The test scores of all seeds and what is to be told of them, for each kind of start at its own best rate."""
    runs, told = {}, {}
    for start, layers in STARTS.items():
        lr, tried, first = best_rate(task, layers=layers, **options)
        runs[start] = [first, *(tuned(task, layers, lr, seed=seed, **options)["test"] for seed in range(1, seeds))]
        told[start] = dict(rate=lr, tried=tried, scores=of(task, runs[start]))
    told["ahead"] = gain(task, runs["shipped"], runs["from nothing"])
    told |= dict(epochs=options.get("epochs", task.epochs), examples=options.get("n", len(task.examples["train"])))
    say(told)
    return runs, told | dict(test=len(task.examples["test"]))


def of(task, runs):
    """What runs scored."""
    return [round(task.value(found), 4) for found in runs]


def gain(task, ones, others):
    """By how much some runs are ahead of others, test item by test item, and its standard error."""
    if task.numbers:
        truth = task.targets["test"]
        draws = [np.mean([evaluate.rank_correlations(f, truth) for f in runs], 0) for runs in (ones, others)]
        means = [np.mean([task.value(f) for f in runs]) for runs in (ones, others)]
        return dict(gain=round(means[0] - means[1], 4), error=round(float(np.std(draws[0] - draws[1])), 4))
    difference = np.mean(ones, 0) - np.mean(others, 0)
    error = difference.std() / len(difference) ** 0.5
    return dict(gain=round(float(difference.mean()), 4), error=round(float(error), 4))


def tf_idf(task, texts, chosen=slice(None)):
    """Logistic regression on words and pairs of words, with all labels or those chosen; the penalty by validation."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    X = {"train": vectorizer.fit_transform(texts["train"])}
    X |= {part: vectorizer.transform(texts[part]) for part in ("validation", "test")}
    best, found = -1.0, None
    for C in (0.1, 0.3, 1.0, 3.0, 10.0):
        model = LogisticRegression(C=C, max_iter=2000).fit(X["train"], np.array(task.targets["train"])[chosen])
        value = model.score(X["validation"], task.targets["validation"])
        if value > best:
            best, found = value, model.predict_proba(X["test"])
    return found


# ------------------------------------------------------------------------------------------------ before any tuning
PROMPTS = {
    " very": (" good", " bad"),
    " It is": (" good", " bad"),
    " This film is": (" good", " bad"),
    " This is a": (" great", " bad"),
}


def whole():
    """The shipped model as it is."""
    model = gpt.GPT(len(TOKENIZER), **SHIPPED.card["settings"])
    model.load_state_dict(SHIPPED.weights)
    return model


def untrained():
    """A network of its size at its random start."""
    torch.manual_seed(0)
    return gpt.GPT(len(TOKENIZER), **SHIPPED.card["settings"])


def tokens_of(texts, longest=120):
    """Texts as tokens, a blank in front."""
    return [TOKENIZER.encode(" " + text.strip())[:longest] for text in texts]


def said(model, contexts, endings):
    """The log-probability of endings after contexts, in tokens; the end of a text comes before all."""
    end = [TOKENIZER.id("<|endoftext|>")]
    return ft.log_p(model, [end + c for c in contexts], endings).numpy()


def opinions_by_likelihood(model, reviews):
    """For each prompt: log p of the good word less that of the bad one, review by review."""
    reviews, found = tokens_of([r.text for r in reviews]), {}
    for prompt, words in PROMPTS.items():
        contexts = [r + TOKENIZER.encode(prompt) for r in reviews]
        good, bad = (said(model, contexts, [TOKENIZER.encode(word)] * len(contexts)) for word in words)
        found[prompt] = good - bad
    return found


def plain_opinions(model):
    """Accuracy of each prompt, as it is and with the middle of validation for a threshold."""
    reviews = data.reviews("mr")
    validation, test = (opinions_by_likelihood(model, part) for part in (reviews.validation, reviews.test))
    truth = {"validation": reviews.validation, "test": reviews.test}
    truth = {part: np.array([r.label for r in some]) == 1 for part, some in truth.items()}
    return {
        prompt: {
            "as it is": round(float(np.mean((test[prompt] > 0) == truth["test"])), 4),
            "favorable": round(float(np.mean(test[prompt] > 0)), 4),
            "centered": round(float(np.mean((test[prompt] > np.median(validation[prompt])) == truth["test"])), 4),
            "centered, validation": round(
                float(np.mean((validation[prompt] > np.median(validation[prompt])) == truth["validation"])), 4
            ),
        }
        for prompt in PROMPTS
    }


def plain_inference(model):
    """Of the three premises of a hypothesis, the one that makes it most probable: how often is it the right one?"""
    pairs = miniature.inference().test
    premises, hypotheses = (
        tokens_of([" ".join(getattr(p, side)) for p in pairs]) for side in ("premise", "hypothesis")
    )
    score = said(model, premises, hypotheses).reshape(-1, 3)
    entailed = np.array([p.label == "entailment" for p in pairs]).reshape(-1, 3)
    return round(float(entailed[np.arange(len(score)), score.argmax(1)].mean()), 4)


def plain_similarity(model):
    """How much more probable is the second sentence after the first, a token? Both orders; and with its own words."""
    pairs = data.stsb().test
    first, second = (tokens_of([getattr(p, side) for p in pairs]) for side in ("first", "second"))
    nothing, truth = [[]] * len(pairs), [p.score for p in pairs]
    ways = [
        (said(model, a, b) - said(model, nothing, b)) / [len(x) for x in b]
        for a, b in ((first, second), (second, first))
    ]
    return round(float(spearmanr(sum(ways), truth).statistic), 4)


def plain_choice(model, part="test"):
    """The option with the largest log-probability; the mean of its tokens; what the passage adds to it."""
    some = next_sentences()[part]
    passages = tokens_of([passage for passage, options, _ in some for _ in options])
    options = tokens_of([option for _, options, _ in some for option in options])
    right = np.array([place for *_, place in some])
    after, alone = (said(model, contexts, options) for contexts in (passages, [[]] * len(options)))
    length = np.array([len(o) for o in options])
    ways = {"sum": after, "mean": after / length, "what the passage adds": after - alone}
    return {way: round(float((score.reshape(-1, 4).argmax(1) == right).mean()), 4) for way, score in ways.items()}


def plain():
    """Baselines without a network, and likelihoods of the shipped GPT and of an untrained one."""
    found = {}
    for name, model in (("shipped", whole()), ("untrained", untrained())):
        found[name] = dict(
            opinions=plain_opinions(model),
            inference=plain_inference(model),
            similarity=plain_similarity(model),
            choice=plain_choice(model),
            choice_elsewhere={part: plain_choice(model, part) for part in ("train", "validation")},
        )
        say(name, found[name])
    found["tf-idf"] = {"similarity": tf_idf_similarity(), "choice": tf_idf_choice()}
    task, reviews = opinions(), data.reviews("mr")
    texts = {part: [r.text for r in getattr(reviews, part)] for part in PARTS_OF_DATA}
    found["tf-idf"]["opinions"] = round(task.value(task.score(torch.tensor(tf_idf(task, texts)))), 4)
    return found


def cosines(vectorizer, ones, others):
    """The cosine of each text with its partner."""
    a, b = vectorizer.transform(ones), vectorizer.transform(others)
    return np.asarray(a.multiply(b).sum(1)).ravel()


def tf_idf_similarity():
    """Cosines of tf-idf vectors; idf from the training sentences."""
    pairs = data.stsb()
    vectorizer = TfidfVectorizer(token_pattern=r"(?u)\b\w+\b").fit(
        [s for p in pairs.train for s in (p.first, p.second)]
    )
    score = cosines(vectorizer, [p.first for p in pairs.test], [p.second for p in pairs.test])
    return round(float(spearmanr(score, [p.score for p in pairs.test]).statistic), 4)


def tf_idf_choice():
    """The option most like the passage."""
    some = next_sentences()["test"]
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(pretrain.speech_texts()[0])
    passages = [passage for passage, options, _ in some for _ in options]
    score = cosines(vectorizer, passages, [option for _, options, _ in some for option in options])
    return round(float((score.reshape(-1, 4).argmax(1) == [right for *_, right in some]).mean()), 4)


# ------------------------------------------------------------------------------------------------------- the sweeps
def weighted(task, runs, told, weights, seeds, **options):
    """Other weights of the text's loss, at the rate that is best without it, beside the runs without it."""
    lr, runs = told["shipped"]["rate"], {0.0: runs["shipped"]}
    for weight in weights:
        runs[weight] = [tuned(task, None, lr, weight, seed, **options)["test"] for seed in range(seeds)]
    return dict(
        scores={weight: of(task, found) for weight, found in runs.items()},
        ahead={weight: gain(task, found, runs[0.0]) for weight, found in runs.items() if weight},
    )


def opinions_part():
    """All labels: both starts, and three weights of the text's loss."""
    task = opinions()
    runs, told = starts(task)
    return told | dict(weights=weighted(task, runs, told, (0.5, 1.0), SEEDS))


def few():
    """500 labels: both starts, four weights of the text's loss, and every number of layers, at the same rate."""
    task, options = opinions(), dict(n=FEW, epochs=FEW_EPOCHS)
    runs, told = starts(task, FEW_SEEDS, **options)
    told["weights"] = weighted(task, runs, told, (0.1, 0.5, 1.0), FEW_SEEDS, **options)
    lr, all_layers = told["shipped"]["rate"], SHIPPED.card["settings"]["layers"]
    layers = {all_layers: runs["shipped"]}
    for n in range(-1, all_layers):
        layers[n] = [tuned(task, n, lr, seed=seed, **options)["test"] for seed in range(FEW_SEEDS)]
    told["layers"] = {n: of(task, found) for n, found in sorted(layers.items())}
    reviews = data.reviews("mr")
    texts = {part: [r.text for r in getattr(reviews, part)] for part in PARTS_OF_DATA}
    told["tf-idf"] = []
    for seed in range(FEW_SEEDS):
        chosen = np.random.default_rng(seed).permutation(len(texts["train"]))[:FEW]
        found = tf_idf(task, texts | {"train": [texts["train"][i] for i in chosen]}, chosen)
        told["tf-idf"] += of(task, [task.score(torch.tensor(found))])
    return told


def few_rates():
    """500 labels: weights of the text's loss, each at a rate of its own."""
    task, options, runs, told = opinions(), dict(n=FEW, epochs=FEW_EPOCHS), {}, {}
    for weight in (0.0, 0.5, 1.0):
        lr, tried, first = best_rate(task, weight=weight, **options)
        others = [tuned(task, None, lr, weight, seed, **options)["test"] for seed in range(1, FEW_SEEDS)]
        runs[weight] = [first, *others]
        told[weight] = dict(rate=lr, tried=tried, scores=of(task, runs[weight]))
    ahead = {weight: gain(task, found, runs[0.0]) for weight, found in runs.items() if weight}
    return dict(weights=told, ahead=ahead)


@torch.no_grad()
def row_loss(model, examples):
    """The loss of the tokens of rows without their last mark: the mean of each, and of all."""
    tokens, lengths = ft.padded([[row[:-1] for row in rows] for rows in examples])
    rows, n, model = tokens.flatten(0, 1), lengths.flatten(), model.eval()
    parts = [(r, k) for r, k in zip(rows.split(50), n.split(50), strict=True)]
    return float(np.mean([ft.text_loss(model, model.states(r), r, k).item() for r, k in parts]))


def forgetting():
    """The loss on text before tuning to 500 labels and after, by the weight of the text's loss: as running text, and
    review by review, behind the end of a text and behind the start mark.
    """
    task, (_, unseen, _) = opinions(), pretrain.speech_texts()
    texts = {"a speech": [unseen[0][:20_000]], "reviews": [r.text for r in data.reviews("mr").test[:200]]}
    held_out = {name: gpt.stream(TOKENIZER, some) for name, some in texts.items()}
    chosen = np.random.default_rng(0).permutation(len(task.examples["train"]))[:FEW]
    end, unseen_rows = TOKENIZER.id("<|endoftext|>"), task.examples["test"][:200]
    rows = {
        "one by one": [[[end, *row[1:]] for row in rows] for rows in unseen_rows],
        "as rows": unseen_rows,
        "the 500, as rows": [task.examples["train"][i] for i in chosen],
    }
    lr = records.load("gpt_finetuning")["few"]["shipped"]["rate"]
    torch.manual_seed(0)
    models = {"before": ft.begin(SHIPPED).eval()}
    for weight in (0.0, 0.1, 0.5, 1.0):
        models[weight] = train(task, None, lr, weight, n=FEW, epochs=FEW_EPOCHS).gpt
    return {
        weight: {name: round(gpt.mean_loss(model, tokens), 3) for name, tokens in held_out.items()}
        | {name: round(row_loss(model, some), 3) for name, some in rows.items()}
        for weight, model in models.items()
    }


def choice_layers():
    """The choice with nothing but the table, or with some blocks, at the rate of the whole model."""
    task, lr = choice(), records.load("gpt_finetuning")["choice"]["shipped"]["rate"]
    return {n: of(task, [tuned(task, n, lr, seed=seed)["test"] for seed in range(SEEDS)]) for n in range(4)}


def choice_longer():
    """The choice after three times as many epochs, one run each, at the rate that was best for fewer."""
    task, made = choice(), records.load("gpt_finetuning")["choice"]
    epochs, scores = 3 * task.epochs, {}
    for start, layers in STARTS.items():
        scores[start] = of(task, [tuned(task, layers, made[start]["rate"], epochs=epochs)["test"]])
    return dict(epochs=epochs, scores=scores)


PARTS = dict(
    plain=plain,
    opinions=opinions_part,
    few=few,
    few_rates=few_rates,
    forgetting=forgetting,
    inference=lambda: starts(inference())[1],
    similarity=lambda: starts(similarity())[1],
    choice=lambda: starts(choice())[1],
    choice_layers=choice_layers,
    choice_longer=choice_longer,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    run_parts("gpt_finetuning", PARTS)
