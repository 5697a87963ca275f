"""One function for each dataset of the course, returning plain frozen dataclasses. Those of `installed` arrive with pip
and work offline, those of `published` are downloaded on first use, and `miniature` is a generated world.
"""

import importlib
from types import ModuleType

from lrm_utils.data.installed import (
    Analogy,
    DataUnavailable,
    Review,
    Reviews,
    SentencePair,
    SentencePairs,
    Speech,
    Splits,
    WordPair,
    analogies,
    glove,
    minilm_folder,
    reviews,
    sotu,
    stsb,
    word_pairs,
)
from lrm_utils.data.published import (
    Answer,
    Article,
    Corpus,
    ImdbReviews,
    InferencePair,
    InferencePairs,
    Paragraph,
    Question,
    TaggedSentence,
    Translation,
    Treebank,
    aclimdb,
    fasttext_wiki,
    fra_eng,
    glove_6b,
    glove_42b,
    ptb,
    snli,
    squad,
    tinyshakespeare,
    ud_english,
    wikitext2,
)

__all__ = [
    "Analogy",
    "Answer",
    "Article",
    "Corpus",
    "DataUnavailable",
    "ImdbReviews",
    "InferencePair",
    "InferencePairs",
    "Paragraph",
    "Question",
    "Review",
    "Reviews",
    "SentencePair",
    "SentencePairs",
    "Speech",
    "Splits",
    "TaggedSentence",
    "Translation",
    "Treebank",
    "WordPair",
    "aclimdb",
    "analogies",
    "fasttext_wiki",
    "fra_eng",
    "glove",
    "glove_6b",
    "glove_42b",
    "minilm_folder",
    "ptb",
    "reviews",
    "snli",
    "sotu",
    "squad",
    "stsb",
    "tinyshakespeare",
    "ud_english",
    "wikitext2",
    "word_pairs",
]


def __getattr__(name: str) -> ModuleType:
    """Import the generated world when it is first asked for."""
    if name == "miniature":
        return importlib.import_module("lrm_utils.data.miniature")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
