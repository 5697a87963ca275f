"""A miniature world: a hand-written lexicon, a small grammar, and seven tasks with gold answers that fit a laptop.

Where no package carries a data set (tagging, word senses, inference, questions, translation), the course makes its
own. Owls, bakers and tractors do simple things to each other in kitchens and meadows, and because we wrote the rules of
that world, we know the part of speech, the sense, the label and the answer of everything said in it. It is a
teaching instrument, not a benchmark: the same notebooks run on the published data sets at full scale.

One promise makes the tasks worth learning. Every word is met in training in every slot that it can fill; what is
held out are *combinations*, such as (owl, push, pear). Whoever memorizes training examples finds nothing to look
up; whoever learns the rule loses nothing. Which combinations are held out belongs to the world and never changes; the
seed only picks the sample. All words are in lower case.

How far do you get without the rule? Test scores at the default sizes; `bench/miniature_baselines.py` makes the record.

| task        | score                       | chance | lookup | bag of words |
|-------------|-----------------------------|-------:|-------:|-------------:|
| tagging     | tags of ambiguous words     |  0.491 |  0.686 |        0.856 |
| tagging     | entities of ambiguous names |  0.335 |  0.547 |        0.685 |
| senses      | all sentences               |  0.500 |  0.500 |        0.643 |
| senses      | two clauses                 |  0.500 |  0.500 |        0.500 |
| inference   | labels                      |  0.333 |  0.333 |        0.577 |
| inference   | labels, hypothesis only     |  0.333 |      - |        0.333 |
| questions   | exact answers               |  0.242 |  0.117 |        0.403 |
| choices     | right options               |  0.250 |  0.200 |        0.505 |
| cloze       | right words                 |  0.303 |  0.023 |        0.537 |
| translation | exact sentences             |      - |  0.028 |        0.157 |
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

from lrm_utils.data.installed import Splits

Words = tuple[str, ...]


# ---------------------------------------------------------------------------------------------------- the lexicon
# Kinds under kinds: each line says what falls right under its first word. Sisters exclude each other.
KINDS = {
    "animal": "bird pet insect",
    "bird": "owl crow goose robin",
    "pet": "dog cat rabbit",
    "insect": "ant bee beetle",
    "person": "child worker musician",
    "child": "girl boy",
    "worker": "baker nurse farmer",
    "musician": "singer drummer",
    "food": "fruit vegetable",
    "fruit": "apple pear plum",
    "vegetable": "onion carrot bean",
    "tool": "hammer ladder shovel",
    "vehicle": "truck tractor cart",
    "furniture": "chair table shelf",
}
PLACES = {"house": "kitchen cellar attic", "town": "market street square", "country": "forest meadow orchard"}
MANNERS = {
    "move": "push pull lift",
    "hide": "bury cover wrap",
    "follow": "chase trail",
    "cook": "fry bake boil",
    "clean": "wash brush wipe",
}
PROPERTIES = {"size": "small large", "color": "red black white", "age": "young old new", "mood": "calm angry"}

LIVING, THINGS = "animal person", "food tool vehicle furniture"
FITTING = {"animal": "small large red black white young old calm angry", "person": "small large young old calm angry"}
FITTING |= dict.fromkeys(THINGS.split(), "small large red black white old new")
DOES = {  # verb: (who does it, to what); its manners inherit both
    "move": (LIVING, f"{LIVING} {THINGS}"),
    "hide": (LIVING, f"{LIVING} {THINGS}"),
    "follow": (LIVING, f"{LIVING} vehicle"),
    "cook": ("person", "food"),
    "clean": ("person", f"{LIVING} {THINGS}"),
    "see": (LIVING, f"{LIVING} {THINGS}"),
    "eat": (LIVING, "food"),
    "buy": ("person", f"animal {THINGS}"),
    "build": ("person", "tool vehicle furniture"),
    "sleep": (LIVING, ""),
    "sing": (LIVING, ""),
    "wait": (LIVING, ""),
}

PARENT = {child: kind for tree in (KINDS, PLACES, MANNERS) for kind, below in tree.items() for child in below.split()}
DIMENSION = {value: name for name, values in PROPERTIES.items() for value in values.split()}
PARENT |= dict.fromkeys([*PLACES, *DIMENSION], "")  # "" is what is left unsaid: the most general place or property
DOES |= {manner: DOES[verb] for verb, manners in MANNERS.items() for manner in manners.split()}

IRREGULAR = {  # third person singular, past, past participle, -ing form
    "buy": "buys bought bought buying",
    "build": "builds built built building",
    "eat": "eats ate eaten eating",
    "see": "sees saw seen seeing",
    "sing": "sings sang sung singing",
    "sleep": "sleeps slept slept sleeping",
    "find": "finds found found finding",
    "break": "breaks broke broken breaking",
    "light": "lights lit lit lighting",
    "give": "gives gave given giving",
    "send": "sends sent sent sending",
    "hide": "hides hid hidden hiding",
    "lend": "lends lent lent lending",
    "steal": "steals stole stolen stealing",
    "fry": "fries fried fried frying",
    "bury": "buries buried buried burying",
    "dry": "dries dried dried drying",
    "wrap": "wraps wrapped wrapped wrapping",
    "empty": "empties emptied emptied emptying",
}
PLURALS = {"goose": "geese", "fish": "fish", "child": "children", "shelf": "shelves", "person": "people"}
UNCOUNTED = ("food", "furniture")  # some food, never a food or two foods


def inflect(verb: str) -> Words:
    """The forms of a verb: base, third person singular, past, past participle, -ing form."""
    if verb in IRREGULAR:
        return verb, *IRREGULAR[verb].split()
    stem = verb.removesuffix("e")
    return verb, _add_s(verb), stem + "ed", stem + "ed", stem + "ing"


def plural(noun: str) -> str:
    """The plural of a noun."""
    return PLURALS.get(noun) or _add_s(noun)


def _add_s(word: str) -> str:
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def indefinite(noun: str, adjective: str = "") -> str:
    """The indefinite article for a noun phrase: an owl, a large owl, some food."""
    return "some" if noun in UNCOUNTED else "an" if (adjective or noun)[0] in "aeiou" else "a"


@cache
def above(word: str) -> Words:
    """All that is more general than a word, nearest first: owl → bird, animal."""
    return (PARENT[word], *above(PARENT[word])) if word in PARENT else ()


@cache
def _top(noun: str) -> str:
    return [word for word in (noun, *above(noun)) if word][-1]


@cache
def _nouns(tops: str) -> list[str]:
    """The given top kinds or places and all that falls under them."""
    return [noun for top in tops.split() for noun in (top, *(word for word in PARENT if top in above(word)))]


def _phrase(random: Random, noun: str, adjective: str = "") -> str:
    determiner = random.choice(["the", indefinite(noun, adjective)])
    return " ".join(f"{determiner} {adjective} {noun}".split())


# ---------------------------------------------------------------------------------------------------- holding out
PARTS = (*["train"] * 8, "validation", "test")
LARGEST = 100_000  # examples in one split


@cache
def part_of(combination: Words) -> str:
    """Where a combination belongs: 8 in 10 to train, 1 to validation, 1 to test, by a hash that never changes."""
    digest = hashlib.blake2b(" ".join(combination).encode(), digest_size=4).digest()
    return PARTS[int.from_bytes(digest, "big") % 10]


def _gather(draw: Callable, seed: int, group: int = 1, **sizes: int) -> Splits:
    """Draw groups of examples until every split is full; no example comes twice.

    `draw(random)` returns the combinations in a group, the decisive one first, and its examples. The first decides
    the split. A training group must hold nothing but training combinations; a test group nothing of validation.
    """
    for name, size in sizes.items():
        if size < 0 or size % group or size > LARGEST:
            several = f"a multiple of {group}, because examples come in groups of {group}," if group > 1 else "a number"
            raise ValueError(f"{name}={size} is not possible: ask for {several} from 0 to {LARGEST:,}")
    random, splits, seen, fruitless = Random(seed), {name: [] for name in sizes}, set(), 0
    while short := [name for name, size in sizes.items() if len(splits[name]) < size]:
        combinations, examples = draw(random)
        parts = [part_of(combination) for combination in combinations]
        new = len(set(examples)) == group and seen.isdisjoint(examples)
        if parts[0] in short and set(parts) <= {"train", parts[0]} and new:
            splits[parts[0]] += examples
            seen.update(examples)
            fruitless = 0
        elif (fruitless := fruitless + 1) == 20_000:
            had = ", ".join(f"{len(splits[name]):,} of {sizes[name]:,} for {name}" for name in short)
            raise ValueError(f"the world has run out of new examples after {had}: ask for fewer")
    return Splits(*map(tuple, splits.values()))


# -------------------------------------------------------------------------------------------------------- tagging
@dataclass(frozen=True)
class Tagged:
    """A sentence with the universal part of speech and the entity (PER, LOC or ORG in BIO) of each word."""

    words: Words
    tags: Words
    entities: Words


GIVEN = "anna tom maria ben clara hugo nina oscar".split()
TOWNS = "florence austin victoria sydney lincoln kent avon chester".split()  # each is a first or last name as well
FIRMS = "bank hotel museum school".split()  # avon bank is an organization, the bank is not
PRONOUNS = {"she": False, "he": False, "they": True, "we": True}
ACTORS = "cook duck fish baker farmer girl".split()
DESCRIBING = "light clean dry warm open empty small old red".split()
ACTS = {  # verb: what it is done to. Most of these words are nouns, verbs or adjectives as the sentence wants.
    "plant": "tree bean",
    "watch": "duck fish light cook water",
    "water": "plant tree park",
    "cook": "duck fish bean",
    "book": "table room boat cook",
    "paint": "chair boat watch plant can",
    "light": "lamp park room",
    "clean": "table watch saw can fish",
    "dry": "boat paint saw book",
    "warm": "water room bean",
    "park": "truck boat",
    "open": "book can bank",
    "empty": "can boat hotel",
    "see": "duck cook plant watch boat",
    "find": "saw book lamp paint can plant",
    "fish": "",
    "duck": "",
    "walk": "",
    "sleep": "",
}
OBJECTS = sorted({noun for nouns in ACTS.values() for noun in nouns.split()})
SPOTS = "park room bank hotel museum school water lamp tree".split()
TaggedWord = tuple[str, str, str]


def _common(random: Random, noun: str, many: bool) -> list[TaggedWord]:
    """A noun phrase with a determiner, so that context can tell a noun from a verb: the light boat, these plants."""
    adjective = [random.choice(DESCRIBING)] if random.random() < 0.4 else []
    rest = [*adjective, plural(noun) if many else noun]
    determiner = random.choice(["the", "these", "some"] if many else ["the", "this", "every", indefinite(rest[0])])
    tags = ["DET", *["ADJ"] * len(adjective), "NOUN"]
    return [(word, tag, "O") for word, tag in zip([determiner, *rest], tags, strict=True)]


def _name(words: Sequence[str], entity: str) -> list[TaggedWord]:
    return [(word, "PROPN", f"{'I' if i else 'B'}-{entity}") for i, word in enumerate(words)]


def _person(random: Random) -> list[TaggedWord]:
    first, last = random.choice(GIVEN + TOWNS), random.choice(TOWNS)
    return _name([first] if random.random() < 0.6 or first == last else [first, last], "PER")


def _firm(random: Random) -> list[TaggedWord]:
    return _name([random.choice(TOWNS), random.choice(FIRMS)], "ORG")


def _where(random: Random) -> list[TaggedWord]:
    preposition = random.choice(["in", "near", "near", "at", "with"])
    if preposition == "with":
        place = _person(random)
    elif preposition == "at" or random.random() < 0.2:
        place = _firm(random)
    else:
        place = random.choice([_name([random.choice(TOWNS)], "LOC"), _common(random, random.choice(SPOTS), False)])
    return [(preposition, "ADP", "O"), *place]


def _tagged_clause(random: Random) -> tuple[Words, list[TaggedWord]]:
    """One clause and its combination (subject, verb, object), or (subject, be, adjective) for `the light is warm`."""
    verb, many = random.choice([*ACTS, "be"]), random.random() < 0.4
    be = verb == "be"
    kind = "common" if be else random.choices(["common", "pronoun", "person", "firm"], [9, 3, 6, 2])[0]
    if kind == "common":
        head = random.choice(OBJECTS if be else ACTORS)
        subject = _common(random, head, many)
    else:
        pronoun = random.choice(list(PRONOUNS))
        subject = {"pronoun": [(pronoun, "PRON", "O")], "person": _person(random), "firm": _firm(random)}[kind]
        head, many = subject[-1][0], kind == "pronoun" and PRONOUNS[pronoun]
    if be:
        object_, copula = random.choice(DESCRIBING), random.choice([("is", "are"), ("was", "were")])[many]
        return (head, verb, object_), [*subject, (copula, "AUX", "O"), (object_, "ADJ", "O")]
    base, singular, past, *_ = inflect(verb)
    present = base if many else singular
    group = random.choice(
        [
            [(present, "VERB", "O")],
            [(present, "VERB", "O")],
            [(past, "VERB", "O")],
            [(random.choice(["can", "will", "must"]), "AUX", "O"), (base, "VERB", "O")],
            [("want" if many else "wants", "VERB", "O"), ("to", "PART", "O"), (base, "VERB", "O")],
        ]
    )
    adverb = [(random.choice(["often", "slowly", "never"]), "ADV", "O")] if random.random() < 0.2 else []
    object_ = random.choice(ACTS[verb].split()) if ACTS[verb] else ""
    target = _common(random, object_, random.random() < 0.3) if object_ else []
    where = _where(random) if not object_ or random.random() < 0.3 else []
    return (head, verb, object_), [*subject, *adverb, *group, *target, *where]


def tagging(train: int = 4000, validation: int = 500, test: int = 1000, seed: int = 0) -> Splits[Tagged]:
    """Sentences with parts of speech and entities; the same word changes both with its neighbors.

    `light` may be a noun, a verb or an adjective; `kent` a person, a place or half of an organization. A clause is held
    out by its (subject, verb, object).
    """

    def draw(random: Random):
        combination, clause = _tagged_clause(random)
        combinations = [combination]
        if random.random() < 0.4:
            combination, second = _tagged_clause(random)
            combinations.append(combination)
            clause += [random.choice([("and", "CCONJ", "O"), ("while", "SCONJ", "O")]), *second]
        return combinations, [Tagged(*zip(*clause, (".", "PUNCT", "O"), strict=True))]

    return _gather(draw, seed, train=train, validation=validation, test=test)


# --------------------------------------------------------------------------------------------------------- senses
@dataclass(frozen=True)
class Sensed:
    """A sentence, the position of an ambiguous word in it, and the sense that the word has there."""

    words: Words
    position: int
    sense: str


# For each sense: frames that the word (_) and something neutral can both fill; then sentences of its own.
SENSES = {
    "crane": {
        "bird": (
            "_ ate a fish|_ drank from the pond|_ slept in the reeds|_ waded into the marsh|_ watched a frog",
            "a crane is flying|the crane laid an egg|the crane spread its wings",
        ),
        "machine": (
            "_ lifted a stone|_ moved the pipes|_ carried a beam|_ worked at the dock|_ raised the roof",
            "the crane driver came|the crane needs oil|a crane is rusting",
        ),
    },
    "bank": {
        "river": (
            "caught a trout near _|moored a boat near _|saw an otter near _|swam near _|crossed a stream near _",
            "the bank is muddy|reeds grow on the bank|the flood covered the bank",
        ),
        "money": (
            "borrowed cash near _|opened an account near _|cashed a check near _|paid a loan near _|saved near _",
            "the bank manager called|the bank raised its rates|a bank is hiring",
        ),
    },
    "bat": {
        "animal": (
            "_ slept in the cave|_ ate a moth|_ hid in the barn|_ woke at night|_ feared the daylight",
            "a bat is squeaking|the bat folded its wings|the bat hung upside down",
        ),
        "club": (
            "_ hit the ball|_ won the game|_ helped the team|_ scored a point|_ missed the pitch",
            "the bat needs a grip|the bat cracked in two|a player swung the bat",
        ),
    },
    "seal": {
        "animal": (
            "_ swam in the bay|_ caught a herring|_ lay on the ice|_ dived off the rocks|_ played in the waves",
            "a seal is barking|the seal pup grew|the seal wiggled its flippers",
        ),
        "stamp": (
            "_ closed the envelope|_ marked the letter|_ signed the treaty|_ proved the claim|_ spoiled the deed",
            "the seal is melting|the king pressed the seal|the seal shows a crest",
        ),
    },
    "mouse": {
        "animal": (
            "_ ate the cheese|_ hid in the hay|_ feared the cat|_ stole the crumbs|_ dug a hole",
            "a mouse is nibbling|the mouse twitched its whiskers|the mouse curled its tail",
        ),
        "device": (
            "_ moved the pointer|_ opened the folder|_ selected the icon|_ started the program|_ shut the menu",
            "the mouse needs a battery|the mouse button clicked|a mouse is plugged in",
        ),
    },
    "ruler": {
        "king": (
            "_ led the army|_ lost the throne|_ taxed the land|_ wrote the law|_ fought the rebels",
            "the ruler wore a crown|the ruler was exiled|a ruler is speaking",
        ),
        "stick": (
            "_ measured the page|_ lay beside the pencils|_ guided the pen|_ fell off the desk|_ tore the sketch",
            "the ruler lost its inches|the ruler snapped in two|a plastic ruler was sold",
        ),
    },
    "spring": {
        "season": (
            "planted beans in _|sowed wheat in _|pruned roses in _|sheared the sheep in _|painted eggs in _",
            "spring came after winter|the spring began in march|the birds return each spring",
        ),
        "water": (
            "filled a jug in _|rinsed the cups in _|cooled the milk in _|wet a towel in _|dipped a bucket in _",
            "the spring is bubbling|the spring feeds a brook|the spring ran dry",
        ),
    },
    "court": {
        "law": (
            "accused a thief near _|met a judge near _|paid a fine near _|saw a lawyer near _|swore an oath near _",
            "the court was in session|the court clerk wrote|the court heard the case",
        ),
        "sport": (
            "played tennis near _|bounced a ball near _|won a set near _|held a racket near _|met a coach near _",
            "the court lost its net|the court was swept for the match|the court lines were painted",
        ),
    },
}
STRANGERS, CORNERS = "sailor girl boy man woman clerk".split(), "village yard square".split()
LOOKS = ["", "old", "small", "big", "gray"]
ENDINGS = ["", "again", "today", "at last", "as usual", "once more", "after all", "of course", "by chance", "at noon"]


def senses(train: int = 4000, validation: int = 500, test: int = 1000, seed: int = 0) -> Splits[Sensed]:
    """Sentences with a word of two senses, and the sense it has there. Examples come in pairs, one of each sense.

    About two pairs in three have two clauses and the cues of both senses: `the crane ate a fish while a man lifted a
    stone` and `a man ate a fish while the crane lifted a stone`. The two are made of the same words; only the clause
    that the word stands in tells them apart. Such a pair is held out by its (word, frame, frame); a pair of simple
    sentences, such as `a crane is flying` and `the crane driver came`, by its (word, adjective, ending).
    """

    def draw(random: Random):
        def clause(frame: str) -> str:  # somebody has to catch the trout near _
            return f"{_phrase(random, random.choice(STRANGERS))} {frame}" if "_" in frame[1:] else frame

        word, ending, own = random.choice(list(SENSES)), random.choice(ENDINGS), random.random() < 0.5
        look = random.choice(LOOKS)
        two_senses = random.sample(list(SENSES[word]), 2)
        if random.random() < 0.5:
            frames = [random.choice(SENSES[word][sense][0].split("|")) for sense in two_senses]
            one, two = map(clause, frames)
            target, joint = _phrase(random, word, look), random.choice(["while", "and", "before"])
            neutral = _phrase(random, random.choice(STRANGERS if one[0] == "_" else CORNERS))
            texts = [
                f"{one.replace('_', a)} {joint} {two.replace('_', b)}"
                for a, b in ((target, neutral), (neutral, target))
            ]
            combination = (word, *sorted(frames))
        else:
            frames = [random.choice(SENSES[word][sense][own].split("|")) for sense in two_senses]
            texts = [clause(frame).replace("_", _phrase(random, word, look)) for frame in frames]
            combination = (word, "" if own else look, ending)
        sentences = [tuple(f"{text} {ending}".split()) for text in texts]
        return [combination], [Sensed(s, s.index(word), sense) for s, sense in zip(sentences, two_senses, strict=True)]

    return _gather(draw, seed, group=2, train=train, validation=validation, test=test)


# ------------------------------------------------------------------------------------------------------ inference
@dataclass(frozen=True)
class Pair:
    """A premise, a hypothesis, and whether the first makes the second true, false, or leaves it open."""

    premise: Words
    hypothesis: Words
    label: str


LABELS = ("entailment", "contradiction", "neutral")


class Event(NamedTuple):
    """Who did what to whom, and where. Empty properties and places are left unsaid."""

    subject: str
    subject_property: str
    verb: str
    object: str
    object_property: str
    place: str

    @property
    def combination(self) -> Words:
        return self.subject, self.verb, self.object

    @property
    def reorders(self) -> bool:
        """Whether the two may change roles, and the first pass its property to the second."""
        tops = {_top(self.subject), _top(self.object)}
        fits = self.subject_property and self.subject_property in FITTING[_top(self.object)].split()
        return bool(fits) and not self.object_property and tops <= set(DOES[self.verb][0].split())


@cache
def relation(premise: str, hypothesis: str) -> str:
    """How a word of the hypothesis stands to the premise's: equal, more general, more specific or incompatible."""
    if premise == hypothesis:
        return "equal"
    if hypothesis in above(premise):
        return "general"
    if premise in above(hypothesis) or DIMENSION.get(premise) != DIMENSION.get(hypothesis):
        return "specific"  # red says nothing about small: small is news
    return "incompatible"


