"""How far do you get in the miniature world without its rules? `python bench/miniature_baselines.py` writes the record.

Each task gets a lookup baseline (what was memorized in training), a bag-of-words baseline (what is said, but not in
which order), and chance. For tagging, a rule that reads nothing but the words is written out, to show that context
decides everything; for the other tasks the tests work out the gold answers a second time, from the words alone.
"""

import json
import math
import platform
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import sklearn
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression

from lrm_utils.data import miniature

RECORD = Path(__file__).resolve().parent.parent / "lrm_utils" / "records" / "miniature_baselines.json"
SEED = 0


def classify(train_features, train_labels, test_features) -> list[str]:
    """Logistic regression on sparse features, given as dictionaries or as lists of names."""
    as_dicts = [
        [dict.fromkeys(f, 1) if not isinstance(f, dict) else f for f in part]
        for part in (train_features, test_features)
    ]
    vectorizer = DictVectorizer()
    model = LogisticRegression(max_iter=1000).fit(vectorizer.fit_transform(as_dicts[0]), train_labels)
    return list(model.predict(vectorizer.transform(as_dicts[1])))


def accuracy(predicted, gold) -> float:
    return float(np.mean([p == g for p, g in zip(predicted, gold, strict=True)]))


def most_frequent(keys, values) -> dict:
    """For each key, the value that it came with most often; ties go to the first in the alphabet."""
    counts = defaultdict(Counter)
    for key, value in zip(keys, values, strict=True):
        counts[key][value] += 1
    return {key: min(c, key=lambda v: (-c[v], str(v))) for key, c in counts.items()}


# ------------------------------------------------------------------------------------------------------------ tagging
def tokens(examples):
    """Every word of every sentence: (word, tag, entity, the other words)."""
    return [
        (w, t, n, e.words[:i] + e.words[i + 1 :])
        for e in examples
        for i, (w, t, n) in enumerate(zip(e.words, e.tags, e.entities, strict=True))
    ]


def rule_tags(words, options):
    """Tag a sentence from left to right: a determiner wants a noun, and what can be a verb elsewhere is one."""
    tags, entities = [], []
    for i, word in enumerate(words):
        before, after = (tags[-1] if tags else ""), (words[i + 1] if i + 1 < len(words) else "")
        possible = options[word]
        if len(possible) == 1:
            tag = min(possible)
        elif "PROPN" in possible:
            tag = "PROPN" if before == "PROPN" else "NOUN"
        elif before in ("DET", "ADJ"):
            is_adjective = "ADJ" in possible and ("NOUN" not in possible or "NOUN" in options.get(after, ()))
            tag = "ADJ" if is_adjective else "NOUN"
        else:
            is_adjective = before == "AUX" and words[i - 1] in ("is", "are", "was", "were")
            tag = "ADJ" if is_adjective else "VERB" if "VERB" in possible else "AUX"
        tags.append(tag)
    for i in range(len(words)):
        after = words[i + 1] if i + 1 < len(words) else ""
        if tags[i] != "PROPN":
            entities.append("O")
        elif i and tags[i - 1] == "PROPN":
            entities.append("I" + entities[-1][1:])
        elif after in miniature.FIRMS:
            entities.append("B-ORG")
        else:
            next_is_name = i + 1 < len(words) and tags[i + 1] == "PROPN"
            entities.append("B-LOC" if i and words[i - 1] in ("in", "near") and not next_is_name else "B-PER")
    return tags, entities


def tagging(data) -> dict:
    train, test = tokens(data.train), tokens(data.test)
    options = defaultdict(set)
    for word, tag, *_ in train:
        options[word].add(tag)
    scores = {}
    for name, column in (("tag", 1), ("entity", 2)):
        values = defaultdict(set)
        for token in train:
            values[token[0]].add(token[column])
        hard = [i for i, token in enumerate(test) if len(values[token[0]]) > 1]
        gold = [token[column] for token in test]
        table = most_frequent([t[0] for t in train], [t[column] for t in train])

        def features(some):
            return [[f"{word} with {other}" for other in (word, *others)] for word, _, _, others in some]

        ambiguous = [token for token in train if len(values[token[0]]) > 1]
        guesses = classify(features(ambiguous), [t[column] for t in ambiguous], features([test[i] for i in hard]))
        bag = [table[t[0]] for t in test]
        for i, guess in zip(hard, guesses, strict=True):
            bag[i] = guess
        rule = [v for e in data.test for v in rule_tags(e.words, options)[column - 1]]
        for label, predicted in (("lookup", [table[t[0]] for t in test]), ("bag", bag), ("rule", rule)):
            scores[f"{label}, {name}"] = accuracy(predicted, gold)
            on_hard = accuracy([predicted[i] for i in hard], [gold[i] for i in hard])
            scores[f"{label}, {name} of ambiguous words"] = on_hard
        scores[f"chance, {name} of ambiguous words"] = float(np.mean([1 / len(values[test[i][0]]) for i in hard]))
    return scores


