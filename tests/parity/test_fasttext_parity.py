"""fastText does what the library of its authors does (fasttext 0.9.3), with that library's own weights and files.

Two things to know of the library. Its Python `predict` does not run beside numpy 2, so its core is asked,
`model.f.predict`. And each of its threads fills a tenth of the table with random numbers: with fewer than eleven, part
of the table holds whatever was in memory before, which for small tables may be no numbers at all ("Encountered NaN").
"""

import fasttext
import numpy as np
import pytest
import torch
from gensim.models.fasttext import load_facebook_model

from lrm_utils import data, text
from lrm_utils.models.fasttext import (
    FastText,
    Softmax,
    Subwords,
    TextClassifier,
    TextFeatures,
    train_classifier,
)
from lrm_utils.models.similarity_and_analogy import load_vectors
from lrm_utils.text import Vocab

THREADS = 12  # the default; see above
STRANGE = ["where", "a", "élan", "Straße", "слово", "日本語", "🙂", "x<y>", "naïveté", "1789", "don't"]


@pytest.fixture(scope="module")
def speech_lines():
    return [" ".join(text.words(p)) for p in data.sotu()[0].text.splitlines()] + [" ".join(STRANGE)] * 5


def known(model):
    """The library's vocabulary, in its order."""
    return Vocab(tuple(model.words), np.zeros(len(model.words), dtype=np.int64))


@pytest.mark.parametrize(("shortest", "longest", "buckets"), [(3, 6, 2_000_000), (1, 3, 97), (2, 2, 1000)])
def test_n_grams_and_buckets_are_the_librarys(tmp_path, speech_lines, shortest, longest, buckets):
    path = tmp_path / "speech.txt"
    path.write_text("\n".join(speech_lines) + "\n")
    model = fasttext.train_unsupervised(
        str(path), minn=shortest, maxn=longest, bucket=buckets, dim=2, epoch=1, minCount=1, thread=THREADS, verbose=0
    )
    subwords = Subwords(known(model), buckets, shortest, longest)
    words = [*(w for w in model.words if w != "</s>"), "unseen", "überall", "🙃🙂", "ظ"]
    assert len(words) > 300
    for word in words:
        _, rows = model.get_subwords(word)
        assert subwords.rows(word) == rows.tolist(), word


def test_vectors_of_seen_and_unseen_words_are_the_librarys(tmp_path, speech_lines):
    path = tmp_path / "speech.txt"
    path.write_text("\n".join(speech_lines) + "\n")
    model = fasttext.train_unsupervised(str(path), bucket=5000, dim=8, epoch=2, minCount=2, thread=THREADS, verbose=0)
    ours = FastText(Subwords(known(model), 5000), torch.from_numpy(model.get_input_matrix()), None, [])
    for word in ("government", "governmental", "congress", "unheard", "naïveté"):
        assert ours[word] == pytest.approx(model.get_word_vector(word), abs=1e-6)


@pytest.fixture(scope="module")
def sentences():
    return data.reviews("mr")


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_the_librarys_weights_give_the_librarys_probabilities(tmp_path, sentences, longest):
    some, buckets = sentences.train[:600], 20_000
    path = tmp_path / "reviews.txt"
    path.write_text("".join(f"__label__{r.label} {' '.join(text.words(r.text))}\n" for r in some))
    model = fasttext.train_supervised(
        str(path), dim=5, lr=0.5, epoch=3, wordNgrams=longest, bucket=buckets, thread=THREADS, verbose=0
    )
    features = TextFeatures(known(model), buckets, longest)
    E, W = (torch.from_numpy(np.array(m)) for m in (model.get_input_matrix(), model.get_output_matrix()))
    ours = TextClassifier(E[: len(features.vocab) + buckets], W, Softmax(np.ones(2)))
    texts = [text.words(r.text) for r in sentences.test[:200]]
    p = ours.log_probabilities(features.bags([[*words, "</s>"] for words in texts])).exp().numpy()
    for words, row in zip(texts, p, strict=True):
        theirs = {label: q for q, label in model.f.predict(" ".join(words) + "\n", 2, 0.0, "strict")}
        # the library adds 1e-5 before the logarithm it stores
        assert [theirs[label] for label in model.labels] == pytest.approx(row.tolist(), abs=3e-5)


def test_the_classifier_is_within_a_point_of_the_librarys_on_mr(tmp_path, sentences):
    # one thread, so that its result is the same every time; so large a table is new memory, which is zero
    train, test = ([text.words(r.text) for r in part] for part in (sentences.train, sentences.test))
    labels, answers = (np.array([r.label for r in part]) for part in (sentences.train, sentences.test))
    path = tmp_path / "mr.txt"
    path.write_text("".join(f"__label__{y} {' '.join(d)}\n" for d, y in zip(train, labels, strict=True)))
    features = TextFeatures(Vocab.build(w for d in train for w in d))
    bags, test_bags = features.bags(train), features.bags(test)
    ours, theirs = [], []
    for seed in range(5):
        ours.append((train_classifier(bags, labels, features, seed=seed).predict(test_bags) == answers).mean())
        model = fasttext.train_supervised(
            str(path), dim=10, lr=0.5, epoch=5, wordNgrams=2, bucket=2_000_000, thread=1, seed=seed, verbose=0
        )
        guess = [int(model.f.predict(" ".join(d) + "\n", 1, 0.0, "strict")[0][1][-1]) for d in test]
        theirs.append((np.array(guess) == answers).mean())
    assert abs(np.mean(ours) - np.mean(theirs)) <= 0.01


def test_a_file_of_the_program_is_read_and_its_binary_twin_gives_the_same_vectors():
    folder = data.installed.package_file("gensim/test/test_data/wordsim353.tsv").parent
    read = load_vectors(folder / "lee_fasttext.vec", header=True)
    twin = load_facebook_model(folder / "lee_fasttext.bin")
    assert len(read.vocab) == len(twin.wv) > 1000
    for word in read.vocab.words[::50]:
        assert read[word] == pytest.approx(twin.wv[word], abs=1e-4)
    table = np.concatenate([twin.wv.vectors_vocab, twin.wv.vectors_ngrams])
    vocab = Vocab(tuple(twin.wv.index_to_key), np.zeros(len(twin.wv), dtype=np.int64))
    settings = twin.wv.bucket, twin.wv.min_n, twin.wv.max_n
    ours = FastText(Subwords(vocab, *settings), torch.from_numpy(table), None, [])
    for word in ("unseenword", "Sydneysider", "night"):
        assert ours[word] == pytest.approx(twin.wv[word], abs=1e-5)
