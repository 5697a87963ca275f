"""Every full-size reader, on a tiny file in the official layout, and on the originals when LRM_DATA points to them.

`LRM_DATA=folder pytest tests/unit/test_data_published.py` runs the second half; a repacked copy is as good.
"""

import io
import json
import os
import re
import tarfile
import zipfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from lrm_utils import data
from lrm_utils.data import fetch
from lrm_utils.data.published import Answer, InferencePair, Translation

ORIGINALS = os.environ.get("LRM_DATA")  # read before a test changes it

pytestmark = pytest.mark.filterwarnings("ignore:.*does not hold the published.*:UserWarning")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LRM_DATA", str(tmp_path))
    return tmp_path


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


# --------------------------------------------------------------------------------------- tiny files, official layout
def test_ptb_is_lines_of_words(folder):
    write_zip(
        folder / "ptb.zip",
        {
            "ptb/ptb.train.txt": " aer banknote berlitz \n pierre <unk> N years old \n",
            "ptb/ptb.valid.txt": " consumers may want \n",
            "ptb/ptb.test.txt": " no it was n't black monday \n",
        },
    )
    corpus = data.ptb()
    assert corpus.train == (("aer", "banknote", "berlitz"), ("pierre", "<unk>", "N", "years", "old"))
    assert corpus.validation == (("consumers", "may", "want"),)
    assert corpus.test[0][3] == "n't"


def test_wikitext2_is_paragraphs_without_empty_lines(folder):
    page = " \n = Gold = \n \n Gold is a metal . It shines . \n Second paragraph\u2028goes on . \n"
    write_zip(folder / "wikitext-2-v1.zip", {f"wikitext-2/wiki.{p}.tokens": page for p in ("train", "valid", "test")})
    corpus = data.wikitext2()
    assert corpus.train[0] == ("=", "Gold", "=")
    assert len(corpus.train) == 3 and corpus.test == corpus.validation == corpus.train


def test_aclimdb_reads_train_and_test_and_nothing_else(folder):
    members = {
        "aclImdb/README": b"about",
        "aclImdb/imdbEr.txt": b"0.1",
        "aclImdb/train/urls_pos.txt": b"http://",
        "aclImdb/test/neg/0_2.txt": b"Bad.<br /><br />Very bad.",
        "aclImdb/test/pos/0_10.txt": "Fin. Café.".encode(),
        "aclImdb/train/neg/10_1.txt": b"late",
        "aclImdb/train/pos/9_7.txt": b"good",
        "aclImdb/train/neg/9_4.txt": b"poor",
        "aclImdb/train/pos/10_9.txt": b"fine",
        "aclImdb/train/unsup/0_0.txt": b"no label",
        "aclImdb/train/labeledBow.feat": b"9 0:1",
    }
    with tarfile.open(folder / "aclImdb_v1.tar.gz", "w:gz") as archive:
        directory = tarfile.TarInfo("aclImdb")
        directory.type = tarfile.DIRTYPE
        archive.addfile(directory)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    reviews = data.aclimdb()
    assert [(r.text, r.label) for r in reviews.train] == [("poor", 0), ("good", 1), ("late", 0), ("fine", 1)]
    assert [(r.text, r.label) for r in reviews.test] == [("Bad.\n\nVery bad.", 0), ("Fin. Café.", 1)]
    assert repr(reviews) == "ImdbReviews(train=4, test=2)"


SNLI = (
    "gold_label\tsentence1_binary_parse\tsentence1\tsentence2\tpairID\n"
    'neutral\t( a b )\tA man sings.\tA "man" sings well.\t1\n'
    "-\t\tA man sings.\tNobody agrees.\t2\n"
    'entailment\t\t"A man sings.\tA man makes noise.\t3\n'
)


def test_snli_finds_columns_by_name_keeps_quotes_and_drops_pairs_without_a_label(folder):
    write_zip(folder / "snli_1.0.zip", {f"snli_1.0/snli_1.0_{part}.txt": SNLI for part in ("train", "dev", "test")})
    pairs = data.snli()
    assert (
        pairs.train
        == pairs.validation
        == pairs.test
        == (
            InferencePair("A man sings.", 'A "man" sings well.', "neutral"),
            InferencePair('"A man sings.', "A man makes noise.", "entailment"),
        )
    )