# ------------------------------------------------------------------------------------------------------------- senses
def senses(data) -> dict:
    gold = [e.sense for e in data.test]
    table = most_frequent([e.words[e.position] for e in data.train], [e.sense for e in data.train])
    lookup = [table[e.words[e.position]] for e in data.test]

    def features(examples):
        return [[f"{e.words[e.position]} with {w}" for w in e.words] for e in examples]

    bag = classify(features(data.train), [e.sense for e in data.train], features(data.test))
    two = [i for i, e in enumerate(data.test) if {"while", "and", "before"} & set(e.words)]
    return {
        "chance": 0.5,
        "lookup": accuracy(lookup, gold),
        "bag": accuracy(bag, gold),
        "bag, two clauses": accuracy([bag[i] for i in two], [gold[i] for i in two]),
    }


# ---------------------------------------------------------------------------------------------------------- inference
def inference(data) -> dict:
    gold, labels = [e.label for e in data.test], [e.label for e in data.train]

    def features(examples, premise=True, hypothesis=True, compare=False):
        for e in examples:
            p, h = set(e.premise), set(e.hypothesis)
            names = [f"premise {w}" for w in p] * premise + [f"hypothesis {w}" for w in h] * hypothesis
            differences = [f"only premise {w}" for w in p - h] + [f"only hypothesis {w}" for w in h - p]
            yield names + differences * compare

    def score(**kinds):
        return accuracy(classify(list(features(data.train, **kinds)), labels, list(features(data.test, **kinds))), gold)

    table = most_frequent([(e.premise, e.hypothesis) for e in data.train], labels)
    default = min(miniature.LABELS)
    return {
        "chance": 1 / 3,
        "lookup": accuracy([table.get((e.premise, e.hypothesis), default) for e in data.test], gold),
        "bag": score(),
        "bag, compared": score(compare=True),
        "bag, hypothesis only": score(premise=False),
        "bag, premise only": score(hypothesis=False),
    }


# ------------------------------------------------------------------------------------------------ questions and choices
def kind(question) -> list[str]:
    """The words that can be (the end of) an answer: people, places or things."""
    if question[0] == "where":
        return miniature.STORY_PLACES
    return miniature.STORY_THINGS if question[0] == "what" else miniature.GIVEN


def sentences(context) -> list[tuple[int, tuple[str, ...]]]:
    """The sentences of a passage, each with the position of its first word."""
    stops = [i for i, word in enumerate(context) if word == "."]
    starts = [0, *(stop + 1 for stop in stops[:-1])]
    return [(start, context[start : stop + 1]) for start, stop in zip(starts, stops, strict=True)]


def by_overlap(context, question) -> int:
    """Where the sentence that shares most words with the question has a fitting word that the question lacks."""
    stems = {form: verb for verb in miniature.STORY_VERBS for form in miniature.inflect(verb)}
    asked = {stems.get(word, word) for word in question}
    best = sorted(sentences(context), key=lambda s: -len(asked & {stems.get(word, word) for word in s[1]}))
    for start, words in best:
        for i, word in enumerate(words):
            if word in kind(question) and word not in question:
                return start + i
    return 0


def span(context, end) -> tuple[str, ...]:
    """The answer that ends with the word at `end`: a name, or everything from the article on."""
    start = end
    if context[end] not in miniature.GIVEN:
        while context[start] != "the":
            start -= 1
    return context[start : end + 1]


def questions(data) -> dict:
    gold = [e.answer for e in data.test]
    table = most_frequent([e.question for e in data.train], [e.answer for e in data.train])
    by_type = most_frequent([e.question[0] for e in data.train], [e.answer for e in data.train])
    lookup = [table.get(e.question, by_type[e.question[0]]) for e in data.test]
    bag = [span(e.context, by_overlap(e.context, e.question)) for e in data.test]
    fitting = [len({w for w in e.context if w in kind(e.question)}) for e in data.test]
    return {
        "chance": float(np.mean([(e.answer is not None) / n for e, n in zip(data.test, fitting, strict=True)])),
        "lookup": accuracy(lookup, gold),
        "bag": accuracy(bag, gold),
        "bag, answerable": accuracy(*zip(*[(b, g) for b, g in zip(bag, gold, strict=True) if g], strict=True)),
        "unanswerable": accuracy(gold, [None] * len(gold)),
    }


def choices(data) -> dict:
    gold = [e.answer for e in data.test]
    table = most_frequent([e.question for e in data.train], [e.options[e.answer] for e in data.train])

    def remembered(e) -> int:
        return e.options.index(table[e.question]) if table.get(e.question) in e.options else 0

    bag = [e.options.index(span(e.context, by_overlap(e.context, e.question))) for e in data.test]
    return {"chance": 0.25, "lookup": accuracy([remembered(e) for e in data.test], gold), "bag": accuracy(bag, gold)}


