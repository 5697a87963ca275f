"""Files give back what was written; neighbors are those of a full sort, however they are asked for."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lrm_utils.models import similarity_and_analogy as module
from lrm_utils.models.similarity_and_analogy import (
    GROUP,
    WordSpace,
    analogies,
    group_maxima,
    load_vectors,
    nearest,
    neighbors,
    save_glove,
    unit_rows,
)
from lrm_utils.models.training_word2vec import save_word2vec
from lrm_utils.text import Vocab, WordVectors

plain_words = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6).filter(
    lambda w: w.split() == [w]
)
spaced_words = st.lists(st.sampled_from(["a", "b.", "\u00a0", "\u2028", "é", "x-1", "\t", ".", "''"]), min_size=1).map(
    " ".join
)
numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)


def table(data, words, D):
    matrix = np.array([[data.draw(numbers) for _ in range(D)] for _ in words], dtype=np.float32)
    return WordVectors(Vocab(tuple(words), np.zeros(len(words))), matrix)


def same(one, other):
    assert one.vocab.words == other.vocab.words
    np.testing.assert_array_equal(one.matrix, other.matrix)


@given(st.lists(plain_words | spaced_words, min_size=1, max_size=5, unique=True), st.integers(1, 4), st.data())
def test_glove_files_keep_every_word_and_every_bit(tmp_path_factory, words, D, data):
    assume(not words[0].startswith("\ufeff") and (D > 1 or not words[0].strip("+-").isdecimal()))  # a mark, a header
    vectors, path = table(data, words, D), tmp_path_factory.mktemp("files") / "v"
    save_glove(vectors, path)
    for header in (None, False):
        same(load_vectors(path, header=header), vectors)


@given(st.lists(plain_words, min_size=1, max_size=5, unique=True), st.integers(1, 4), st.booleans(), st.data())
def test_word2vec_files_keep_every_word_and_every_bit(tmp_path_factory, words, D, binary, data):
    vectors, path = table(data, words, D), tmp_path_factory.mktemp("files") / "v"
    save_word2vec(vectors, path, binary)
    for header in (None, True):
        same(load_vectors(path, header=header, binary=binary), vectors)


@given(st.lists(plain_words, min_size=1, max_size=5, unique=True), st.integers(1, 4), st.data())
def test_fasttext_files_keep_every_word_and_every_bit(tmp_path_factory, words, D, data):
    vectors, path = table(data, words, D), tmp_path_factory.mktemp("files") / "v.vec"
    save_word2vec(vectors, path)
    header, *lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([header, *(line + b" " if line else b"" for line in lines)]))  # as fastText ends them
    same(load_vectors(path, header=True), vectors)


@given(st.integers(2, 30), st.integers(1, 4), st.data())
def test_a_file_that_lost_its_end_is_never_taken_for_whole(tmp_path_factory, V, D, data):
    vectors, path = table(data, list(map(str, range(100, 100 + V))), D), tmp_path_factory.mktemp("files") / "v"
    save_word2vec(vectors, path, binary := data.draw(st.booleans()))
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - (2 if binary else 1)))])
    with pytest.raises(ValueError, match="v, (line|word) "):
        load_vectors(path, binary=binary, header=True)


def space_of(matrix):
    return WordSpace(WordVectors(Vocab(tuple(map(str, range(len(matrix)))), np.zeros(len(matrix))), matrix))


def brute_force(space, queries, k, barred):
    """Every cosine in double precision, a full sort, ties by id."""
    exact = (space.unit.astype(float)[None] * unit_rows(queries)[:, None]).sum(2)
    exact[:, ~space.unit.any(1)] = -np.inf
    for row, ids in zip(exact, barred, strict=True):
        row[list(ids)] = -np.inf
    order = np.lexsort((np.broadcast_to(np.arange(exact.shape[1]), exact.shape), -exact))[:, :k]
    return order, np.take_along_axis(exact, order, 1)


@st.composite
def tables(draw):
    """Small whole numbers, so that equal cosines and zero rows are common; also far beyond one group."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    V, D = draw(st.sampled_from([1, 3, GROUP, GROUP + 1, 5 * GROUP, 300])), draw(st.integers(1, 6))
    reach = draw(st.sampled_from([1, 2, 50]))
    return random.integers(-reach, reach + 1, (V, D)) * draw(st.sampled_from([1.0, 1e-20, 1e19])), random