def judge(premise: Event, hypothesis: Event) -> str:
    """The label of a pair, slot by slot.

    Both sentences describe one event in one scene. So one incompatible slot makes a contradiction: if an owl pushed
    the pear, then no crow did, and nobody pulled it. Otherwise one slot that says more than the premise makes it
    neutral, and if no slot says more, the premise entails the hypothesis. Exchanging subject and object needs no rule
    of its own: `the owl chased the dog` contradicts `the dog chased the owl`, but from `the bird chased the owl` to
    `the owl chased the bird` it is neutral, because both of them may be owls.
    """
    slots = {relation(p, h) for p, h in zip(premise, hypothesis, strict=True)}
    return "contradiction" if "incompatible" in slots else "neutral" if "specific" in slots else "entailment"


@cache
def _others(word: str, move: str, role: str) -> list[str]:
    """What may stand in the premise for a word of the hypothesis; the role names its type and the nouns around it."""
    role, *tops = role.split()
    if role == "noun":
        domain = _nouns(_top(word))
    elif role == "property":
        domain = ["", *FITTING[tops[0]].split()]
    elif role == "verb":
        able = {verb for verb, slots in DOES.items() if all(t in s.split() for t, s in zip(tops, slots, strict=True))}
        domain = [verb for verb in DOES if verb in able and _top(verb) in MANNERS]
    else:
        domain = ["", *_nouns(" ".join(PLACES))]
    others = [other for other in domain if relation(other, word) == move]
    if move == "incompatible" and role != "property":
        inner = {*KINDS, *MANNERS, *PLACES}  # pet for owl, rabbit for bird: alone, neither word gives the label away
        others = [other for other in others if (other in inner) != (word in inner)]
    return others


