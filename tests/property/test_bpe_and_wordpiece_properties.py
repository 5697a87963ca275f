"""Tokenizers on arbitrary text: nothing is lost, offsets point home, and fast algorithms find what slow ones do."""

import os
import subprocess
import sys
from collections import Counter
from math import exp, log

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lrm_utils.models.bpe_and_wordpiece import (
    BERT_SPECIALS,
    GPT2,
    ByteBPE,
    PairIndex,
    WordPiece,
    apply_merges,
    bert_words,
    expected_counts,
    gain_per_place,
    glue,
    learn_merges,
    learn_wordpieces,
    merge_everywhere,
    merge_pair,
    shares,
    train_byte_bpe,
    train_unigram,
    train_wordpiece,
    viterbi,
    whole_gain,
)

SPEECH = (
    """Fellow-Citizens of the Senate and House of Representatives: gold and silver coins, naïve cafés, "of the people",
the 1862 debt of $1,000,000, reauthorization, reauthorized, unauthorized; the peoples' government of the people.\n"""
    * 3
)
BYTES = train_byte_bpe(SPEECH, 340, ("<|endoftext|>", "<|pad|>"))
PIECES = train_wordpiece(SPEECH, 130, min_count=1)
SHARES = train_unigram(SPEECH, 130)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)  # any character but half ones
near_text = st.lists(
    st.sampled_from([*"aeé ,.'\n\t日👍🏽\u200f\u05d0\x00\x1c\u0301½_1", "the", " of", "<|pad|>", "[CLS]"])
)
any_text = text | near_text.map("".join)
words = st.dictionaries(st.text("abc", min_size=1, max_size=8), st.integers(1, 5), min_size=1, max_size=8)


@given(any_text)
@example("👩‍👩‍👧‍👦 שלום عليكم \u202e\x00\x7f\ufeff\U0010ffff")
@example("  \n\n \u3000 x\r\n")
def test_bytes_give_back_every_text(text):
    for specials in (False, True):
        assert BYTES.decode(BYTES.encode(text, specials)) == text
    assert ByteBPE([]).decode(ByteBPE([]).encode(text)) == text


@given(any_text)
def test_chunks_lose_nothing(text):
    assert "".join(GPT2.findall(text)) == text


@given(any_text)
def test_offsets_of_bytes_cover_the_text_in_order_and_their_bytes_hold_the_token(text):
    covered, place = set(), 0
    for i, start, end in BYTES.pieces(text):
        assert 0 <= start < end <= len(text) and start in (place, place - 1)  # they share a split character at most
        part = BYTES.decode([i])
        assert part == text[start:end] or "�" in part  # a part of a character covers the whole of it
        covered.update(range(start, end))
        place = end
    assert covered == set(range(len(text)))


@given(any_text)
def test_offsets_of_wordpieces_point_at_what_was_normalized_to_the_token(text):
    pieces, place = PIECES.pieces(text), 0
    for i, start, end in pieces:
        assert place <= start < end <= len(text)
        place = end if not 0xAC00 <= ord(text[end - 1]) <= 0xD7A3 else start  # a Korean syllable is several characters
        token = PIECES.tokens[i]
        if token != "[UNK]":
            normalized = "".join(word for word, _ in bert_words(text[start:end]))
            assert token.removeprefix("##") in (normalized, token) and normalized
            assert normalized == token.removeprefix("##")


@given(any_text)
def test_no_special_token_comes_out_of_plain_text(text):
    assert not set(BYTES.encode(text)) & BYTES.signals
    assert not set(PIECES.encode(text)) & PIECES.signals
    assert not set(SHARES.encode(text)) & SHARES.signals


@given(any_text, any_text)
def test_special_tokens_are_never_split_and_their_neighbors_are_as_without_them(before, after):
    special = BYTES.id("<|endoftext|>")
    found = BYTES.encode(before + "<|endoftext|>" + after, specials=True)
    if not any(s in before + "#" + after for s in BYTES.specials):
        assert found == [*BYTES.encode(before), special, *BYTES.encode(after)]
    assert special in found


@given(any_text)
def test_unigram_gives_back_words_that_it_can_spell(text):
    known = " ".join("".join(c for c in word if c in SHARES.scores and c != "▁") for word in text.split())
    known = " ".join(known.split())
    assert SHARES.decode(SHARES.encode(known)) == known


@given(any_text)
def test_remembering_chunks_changes_nothing(text):
    fresh = ByteBPE(BYTES.state["merges"], BYTES.specials)
    assert fresh.pieces(text) == BYTES.pieces(text) == BYTES.pieces(text)


