"""Files that are broken are refused by line and reason; questions that cannot be answered say why; known answers."""

import gzip
import warnings

import numpy as np
import pytest

from lrm_utils import data
from lrm_utils.models.similarity_and_analogy import (
    WordSpace,
    analogies,
    analogies_by_product,
    analogy,
    association,
    effect,
    glove_to_word2vec,
    head,
    load_vectors,
    nearest,
    neighbors,
    odd_one_out,
    save_glove,
    sentence_vector,
    similarity,
    unit_rows,
    weat,
    with_unknown,
)
from lrm_utils.models.training_word2vec import load_word2vec, save_word2vec
from lrm_utils.text import Vocab, WordVectors


def vectors(**rows):
    """Word vectors from keywords."""
    return WordVectors(Vocab(tuple(rows), np.zeros(len(rows), dtype=np.int64)), np.array(list(rows.values()), float))


@pytest.fixture(scope="module")
def glove():
    return data.glove()


@pytest.fixture(scope="module")
def space(glove):
    return WordSpace(glove)


# ------------------------------------------------------------------------------------------------------------- files
BROKEN = [
    ("the 1 2\nof 3\n", None, "v, line 2: 1 fields follow the word; line 1 wants 2"),
    ("the 1 2\nof 3 4 5\n", None, "v, line 2: 3 fields follow the word; line 1 wants 2"),
    ("24 7 0.1 0.2\nof 0.3 0.4\n", None, "v, line 2: 2 fields follow the word; line 1 wants 3"),
    ("the 1 2\nof 3 4\nto\n", None, "v, line 3: 0 fields"),
    ("the 1 2\n\nof 3 4\n", None, "v, line 2: a word is missing: the line is blank, or has two spaces in a row"),
    ("the 1 2\nof 3 4\n\n", None, "v, line 3: .*the line is blank"),
    ("the 1 2\nof  3 4\n", None, "v, line 2: .*two spaces in a row"),
    ("the 1 2\nof 3  4\n", None, "v, line 2: .*two spaces in a row"),
    ("the  1 2\nof  3 4\n", None, "v, line 1: .*two spaces in a row"),
    ("the\t1\t2\nof\t3\t4\n", None, "v, line 1: no numbers end 'the.t1.t2': fields need one space between them"),
    ("the 0,1 0,2\n", None, "v, line 1: no numbers end 'the 0,1 0,2': .* decimals a point"),
    ("the 1 2\nof 3 four\n", None, "v, line 2: 'four' is no number"),
    ("the 1 2\nof 3 1_0\n", None, "v, line 2: '1_0' is no number"),
    ("the 1 2\nof nan 4\n", None, "v, line 2: 'of' has the number nan, which is not finite"),
    ("the 1 2\nof 3 inf\n", None, "v, line 2: 'of' has the number inf"),
    ("the 1 2\nof 3 -1e39\n", None, "v, line 2: 'of' has the number -1e.39, which is not finite in float32"),
    ("the 1 2\nof 3 4\nthe 5 6\n", None, "v, line 3: 'the' comes a second time; the first is line 1"),
    ("2 2\nthe 1 2\nthe 3 4\n", None, "v, line 3: 'the' comes a second time; the first is line 2"),
    ("the 1 2\nof 3 4", None, "v, line 2: the line has no end: the file was cut off"),
    ("the 1 2", None, "v, line 1: the line has no end"),
    ("", None, "v, line 1: the file is empty"),
    ("\n", None, "v, line 1: the file is empty, or its first line is"),
    ("the\n", None, "v, line 1: no numbers end 'the'"),
    ("the two\n", None, "v, line 1: no numbers end 'the two'"),
    (" 1 2\n", False, "v, line 1: a word is missing"),
    ("the 1 2\n", True, "v, line 1: a header was expected, words and width, and here is 'the 1 2'"),
    ("2\nthe 1 2\n", True, "v, line 1: a header was expected"),
    ("2 -2\nthe 1 2\n", True, "v, line 1: the header promises 2 words of width -2: that cannot be"),
    ("-2 2\nthe 1 2\n", None, "v, line 1: the header promises -2 words of width 2: that cannot be"),
    ("9 99999999999\nthe 1 2\n", None, "v, line 1: the header promises 9 words of width 99999999999: that cannot be"),
    ("0 2\n", None, "v, line 1: the header promises 0 words of width 2"),
    ("2 0\n", None, "v, line 1: the header promises 2 words of width 0"),
    ("3 2\nthe 1 2\nof 3 4\n", None, "v, line 4: the file ends, with 2 of 3 words"),
    ("1 2\nthe 1 2\nof 3 4\n", None, "v, line 3: 'of' is one word more than the 1 that were promised"),
    ("2 3\nthe 1 2\nof 3 4\n", None, "v, line 2: 2 fields follow the word; line 1 wants 3"),
    ("2 1\nthe 1 2\nof 3 4\n", None, "v, line 2: 2 fields follow the word; line 1 wants 1"),
    ("2 2\nthe 1 2\nof 3 4\n", False, "v, line 2: 2 fields follow the word; line 1 wants 1"),
]