def _premise(random: Random, hypothesis: Event, moves: Sequence[str]) -> Event:
    """A premise that stands to the hypothesis, slot by slot, as the moves say, wherever that is possible."""
    one, two = _top(hypothesis.subject), _top(hypothesis.object)
    roles = ("noun", f"property {one}", f"verb {one} {two}", "noun", f"property {two}", "place")
    slots = zip(hypothesis, moves, roles, strict=True)
    return Event(*(random.choice(_others(word, move, role) or [word]) for word, move, role in slots))


def _premises(random: Random, hypothesis: Event, reorder: bool) -> dict[str, Event]:
    """A premise for each label, as far as we find them; with `reorder` all of them are made of the same words."""

    def moves(*decisive: str) -> list[str]:
        return random.sample([*decisive, *random.choices(("equal", "general"), k=6 - len(decisive))], 6)

    if reorder:  # who was small, and who chased whom?
        one, adjective, verb, two, _, place = _premise(random, hypothesis, moves())
        orders = [(one, adjective, verb, two, ""), (one, "", verb, two, adjective), (two, adjective, verb, one, "")]
        proposals = [Event(*order, place) for order in orders]
    else:
        decisive = ["specific"], ["incompatible"], ["incompatible", "specific"]
        proposals = [_premise(random, hypothesis, moves(*some)) for some in ([], *random.sample(decisive, 3)) * 4]
    allowed = ("train", part_of(hypothesis.combination))
    return {judge(premise, hypothesis): premise for premise in proposals if part_of(premise.combination) in allowed}