@settings(max_examples=200)
@given(tables(), st.data())
def test_neighbors_are_those_of_a_full_sort_with_ties_by_id(drawn, data):
    matrix, random = drawn
    space = space_of(matrix)
    queries = random.integers(-3, 4, (data.draw(st.integers(1, 4)), matrix.shape[1])).astype(float)
    queries[~queries.any(1)] = 1
    barred = [set(random.choice(len(matrix), random.integers(0, 4)).tolist()) for _ in queries]
    able = len(space.live) - max(map(len, barred))
    if able < 1:
        return
    k = data.draw(st.integers(1, able))
    ids, cosines = nearest(space, queries, k, [sorted(b) for b in barred])
    expected = brute_force(space, queries, k, barred)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_array_equal(cosines, expected[1])


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 40))
def test_one_query_or_many_at_once_give_the_same_to_the_last_bit(seed, k, Q):
    random = np.random.default_rng(seed)
    space, queries = space_of(random.normal(size=(200, 7))), random.normal(size=(Q, 7))
    together = nearest(space, queries, k)
    for i, query in enumerate(queries):
        for one, all_of_them in zip(nearest(space, query, k), together, strict=True):
            np.testing.assert_array_equal(one[0], all_of_them[i])


@pytest.mark.parametrize(("scores", "block"), [(1, 1), (GROUP, 1), (7 * GROUP, 3), (1 << 20, 256)])
def test_parts_and_blocks_of_any_size_give_the_same(monkeypatch, scores, block):
    random = np.random.default_rng(0)
    space, queries = space_of(random.normal(size=(1000, 9))), random.normal(size=(20, 9))
    expected = nearest(space, queries, 5)
    monkeypatch.setattr(module, "SCORES", scores)
    monkeypatch.setattr(module, "BLOCK", block)
    for found, wanted in zip(nearest(space, queries, 5), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_group_maxima_are_the_maxima_of_groups(V, seed):
    random = np.random.default_rng(seed)
    rows, queries = random.normal(size=(V, 4)).astype(np.float32), random.normal(size=(3, 4))
    scores = queries @ rows.T
    expected = [[scores[q, g : g + GROUP].max() for g in range(0, V, GROUP)] for q in range(3)]
    np.testing.assert_allclose(group_maxima(rows, queries), expected, rtol=0, atol=1e-5)


def test_a_word_just_behind_the_border_in_single_precision_is_not_lost():
    """A thousand rows that differ by less than float32 resolves in a dot product; the exact order must come out."""
    random = np.random.default_rng(0)
    base = random.normal(size=64)
    space = space_of(base + 1e-6 * random.normal(size=(1000, 64)))
    ids, _ = nearest(space, base, 10)
    np.testing.assert_array_equal(ids, brute_force(space, base[None], 10, [()])[0])


@given(st.integers(0, 2**32))
def test_lists_of_words_and_single_words_have_the_same_neighbors(seed):
    space = space_of(np.random.default_rng(seed).normal(size=(50, 5)))
    words = ["3", "0", "41", "3"]
    assert neighbors(space, words, 4) == [neighbors(space, word, 4) for word in words]
    assert all(word not in [w for w, _ in found] for word, found in zip(words, neighbors(space, words, 4), strict=True))


@given(st.integers(0, 2**32))
def test_rotating_and_scaling_the_space_changes_no_analogy(seed):
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(60, 6))
    turn = np.linalg.qr(random.normal(size=(6, 6)))[0]
    questions = [tuple(map(str, random.choice(60, 3, replace=False))) for _ in range(5)]
    one, score = analogies(space_of(matrix), questions, 3)
    other, again = analogies(space_of(7.5 * matrix @ turn), questions, 3)
    np.testing.assert_allclose(score, again, atol=1e-5)
    assert (one == other).mean() > 0.8  # near ties may change places, no more