@pytest.mark.parametrize(("content", "header", "message"), BROKEN)
def test_a_broken_file_is_refused_with_its_line_and_the_reason(tmp_path, content, header, message):
    (tmp_path / "v").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_vectors(tmp_path / "v", header=header)


@pytest.mark.parametrize("content", ["the 1 2\nof 3 4\n", "2 2\nthe 1 2\nof 3 4\n"])
def test_a_byte_order_mark_and_gzip_do_not_matter(tmp_path, content):
    for raw in (content.encode("utf-8-sig"), gzip.compress(content.encode())):
        (tmp_path / "v").write_bytes(raw)
        back = load_vectors(tmp_path / "v")
        assert back.vocab.words == ("the", "of") and back.matrix.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "v").write_bytes(raw[:-9])
    with pytest.raises(ValueError, match="v, line [1-4]: Compressed file ended"):
        load_vectors(tmp_path / "v")


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_a_limit_reads_the_first_words_and_no_more(tmp_path, binary):
    save_word2vec(TWO, tmp_path / "v", binary)
    with (tmp_path / "v").open("ab") as file:
        file.write(b"broken")
    one = load_vectors(tmp_path / "v", binary=binary, limit=1)
    assert one.vocab.words == ("one",) and one.matrix.tolist() == [[0, 1, 2]]
    assert load_vectors(tmp_path / "v", binary=binary, limit=2).vocab.words == ("one", "two")
    with pytest.raises(ValueError, match="v, (line 4|word 3): "):
        load_vectors(tmp_path / "v", binary=binary, limit=3)
    with pytest.raises(ValueError, match="limit=0: at least one word must be read"):
        load_vectors(tmp_path / "v", binary=binary, limit=0)


def test_a_limit_beyond_the_file_still_wants_what_the_header_promises(tmp_path):
    (tmp_path / "v").write_text("3 2\nthe 1 2\nof 3 4\n")
    assert len(load_vectors(tmp_path / "v", limit=2).vocab) == 2
    for limit in (3, 9):
        with pytest.raises(ValueError, match="v, line 4: the file ends, with 2 of 3 words"):
            load_vectors(tmp_path / "v", limit=limit)


def test_a_word_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    (tmp_path / "v").write_bytes(b"the 1 2\n\xff\xfe 3 4\n")
    with pytest.raises(ValueError, match="v, line 2: .*utf-8"):
        load_vectors(tmp_path / "v")


TWO = vectors(one=[0, 1, 2], two=[3, 4, 5])