def _event(random: Random) -> Event:
    """A random event, its words as often general as specific."""

    def pick(words: Sequence[str], tree: dict[str, str]) -> str:
        general = [word for word in words if word in tree]
        return random.choice(general if random.random() < 0.5 else [word for word in words if word not in tree])

    verb = pick([verb for verb in DOES if _top(verb) in MANNERS], MANNERS)
    subject, object_ = (pick(_nouns(random.choice(tops.split())), KINDS) for tops in DOES[verb])
    one, two = (random.choice(["", random.choice(FITTING[_top(noun)].split())]) for noun in (subject, object_))
    return Event(subject, one, verb, object_, two, random.choice(["", pick(_nouns(" ".join(PLACES)), PLACES)]))


def _say(random: Random, event: Event, progressive: bool) -> Words:
    *_, past, _, ing = inflect(event.verb)
    text = f"{_phrase(random, event.subject, event.subject_property)} {f'is {ing}' if progressive else past} "
    text += _phrase(random, event.object, event.object_property) + (f" in the {event.place}" if event.place else "")
    return tuple(text.split())


def inference(train: int = 9000, validation: int = 600, test: int = 1200, seed: int = 0) -> Splits[Pair]:
    """Premises and hypotheses; see `judge` for what the labels mean. A pair is held out by (subject, verb, object).

    Examples come in triples: one hypothesis with a premise for each label, so the hypothesis alone tells nothing. In
    about a third of the triples the three premises are made of the same words in another order.
    """

    def draw(random: Random):
        premises, reorder = {}, random.random() < 0.35
        while len(premises) < len(LABELS):
            hypothesis = _event(random)
            premises = {} if reorder and not hypothesis.reorders else _premises(random, hypothesis, reorder)
        progressive = random.random() < 0.5
        said = _say(random, hypothesis, progressive)
        order = random.sample(LABELS, len(LABELS))
        examples = [Pair(_say(random, premises[label], progressive), said, label) for label in order]
        return [event.combination for event in (hypothesis, *premises.values())], examples

    return _gather(draw, seed, group=3, train=train, validation=validation, test=test)