def count(text):
    """How often each pair of neighbors and each symbol occurs."""
    pairs, single = Counter(), Counter()
    for word, n in text:
        for pair in zip(word, word[1:], strict=False):
            pairs[pair] += n
        for symbol in word:
            single[symbol] += n
    return pairs, single


def numbers(words):
    """Symbols by code point."""
    return {symbol: i for i, symbol in enumerate(sorted({s for word in words for s in word}))}


def naive_merges(words, number):
    """Segment everything by the ranks so far, count everything anew, and take the best."""
    place, ranks = numbers(words), {}
    while len(place) < len(numbers(words)) + number:
        pairs, _ = count([(apply_merges(word, ranks), n) for word, n in words.items()])
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], place[p[0]], place[p[1]]))
        assert best not in ranks
        ranks[best] = len(ranks)
        place.setdefault("".join(best), len(place))
    return list(ranks)


def naive_wordpieces(words, min_count, score):
    """Count everything anew for each merge, and take the best by score."""
    text, place = [(list(word), n) for word, n in words.items()], numbers(words)
    total = count(text)[1].total()
    while True:
        pairs, single = count(text)
        able = [p for p in pairs if pairs[p] >= min_count]
        if not able:
            return list(place)[len(numbers(words)) :]
        best = min(able, key=lambda p: (-score(pairs[p], single[p[0]], single[p[1]], total), place[p[0]], place[p[1]]))
        new = glue(*best)
        place.setdefault(new, len(place))
        text = [([new if s == "".join(best) else s for s in merge_pair(word, best)], n) for word, n in text]


@given(words)
@example({"aaaa": 1, "aaab": 2, "baaa": 1})
@example({"abab": 2, "babc": 1, "bcbc": 3})
def test_fast_merges_are_the_naive_ones(words):
    assert learn_merges(words) == naive_merges(words, 100)


@given(words, st.integers(0, 30))
@example({"aaaa": 1, "aaab": 2, "baaa": 1}, 3)
def test_ranks_reproduce_the_corpus(words, number):
    """Replay the training in an index: what it ends with is what applying the merges by rank gives."""
    merges = learn_merges(words)[:number]
    ranks, index = {pair: rank for rank, pair in enumerate(merges)}, PairIndex(words)
    for pair in merges:
        merge_everywhere(index, tuple(index.ids[symbol] for symbol in pair))
    trained = [[index.tokens[i] for i in word] for word in index.words]
    assert trained == [apply_merges(word, ranks) for word in words]


def naive_apply(symbols, ranks):
    """Of the pairs in the word, merge the one learned first, everywhere; repeat."""
    symbols = list(symbols)
    while known := [pair for pair in zip(symbols, symbols[1:], strict=False) if pair in ranks]:
        symbols = merge_pair(symbols, min(known, key=ranks.get))
    return symbols


@given(words, st.text("abcd", max_size=30))
@example({"aaaa": 1, "aaab": 2}, "aaaaaaabaaab")
@example({"abab": 1}, "ababababa")
def test_the_heap_segments_as_the_loop_does(words, new):
    ranks = {pair: rank for rank, pair in enumerate(learn_merges(words))}
    assert apply_merges(new, ranks) == naive_apply(new, ranks)


@given(words)
def test_fewer_merges_are_the_beginning_of_more(words):
    merges = learn_merges(words)
    for number in range(len(merges)):
        assert learn_merges(words, number) == merges[:number]


@given(words)
def test_no_two_merges_spell_the_same(words):
    """What is inside a symbol was merged as if it stood alone, so a spelling has one history."""
    spelled = ["".join(pair) for pair in learn_merges(words)]
    assert len(set(spelled)) == len(spelled)


@given(words, st.integers(1, 3), st.sampled_from([whole_gain, gain_per_place]))
def test_fast_wordpieces_are_the_naive_ones(words, min_count, score):
    marked = {(word[0], *("##" + c for c in word[1:])): n for word, n in words.items()}
    assert learn_wordpieces(marked, min_count=min_count, score=score) == naive_wordpieces(marked, min_count, score)