def cloze(data) -> dict:
    gold = [e.answer for e in data.test]
    table = most_frequent([e.query for e in data.train], [e.answer for e in data.train])
    default = Counter(e.answer for e in data.train).most_common(1)[0][0]
    lookup = [table.get(e.query, default) for e in data.test]

    def asked(e):  # the same question words as in `questions`
        gap = e.query[e.query.index("_") - 2 : e.query.index("_")]
        return ("who" if "the" not in gap else "where" if "in" in gap else "what", *e.query)

    bag = [e.context[by_overlap(e.context, asked(e))] for e in data.test]
    fitting = [len({w for w in e.context if w in kind(asked(e))}) for e in data.test]
    chance = float(np.mean([1 / n for n in fitting]))
    return {"chance": chance, "lookup": accuracy(lookup, gold), "bag": accuracy(bag, gold)}


# -------------------------------------------------------------------------------------------------------- translation
def bleu(predicted, gold) -> float:
    """Corpus BLEU with n-grams up to 4 and the brevity penalty."""
    logs = []
    for n in range(1, 5):
        hits = total = 0
        for p, g in zip(predicted, gold, strict=True):
            a, b = (Counter(zip(*(x[i:] for i in range(n)), strict=False)) for x in (p, g))
            hits, total = hits + sum((a & b).values()), total + sum(a.values())
        if not hits:
            return 0.0
        logs.append(math.log(hits / total))
    short = sum(map(len, gold)) / sum(map(len, predicted))
    return math.exp(sum(logs) / 4 + min(0.0, 1 - short))


def translation(data) -> dict:
    pairs = [(e.source[i], e.target[j]) for e in data.train for i, j in e.alignment]
    table = most_frequent(*zip(*pairs, strict=True))
    gold = [e.target for e in data.test]
    word_by_word = [tuple(table[w] for w in e.source if w in table) for e in data.test]
    shared = sum(sum((Counter(p) & Counter(g)).values()) for p, g in zip(word_by_word, gold, strict=True))
    same_bag = [Counter(p) == Counter(g) for p, g in zip(word_by_word, gold, strict=True)]
    return {
        "lookup, exact": accuracy(word_by_word, gold),
        "lookup, bleu": bleu(word_by_word, gold),
        "bag, exact": float(np.mean(same_bag)),  # all the words are right, if order does not count
        "bag, words": 2 * shared / (sum(map(len, word_by_word)) + sum(map(len, gold))),
    }


TASKS = (tagging, senses, inference, questions, choices, cloze, translation)


BASELINES = ("chance", "lookup", "bag")
ROWS = [  # task, what is scored, the names of its chance, lookup and bag-of-words scores
    ("tagging", "tags of ambiguous words", *(f"{b}, tag of ambiguous words" for b in BASELINES)),
    ("tagging", "entities of ambiguous names", *(f"{b}, entity of ambiguous words" for b in BASELINES)),
    ("senses", "all sentences", "chance", "lookup", "bag"),
    ("senses", "two clauses", "chance", "lookup", "bag, two clauses"),
    ("inference", "labels", "chance", "lookup", "bag, compared"),
    ("inference", "labels, hypothesis only", "chance", None, "bag, hypothesis only"),
    ("questions", "exact answers", "chance", "lookup", "bag"),
    ("choices", "right options", "chance", "lookup", "bag"),
    ("cloze", "right words", "chance", "lookup", "bag"),
    ("translation", "exact sentences", None, "lookup, exact", "bag, exact"),
]


def table(scores) -> list[str]:
    """The lines of the table in the docstring of `lrm_utils.data.miniature`."""
    lines = [f"| {'task':<11} | {'score':<27} | chance | lookup | bag of words |"]
    lines.append(f"|{'-' * 13}|{'-' * 29}|-------:|-------:|-------------:|")
    for task, what, *names in ROWS:
        chance, lookup, bag = (f"{scores[task][name]:.3f}" if name else "-" for name in names)
        lines.append(f"| {task:<11} | {what:<27} | {chance:>6} | {lookup:>6} | {bag:>12} |")
    return lines


def measure() -> dict:
    """All scores, rounded to three digits."""
    scores, sizes = {}, {}
    for task in TASKS:
        name, data = task.__name__, getattr(miniature, task.__name__)(seed=SEED)
        scores[name] = {baseline: round(score, 3) for baseline, score in task(data).items()}
        sizes[name] = {part: len(getattr(data, part)) for part in ("train", "validation", "test")}
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scikit-learn": sklearn.__version__}
    return {
        "command": "python bench/miniature_baselines.py",
        "seed": SEED,
        "versions": versions,
        "sizes": sizes,
        "scores": scores,
    }


if __name__ == "__main__":
    record = measure()
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(*table(record["scores"]), sep="\n")