# ------------------------------------------------------------------------------------ questions, choices and cloze
@dataclass(frozen=True)
class Question:
    """A passage, a question, and the answer `context[start:end]`, so that `end` is one past the last word.

    If the passage does not answer the question, then answer, start and end are None.
    """

    context: Words
    question: Words
    answer: Words | None
    start: int | None
    end: int | None


@dataclass(frozen=True)
class Choice:
    """A passage, a question, four options of the right type, and the position (0 to 3) of the right one."""

    context: Words
    question: Words
    options: tuple[Words, ...]
    answer: int


@dataclass(frozen=True)
class Cloze:
    """A passage, a statement from it with `_` in place of one word, and that word."""

    context: Words
    query: Words
    answer: str


# A fact has a verb, a doer A, a second person B, and X, a thing or a place. Each pattern: the statement, the questions.
HAND_OVER = ("A past X to B", {"A": "who past X to B", "X": "what did A base to B", "B": "to whom did A base X"})
OBTAIN = ("A past X from B", {"A": "who past X from B", "X": "what did A base from B", "B": "from whom did A base X"})
MEET = ("A past B in X", {"A": "who past B in X", "X": "where did A base B", "B": "whom did A base in X"})
HANDLE = ("A past B 's Y", {"A": "who past B 's Y", "B": "whose Y did A base"})
STORY_VERBS = {
    "give": HAND_OVER,
    "send": HAND_OVER,
    "lend": HAND_OVER,
    "steal": OBTAIN,
    "borrow": OBTAIN,
    "help": MEET,
    "see": MEET,
    "thank": MEET,
    "find": HANDLE,
    "break": HANDLE,
    "paint": HANDLE,
}
STORY_THINGS = "lamp book ladder basket umbrella guitar kettle apple".split()
STORY_PLACES = "kitchen garden market orchard cellar attic".split()
STORY_LOOKS = ["the", "the red", "the old", "the green"]
OPENINGS = ["", "", "then", "today", "later"]


