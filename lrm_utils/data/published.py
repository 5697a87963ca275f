"""Readers for the published full-size datasets, which are downloaded on first use (see `lrm_utils.data.fetch`).

Archives are read where they lie. Parts are named train, validation and test, whatever the publisher calls them.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from lrm_utils.data.fetch import REGISTRY, decode, fetch, folder, open_member, read, read_member, tar_members
from lrm_utils.data.installed import DataUnavailable, Parts, Review, Splits, clean_review
from lrm_utils.text import Vocab, WordVectors

ACLIMDB_MEMBER = re.compile(r"(?:\./)?aclImdb/(train|test)/(neg|pos)/(\d+)_\d+\.txt")


class Corpus(Splits[tuple[str, ...]]):
    """Running text in three parts; each item is a line, split into its words."""


@dataclass(frozen=True, repr=False)
class ImdbReviews(Parts):
    """The two published parts of the IMDb reviews."""

    train: tuple[Review, ...]
    test: tuple[Review, ...]


@dataclass(frozen=True)
class InferencePair:
    """Two sentences and whether the second follows: `entailment`, `contradiction` or `neutral`."""

    premise: str
    hypothesis: str
    label: str


class InferencePairs(Splits[InferencePair]):
    """Labeled inference pairs in three parts."""


class Answer(NamedTuple):
    """A span of a paragraph, and the character it starts at."""

    text: str
    start: int


@dataclass(frozen=True)
class Question:
    """A question with the answers that people gave; each is a span of the paragraph."""

    id: str
    text: str
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph and the questions about it."""

    text: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Article:
    """An encyclopedia article with questions."""

    title: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True)
class TaggedSentence:
    """A sentence with the universal part of speech and the lemma of each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    lemmas: tuple[str, ...]


class Treebank(Splits[TaggedSentence]):
    """Tagged sentences in three parts."""


class Translation(NamedTuple):
    """A sentence in English and in French."""

    english: str
    french: str


def ptb() -> Corpus:
    """The Penn Treebank as language models use it, rare words replaced by <unk>: 42,068 / 3,370 / 3,761 lines."""
    return _corpus("ptb", "ptb/ptb.{}.txt")


def wikitext2() -> Corpus:
    """WikiText-2, paragraphs and headings (`= Title =`) of Wikipedia articles: 23,767 / 2,461 / 2,891 of them."""
    return _corpus("wikitext-2", "wikitext-2/wiki.{}.tokens")


def _corpus(name: str, member: str) -> Corpus:
    path = fetch(name)
    parts = (decode(read_member(path, member.format(part)), member.format(part)) for part in ("train", "valid", "test"))
    return Corpus(*(tuple(words for line in part.split("\n") if (words := tuple(line.split()))) for part in parts))


def aclimdb() -> ImdbReviews:
    """The IMDb reviews of Maas et al. as published, duplicates included: 25,000 / 25,000, half of them favorable each.

    They are in order of their number, an unfavorable and a favorable one in turn.
    """
    found = {"train": [], "test": []}
    for member, content in tar_members(fetch("aclimdb"), ACLIMDB_MEMBER.fullmatch):
        part, label, number = ACLIMDB_MEMBER.fullmatch(member).groups()
        found[part].append((int(number), int(label == "pos"), clean_review(decode(content, member))))
    train, test = (tuple(Review(review, label) for _, label, review in sorted(rows)) for rows in found.values())
    return ImdbReviews(train, test)


def snli() -> InferencePairs:
    """SNLI, without the pairs on which the annotators did not agree: 549,367 / 9,842 / 9,824."""
    path = fetch("snli")
    return InferencePairs(*(tuple(_snli_rows(path, part)) for part in ("train", "dev", "test")))


def _snli_rows(path, part: str) -> Iterator[InferencePair]:
    member = f"snli_1.0/snli_1.0_{part}.txt"
    header, *lines = decode(read_member(path, member), member).rstrip("\n").split("\n")
    columns = header.rstrip("\r").split("\t")
    missing = {"gold_label", "sentence1", "sentence2"} - set(columns)
    if missing:
        raise DataUnavailable(f"{member} has no column {', '.join(sorted(missing))}; its header is {columns}")
    label, premise, hypothesis = (columns.index(name) for name in ("gold_label", "sentence1", "sentence2"))
    for row in (line.split("\t") for line in lines):  # quotes are part of the sentences, not of the format
        if row[label] != "-":
            yield InferencePair(row[premise].strip(), row[hypothesis].strip(), row[label])


def squad(part: str = "train") -> tuple[Article, ...]:
    """SQuAD 1.1: `train` (442 articles, 87,599 questions) or `validation` (48 articles, 10,570 questions).

    The two parts are two downloads and share no article. The test part was never published.
    """
    names = {"train": "squad-train", "validation": "squad-dev"}
    if part not in names:
        raise ValueError(f"SQuAD has no part {part!r}; choose one of {', '.join(names)}")
    return tuple(
        Article(article["title"], tuple(_paragraph(paragraph) for paragraph in article["paragraphs"]))
        for article in json.loads(decode(read(names[part]), names[part]))["data"]
    )


def _paragraph(paragraph: dict) -> Paragraph:
    questions = (
        Question(qa["id"], qa["question"].strip(), tuple(Answer(a["text"], a["answer_start"]) for a in qa["answers"]))
        for qa in paragraph["qas"]
    )
    return Paragraph(paragraph["context"], tuple(questions))


def ud_english() -> Treebank:
    """The English Web Treebank of Universal Dependencies 2.16: 12,544 / 2,001 / 2,077 sentences."""
    return Treebank(*(tuple(_sentences(decode(read(f"ud-{part}"), part))) for part in ("train", "dev", "test")))


def _sentences(conllu: str) -> Iterator[TaggedSentence]:
    for block in conllu.split("\n\n"):
        rows = (line.split("\t") for line in block.split("\n") if line and not line.startswith("#"))
        rows = [row for row in rows if row[0].isdigit()]  # neither "1-2", a contraction, nor "1.1", left unsaid
        if rows:
            _, words, lemmas, tags, *_ = zip(*rows, strict=True)
            yield TaggedSentence(words, tags, lemmas)


def fra_eng() -> tuple[Translation, ...]:
    """167,130 English sentences with French translations, short ones first; no-break spaces are made plain."""
    content = decode(read_member(fetch("fra-eng"), "fra-eng/fra.txt"), "fra-eng/fra.txt")
    lines = content.replace("\u202f", " ").replace("\u00a0", " ").split("\n")
    return tuple(Translation(*line.split("\t")[:2]) for line in lines if "\t" in line)


def glove_6b(dimensions: int = 100) -> WordVectors:
    """GloVe 6B: 400,000 words, the most frequent first, with vectors of 50, 100, 200 or 300 dimensions.

    All four are in one archive, which is used when it is in the data folder; otherwise 50 and 100 dimensions are
    downloaded alone, a fraction of it. The counts of the words are not published; they are zero here.
    """
    if dimensions not in (50, 100, 200, 300):
        raise ValueError(f"GloVe 6B has 50, 100, 200 or 300 dimensions, not {dimensions}")
    table = f"glove.6B.{dimensions}d"
    if dimensions > 100 or (folder() / REGISTRY["glove-6b"].file).is_file():
        return _vectors("glove-6b", f"{table}.txt", dimensions)
    return _vectors(table.lower().replace(".", "-"), f"{table}/vec.txt", dimensions)


def glove_42b(limit: int | None = None) -> WordVectors:
    """GloVe 42B, from pages of the web: 1.9 million words, 300 dimensions, 2.3 GB in memory, or the first `limit`."""
    return _vectors("glove-42b-300d", "glove.42B.300d/vec.txt", 300, limit)


def fasttext_wiki(limit: int | None = None) -> WordVectors:
    """fastText's vectors of the English Wikipedia: 2.5 million words, 300 dimensions, 3 GB, or the first `limit`."""
    return _vectors("wiki-en", "wiki.en/vec.txt", 300, limit, header=True)


