"""Our tokenizers beside Hugging Face's *tokenizers*: training BPE, and encoding with BPE and WordPiece.

    python bench/subword_tokenizers.py     compare in one run and write the record subword_tokenizers

Training: 8,000 merges on all speeches, from the texts to the list of merges, words cut as the library's `Whitespace`
cuts them. Encoding: 10,000 lines, half of them from speeches and half from reviews, ids and offsets, with BERT's
vocabulary and with byte-level BPE of 8,000 tokens. Ours remembers the chunks it has met, so it is timed with a new
tokenizer ("cold") and again with one that has seen the lines ("warm"). The two run in turn, in one process; the library
may use both cores, ours takes one. About three minutes on two cores.

Two slow programs start from the same counts of distinct words as `learn_merges`: the loop of the chapter, which keeps
words as tuples, and one that works as the listing of Sennrich et al. (2016), which keeps them as strings and merges
with a regular expression. They would take eight minutes or more, so they are not run to their end. Five places along
the list of merges are prepared with the fast trainer; at each of them a slow program makes three merges, and the median
of their seconds is integrated over all 8,000, with straight lines between the places. `faster_than_naive` is
the loop over `learn_merges`, `faster_than_listing` the listing.
"""

import hashlib
import json
import re
import statistics
from collections import Counter, defaultdict
from importlib.metadata import version

import numpy as np
from record import clock, save, summary
from tokenizers import BertWordPieceTokenizer, Tokenizer, models, pre_tokenizers, trainers

from lrm_utils import data
from lrm_utils.models.bpe_and_wordpiece import (
    ByteBPE,
    PairIndex,
    count_chunks,
    digest,
    learn_merges,
    merge_everywhere,
    merge_pair,
    read_wordpieces,
    train_byte_bpe,
)

MERGES, REPEATS, LINES = 8_000, 5, 10_000
WHITESPACE = re.compile(r"\w+|[^\w\s]+")
VOCABULARY = data.minilm_folder() / "vocab.txt"


def in_turn(works: dict) -> tuple[dict[str, dict], dict]:
    """Time several works, each once a round, so that a busy moment hits all alike; and what each gives."""
    taken, found = {name: [] for name in works}, {}
    for _ in range(REPEATS):
        for name, work in works.items():
            seconds, found[name] = clock(work)
            taken[name].append(seconds)
    return {name: summary(values) for name, values in taken.items()}, found


def library_merges(texts: list[str], size: int) -> list[tuple[str, str]]:
    """The merges that the library learns."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=[]))
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def loop_merge(text: dict) -> dict:
    """One merge as the chapter shows it: count all pairs, take the best, rewrite all words."""
    pairs = Counter()
    for symbols, n in text.items():
        for pair in zip(symbols, symbols[1:], strict=False):
            pairs[pair] += n
    best = max(pairs, key=pairs.get)
    return {tuple(merge_pair(word, best)): n for word, n in text.items()}


def listing_merge(text: dict) -> dict:
    """One merge in the manner of the published listing: words are strings with spaces between their symbols."""
    pairs = defaultdict(int)
    for word, n in text.items():
        symbols = word.split()
        for i in range(len(symbols) - 1):
            pairs[symbols[i], symbols[i + 1]] += n
    best = max(pairs, key=pairs.get)
    pattern, new = re.compile(r"(?<!\S)" + re.escape(" ".join(best)) + r"(?!\S)"), "".join(best)
    return {pattern.sub(lambda _: new, word): n for word, n in text.items()}


SLOW = {"loop": (loop_merge, tuple), "listing": (listing_merge, " ".join)}


def naive_seconds(words: Counter, merges: list) -> dict:
    """Seconds of the slow programs for one merge at five places, and for all merges by integration."""
    index, done, places = PairIndex(words), 0, [0, 500, 2_000, 4_000, MERGES - 1]
    each = {name: [] for name in SLOW}
    for place in places:
        for pair in merges[done:place]:
            merge_everywhere(index, tuple(index.ids[symbol] for symbol in pair))
        done = place
        spelled = [[index.tokens[i] for i in word] for word in index.words]
        for name, (merge, written) in SLOW.items():
            text, taken = {written(word): n for word, n in zip(spelled, index.times, strict=True)}, []
            for _ in range(3):
                seconds, text = clock(lambda text=text, merge=merge: merge(text))
                taken.append(seconds)
            each[name].append(statistics.median(taken))
    return {"at": places} | {
        name: {
            "seconds_a_merge": [round(s, 4) for s in found],
            "all": round(float(np.interp(np.arange(MERGES), places, found).sum())),
        }
        for name, found in each.items()
    }


def training(texts: list[str]) -> dict:
    """BPE on the speeches: seconds of ours, the library's and the naive loop, and whether the merges agree."""
    words = count_chunks(texts, WHITESPACE)
    size = MERGES + len(set().union(*words))
    seconds, found = in_turn(
        {
            "ours": lambda: learn_merges(count_chunks(texts, WHITESPACE), MERGES),
            "tokenizers": lambda: library_merges(texts, size),
            "ours, counting apart": lambda: learn_merges(words, MERGES),
        }
    )
    naive = naive_seconds(words, found["ours"])
    return {
        "merges": MERGES,
        "distinct_words": len(words),
        "identical": found["ours"] == found["tokenizers"],
        "merges_sha256": hashlib.sha256(json.dumps(found["tokenizers"]).encode()).hexdigest(),
        "seconds": seconds,
        "of_tokenizers": round(seconds["ours"]["median"] / seconds["tokenizers"]["median"], 2),
        "naive": naive,
        "faster_than_naive": round(naive["loop"]["all"] / seconds["ours, counting apart"]["median"]),
        "faster_than_listing": round(naive["listing"]["all"] / seconds["ours, counting apart"]["median"]),
    }