class Fact(NamedTuple):
    """One sentence of a story; `X` holds its words, such as `the red lamp` or `the kitchen`."""

    verb: str
    A: str
    B: str
    X: str

    @property
    def combination(self) -> Words:
        return self.A, self.verb, self.B

    def fill(self, pattern: str) -> tuple[list[str], dict[str, tuple[int, int]]]:
        """The words of a pattern with its slots filled, and where each slot starts and ends."""
        base, _, past, *_ = inflect(self.verb)
        fillers = {"A": self.A, "B": self.B, "X": self.X, "Y": self.X.removeprefix("the "), "base": base, "past": past}
        words, spans = [], {}
        for token in pattern.split():
            filler = fillers.get(token, token).split()
            spans[token] = len(words), len(words) + len(filler)
            words += filler
        return words, spans

    def answers(self, asked: "Fact", slot: str) -> bool:
        """Whether this fact answers a question for one slot of another: everything else is the same."""
        return all(getattr(self, name) == getattr(asked, name) for name in ("verb", "A", "B", "X") if name != slot)


class _Story(NamedTuple):
    combinations: list[Words]
    context: Words
    asked: Fact
    slot: str
    span: tuple[int, int] | None
    options: list[str]  # everything of the asked slot's type that the story is made of


def _story(random: Random, answerable: bool) -> _Story:
    """A passage about four people, four things and four places, and one fact to ask for.

    Beside the asked fact there is always a trap: a sentence with all the words of the question, in other roles. For
    `who gave the lamp to tom ?` it is `tom gave the lamp to nina`. If the question is to have no answer, the trap
    stays and the fact goes.
    """
    people = random.sample(GIVEN, 4)
    things = [f"{random.choice(STORY_LOOKS)} {thing}" for thing in random.sample(STORY_THINGS, 4)]
    places = [f"the {place}" for place in random.sample(STORY_PLACES, 4)]

    def some_fact(verb: str) -> Fact:
        return Fact(verb, *random.sample(people, 2), random.choice(places if STORY_VERBS[verb] is MEET else things))

    asked = some_fact(random.choice(list(STORY_VERBS)))
    slot = random.choice(list(STORY_VERBS[asked.verb][1]))
    options = people if slot in "AB" else places if STORY_VERBS[asked.verb] is MEET else things
    other = random.choice([option for option in options if option not in (asked.A, asked.B, asked.X)])
    trap = {
        "A": Fact(asked.verb, asked.B, other, asked.X),
        "B": Fact(asked.verb, other, asked.A, asked.X),
        "X": Fact(asked.verb, asked.B, asked.A, other),
    }[slot]
    facts = [asked, trap] if answerable else [trap]
    verbs = [asked.verb, *random.sample(list(STORY_VERBS), 2)]
    length = random.randint(3, 6)
    while len(facts) < length:
        fact = some_fact(random.choice(verbs))
        allowed = part_of(fact.combination) in ("train", part_of(asked.combination))
        if allowed and fact not in facts and not fact.answers(asked, slot):
            facts.append(fact)
    random.shuffle(facts)
    context, span = [], None
    for fact in facts:
        context += random.choice(OPENINGS).split()
        words, spans = fact.fill(STORY_VERBS[fact.verb][0])
        if fact == asked:
            span = tuple(len(context) + i for i in spans[slot])
        context += [*words, "."]
    return _Story([fact.combination for fact in (asked, *facts)], tuple(context), asked, slot, span, options)