def test_snli_without_its_columns_is_an_error_that_names_them(folder):
    broken = SNLI.replace("sentence2", "second")
    write_zip(folder / "snli_1.0.zip", {f"snli_1.0/snli_1.0_{part}.txt": broken for part in ("train", "dev", "test")})
    with pytest.raises(data.DataUnavailable, match="snli_1.0_train.txt has no column sentence2"):
        data.snli()


CONTEXT = "Gold was found in California in 1848."
SQUAD = json.dumps(
    {
        "version": "1.1",
        "data": [
            {
                "title": "Gold",
                "paragraphs": [
                    {
                        "context": CONTEXT,
                        "qas": [
                            {"id": "q1", "question": "  When?", "answers": [{"answer_start": 32, "text": "1848"}] * 2},
                        ],
                    }
                ],
            }
        ],
    }
)


@pytest.mark.parametrize(("part", "file"), [("train", "train-v1.1.json"), ("validation", "dev-v1.1.json")])
@pytest.mark.parametrize("packed", [False, True])
def test_squad_answers_are_spans_of_their_paragraph(folder, part, file, packed):
    if packed:
        write_zip(folder / f"squad-v1.1-{file.split('-')[0]}.zip", {file: SQUAD})
    else:
        (folder / file).write_text(SQUAD)
    (article,) = data.squad(part)
    (paragraph,) = article.paragraphs
    (question,) = paragraph.questions
    assert (article.title, paragraph.text, question.text) == ("Gold", CONTEXT, "When?")
    assert question.answers == (Answer("1848", 32),) * 2
    assert paragraph.text[32:36] == "1848"


def test_squad_has_no_test_part():
    with pytest.raises(ValueError, match="'test'; choose one of train, validation"):
        data.squad("test")


CONLLU = """# sent_id = 1
# text = Don't panic
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t3:aux\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t3:advmod\t_
3\tpanic\tpanic\tVERB\tVB\t_\t0\troot\t0:root\t_
3.1\tnow\tnow\tADV\tRB\t_\t_\t_\t3:advmod\t_

# sent_id = 2
1\t"\t''\tPUNCT\t''\t_\t0\troot\t0:root\t_

"""


@pytest.mark.parametrize("packed", [False, True])
def test_ud_english_skips_contractions_and_unwritten_words(folder, packed):
    files = {f"en_ewt-ud-{part}.conllu": CONLLU for part in ("train", "dev", "test")}
    if packed:
        write_zip(folder / "ud_english_ewt.zip", files)
    else:
        for name, content in files.items():
            (folder / name).write_text(content)
    bank = data.ud_english()
    first, second = bank.validation
    assert first.words == ("Do", "n't", "panic")
    assert first.tags == ("AUX", "PART", "VERB")
    assert first.lemmas == ("do", "not", "panic")
    assert second.words == ('"',)
    assert bank.train == bank.validation == bank.test


def test_fra_eng_has_plain_spaces(folder):
    lines = "Go.\tVa !\nRun!\tCours\u202f!\tCC-BY 2.0 (France)\nI see.\tJe\u00a0vois.\n"
    write_zip(folder / "fra-eng.zip", {"fra-eng/fra.txt": lines, "fra-eng/_about.txt": "about"})
    assert data.fra_eng() == (("Go.", "Va !"), ("Run!", "Cours !"), ("I see.", "Je vois."))
    assert isinstance(data.fra_eng()[0], Translation)


ODD_TOKENS = ["the", '"', ",", "nan", "null", "1.5", "n/a", "'", "#", "\\", "ﬁ\u00a0x", "a\u2028b", "''"]


@pytest.mark.parametrize("dimensions", [50, 100])
def test_glove_6b_reads_odd_tokens_and_exact_numbers(folder, dimensions):
    matrix = np.random.default_rng(0).normal(size=(len(ODD_TOKENS), dimensions)).astype(np.float32)
    lines = [f"{word} {' '.join(map(str, row))}\n" for word, row in zip(ODD_TOKENS, matrix, strict=True)]
    write_zip(folder / "glove.6B.zip", {f"glove.6B.{dimensions}d.txt": "".join(lines)})
    vectors = data.glove_6b(dimensions)
    assert vectors.vocab.words == tuple(ODD_TOKENS)
    assert vectors.matrix.dtype == np.float32 and vectors.matrix.flags.c_contiguous
    np.testing.assert_array_equal(vectors.matrix, matrix)


