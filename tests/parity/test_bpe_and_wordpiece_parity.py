"""Hugging Face's tokenizers 0.23.3 learns the same merges and cuts texts at the same places; nothing is approximate.

The library's tables for BERT's normalization are older than Python's: characters that Unicode received since version 9
(mostly marks and punctuation of rare scripts) may be normalized differently, and random text avoids them. WordPiece is
compared for encoding only: the library's own trainer merges by count, ours by the gain of the chapter.
"""

import json
import random
import re
import unicodedata
from collections import Counter

import pytest

from lrm_utils import data
from lrm_utils.models.bpe_and_wordpiece import (
    BERT_SPECIALS,
    BPE_SPECIALS,
    encode_batch,
    learn_merges,
    read_byte_bpe,
    read_wordpieces,
    train_byte_bpe,
    train_unigram,
    train_wordpiece,
)

library = pytest.importorskip("tokenizers")
from tokenizers import BertWordPieceTokenizer, Tokenizer, models, pre_tokenizers, trainers  # noqa: E402

SPEECHES = [speech.text for speech in data.sotu()][::25]
FOREIGN = [
    "naïve café, “smart quotes” — 50¢ ½ Ⅷ ² x_1",
    "Ελληνικά ΣΟΦΟΣ, Русский ёж, עברית שלום, العربية",
    "日本語 テキスト 한국어 텍스트 漢字かな",
    "👍🏽 👩‍👩‍👧‍👦 🇨🇭 \u200f\u202e\x00\x07\x1c\x85\xa0\u3000\ufeff",
    "cafe\u0301 İstanbul ǅ ﬁ ß Ａ \u1e9e",
    "  leading,\ttabs\r\nand   trailing  ",
    "a" * 101 + " " + "b" * 100,
    "[CLS] is [SEP]arated [MASK]ed [UNK] <|endoftext|>",
    "",
]
OLD = unicodedata.ucd_3_2_0  # characters that every table knows


def random_texts(number, seed=0):
    """Texts of letters, spaces and any character of Unicode 3.2."""
    dice = random.Random(seed)
    known = [chr(i) for i in range(0x110000) if OLD.category(chr(i)) not in ("Cn", "Cs", "Co")]
    kinds = ("abcdeEXZ ,.!'s\n", known[:3000], "\t\x0b\x0c\x1c\u200b\u0301é日\u3000½²Ⅷ_", known)
    for _ in range(number):
        yield "".join(dice.choice(dice.choice(kinds)) for _ in range(dice.randrange(1, 14)))


def ids_and_offsets(pieces):
    return [i for i, _, _ in pieces], [(start, end) for _, start, end in pieces]


def library_merges(texts, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=[]))
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def test_the_merges_are_the_librarys_in_its_order():
    words = Counter(chunk for text in SPEECHES for chunk in re.findall(r"\w+|[^\w\s]+", text))
    theirs = library_merges(SPEECHES, 3_000 + len(set().union(*words)))
    assert learn_merges(words, 3_000) == theirs


@pytest.mark.parametrize("seed", range(20))
def test_merges_of_texts_full_of_equals_and_overlaps_are_the_librarys(seed):
    """Words of two and three letters: nearly all counts are equal, and pairs overlap all the time."""
    dice = random.Random(seed)
    texts = [" ".join("".join(dice.choices("aabc", k=dice.randrange(1, 9))) for _ in range(30))]
    words = Counter(texts[0].split())
    ours = learn_merges(words)
    assert library_merges(texts, 10_000) == ours


@pytest.fixture(scope="module")
def bytes_both():
    ours = train_byte_bpe(SPEECHES, 2_000)
    theirs = Tokenizer(models.BPE(vocab=ours.ids, merges=[tuple(pair) for pair in ours.state["merges"]]))
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return ours, theirs


def test_byte_level_training_is_the_librarys(bytes_both):
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2_000, show_progress=False, special_tokens=list(BPE_SPECIALS), initial_alphabet=alphabet
    )
    theirs.train_from_iterator(SPEECHES, trainer)
    assert theirs.get_vocab() == bytes_both[0].ids