def encoding(name: str, lines: list[str], fresh, library) -> dict:
    """Encode lines with ours, cold and warm, and with the library, one by one and as a batch."""
    kept = fresh()

    def ours(tokenizer):
        return [tokenizer.pieces(line) for line in lines]

    ours(kept)
    seconds, found = in_turn(
        {
            "ours, cold": lambda: ours(fresh()),
            "ours, warm": lambda: ours(kept),
            "tokenizers, line by line": lambda: [library.encode(line, add_special_tokens=False) for line in lines],
            "tokenizers, as a batch": lambda: library.encode_batch(lines, add_special_tokens=False),
        }
    )
    pairs = list(zip(found["ours, cold"], found["tokenizers, line by line"], strict=True))
    result = {
        "lines": len(lines),
        "not_ascii": sum(not line.isascii() for line in lines),
        "tokens": sum(len(pieces) for pieces in found["ours, cold"]),
        "other_ids": sum([i for i, _, _ in pieces] != theirs.ids for pieces, theirs in pairs),
        "other_offsets": sum([(s, e) for _, s, e in pieces] != theirs.offsets for pieces, theirs in pairs),
        "hundred_sha256": digest(
            [[(i, *span) for i, span in zip(t.ids, t.offsets, strict=True)] for _, t in pairs[:100]]
        ),
        "seconds": seconds,
    }
    print(name, result, flush=True)
    return result


def main() -> None:
    """Measure, compare, record."""
    texts = [speech.text for speech in data.sotu()]
    bpe = training(texts)
    print(bpe, flush=True)
    half = LINES // 2
    lines = [line for text in texts for line in text.splitlines() if line.strip()][:half]
    reviews = (line for review in data.reviews("imdb").test for line in review.text.splitlines() if line.strip())
    lines += [next(reviews) for _ in range(half)]
    wordpiece = encoding(
        "wordpiece", lines, lambda: read_wordpieces(VOCABULARY), BertWordPieceTokenizer(str(VOCABULARY))
    )
    trained = train_byte_bpe(texts, MERGES)
    library = Tokenizer(models.BPE(vocab=trained.ids, merges=[tuple(pair) for pair in trained.state["merges"]]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_ = encoding("byte-level BPE", lines, lambda: ByteBPE(trained.state["merges"]), library)
    save(
        "subword_tokenizers",
        tokenizers=version("tokenizers"),
        repeats=REPEATS,
        bpe=bpe,
        wordpiece=wordpiece,
        byte_bpe=bytes_,
    )


if __name__ == "__main__":
    main()
