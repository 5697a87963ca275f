"""Tokenizers: merges and segmentations worked out by hand; what is refused, each with a sentence on what to do."""

import json
import pickle
import time
from math import inf, log

import pytest
import torch

from lrm_utils.models.bpe_and_wordpiece import (
    BERT_SPECIALS,
    BYTE_TO_CHAR,
    GPT2,
    ByteBPE,
    PairIndex,
    Unigram,
    WordPiece,
    apply_merges,
    bert_words,
    encode_batch,
    expected_counts,
    gain_per_place,
    learn_merges,
    learn_wordpieces,
    load_tokenizer,
    longest_match,
    merge_pair,
    prune,
    read_byte_bpe,
    read_wordpieces,
    save_tokenizer,
    train_byte_bpe,
    train_unigram,
    train_wordpiece,
    viterbi,
    whole_gain,
)

TOY = {"fast_": 4, "faster_": 3, "tall_": 5, "taller_": 4}
D2L = "t a,ta l,tal l,f a,fa s,fas t,e r,er _,tall _,fast _"
TEXT = "gold and silver, and gold again; the golden age of gold and of silver\n" * 3


def ranks(written):
    return {tuple(pair.split()): rank for rank, pair in enumerate(written.split(","))}


def byte_bpe(specials=("<|endoftext|>", "<|pad|>")):
    return train_byte_bpe(TEXT, 275 + len(specials), specials)


def wordpiece(**options):
    pieces = "gold ##en silver un ##able a b c ##a ##b ##c [ ] sep cafe".split()
    return WordPiece([*BERT_SPECIALS, *pieces], **options)


def unigram():
    return Unigram(["<unk>", "<pad>", "▁", "a", "b", "▁ab", "ba"], [0, 0, -3, -2, -2, -4, -3.5])


def test_the_merges_of_the_toy_text_under_the_rule_for_equals():
    found = [" ".join(pair) for pair in learn_merges(TOY)]
    expected = "a l,t al,tal l,a s,e r,f as,er _,fas t,tall _,tall er_,fast _,fast er_"
    assert found == expected.split(",")


@pytest.mark.parametrize(
    "word,pieces",
    [("tallest_", "tall e s t _"), ("fatter_", "fa t t er_"), ("faster_", "fast er_"), ("x", "x"), ("", "")],
)
def test_new_words_are_segmented_by_rank(word, pieces):
    assert apply_merges(word, ranks(D2L)) == pieces.split()


def test_the_lowest_rank_goes_first_wherever_it_stands():
    assert apply_merges("abc", ranks("b c,a b")) == ["a", "bc"]
    assert apply_merges("abc", ranks("a b,b c")) == ["ab", "c"]


@pytest.mark.parametrize("word,merged", [("aaa", "aa a"), ("aaaa", "aa aa"), ("abaab", "a b aa b"), ("b", "b")])
def test_pairs_are_merged_from_left_to_right_without_overlap(word, merged):
    assert merge_pair(list(word), ("a", "a")) == merged.split()


def test_bananas():
    """The exercise: counts of overlapping places, and an equal that the smaller left number wins."""
    words = {"banana": 3, "bandana": 2}
    index = PairIndex(words)
    assert index.count[index.ids["a"], index.ids["n"]] == 10
    assert learn_merges(words, 3) == [("a", "n"), ("b", "an"), ("an", "a")]


def test_a_pair_that_comes_and_goes_within_one_merge_is_never_merged():
    """abab: the first ab makes ab a, which the second one undoes."""
    assert learn_merges({"abab": 1}) == [("a", "b"), ("ab", "ab")]


def test_longest_match_takes_the_longest_first_and_fails_where_nothing_fits():
    assert longest_match("unable", {"un", "unab", "able", "l", "e"}) == ["unab", "l", "e"]
    assert longest_match("unable", {"un", "##able"}, "##") == ["un", "##able"]
    assert longest_match("unable", {"un", "able"}, "##") is None
    assert longest_match("abcd", {"abcd", "ab", "cd"}, longest=2) == ["ab", "cd"]