def _vectors(name: str, member: str, dimensions: int, limit: int | None = None, header: bool = False) -> WordVectors:
    """The vectors in a text file inside a zip: a word and its numbers a line, below a header where there is one."""
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: ask for one word or more, or None for all")
    path, promised = fetch(name), None
    with open_member(path, member) as file:
        first = file.readline()
        if header:
            promised, first = first.split(), file.readline()
            if len(promised) != 2 or not promised[0].isdigit() or promised[1] != str(dimensions).encode():
                raise DataUnavailable(f"{path} is damaged ({member} does not begin with a header): delete it")
    types = {"word": pa.string()} | {str(d): pa.float32() for d in range(dimensions)}
    if first.endswith(b" \n"):  # fastText leaves a space at the end of every line: one more column, of nothing
        types |= {"end": pa.null()}
    words, blocks = [], []
    with open_member(path, member) as file:
        batches = csv.open_csv(
            file,
            csv.ReadOptions(
                column_names=list(types), block_size=1 << 24, use_threads=False, skip_rows=1 if header else 0
            ),
            csv.ParseOptions(delimiter=" ", quote_char=False, newlines_in_values=False),
            csv.ConvertOptions(column_types=types, null_values=[""] if "end" in types else []),
        )
        for batch in batches:
            words += batch["word"].to_pylist()
            blocks.append(np.column_stack([batch[str(d)].to_numpy() for d in range(dimensions)]))
            if limit is not None and len(words) >= limit:
                break
    if promised and limit is None and len(words) != int(promised[0]):
        found = f"{len(words):,} words, {int(promised[0]):,} were promised"
        raise DataUnavailable(f"{path} is damaged ({member} holds {found}): delete it and try again")
    words, matrix = words[:limit], np.concatenate(blocks)[:limit]
    return WordVectors(Vocab(tuple(words), np.zeros(len(words), dtype=np.int64)), matrix)


def tinyshakespeare() -> str:
    """A million characters of Shakespeare's plays in one string."""
    return decode(read("tinyshakespeare"), "tinyshakespeare.txt")