@pytest.mark.parametrize("kept", [0, 2, 4, 6, 14, 20, 21, 24, 30, 35])
def test_a_binary_file_that_was_cut_off_is_refused_with_the_word(tmp_path, kept):
    save_word2vec(TWO, tmp_path / "v", binary=True)
    whole = (tmp_path / "v").read_bytes()
    assert load_vectors(tmp_path / "v", binary=True).vocab.words == ("one", "two") and len(whole) == 4 + 2 * 17
    (tmp_path / "v").write_bytes(whole[:kept])
    place = "line 1" if kept < 3 else "word 1" if kept < 20 else "word 2"
    with pytest.raises(ValueError, match=f"v, {place}: "):
        load_vectors(tmp_path / "v", binary=True)


def test_a_binary_file_with_a_nan_or_a_second_copy_names_the_word(tmp_path):
    for matrix, words, message in (
        ([[1, 2], [np.nan, 3]], ("a", "b"), "word 2: 'b' has the number nan"),
        ([[1, 2], [2, 3]], ("a", "a"), "word 2: 'a' comes a second time; the first is word 1"),
    ):
        save_word2vec(WordVectors(Vocab(words, np.zeros(2)), np.array(matrix)), tmp_path / "v", binary=True)
        with pytest.raises(ValueError, match=message):
            load_vectors(tmp_path / "v", binary=True)


def test_a_binary_file_with_bytes_left_over_or_that_is_text_is_refused(tmp_path):
    row = np.array([1, 2], "<f4").tobytes()
    for content, message in (
        (b"1 2\nthe " + row + b"\nxx", "v, word 2: 'xx' has 0 of 8 bytes: the file was cut off, or is not a binary"),
        (b"1 2\nthe " + row + b"\nof " + row, "v, word 2: 'of' is one word more than the 1 that were promised"),
        (b"1 2\n " + row, "v, word 1: there is no word before the numbers"),
        (b"2 2\nthe 1 2\nof 3 4\n", "v, word 2: .*or is not a binary one"),
        (b"the 1 2\nof 3 4\n", "v, line 1: a header was expected"),
    ):
        (tmp_path / "v").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            load_vectors(tmp_path / "v", binary=True)


def test_a_binary_file_read_as_text_is_refused(tmp_path):
    save_word2vec(TWO, tmp_path / "v", binary=True)
    with pytest.raises(ValueError, match="v, line 2: "):
        load_vectors(tmp_path / "v")


ODD = (". . .", "at name@domain.com", "no\u00a0break", "\u2028", "a\tb", "1.5", "-", "nan", "1/2 cup", "ﬁ", "\r|")


def test_words_with_spaces_no_break_spaces_and_numbers_come_back(tmp_path):
    matrix = np.random.default_rng(0).normal(size=(len(ODD), 3)).astype(np.float32)
    save_glove(WordVectors(Vocab(ODD, np.zeros(len(ODD))), matrix), tmp_path / "v")
    for header in (None, False):
        back = load_vectors(tmp_path / "v", header)
        assert back.vocab.words == ODD
        np.testing.assert_array_equal(back.matrix, matrix)


def test_windows_line_ends_and_the_space_that_fasttext_leaves_do_not_matter(tmp_path):
    (tmp_path / "v").write_bytes(b"2 2\r\nthe 1 2 \r\nof 3 4 \r\n")
    back = load_vectors(tmp_path / "v", header=True)
    assert back.vocab.words == ("the", "of") and back.matrix.tolist() == [[1, 2], [3, 4]]


def test_a_header_is_told_from_a_word_that_is_a_number(tmp_path):
    (tmp_path / "v").write_text("12 5\n13 6\n")
    assert load_vectors(tmp_path / "v", header=False).vocab.words == ("12", "13")
    with pytest.raises(ValueError, match="line 2: 1 fields follow the word; line 1 wants 5"):
        load_vectors(tmp_path / "v")