def test_wordpiece_merges_what_gains_most_in_all_or_at_each_place():
    """N = 326; t h gains 90 log(326 * 90 / (140 * 110)) = 58, t e 42, s h 22, q u 14 (3 places, 4.7 each)."""
    words = {("q", "##u"): 3, ("t", "##h"): 90, ("t", "##e"): 50, ("s", "##h"): 20}
    assert learn_wordpieces(words, 1) == ["th"]
    assert learn_wordpieces(words, 1, score=gain_per_place) == ["qu"]
    assert learn_wordpieces(words, 1, min_count=4, score=gain_per_place) == ["sh"]
    assert whole_gain(90, 140, 110, 326) == pytest.approx(90 * log(326 * 90 / 140 / 110))


def test_the_bytes_have_gpt2s_characters():
    assert [BYTE_TO_CHAR[byte] for byte in (32, 10, 33, 126, 127, 161, 173, 255)] == list("ĠĊ!~ġ¡Ńÿ")


@pytest.mark.parametrize(
    "text,chunks",
    [
        ("It's we'll", ["It", "'s", " we", "'ll"]),
        ("a  b", ["a", " ", " b"]),
        ("a \n b", ["a", " \n", " b"]),
        ("in 1862, ½", ["in", " 1862", ",", " ½"]),
        ("x_1\x1cy", ["x", "_", "1", "\x1c", "y"]),
        ("Ⅷth café 日本", ["Ⅷ", "th", " café", " 日本"]),
        ("e\u0301 ok  ", ["e", "\u0301", " ok", "  "]),
    ],
)
def test_chunks_are_those_of_gpt2(text, chunks):
    assert GPT2.findall(text) == chunks


def test_offsets_of_split_characters_cover_the_whole_character():
    pieces = ByteBPE([]).pieces("aé👍")
    assert [(start, end) for _, start, end in pieces] == [(0, 1), (1, 2), (1, 2)] + [(2, 3)] * 4


def test_half_of_a_character_decodes_to_the_replacement_mark():
    bare = ByteBPE([])
    assert bare.decode(bare.encode("é")[:1]) == "�"


@pytest.mark.parametrize("make", [byte_bpe, wordpiece, unigram], ids=["bytes", "wordpiece", "unigram"])
def test_special_tokens_come_out_of_text_only_if_allowed(make):
    tokenizer = make()
    special = tokenizer.specials[0]
    text = f"ab {special} ba{special}"
    assert not set(tokenizer.encode(text)) & tokenizer.signals
    assert tokenizer.unknown not in tokenizer.signals and tokenizer.pad in tokenizer.signals
    allowed = tokenizer.pieces(text, specials=True)
    spans = [text[start:end] for i, start, end in allowed if i == tokenizer.id(special)]
    assert spans == [special, special]


def test_the_longest_special_token_wins():
    tokenizer = byte_bpe(("<|a|>", "<|a|><|b|>"))
    assert tokenizer.encode("<|a|><|b|>", specials=True) == [1]


def test_special_tokens_are_cut_out_of_the_training_text():
    merges = train_byte_bpe("xy<|endoftext|><|endoftext|>" * 50, 259).state["merges"]
    assert merges == [("x", "y")]  # although every pair inside the special token occurs twice as often


def test_decoding_can_leave_special_tokens_out():
    tokenizer = byte_bpe()
    ids = [*tokenizer.encode("gold"), tokenizer.id("<|endoftext|>")]
    assert tokenizer.decode(ids) == "gold<|endoftext|>"
    assert tokenizer.decode(torch.tensor(ids), specials=False) == "gold"


def test_batches_are_cut_and_filled_and_keep_their_ends():
    tokenizer = wordpiece()
    ids, lengths = encode_batch(tokenizer, ["golden", "golden silver unable"], 5, "[CLS]", "[SEP]")
    assert [[tokenizer.tokens[i] for i in row] for row in ids] == [
        ["[CLS]", "gold", "##en", "[SEP]", "[PAD]"],
        ["[CLS]", "gold", "##en", "silver", "[SEP]"],
    ]
    assert lengths.tolist() == [4, 5] and ids.dtype == torch.int64
    ids, lengths = encode_batch(tokenizer, ["", "gold"])
    assert ids.tolist() == [[0], [tokenizer.id("gold")]] and lengths.tolist() == [0, 1]


def test_bert_normalizes_and_remembers_where_characters_came_from():
    assert bert_words("\x00CAF\u00c9,x\u200bY日Σ") == [
        ("cafe", [1, 2, 3, 4]),
        (",", [5]),
        ("xy", [6, 8]),
        ("日", [9]),
        ("σ", [10]),
    ]
    assert bert_words("CAFÉ", lower=False) == [("CAFÉ", [0, 1, 2, 3])]
    assert bert_words("e\u0301\ufffd") == [("e", [0])]