@pytest.mark.parametrize("specials", [[], ["<|endoftext|>"], ["<s>", "<pad>"]], ids=["none", "one", "two"])
def test_files_that_the_library_wrote_give_its_ids(tmp_path, specials):
    """vocab.json and merges.txt, as GPT-2 comes in; its special token is last, the trainer's are first."""
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        show_progress=False,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    theirs.train_from_iterator(SPEECHES[:3], trainer)
    files = theirs.model.save(str(tmp_path))
    ours = read_byte_bpe(*files)
    assert ours.ids == theirs.get_vocab() and ours.specials == tuple(specials)
    for text in [*FOREIGN, *SPEECHES[3].splitlines(), *random_texts(300)]:
        found = theirs.encode(text)
        assert ids_and_offsets(ours.pieces(text, specials=True)) == (found.ids, found.offsets), text[:80]
    last = {t: i - len(specials) if t not in specials else 900 - len(specials) + i for t, i in ours.ids.items()}
    (tmp_path / "vocab.json").write_text(json.dumps(last))
    again = Tokenizer(models.BPE.from_file(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")))
    again.pre_tokenizer = theirs.pre_tokenizer
    moved = read_byte_bpe(*files)
    assert moved.encode(SPEECHES[3]) == again.encode(SPEECHES[3]).ids
    assert [moved.id(special) for special in specials] == list(range(900))[900 - len(specials) :]


@pytest.mark.parametrize("texts", [SPEECHES, FOREIGN, list(random_texts(2_000))], ids=["speeches", "foreign", "random"])
def test_byte_level_ids_and_offsets_are_the_librarys(bytes_both, texts):
    ours, theirs = bytes_both
    for text in texts:
        found = theirs.encode(text)
        assert ids_and_offsets(ours.pieces(text)) == (found.ids, found.offsets), text[:80]


@pytest.fixture(scope="module")
def bert_both():
    vocabulary = data.minilm_folder() / "vocab.txt"
    return read_wordpieces(vocabulary), BertWordPieceTokenizer(str(vocabulary))


def lines():
    for speech in SPEECHES[:4]:
        yield from speech.splitlines()
    for review in data.reviews("mr").test:
        yield review.text


@pytest.mark.parametrize("kind", ["lines", "foreign", "random"])
def test_wordpiece_ids_and_offsets_are_those_of_bert_tokenizers(bert_both, kind):
    ours, theirs = bert_both
    for text in {"lines": list(lines()), "foreign": FOREIGN, "random": list(random_texts(3_000))}[kind]:
        found = theirs.encode(text, add_special_tokens=False)  # the library always looks for special tokens
        assert ids_and_offsets(ours.pieces(text, specials=True)) == (found.ids, found.offsets), text[:80]


def test_wordpiece_without_lowercasing_is_the_librarys():
    vocabulary = data.minilm_folder() / "vocab.txt"
    ours, theirs = read_wordpieces(vocabulary, lower=False), BertWordPieceTokenizer(str(vocabulary), lowercase=False)
    for text in [*FOREIGN, *SPEECHES[0].splitlines()]:
        found = theirs.encode(text, add_special_tokens=False)
        assert ids_and_offsets(ours.pieces(text, specials=True)) == (found.ids, found.offsets), text[:80]


def test_batches_are_the_librarys(bert_both):
    ours, theirs = bert_both
    theirs.enable_truncation(24)
    theirs.enable_padding(length=24)
    texts = [text for text in lines() if text][:200]
    ids, lengths = encode_batch(ours, texts, 24, "[CLS]", "[SEP]")
    found = theirs.encode_batch(texts)
    theirs.no_truncation()
    theirs.no_padding()
    assert ids.tolist() == [encoding.ids for encoding in found]
    assert lengths.tolist() == [sum(encoding.attention_mask) for encoding in found]


def test_a_vocabulary_of_ours_serves_the_library_as_well(tmp_path):
    ours = train_wordpiece(SPEECHES, 800)
    (tmp_path / "vocab.txt").write_text("\n".join(ours.tokens) + "\n", encoding="utf-8")
    theirs = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"))
    assert ours.tokens[:5] == BERT_SPECIALS
    for text in [*FOREIGN, *list(lines())[:300]]:
        found = theirs.encode(text, add_special_tokens=False)
        assert ids_and_offsets(ours.pieces(text, specials=True)) == (found.ids, found.offsets), text[:80]


def test_viterbi_is_the_librarys_unigram_with_the_same_scores():
    """Ids only: the library lets a lone ▁ cover the first letter of its word, we let it cover nothing."""
    ours = train_unigram(SPEECHES, 900, distinct=2_000)
    theirs = Tokenizer(models.Unigram(list(zip(ours.tokens, ours.state["scores"], strict=True)), 0))
    marks = pre_tokenizers.Metaspace(prepend_scheme="always")
    theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks])
    texts = [*lines(), *FOREIGN, *random_texts(1_000)]
    for text in (text for text in texts if "▁" not in text):
        assert ours.encode(text) == theirs.encode(text).ids, text[:80]


def test_the_version_of_the_peer():
    assert library.__version__ == "0.23.3"