@given(words)
def test_the_index_counts_what_a_fresh_count_finds_after_every_merge(words):
    index = PairIndex(words)
    for pair in learn_merges(words):
        formed = merge_everywhere(index, tuple(index.ids[symbol] for symbol in pair))
        pairs, single = Counter(), Counter()
        for word, n in zip(index.words, index.times, strict=True):
            single.update({symbol: n * word.count(symbol) for symbol in set(word)})
            for found in zip(word, word[1:], strict=False):
                pairs[found] += n
        assert {p: n for p, n in index.count.items() if n} == pairs
        assert +index.symbol == +single
        assert all(index.ids["".join(pair)] in p for p in formed)
        for found in pairs:
            assert {
                w for w, word in enumerate(index.words) if found in zip(word, word[1:], strict=False)
            } <= index.where[found]


@given(words, st.randoms(use_true_random=False))
def test_the_order_of_the_words_is_of_no_account(words, random):
    shuffled = list(words.items())
    random.shuffle(shuffled)
    assert learn_merges(dict(shuffled)) == learn_merges(words)


PRINT_ALL = """
from tests_text import SPEECH
from lrm_utils.models.bpe_and_wordpiece import *
from lrm_utils.models.bpe_and_wordpiece import train_byte_bpe, train_wordpiece, train_unigram
import hashlib
for tokenizer in (train_byte_bpe(SPEECH, 340), train_wordpiece(SPEECH, 130, min_count=1), train_unigram(SPEECH, 130)):
    print(hashlib.sha256(repr((tokenizer.state, tokenizer.pieces(SPEECH))).encode()).hexdigest())
"""


def test_training_is_the_same_under_every_hash_seed(tmp_path):
    (tmp_path / "tests_text.py").write_text(f"SPEECH = {SPEECH!r}")
    printed = set()
    for seed in ("0", "1", "4711"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(tmp_path)}
        run = subprocess.run([sys.executable, "-c", PRINT_ALL], env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        printed.add(run.stdout)
    assert len(printed) == 1 and printed.pop().count("\n") == 3


def all_ways(word):
    yield [word]
    for cut in range(1, len(word)):
        yield from ([*rest, word[cut:]] for rest in all_ways(word[:cut]))


probabilities = st.dictionaries(st.text("ab", min_size=2, max_size=4), st.floats(0.01, 1), max_size=8).flatmap(
    lambda longer: st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(
        lambda single: {"a": single[0], "b": single[1]} | longer
    )
)


@given(st.text("ab", min_size=1, max_size=8), probabilities)
def test_viterbi_finds_the_best_of_all_ways(word, p):
    scores = {token: log(share) for token, share in p.items()}
    ways = [sum(scores[t] for t in way) for way in all_ways(word) if all(t in scores for t in way)]
    total, way = viterbi(word, scores, -50, 4)
    assert total == pytest.approx(max(ways)) and "".join(way) == word
    assert sum(scores[t] for t in way) == pytest.approx(total)


@given(st.dictionaries(st.text("ab", min_size=1, max_size=6), st.integers(1, 4), min_size=1, max_size=3), probabilities)
def test_expected_counts_are_sums_over_all_ways(words, p):
    expected, likelihood = Counter(), 0.0
    for word, n in words.items():
        ways = [way for way in all_ways(word) if all(t in p for t in way)]
        weight = [exp(sum(log(p[t]) for t in way)) for way in ways]
        likelihood += n * log(sum(weight))
        for way, share in zip(ways, weight, strict=True):
            for token in way:
                expected[token] += n * share / sum(weight)
    used, found = expected_counts(words, p, 4)
    assert found == pytest.approx(likelihood)
    assert {t: n for t, n in used.items() if n} == pytest.approx(dict(expected))


@given(st.dictionaries(st.text("ab", min_size=1, max_size=6), st.integers(1, 4), min_size=1, max_size=3), probabilities)
def test_em_never_lowers_the_likelihood(words, p):
    p, before = shares(p), -float("inf")
    for _ in range(5):
        used, likelihood = expected_counts(words, p, 4)
        assert likelihood >= before - 1e-9
        p, before = shares(used), likelihood


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30))
def test_wordpiece_with_all_letters_spells_every_plain_text(text):
    letters = [chr(i) for i in range(33, 127)]
    tokenizer = WordPiece([*BERT_SPECIALS, *letters, *("##" + c for c in letters)])
    assert tokenizer.decode(tokenizer.encode(text)).replace(" ", "") == text.lower().replace(" ", "")


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_merging_a_pair_leaves_none_of_it(symbols):
    merged = merge_pair(symbols, ("a", "b"))
    assert "".join(merged) == "".join(symbols)
    assert ("a", "b") not in zip(merged, merged[1:], strict=False)