def _ask(story: _Story) -> Words:
    words, _ = story.asked.fill(STORY_VERBS[story.asked.verb][1][story.slot])
    return (*words, "?")


def questions(train: int = 8000, validation: int = 500, test: int = 1000, seed: int = 0) -> Splits[Question]:
    """Stories of three to six sentences and a question for a person, a thing or a place; one in five has no answer.

    All the words of the question stand in several sentences; who did what to whom decides. A question is held out by
    the (doer, verb, other person) of its fact.
    """

    def draw(random: Random):
        story = _story(random, answerable=random.random() < 0.8)
        start, end = story.span or (None, None)
        answer = story.context[start:end] if story.span else None
        return story.combinations, [Question(story.context, _ask(story), answer, start, end)]

    return _gather(draw, seed, train=train, validation=validation, test=test)


def choices(train: int = 8000, validation: int = 500, test: int = 1000, seed: int = 0) -> Splits[Choice]:
    """The same stories with four options, all of the right type; held out like `questions`."""

    def draw(random: Random):
        story = _story(random, answerable=True)
        options = random.sample(story.options, 4)
        answer, options = options.index(getattr(story.asked, story.slot)), tuple(tuple(o.split()) for o in options)
        return story.combinations, [Choice(story.context, _ask(story), options, answer)]

    return _gather(draw, seed, train=train, validation=validation, test=test)


def cloze(train: int = 8000, validation: int = 500, test: int = 1000, seed: int = 0) -> Splits[Cloze]:
    """The same stories and a statement with a gap to fill with a word of the story; held out like `questions`."""

    def draw(random: Random):
        story = _story(random, answerable=True)
        words, spans = story.asked.fill(STORY_VERBS[story.asked.verb][0])
        last = spans[story.slot][1] - 1  # of "the red lamp" only the last word is asked for
        query = (*words[:last], "_", *words[last + 1 :], ".")
        return story.combinations, [Cloze(story.context, query, words[last])]

    return _gather(draw, seed, train=train, validation=validation, test=test)


# ---------------------------------------------------------------------------------------------------- translation
@dataclass(frozen=True)
class Translation:
    """An English sentence, the same in Tolan, and which words belong together: (source position, target position)."""

    source: Words
    target: Words
    alignment: tuple[tuple[int, int], ...]


PARTICLES = {
    "and": "ta",
    "that": "ke",
    "in": "lu",
    "near": "vi",
    "two": "bi",
    "many": "mo",
    "often": "fa",
    "never": "ni",
}


def _stems() -> dict[str, str]:
    """One stem for each English lemma: consonant, vowel, consonant, counted off in steps that never meet."""
    consonants, vowels = "bdfgklmnprstvz", "aeiou"
    stems = [a + v + b for a in consonants for v in vowels for b in consonants]
    lemmas = sorted({*KINDS, *PARENT, *PLACES, *DOES, *DIMENSION} - {""})
    return {lemma: stems[383 * i % len(stems)] for i, lemma in enumerate(lemmas)}