def test_glove_6b_with_a_row_too_short_is_one_clear_error(folder):
    write_zip(folder / "glove.6B.zip", {"glove.6B.50d.txt": "the" + " 0.5" * 50 + "\nof" + " 0.5" * 49 + "\n"})
    with pytest.raises(data.DataUnavailable, match="glove.6B.zip is damaged .*delete it"):
        data.glove_6b(50)
    with pytest.raises(ValueError, match="50, 100, 200 or 300 dimensions, not 64"):
        data.glove_6b(64)


def lines_of(words, matrix, end="\n"):
    return "".join(f"{word} {' '.join(map(str, row))}{end}" for word, row in zip(words, matrix, strict=True))


def test_glove_6b_takes_the_single_table_when_the_large_archive_is_not_there(folder):
    small, large = np.random.default_rng(0).normal(size=(2, 1, 100)).astype(np.float32)
    write_zip(folder / "glove.6B.100d.zip", {"glove.6B.100d/vec.txt": lines_of(["the"], small)})
    np.testing.assert_array_equal(data.glove_6b(100).matrix, small)
    write_zip(folder / "glove.6B.zip", {"glove.6B.100d.txt": lines_of(["the"], large)})
    np.testing.assert_array_equal(data.glove_6b(100).matrix, large)


def test_glove_42b_reads_all_words_or_the_first(folder):
    matrix = np.random.default_rng(0).normal(size=(len(ODD_TOKENS), 300)).astype(np.float32)
    write_zip(folder / "glove.42B.300d.zip", {"glove.42B.300d/vec.txt": lines_of(ODD_TOKENS, matrix)})
    vectors = data.glove_42b()
    assert vectors.vocab.words == tuple(ODD_TOKENS)
    np.testing.assert_array_equal(vectors.matrix, matrix)
    assert data.glove_42b(limit=3).vocab.words == tuple(ODD_TOKENS[:3])
    assert data.glove_42b(limit=3).matrix.shape == (3, 300)
    with pytest.raises(ValueError, match="limit=0: ask for one word or more"):
        data.glove_42b(limit=0)


@pytest.mark.parametrize("end", ["\n", " \n"], ids=["plain", "with fastText's space"])
def test_fasttext_wiki_reads_below_its_header(folder, end):
    matrix = np.random.default_rng(0).normal(size=(len(ODD_TOKENS), 300)).astype(np.float32)
    content = f"{len(ODD_TOKENS)} 300\n" + lines_of(ODD_TOKENS, matrix, end)
    write_zip(folder / "wiki.en.zip", {"wiki.en/vec.txt": content})
    vectors = data.fasttext_wiki()
    assert vectors.vocab.words == tuple(ODD_TOKENS)
    assert vectors.matrix.dtype == np.float32 and vectors.matrix.flags.c_contiguous
    np.testing.assert_array_equal(vectors.matrix, matrix)
    assert len(data.fasttext_wiki(limit=2).vocab) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the" + " 0.5" * 300 + "\n", "does not begin with a header"),
        ("1 50\nthe" + " 0.5" * 300 + "\n", "does not begin with a header"),
        ("2 300\nthe" + " 0.5" * 300 + "\n", "holds 1 words, 2 were promised"),
        ("1 300\nthe" + " 0.5" * 299 + "\n", "is damaged"),
    ],
)
def test_fasttext_wiki_in_another_form_is_one_clear_error(folder, content, message):
    write_zip(folder / "wiki.en.zip", {"wiki.en/vec.txt": content})
    with pytest.raises(data.DataUnavailable, match=f"wiki.en.zip is damaged.*|{message}") as error:
        data.fasttext_wiki()
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["glove-6b-50d", "glove-6b-100d", "glove-42b-300d", "wiki-en"])
def test_tables_of_vectors_have_the_hashes_that_d2l_states(name):
    """The SHA-1 sums are those of DATA_HUB in d2l 1.0.3, which is read without importing it."""
    item = fetch.REGISTRY[name]
    source = Path(find_spec("d2l").submodule_search_locations[0], "torch.py").read_text()
    stated = re.search(rf"'{re.escape(item.file)}',\s*'([0-9a-f]{{40}})'", source)[1]
    assert item.hash == f"sha1:{stated}"
    assert all(url.startswith("https://d2l-data.s3") and url.endswith(f"/{item.file}") for url in item.urls)


def test_tinyshakespeare_is_one_text(folder):
    (folder / "tinyshakespeare.txt").write_bytes(b"First Citizen:\nBefore we proceed any further, hear me speak.\n")
    assert data.tinyshakespeare().startswith("First Citizen:\nBefore")


