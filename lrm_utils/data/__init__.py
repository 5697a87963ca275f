"""One function for each dataset of the course, returning plain frozen dataclasses. Those in `installed` arrive with pip
and work offline; `miniature` is a generated world.
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

__all__ = [
    "Analogy", "DataUnavailable", "Review", "Reviews", "SentencePair", "SentencePairs", "Speech", "Splits", "WordPair",
    "analogies", "glove", "minilm_folder", "reviews", "sotu", "stsb", "word_pairs",
]


def __getattr__(name: str) -> ModuleType:
    """Import the generated world when it is first asked for."""
    if name == "miniature":
        return importlib.import_module("lrm_utils.data.miniature")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