def test_wordpiece_segments_and_points_into_the_text():
    tokenizer, text = wordpiece(), " Golden\tUNABLE, café xyz\x0bab"
    pieces = [(tokenizer.tokens[i], text[start:end]) for i, start, end in tokenizer.pieces(text)]
    assert pieces == [
        ("gold", "Gold"),
        ("##en", "en"),
        ("un", "UN"),
        ("##able", "ABLE"),
        ("[UNK]", ","),
        ("cafe", "café"),
        ("[UNK]", "xyz\x0bab"),
    ]
    assert tokenizer.decode(tokenizer.encode("golden unable")) == "golden unable"


def test_words_above_a_hundred_characters_are_unknown():
    tokenizer = wordpiece()
    assert len(tokenizer.encode("a" * 100)) == 100
    assert tokenizer.pieces("a" * 101) == [(tokenizer.id("[UNK]"), 0, 101)]


def test_a_vocabulary_file_gives_line_numbers_as_ids(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*BERT_SPECIALS, "gold", "##en"]) + "\n")
    tokenizer = read_wordpieces(tmp_path / "vocab.txt")
    assert len(tokenizer) == 7 and tokenizer.encode("golden") == [5, 6]


def test_viterbi_by_hand():
    scores = {"a": log(0.3), "b": log(0.2), "ab": log(0.1), "ba": log(0.4)}
    assert viterbi("aba", scores, -99, 2) == (pytest.approx(log(0.3 * 0.4)), ["a", "ba"])
    assert viterbi("aab", scores, -99, 2)[1] == ["a", "ab"]
    assert viterbi("ax", scores, -99, 2)[1] == ["a", "x"]
    assert viterbi("ab", {"a": -1.0, "b": -1.0, "ab": -2.0}, -99, 2)[1] == ["ab"]  # of equals the first found
    assert viterbi("", scores, -99, 2) == (0.0, [])
    assert viterbi("x", scores, -inf, 2)[0] == -inf


def test_expected_counts_by_hand():
    """ab is a + b with 0.1 or ab with 0.3: three quarters of the time it is whole."""
    used, likelihood = expected_counts({"ab": 4}, {"a": 0.5, "b": 0.2, "ab": 0.3}, 2)
    assert used == pytest.approx({"a": 1.0, "b": 1.0, "ab": 3.0})
    assert likelihood == pytest.approx(4 * log(0.4))


def test_pruning_keeps_characters_and_what_would_be_missed():
    used = {"a": 0.0, "b": 5.0, "ab": 50.0, "ba": 1.0, "bb": 20.0}
    kept = prune(used, 3, 2)
    assert set(kept) == {"a", "b", "ab"} and sum(kept.values()) == pytest.approx(1) and kept["a"] > 0


def test_unigram_fuses_unknown_characters_and_covers_the_text():
    tokenizer = unigram()
    pieces = [(tokenizer.tokens[i], start, end) for i, start, end in tokenizer.pieces("ab xyb")]
    assert pieces == [("▁ab", 0, 2), ("▁", 3, 3), ("<unk>", 3, 5), ("b", 5, 6)]
    assert tokenizer.decode(tokenizer.encode(" ab  ba ")) == "ab ba"


@pytest.mark.parametrize("make", [byte_bpe, wordpiece, unigram], ids=["bytes", "wordpiece", "unigram"])
def test_a_tokenizer_is_read_back_as_it_was_written(tmp_path, make):
    tokenizer = make()
    save_tokenizer(tokenizer, tmp_path / "t.json")
    back = load_tokenizer(tmp_path / "t.json")
    assert type(back) is type(tokenizer) and back.tokens == tokenizer.tokens and back.specials == tokenizer.specials
    assert back.pieces(TEXT) == tokenizer.pieces(TEXT)
    assert [p.name for p in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.parametrize("kept", [0, 1, 20, 100, -1, -30])
def test_a_file_that_was_cut_off_is_refused(tmp_path, kept):
    save_tokenizer(byte_bpe(), tmp_path / "t.json")
    whole = (tmp_path / "t.json").read_bytes()
    (tmp_path / "t.json").write_bytes(whole[:kept])
    with pytest.raises(ValueError, match="t.json is no whole tokenizer file.*save it again"):
        load_tokenizer(tmp_path / "t.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d["state"]["merges"].pop(),
        lambda d: d["state"]["merges"].reverse(),
        lambda d: d["state"].update(specials=["<|other|>"]),
        lambda d: d.update(sha256="0" * 64),
        lambda d: d.update(kind="Wordpiece"),
        lambda d: d.pop("state"),
    ],
)
def test_a_file_that_was_changed_is_refused(tmp_path, damage):
    save_tokenizer(byte_bpe(), tmp_path / "t.json")
    content = json.loads((tmp_path / "t.json").read_text())
    damage(content)
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="t.json is no whole tokenizer file"):
        load_tokenizer(tmp_path / "t.json")


