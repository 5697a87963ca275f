"""From text to integers: words, vocabularies, batches and padding, and the pairing of a vocabulary with vectors.

It owns no corpus (see `lrm_utils.data`) and no subword tokenizer (chapter 04 builds those).
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from scipy import sparse

WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+")
SENTENCE_END = re.compile(
    r"(?:(?<=[.!?])|(?<=[.!?][\"”')]))"  # after a mark, or a mark and a closing quote,
    r"(?<!\bMr\.)(?<!\bMrs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bNo\.)(?<!\bU\.S\.)"  # which ends no abbreviation,
    r"\s+(?=[\"“'(]*[A-Z])"  # when a capital follows
)


def words(text: str) -> list[str]:
    """Split text into lower-case words and runs of digits; of the punctuation only an inner apostrophe is kept."""
    return WORD.findall(text.lower().replace("’", "'"))


def sentences(text: str) -> list[str]:
    """Split text after a full stop, question or exclamation mark that a capital letter follows, and at line breaks."""
    return [s.strip() for line in text.splitlines() for s in SENTENCE_END.split(line) if s.strip()]


@dataclass(frozen=True)
class Vocab:
    """The words a model knows, the most frequent first, and the id (row number) of each.

    Special tokens such as `<pad>` and `<unk>` come before the words. With `<unk>` among them, words that are not
    known get its id; without it, an unknown word is an error that names the nearest spellings.
    """

    words: tuple[str, ...]
    counts: np.ndarray = field(repr=False, compare=False)

    @classmethod
    def build(
        cls, tokens: Iterable[str], min_count: int = 1, size: int | None = None, specials: Sequence[str] = ()
    ) -> "Vocab":
        """Count the tokens; keep the words seen `min_count` times or more, at most `size` entries, ties by spelling."""
        tally = Counter(tokens)
        if not tally:
            raise ValueError("the corpus is empty: a vocabulary needs at least one token")
        for special in specials:
            tally.pop(special, None)
        kept = sorted((w for w, n in tally.items() if n >= min_count), key=lambda w: (-tally[w], w))
        kept = kept[: None if size is None else max(0, size - len(specials))]
        if not kept:
            raise ValueError(
                f"no word occurs min_count={min_count} times; the most frequent occurs {max(tally.values())}"
            )
        return cls((*specials, *kept), np.array([0] * len(specials) + [tally[w] for w in kept]))

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of each word."""
        return {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self.ids

    def __getitem__(self, word: str) -> int:
        """The id of a word."""
        try:
            return self.ids[word]
        except KeyError:
            if "<unk>" in self.ids:
                return self.ids["<unk>"]
            raise ValueError(self.unknown_message(word)) from None

    def unknown_message(self, word: str) -> str:
        """What to say of a word that is not in the vocabulary: the nearest spellings."""
        close = difflib.get_close_matches(word, self.words, n=3, cutoff=0.6)
        hint = f"the nearest spellings are {', '.join(close)}" if close else "no word is spelled like it"
        return f"{word!r} is not in the vocabulary ({len(self):,} words); {hint}"

    def encode(self, tokens: Iterable[str], drop_unknown: bool = False) -> np.ndarray:
        """Turn words into ids; `drop_unknown` leaves out words that are not in the vocabulary."""
        if drop_unknown:
            return np.array([self.ids[w] for w in tokens if w in self.ids], dtype=np.int64)
        return np.array([self[w] for w in tokens], dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Turn ids back into words."""
        return [self.words[i] for i in ids]


@dataclass(frozen=True)
class WordVectors:
    """One vector for each word of a vocabulary: row i of `matrix`, dense or sparse, belongs to word i."""

    vocab: Vocab
    matrix: np.ndarray | sparse.csr_array = field(repr=False)

    def __post_init__(self):
        if self.matrix.ndim != 2 or self.matrix.shape[0] != len(self.vocab):
            raise ValueError(
                f"a matrix of shape {self.matrix.shape} does not fit {len(self.vocab):,} words, a row each"
            )

    def __getitem__(self, word: str) -> np.ndarray:
        """The vector of a word."""
        return self.matrix[self.vocab[word]]

    @cached_property
    def unit(self) -> np.ndarray | sparse.csr_array:
        """All vectors scaled to length 1 (a zero vector stays zero), so that a dot product is a cosine."""
        matrix = self.matrix if np.issubdtype(self.matrix.dtype, np.floating) else self.matrix.astype(float)
        lengths = np.sqrt((matrix * matrix).sum(1))
        inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        if sparse.issparse(matrix):
            return sparse.csr_array(sparse.diags_array(inverse) @ matrix)
        return matrix * inverse[:, None]

    def neighbors(self, word: str, k: int = 10) -> list[tuple[str, float]]:
        """The `k` words whose vectors have the largest cosine with the vector of `word`, with that cosine."""
        row = self.vocab[word]
        query = self.unit[[row]]
        cosines = self.unit @ (query.toarray() if sparse.issparse(query) else query)[0]
        cosines[row] = -np.inf  # a word is not its own neighbor
        k = min(k, len(self.vocab) - 1)
        best = np.argpartition(-cosines, k - 1)[:k] if k else []
        return [(self.vocab.words[i], float(cosines[i])) for i in sorted(best, key=lambda i: -cosines[i])]


def pad(
    sequences: Sequence[Sequence[int]], value: int = 0, length: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack sequences of unequal length into one (B, T) tensor, filled up with `value`; also return their lengths (B,).

    With `length`, longer sequences are cut and all rows get that length.
    """
    if not len(sequences):
        raise ValueError("there is nothing to pad: the batch is empty")
    lengths = torch.tensor([len(s) if length is None else min(len(s), length) for s in sequences])
    out = torch.full((len(sequences), length or int(lengths.max())), value)
    for row, sequence, n in zip(out, sequences, lengths.tolist(), strict=True):
        row[:n] = torch.as_tensor(sequence[:n])
    return out, lengths


def batches(
    size: int, batch_size: int, seed: int | None = None, lengths: Sequence[int] | None = None
) -> Iterator[np.ndarray]:
    """Yield row numbers 0 … size-1 in batches, each once; shuffled when a seed is given.

    With `lengths`, rows of similar length share a batch, so that little is spent on padding: the rows are shuffled,
    sorted by length within groups of 50 batches, and the batches are shuffled again.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    random = np.random.default_rng(seed)
    order = np.arange(size) if seed is None else random.permutation(size)
    if lengths is not None:
        lengths, group = np.asarray(lengths), 50 * batch_size
        groups = [order[i : i + group] for i in range(0, size, group)]
        order = np.concatenate([g[np.argsort(lengths[g], kind="stable")] for g in groups]) if groups else order
    starts = np.arange(0, size, batch_size)
    if lengths is not None and seed is not None:
        random.shuffle(starts)
    for start in starts:
        yield order[start : start + batch_size]