FINE = np.ones((2, 2))
UNREADABLE = [(("fine", word), FINE) for word in ("", "a\nb", "a 1", "a 1 b", " a", "a ", "a  b", "\ud800", "fine")]
UNREADABLE += [(("\ufeffa", "b"), FINE), (("a", "b"), FINE * np.nan), (("a", "b"), FINE * 1e300)]
UNREADABLE += [(("5", "b"), np.array([[3], [4]])), ((), np.ones((0, 2))), (("a", "b"), np.ones((2, 0)))]


@pytest.mark.parametrize(("words", "matrix"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_would_not_be_read_back_is_not_written(tmp_path, words, matrix):
    (tmp_path / "v").write_text("old")
    bad = WordVectors(Vocab(words, np.zeros(len(words))), matrix)
    with pytest.raises(ValueError, match="cannot be stored, it would not be read back: "):
        save_glove(bad, tmp_path / "v")
    assert (tmp_path / "v").read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["v"]


def test_converting_a_glove_file_adds_the_header_and_nothing_else(tmp_path, glove):
    some = head(glove, 50)
    save_glove(some, tmp_path / "g")
    glove_to_word2vec(tmp_path / "g", tmp_path / "w")
    assert (tmp_path / "w").read_bytes() == b"50 50\n" + (tmp_path / "g").read_bytes()
    np.testing.assert_array_equal(load_word2vec(tmp_path / "w").matrix, some.matrix)
    glove_to_word2vec(tmp_path / "g", tmp_path / "b", binary=True)
    np.testing.assert_array_equal(load_vectors(tmp_path / "b", binary=True).matrix, some.matrix)


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
def test_words_with_spaces_get_an_underscore_on_the_way_to_word2vec(tmp_path, binary):
    save_glove(WordVectors(Vocab((". . .", "b"), np.zeros(2)), FINE), tmp_path / "g")
    glove_to_word2vec(tmp_path / "g", tmp_path / "w", binary)
    assert load_word2vec(tmp_path / "w", binary).vocab.words == ("._._.", "b")
    save_glove(WordVectors(Vocab(("a b", "a_b"), np.zeros(2)), FINE), tmp_path / "g")
    with pytest.raises(ValueError, match="two words would become the same"):
        glove_to_word2vec(tmp_path / "g", tmp_path / "w2", binary)


# ------------------------------------------------------------------------------------------------------------ lookup
def test_the_row_for_unknown_words_comes_first(glove):
    lookup = with_unknown(glove)
    assert (
        len(lookup.vocab) == 400_001 and lookup.vocab["beautiful"] == 3367 and lookup.vocab.words[3367] == "beautiful"
    )
    assert lookup.vocab["covfefe"] == 0 and not lookup.matrix[0].any()
    np.testing.assert_array_equal(lookup["beautiful"], glove["beautiful"])
    np.testing.assert_array_equal(lookup.matrix[1:], glove.matrix)


def test_a_table_with_its_own_row_for_unknown_words_keeps_it():
    rows = {"a": [1.0, 2], "<unk>": [3, 4], "b": [5, 6]}
    own = WordVectors(Vocab(tuple(rows), np.array([7, 8, 9])), np.array(list(rows.values())))
    lookup = with_unknown(own)
    assert lookup.vocab.words == ("<unk>", "a", "b") and lookup.vocab.counts.tolist() == [8, 7, 9]
    assert lookup.matrix.tolist() == [[3, 4], [1, 2], [5, 6]]
    assert with_unknown(lookup).vocab.words == lookup.vocab.words


# ------------------------------------------------------------------------------------------------------ known answers
def test_the_neighbors_of_published_vectors_are_the_known_ones(space):
    assert [w for w, _ in neighbors(space, "chip", 3)] == ["chips", "intel", "electronics"]
    assert [w for w, _ in neighbors(space, "baby", 3)] == ["babies", "boy", "girl"]
    found = neighbors(space, "beautiful", 3)
    assert [w for w, _ in found] == ["lovely", "gorgeous", "wonderful"]
    assert [c for _, c in found] == pytest.approx([0.921, 0.893, 0.830], abs=0.001)


@pytest.mark.parametrize(
    "question", ["man woman son daughter", "beijing china tokyo japan", "bad worst big biggest", "do did go went"]
)
def test_the_known_analogies_come_out(space, question):
    a, b, c, d = question.split()
    assert analogy(space, a, b, c)[0][0] == d
    assert analogy(space, a, b, c, by_product=True)[0][0] == d


def test_barring_the_question_is_what_makes_tokyo_japan(space):
    assert analogy(space, "beijing", "china", "tokyo", exclude=False)[0][0] == "tokyo"


def test_cereal_is_the_odd_one_out(space):
    assert odd_one_out(space, "breakfast cereal dinner lunch".split()) == "cereal"


def test_an_analogy_is_a_sum_of_three_cosines():
    random = np.random.default_rng(0)
    toy = WordSpace(WordVectors(Vocab(tuple("abcdefgh"), np.zeros(8)), random.normal(size=(8, 5))))
    cosines = toy.unit.astype(float) @ toy.unit.astype(float).T
    scores = cosines[1] - cosines[0] + cosines[2]
    ids, found = analogies(toy, [("a", "b", "c")], k=5)
    assert not {0, 1, 2} & set(ids[0])
    assert ids[0].tolist() == [int(i) for i in np.argsort(-scores) if i > 2]
    length = np.linalg.norm(toy.unit[1].astype(float) - toy.unit[0] + toy.unit[2])
    assert found[0] == pytest.approx(scores[ids[0]] / length, abs=1e-6)


def test_the_product_is_the_formula_with_halved_and_shifted_cosines():
    toy = WordSpace(vectors(a=[1, 0, 0], b=[0, 1, 0], c=[0, 0, 1], x=[1, 1, 1], y=[-1, 1, 1], z=[0, 0, 0]))
    s = (1 + toy.unit.astype(float) @ toy.unit.astype(float).T) / 2
    ids, found = analogies_by_product(toy, [("a", "b", "c")], k=2)
    assert ids[0].tolist() == [4, 3]
    assert found[0] == pytest.approx([s[i, 1] * s[i, 2] / (s[i, 0] + 1e-3) for i in (4, 3)], rel=1e-5)
    free, _ = analogies_by_product(toy, [("a", "b", "c")], k=5, exclude=False)
    assert 5 not in free and {1, 2} <= set(free[0])


def test_similarity_is_the_cosine_whatever_the_lengths():
    toy = WordSpace(vectors(east=[2e-30, 0], north=[0, 5e30], between=[1, 1], west=[-7, 0]))
    assert similarity(toy, "east", "west") == pytest.approx(-1, abs=1e-7)
    assert similarity(toy, "east", "north") == pytest.approx(0, abs=1e-7)
    assert similarity(toy, "east", "between") == pytest.approx(0.5**0.5, abs=1e-7)


def test_unit_rows_have_length_one_at_any_scale_and_zeros_stay():
    rows = np.array([[3.0, 4], [3e-200, 4e-200], [3e200, 4e200], [0, 0]])
    assert unit_rows(rows).tolist() == pytest.approx(np.array([[0.6, 0.8]] * 3 + [[0, 0]]))


# ------------------------------------------------------------------------------------------------------- bad questions
def test_an_unseen_word_is_an_error_that_names_the_nearest_spellings():
    toy = WordSpace(vectors(gold=[1, 0], silver=[0, 1], coin=[1, 1], lead=[1, 2]))
    for ask in (
        lambda: neighbors(toy, "golf"),
        lambda: similarity(toy, "gold", "golf"),
        lambda: analogy(toy, "gold", "silver", "golf"),
        lambda: analogy(toy, "gold", "silver", "golf", by_product=True),
        lambda: odd_one_out(toy, ["gold", "silver", "golf"]),
        lambda: association(toy, ["golf"], ["gold"], ["silver"]),
    ):
        with pytest.raises(
            ValueError, match=r"'golf' is not in the vocabulary \(4 words\); the nearest spellings are gold"
        ):
            ask()


def test_an_unseen_word_is_an_error_also_where_there_is_a_row_for_it():
    toy = WordSpace(with_unknown(vectors(gold=[1, 0], silver=[0, 1])))
    with pytest.raises(ValueError, match="'golf' is not in the vocabulary"):
        neighbors(toy, "golf", 1)
    with pytest.raises(ValueError, match="the vector of '<unk>' is zero: it has no direction"):
        neighbors(toy, "<unk>", 1)


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(ValueError, match="the vocabulary is empty"):
        WordSpace(WordVectors(Vocab((), np.zeros(0)), np.zeros((0, 3))))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_refused_by_name(bad):
    with pytest.raises(ValueError, match="the vector of 'b' holds a number that is not finite"):
        WordSpace(vectors(a=[1, 0], b=[bad, 1]))


def test_zero_vectors_are_never_neighbors_and_have_none():
    toy = WordSpace(vectors(a=[1, 0], zero=[0, 0], b=[-1, 0.1], c=[-1, -0.1]))
    assert [w for w, _ in neighbors(toy, "a", 2)] == ["b", "c"]  # a cosine of -1 is still before no cosine at all
    with pytest.raises(ValueError, match="the vector of 'zero' is zero"):
        neighbors(toy, "zero", 1)
    with pytest.raises(ValueError, match="query 1 is zero or not finite"):
        nearest(toy, [[1, 0], [0, 0]], 1)
    for bad in (np.nan, np.inf, -np.inf):
        with warnings.catch_warnings(), pytest.raises(ValueError, match="query 0 is zero or not finite"):
            warnings.simplefilter("error")
            nearest(toy, [[bad, 0]], 1)


@pytest.mark.parametrize("k", [0, -1, 4, 100, 2.0])
def test_a_k_that_cannot_be_served_is_refused(k):
    toy = WordSpace(vectors(a=[1, 0], zero=[0, 0], b=[-1, 0.1], c=[-1, -0.1], d=[0, 1]))
    assert len(neighbors(toy, "a", 3)) == 3
    with pytest.raises(ValueError, match=f"k={k} words were asked for; 1 to 3 can be found here"):
        neighbors(toy, "a", k)
    for by_product in (False, True):
        assert len(analogy(toy, "a", "b", "c", 1, by_product=by_product)) == 1
        if k < 1 or k > 4 or k == 2.0:
            with pytest.raises(ValueError, match=f"k={k} words were asked for; 1 to 1 can be found here"):
                analogy(toy, "a", "b", "c", k, by_product=by_product)
            with pytest.raises(ValueError, match=f"k={k} words were asked for; 1 to 4 can be found here"):
                analogy(toy, "a", "b", "c", k, exclude=False, by_product=by_product)


def test_no_questions_have_no_answers_and_short_ones_are_refused():
    toy = WordSpace(vectors(a=[1, 0], b=[-1, 0.1], c=[-1, -0.1], d=[0, 1]))
    for solve in (analogies, analogies_by_product):
        assert [found.shape for found in solve(toy, [])] == [(0, 1)] * 2
        with pytest.raises(ValueError, match="a question has three words, a, b and c, and one has 2"):
            solve(toy, [("a", "b", "c"), ("a", "b")])
        with pytest.raises(TypeError, match="a list of words was expected, not the text 'a b c'"):
            solve(toy, ["a b c"])


def test_vectors_that_are_not_a_space_are_refused_by_name():
    toy = vectors(a=[1, 0], b=[-1, 0.1], c=[-1, -0.1], d=[0, 1])
    for ask in (
        lambda: neighbors(toy, "a", 1),
        lambda: nearest(toy, [[1, 0]], 1),
        lambda: analogy(toy, "a", "b", "c"),
        lambda: analogy(toy, "a", "b", "c", by_product=True),
        lambda: similarity(toy, "a", "b"),
    ):
        with pytest.raises(TypeError, match="not WordVectors, but a WordSpace is asked"):
            ask()


def test_generators_and_sets_of_words_are_read_once_and_texts_are_refused():
    toy = WordSpace(vectors(a=[1, 0], b=[1, 0.1], c=[0, 1]))
    assert neighbors(toy, (w for w in "ab"), 1) == neighbors(toy, ["a", "b"], 1) != []
    assert odd_one_out(toy, {"a", "b", "c"}) == odd_one_out(toy, (w for w in "abc")) == "c"
    with pytest.raises(TypeError, match="a list of words was expected, not the text 'a b c'"):
        odd_one_out(toy, "a b c")


@pytest.mark.parametrize("bad", [-1, 2, 99])
def test_a_barred_id_that_no_word_has_is_refused(bad):
    toy = WordSpace(vectors(a=[1, 0], b=[-1, 0.1]))
    with pytest.raises(ValueError, match="a barred id is none of the table's, which go from 0 to 1"):
        nearest(toy, np.ones((1, 2)), 1, [[bad]])


def test_queries_of_another_width_and_lists_of_another_length_are_refused():
    toy = WordSpace(vectors(a=[1, 0], b=[-1, 0.1]))
    with pytest.raises(ValueError, match="queries have 3 numbers, words have 2"):
        nearest(toy, np.ones((1, 3)), 1)
    with pytest.raises(ValueError, match="2 lists of barred words for 1 queries"):
        nearest(toy, np.ones((1, 2)), 1, [[0], [1]])


def test_a_word_is_its_own_neighbor_only_when_nobody_is_barred():
    toy = WordSpace(vectors(a=[1, 0], b=[1, 0.1], c=[0, 1]))
    assert nearest(toy, toy.unit[:1], 1)[0].tolist() == [[0]]
    assert nearest(toy, toy.unit[:1], 1, [[0]])[0].tolist() == [[1]]
    assert neighbors(toy, "a", 1)[0][0] == "b" and neighbors(toy, [], 1) == []


def test_of_two_words_none_is_odd():
    toy = WordSpace(vectors(a=[1, 0], b=[1, 0.1], c=[0, 1]))
    assert odd_one_out(toy, ["a", "b", "c"]) == "c"
    for words in ([], ["a"], ["a", "b"], ["a", "b", "a"]):
        with pytest.raises(ValueError, match="of two words neither is the odd one"):
            odd_one_out(toy, words)


# ------------------------------------------------------------------------------------------------ sentences and bias
def test_a_sentence_is_the_mean_of_its_words_and_says_what_is_missing():
    toy = vectors(gold=[1, 0], coin=[3, 4])
    mean, missing = sentence_vector(toy, "Gold, gold coin: covfefe!")
    assert mean == pytest.approx([5 / 3, 4 / 3]) and missing == ["covfefe"]
    with pytest.raises(ValueError, match="'covfefe!' has no word with a vector"):
        sentence_vector(toy, "covfefe!")
    with pytest.raises(ValueError, match="has no word with a vector"):
        sentence_vector(toy, "")


def test_weat_by_hand():
    """Targets on the axes of the attributes: associations 1, 1, -1, -1; one deal of six is as extreme."""
    toy = WordSpace(vectors(x=[1, 0], X=[2, 0], y=[0, 1], Y=[0, 3], a=[1, 0], b=[0, 1]))
    assert association(toy, ["x", "X", "y", "Y"], ["a"], ["b"]) == pytest.approx([1, 1, -1, -1])
    d, p = weat(toy, ["x", "X"], ["y", "Y"], ["a"], ["b"])
    assert d == pytest.approx(2 / np.std([1, 1, -1, -1], ddof=1)) and p == pytest.approx(1 / 6)
    d, p = weat(toy, ["y", "Y"], ["x", "X"], ["a"], ["b"])
    assert d == pytest.approx(-2 / np.std([1, 1, -1, -1], ddof=1)) and p == 1
    _, p = weat(toy, ["x", "y"], ["X", "Y"], ["a"], ["b"])
    assert p == pytest.approx(5 / 6)  # a difference of nothing: only one deal is smaller


def test_an_association_is_a_difference_of_means_however_long_the_lists():
    toy = WordSpace(vectors(w=[1, 0], a=[1, 0], A=[0, 1], b=[-1, 0], B=[0, -1], c=[1, 0]))
    assert association(toy, ["w"], ["a", "A"], ["b", "B", "c"]) == pytest.approx([1 / 2 - 0])
    assert association(toy, ["w"], ["a"], ["b", "B"]) == pytest.approx([1 - -1 / 2])
    assert association(toy, ["w"], ["a", "A", "B"], ["c", "A"]) == pytest.approx([1 / 3 - 1 / 2])


def test_weat_by_drawing_agrees_with_all_deals(space):
    men, women = "john paul mike kevin steve greg".split(), "amy joan lisa sarah diana kate".split()
    career, family = "executive salary office".split(), "home parents children".split()
    mixed = men[:3] + women[:3], men[3:] + women[3:]
    d, p = weat(space, *mixed, career, family)
    drawn_d, drawn_p = weat(space, *mixed, career, family, samples=900)
    assert drawn_d == d and drawn_p == pytest.approx(p, abs=0.06)


def test_weat_by_drawing_counts_the_deal_that_was_seen():
    """Of 2.7 million deals one is as extreme; a hundred drawn ones miss it, and the p-value is still not zero."""
    X, Y = [f"x{i}" for i in range(12)], [f"y{i}" for i in range(12)]
    toy = WordSpace(vectors(**{w: [1, 0.1] for w in X}, **{w: [0.1, 1] for w in Y}, a=[1, 0], b=[0, 1]))
    assert weat(toy, X, Y, ["a"], ["b"], samples=100)[1] == pytest.approx(1 / 101)


def test_weat_wants_equal_halves():
    toy = WordSpace(vectors(x=[1, 0], y=[0, 1], a=[1, 0], b=[0, 1]))
    for X, Y in ((["x"], ["y"]), (["x", "a"], ["y"]), ([], [])):
        with pytest.raises(ValueError, match="the test compares two equal halves"):
            weat(toy, X, Y, ["a"], ["b"])


def test_weat_refuses_lists_that_leave_nothing_to_measure():
    toy = WordSpace(vectors(x=[1, 0], X=[2, 1], y=[0, 1], Y=[1, 3], a=[1, 0], b=[0, 1]))
    with pytest.raises(ValueError, match="a list of attributes is empty"):
        weat(toy, ["x", "X"], ["y", "Y"], [], ["b"])
    with pytest.raises(ValueError, match="a list of attributes is empty"):
        association(toy, ["x"], ["a"], [])
    with pytest.raises(ValueError, match="both lists of attributes are the same"):
        weat(toy, ["x", "X"], ["y", "Y"], ["a", "b"], ["b", "a"])
    for X, Y in ((["x", "X"], ["x", "Y"]), (["x", "x"], ["y", "Y"])):
        with pytest.raises(ValueError, match="a target comes twice"):
            weat(toy, X, Y, ["a"], ["b"])


def test_the_effect_cannot_exceed_its_bound():
    """Constant halves are the extreme case: twice the root of (2n - 1) / 2n."""
    gap, d = effect(np.array([[1.0] * 8 + [-1.0] * 8, [3.0, *[1.0] * 7, *[-1.0] * 8]]))
    assert gap == pytest.approx([2, 2.25]) and d[0] == pytest.approx(2 * (15 / 16) ** 0.5) and d[1] < d[0]


def test_head_keeps_the_first_words(glove):
    assert head(glove, 3).vocab.words == ("the", ",", ".") and head(glove, 3).matrix.shape == (3, 50)