STEMS = _stems()
Target = list[tuple[str, int]]  # words of the target, each with the position of its source


def tolan(lemma: str, many: bool = False, accusative: bool = False, like: str = "") -> str:
    """A noun of Tolan: stem, class vowel (a living, o thing, e place), -i in the plural, -n as object.

    An adjective takes the ending of the noun it stands with, given as `like`.
    """
    top = _top(like or lemma)
    vowel = "a" if top in LIVING.split() else "o" if top in THINGS.split() else "e"
    return STEMS[lemma] + vowel + "i" * many + "n" * accusative


def tolan_verb(verb: str, past: bool, many: bool) -> str:
    """A verb of Tolan: stem, -as now or -ek in the past, then -u after a plural subject."""
    return STEMS[verb] + ("ek" if past else "as") + "u" * many


class _Interpreter:
    """Says a sentence in English word by word while it builds the same sentence in Tolan.

    Tolan puts the verb last and the place before the object; adjectives and relative clauses follow their noun, and
    `in` and `near` follow the whole phrase. It has no articles.
    """

    def __init__(self, random: Random, richness: float):
        self.random, self.richness = random, richness
        self.source: list[str] = []
        self.combinations: list[Words] = []

    def say(self, word: str) -> int:
        self.source.append(word)
        return len(self.source) - 1

    def maybe(self, scale: float = 1.0) -> bool:
        return self.random.random() < self.richness * scale

    def particle(self, word: str) -> Target:
        return [(PARTICLES[word], self.say(word))]

    def phrase(self, noun: str, many: bool, accusative: bool = False, relative: bool = False) -> Target:
        random, fitting = self.random, FITTING.get(_top(noun), "small large old new").split()
        many = many and noun not in UNCOUNTED
        adjectives = random.sample(fitting, self.maybe(0.8) + self.maybe(0.3))
        adjectives.sort(key=[*DIMENSION].index)  # small black owls, never black small owls
        english = [*adjectives, plural(noun) if many else noun]
        determiner = random.choice(["the", "two", "many"] if many else ["the", indefinite(noun, english[0])])
        quantity = [(PARTICLES[word], at) for word, at in [(determiner, self.say(determiner))] if word in PARTICLES]
        ending = {"many": many, "accusative": accusative, "like": noun}
        modifiers = [(tolan(adjective, **ending), self.say(adjective)) for adjective in adjectives]
        target = [*quantity, (tolan(noun, **ending), self.say(english[-1])), *modifiers]
        if relative and _top(noun) in LIVING.split() and self.maybe(0.6):
            target += self.particle("that") + self.predicate(noun, many, relative=False)
        return target

    def place(self) -> Target:
        postposition = self.particle(self.random.choice(["in", "near"]))
        return self.phrase(self.random.choice(_nouns(" ".join(PLACES))), many=False) + postposition

    def predicate(self, subject: str, many: bool, relative: bool) -> Target:
        random = self.random
        verb = random.choice([v for v, (doers, _) in DOES.items() if _top(subject) in doers.split()])
        past, tops = random.random() < 0.5, DOES[verb][1].split()
        object_ = random.choice(_nouns(random.choice(tops))) if tops else ""
        self.combinations.append((subject, verb, object_))
        clauses = len(self.combinations)
        adverb = self.particle(random.choice(["often", "never"])) if self.maybe(0.3) else []
        base, singular, past_form, *_ = inflect(verb)
        action = [(tolan_verb(verb, past, many), self.say(past_form if past else base if many else singular))]
        target = self.phrase(object_, random.random() < 0.4, accusative=True, relative=relative) if object_ else []
        bare = len(self.combinations) == clauses  # after "saw the owl that slept", "near the house" belongs to the owl
        place = self.place() if bare and self.maybe(0.5) else []
        return place + target + adverb + action

    def clause(self) -> Target:
        subject, many = self.random.choice(_nouns(LIVING)), self.random.random() < 0.4
        return self.phrase(subject, many, relative=True) + self.predicate(subject, many, relative=True)


def translation(train: int = 8000, validation: int = 500, test: int = 1000, seed: int = 0) -> Splits[Translation]:
    """English sentences of 3 to 25 words in Tolan, a language we made up; held out by (subject, verb, object).

    Articles have no partner, every other word has one: the alignment covers all target words. See `_Interpreter`
    for the order of words, `tolan` and `tolan_verb` for the endings, `_stems` for the lexicon.
    """

    def draw(random: Random):
        while True:
            speaker = _Interpreter(random, richness=max(random.random(), random.random()))
            target = speaker.clause()
            if speaker.maybe(0.6):
                target += speaker.particle("and") + speaker.clause()
            if len(speaker.source) <= 25:
                break
        words, origins = zip(*target, strict=True)
        alignment = tuple(sorted((i, j) for j, i in enumerate(origins)))
        return speaker.combinations, [Translation(tuple(speaker.source), words, alignment)]

    return _gather(draw, seed, train=train, validation=validation, test=test)