def test_a_folder_that_may_only_be_read_is_enough(folder):
    (folder / "tinyshakespeare.txt").write_bytes(b"First Citizen:\n")
    folder.chmod(0o555)
    try:
        assert data.tinyshakespeare() == "First Citizen:\n"
    finally:
        folder.chmod(0o755)
    assert [path.name for path in folder.iterdir()] == ["tinyshakespeare.txt"]


# --------------------------------------------------------------------------------------------------- the originals
@pytest.fixture
def originals(monkeypatch):
    """The folder with the originals; a test skips when its file is not there."""

    def need(*files):
        if not ORIGINALS:
            pytest.skip("LRM_DATA does not point to the original files")
        if not any((Path(ORIGINALS).expanduser() / file).is_file() for file in files):
            pytest.skip(f"LRM_DATA has no {files[0]}")
        monkeypatch.setenv("LRM_DATA", ORIGINALS)

    return need


def sizes(parts):
    return len(parts.train), len(parts.validation), len(parts.test)


def test_original_ptb(originals):
    originals("ptb.zip")
    corpus = data.ptb()
    assert sizes(corpus) == (42_068, 3_370, 3_761)
    counts = Counter(word for line in corpus.train for word in line)
    assert sum(n >= 10 for n in counts.values()) == 6_719


def test_original_wikitext2(originals):
    originals("wikitext-2-v1.zip")
    corpus = data.wikitext2()
    assert sizes(corpus) == (23_767, 2_461, 2_891)
    assert sum(map(len, corpus.train)) == 2_088_628 - 36_718  # the published count has an end mark for each line


def test_original_aclimdb(originals):
    originals("aclImdb_v1.tar.gz")
    reviews = data.aclimdb()
    for part in (reviews.train, reviews.test):
        assert Counter(r.label for r in part) == {0: 12_500, 1: 12_500}
    assert not any("<br" in r.text for r in reviews.train)


def test_original_snli(originals):
    originals("snli_1.0.zip")
    pairs = data.snli()
    assert sizes(pairs)[1:] == (9_842, 9_824) and len(pairs.train) in (549_367, 26_891)
    assert {p.label for p in pairs.test} == {"entailment", "neutral", "contradiction"}


def test_original_squad(originals):
    originals("dev-v1.1.json", "squad-v1.1-dev.zip")
    articles = data.squad("validation")
    paragraphs = [paragraph for article in articles for paragraph in article.paragraphs]
    assert len(articles) == 48
    assert sum(len(p.questions) for p in paragraphs) == 10_570
    for p in paragraphs:
        for answer in (a for q in p.questions for a in q.answers):
            assert p.text[answer.start : answer.start + len(answer.text)] == answer.text


def test_original_ud_english(originals):
    originals("en_ewt-ud-train.conllu", "ud_english_ewt.zip")
    bank = data.ud_english()
    assert sizes(bank) == (12_544, 2_001, 2_077)
    assert len({tag for s in bank.train for tag in s.tags}) == 17
    assert all(len(s.words) == len(s.tags) == len(s.lemmas) for s in bank.train)


def test_original_fra_eng(originals):
    originals("fra-eng.zip")
    pairs = data.fra_eng()
    assert len(pairs) == 167_130
    assert pairs[2] == ("Run!", "Cours !")
    assert all(p.english and p.french for p in pairs)
    assert not any("\u202f" in p.french or "\u00a0" in p.french for p in pairs)


def test_original_tinyshakespeare(originals):
    originals("tinyshakespeare.txt")
    assert len(data.tinyshakespeare()) == 1_115_394


def test_original_glove_6b(originals):
    originals("glove.6B.zip")
    vectors = data.glove_6b(50)
    np.testing.assert_array_equal(vectors.matrix, data.glove().matrix)
    assert vectors.vocab.words == data.glove().vocab.words


def test_registry_covers_every_reader():
    assert set(fetch.REGISTRY) == {
        "ptb",
        "wikitext-2",
        "aclimdb",
        "snli",
        "squad-train",
        "squad-dev",
        "ud-train",
        "ud-dev",
        "ud-test",
        "fra-eng",
        "glove-6b",
        "glove-6b-50d",
        "glove-6b-100d",
        "glove-42b-300d",
        "wiki-en",
        "tinyshakespeare",
    }