@pytest.mark.parametrize("content", [b"[]", b"3", b'"text"', b"\xff\xfe\x00", b"null"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(ValueError, match="no whole tokenizer file"):
        load_tokenizer(tmp_path / "t.json")


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path):
    save_tokenizer(byte_bpe(), tmp_path / "t.json")
    before, broken = (tmp_path / "t.json").read_bytes(), byte_bpe()
    broken.state["merges"] = [object()]
    with pytest.raises(TypeError):
        save_tokenizer(broken, tmp_path / "t.json")
    assert (tmp_path / "t.json").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["t.json"]


def test_the_file_gets_its_name_only_when_it_is_whole(tmp_path, monkeypatch):
    """A write that is interrupted half way leaves neither a new file nor its fragment."""
    from pathlib import Path

    plain = Path.write_text

    def interrupted(self, text, *rest, **options):
        plain(self, text[: len(text) // 2])
        raise OSError("disk full")

    save_tokenizer(byte_bpe(), tmp_path / "t.json")
    before = (tmp_path / "t.json").read_bytes()
    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(OSError, match="disk full"):
        save_tokenizer(wordpiece(), tmp_path / "t.json")
    assert (tmp_path / "t.json").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["t.json"]


@pytest.mark.parametrize(
    "work,message",
    [
        (lambda: learn_merges({}), "the corpus is empty"),
        (lambda: learn_merges({"ab": 0}), "count below 1"),
        (lambda: learn_merges(TOY, 13), "13 merges were asked for, and the text has 12: ask for fewer, or"),
        (lambda: learn_merges(TOY, -1), "-1 merges were asked for: ask for 0 or more"),
        (lambda: learn_wordpieces({("a", "##b"): 5}, 2), "2 merges were asked for, and the text has 1"),
        (lambda: train_byte_bpe([], 300), "the corpus is empty"),
        (lambda: train_byte_bpe(["", ""], 300), "the corpus is empty"),
        (lambda: train_wordpiece(["  \n"], 300), "the corpus is empty"),
        (lambda: train_unigram([], 300), "the corpus is empty"),
        (lambda: train_byte_bpe(TEXT, 256), "size=256 is too small: there are 256 bytes and 2 special"),
        (lambda: train_byte_bpe("ab", 300), "42 merges were asked for, and the text has 1"),
        (lambda: train_wordpiece(TEXT, 10), "size=10 is too small: .* characters and 5 special"),
        (lambda: train_unigram(TEXT, 5), "size=5 is not possible: the text has .* characters"),
        (lambda: train_unigram("ab", 500), "size=500 is not possible.* substrings to choose from"),
        (lambda: train_byte_bpe(["fine", "half \ud800"], 300), "character 5 is a lone surrogate"),
        (lambda: byte_bpe().encode("ab\udc80"), r"character 2 is a lone surrogate.*Mend the text.*surrogatepass"),
        (lambda: wordpiece().encode("\ud83d"), "lone surrogate"),
        (lambda: WordPiece([]), "the vocabulary is empty"),
        (lambda: WordPiece(["a", "b"]), r"'\[UNK\]' is not among the 2 tokens"),
        (lambda: WordPiece(BERT_SPECIALS), "the vocabulary is empty"),
        (lambda: WordPiece(["[UNK]", "a"]), r"'\[PAD\]' is not among the 2 tokens"),
        (lambda: WordPiece([*BERT_SPECIALS, "a", "a"]), "comes twice like 'a'"),
        (lambda: WordPiece([*BERT_SPECIALS, "a", ""]), "a token is empty"),
        (lambda: Unigram([], []), "the vocabulary is empty"),
        (lambda: Unigram(["<unk>", "<pad>", "a"], [0.0]), "3 tokens and 1 scores"),
        (lambda: Unigram(["<unk>", "<pad>", "a"], [0.0, 0.0, float("nan")]), "needs one, a finite number"),
        (lambda: Unigram(["a"], [0.0], specials=()), "'<unk>' is not among the 1 tokens"),
        (lambda: Unigram("abc", [0.0] * 3), "tokens='abc' is one string: put it into a list"),
        (lambda: train_byte_bpe(TEXT, 300, "<|e|>"), r"specials='<\|e\|>' is one string"),
        (lambda: ByteBPE([], "<|e|>"), r"specials='<\|e\|>' is one string"),
        (lambda: WordPiece([*BERT_SPECIALS, "a"], "[UNK]"), r"specials='\[UNK\]' is one string"),
        (lambda: ByteBPE([], tokens=["a"]), "tokens must be the special ones, the bytes, and what is merged"),
        (lambda: byte_bpe().encode(None), "a text is needed, a str, and this is of type NoneType"),
        (lambda: byte_bpe().encode(b"ab"), "a text is needed, a str, and this is of type bytes"),
        (lambda: wordpiece().pieces(3), "this is of type int"),
        (lambda: train_unigram([b"ab"], 9), "this is of type bytes"),
        (lambda: expected_counts({"abc": 1}, {"a": 0.5, "b": 0.5}, 3), "'abc' cannot be written with these tokens"),
        (lambda: encode_batch(byte_bpe(), "gold"), "texts='gold' is one string: put it into a list"),
        (lambda: encode_batch(byte_bpe(), ["", ""]), "all texts are empty: leave them out, or set length, first"),
        (lambda: byte_bpe().decode(torch.zeros(2, 3, dtype=torch.int64)), "several texts: decode one row at a time"),
        (lambda: byte_bpe().decode([[1], [2]]), "several texts: decode one row at a time"),
        (lambda: ByteBPE([("ab", "c")]), "no merge before makes 'ab'"),
        (lambda: ByteBPE([], specials=("a",)), "comes twice like 'a'.*<|a|>"),
        (lambda: byte_bpe().id("<|sep|>"), r"'<\|sep\|>' is not among the 277 tokens; .* <\|endoftext\|>"),
        (lambda: encode_batch(byte_bpe(), ["a"], last="[SEP]"), r"'\[SEP\]' is not among"),
        (lambda: encode_batch(byte_bpe(("<|endoftext|>",)), ["a"]), r"no token to fill up with: .*pad=….*endoftext"),
        (lambda: encode_batch(wordpiece(), ["a"], 2, "[CLS]", "[SEP]"), "length=2 leaves no room"),
        (lambda: encode_batch(wordpiece(), []), "nothing to pad"),
        (lambda: byte_bpe().decode([3, 277]), "277 is not the id of a token: 0 to 276 are"),
        (lambda: byte_bpe().decode([-1]), "-1 is not the id of a token"),
        (lambda: byte_bpe().decode([1.5]), "1.5 is not the id of a token"),
        (lambda: byte_bpe().decode(torch.tensor([10**9])), "1000000000 is not the id"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(work, message):
    with pytest.raises(ValueError, match=message):
        work()


def test_a_single_text_is_as_good_as_a_list_of_one():
    assert train_byte_bpe(TEXT, 270).tokens == train_byte_bpe([TEXT], 270).tokens
    assert train_byte_bpe(iter([TEXT]), 270).tokens == train_byte_bpe([TEXT], 270).tokens


def test_trained_sizes_are_what_was_asked_for():
    assert len(train_byte_bpe(TEXT, 280)) == 280
    assert len(train_wordpiece(TEXT, 44, min_count=1)) == 44
    assert len(train_unigram(TEXT, 60)) == 60


def test_a_special_token_without_marks_is_not_matched_by_wordpiece_either():
    tokenizer = WordPiece(["[UNK]", "end", "a", "##end"], specials=("[UNK]", "end"))
    assert tokenizer.encode("end aend") == [0, 2, 3]
    assert tokenizer.encode("end", specials=True) == [1]


def test_an_unknown_character_costs_more_than_any_token():
    tokenizer = Unigram(["<unk>", "<pad>", "▁", "a", "xa"], [0.0, 0.0, -1.0, -0.5, -8.0])
    assert [tokenizer.tokens[i] for i in tokenizer.encode("xa")] == ["▁", "xa"]


def test_decoding_without_signals_keeps_what_is_unknown():
    tokenizer = wordpiece()
    ids, _ = encode_batch(tokenizer, ["gold xyz"], 6, "[CLS]", "[SEP]")
    assert tokenizer.decode(ids[0]) == "[CLS] gold [UNK] [SEP] [PAD] [PAD]"
    assert tokenizer.decode(ids[0], specials=False) == "gold [UNK]"
    fallback = unigram()
    assert fallback.decode([*fallback.encode("ab x"), fallback.pad], specials=False) == "ab <unk>"


def test_padding_unknown_and_end_are_three_tokens():
    for tokenizer in (byte_bpe(), wordpiece(), unigram(), train_unigram(TEXT, 60), train_wordpiece(TEXT, 40)):
        assert tokenizer.pad is not None and tokenizer.pad != tokenizer.unknown
    ids, lengths = encode_batch(byte_bpe(), ["gold", "gold gold"], last="<|endoftext|>")
    assert ids.tolist()[0][-2:] == [0, 1] and lengths.tolist() == [2, 3]
    filled = ByteBPE([], ("<|endoftext|>",), pad="<|endoftext|>")  # as GPT-2 is used: only the lengths can tell
    ids, lengths = encode_batch(filled, ["a", "ab"], last="<|endoftext|>")
    assert ids.tolist()[0][1:] == [0, 0] and lengths.tolist() == [2, 3]


def test_a_batch_finds_special_tokens_in_the_text_only_if_told():
    tokenizer = byte_bpe()
    assert encode_batch(tokenizer, ["<|endoftext|>"], specials=True)[0].tolist() == [[0]]
    assert 0 not in encode_batch(tokenizer, ["<|endoftext|>"])[0]
    ids, lengths = encode_batch(wordpiece(), ["", ""], first="[CLS]")
    assert ids.tolist() == [[2], [2]] and lengths.tolist() == [1, 1]
    assert encode_batch(wordpiece(), [""], length=2)[0].tolist() == [[0, 0]]


@pytest.mark.parametrize("make", [byte_bpe, wordpiece, unigram], ids=["bytes", "wordpiece", "unigram"])
def test_encoding_stops_when_there_are_enough_tokens(make, monkeypatch):
    tokenizer, segmented = make(), []
    whole = tokenizer.encode("ab ba gold ab")
    fresh = make()
    plain = fresh.segment
    monkeypatch.setattr(fresh, "segment", lambda chunk: segmented.append(chunk) or plain(chunk))
    for length in range(len(whole) + 3):
        assert fresh.encode("ab ba gold ab", length=length) == whole[:length]
    segmented.clear()
    fresh.known.clear()
    fresh.encode("ab ba gold ab" * 1000, length=1)
    assert len(segmented) == 1


def test_a_long_run_without_spaces_is_segmented_in_time():
    """The loop over the whole run for each merge took seconds for 16,000 letters."""
    tokenizer = byte_bpe()
    text = "goldsilverand" * 2_000
    begin = time.process_time()
    ids = tokenizer.encode(text)
    assert time.process_time() - begin < 2 and tokenizer.decode(ids) == text
    assert not tokenizer.known  # long chunks are not remembered


def test_the_memory_of_chunks_is_not_pickled():
    tokenizer = byte_bpe()
    tokenizer.encode(TEXT)
    back = pickle.loads(pickle.dumps(tokenizer))
    assert tokenizer.known and not back.known and back.pieces(TEXT) == tokenizer.pieces(TEXT)


def test_no_numeral_lies_beyond_what_the_pattern_looks_at():
    import sys
    import unicodedata

    assert not [i for i in range(0x20000, sys.maxunicode + 1) if unicodedata.category(chr(i)) in ("Nl", "No")]


def test_the_longest_words_do_not_underflow():
    """48 letters of a rare script: the product of their shares is below what a float can hold."""
    rare = "αβγδεζηθικλμνξοπρστυφχψω" * 2
    for word in (rare, "".join(chr(0x4E00 + i) for i in range(49))):
        tokenizer = train_unigram([TEXT, word], 120)
        assert tokenizer.decode(tokenizer.encode(word)) == word
    used, likelihood = expected_counts({"ab" * 400: 2}, {"a": 1e-9, "b": 1e-7, "ab": 1e-17}, 2)
    assert likelihood == pytest.approx(2 * 400 * log(1e-16 + 1e-17))
    assert used == pytest.approx({"a": 800 / 1.1, "b": 800 / 1.1, "ab": 80 / 1.1})


def test_a_tokenizer_takes_iterators():
    pieces = [*BERT_SPECIALS, "gold"]
    assert WordPiece(iter(pieces), iter(BERT_SPECIALS)).tokens == tuple(pieces)
    assert ByteBPE(iter([("a", "b")]), iter(["<|e|>"])).tokens[0] == "<|e|>"


def test_a_tokenizer_says_what_it_is():
    assert repr(wordpiece()).startswith("WordPiece(20 tokens, special: ('[PAD]',")


def test_a_vocabulary_file_may_have_a_mark_in_front_and_blank_lines_at_the_end(tmp_path):
    plain = "\n".join([*BERT_SPECIALS, "gold", "##en"])
    (tmp_path / "vocab.txt").write_text("\ufeff" + plain + "\n\n", encoding="utf-8")
    assert read_wordpieces(tmp_path / "vocab.txt").encode("golden") == [5, 6]
    (tmp_path / "vocab.txt").write_text(plain.replace("gold", "\ngold"), encoding="utf-8")
    with pytest.raises(ValueError, match="line 6 of vocab.txt is empty: the number of a line is the id"):
        read_wordpieces(tmp_path / "vocab.txt")


def gpt2_files(folder, vocabulary, merges):
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    return folder / "vocab.json", folder / "merges.txt"


def test_the_order_of_ids_is_that_of_the_files(tmp_path):
    """GPT-2's own order: bytes, merges, and the special token last."""
    tokens = [*BYTE_TO_CHAR.values(), "ab", "##", "<|endoftext|>"]
    files = gpt2_files(tmp_path, {t: i for i, t in enumerate(tokens)}, ["#version: 0.2", "a b", "# #"])
    tokenizer = read_byte_bpe(*files, pad="<|endoftext|>")
    assert tokenizer.specials == ("<|endoftext|>",) and tokenizer.id("<|endoftext|>") == tokenizer.pad == 258
    assert tokenizer.encode("ab##!<|endoftext|>", specials=True) == [256, 257, 0, 258]
    save_tokenizer(tokenizer, tmp_path / "t.json")
    back = load_tokenizer(tmp_path / "t.json")
    assert back.ids == tokenizer.ids and back.pad == 258


@pytest.mark.parametrize("merges", [["a b", "ab"], ["a b c"], ["a b", "", "b c"]])
def test_files_of_gpt2_that_are_not_whole_are_refused(tmp_path, merges):
    tokens = [*BYTE_TO_CHAR.values(), "ab"]
    with pytest.raises(ValueError, match="no whole vocabulary: each line of the merges needs two tokens"):
        read_byte_bpe(*gpt2_files(tmp_path, {t: i for i, t in enumerate(tokens)}, merges))
    with pytest.raises(ValueError, match="the 257 tokens the ids from 0 on"):
        read_byte_bpe(*gpt2_files(tmp_path, {t: i + 1 for i, t in enumerate(tokens)}, ["a b"]))


def test_what_could_not_be_read_back_is_not_written(tmp_path):
    class Mine(ByteBPE):
        pass

    with pytest.raises(ValueError, match="a Mine could not be read back: save a ByteBPE or a WordPiece or a Unigram"):
        save_tokenizer(Mine([]), tmp_path / "t.json")
    assert not list(tmp_path.iterdir())


def test_a_file_with_a_key_too_many_or_too_deep_is_refused(tmp_path):
    from lrm_utils.models.bpe_and_wordpiece import digest

    state = dict(byte_bpe().state, extra=1)
    (tmp_path / "t.json").write_text(json.dumps({"kind": "ByteBPE", "sha256": digest(state), "state": state}))
    with pytest.raises(ValueError, match="t.json is no whole tokenizer file.*extra"):
        load_tokenizer(tmp_path / "t.json")
    (tmp_path / "t.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match="t.json is no whole tokenizer file"):
        load_tokenizer(tmp_path / "t.json")


def test_someone_elses_unfinished_file_is_left_alone(tmp_path):
    (tmp_path / "t.json.partial").write_text("another's")
    save_tokenizer(byte_bpe(), tmp_path / "t.json")
    assert (tmp_path / "t.json.partial").read_text() == "another's"
