"""The one ruler: every representation in the course is measured by these functions and no others.

Each returns plain numbers with the share of the questions it could answer, so that a model which knows few words
cannot look good by silence.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr
from torch.nn import functional as F

from lrm_utils.data import Analogy, WordPair
from lrm_utils.text import WordVectors


@dataclass(frozen=True)
class Score:
    """A measured value and how many of the questions it rests on."""

    value: float
    answered: int
    asked: int
    error: float = field(default=math.nan, compare=False)  # the standard error, where one is computed

    @property
    def coverage(self) -> float:
        """The share of the questions that could be answered."""
        return self.answered / self.asked if self.asked else 0.0


def rank_correlations(predicted: np.ndarray, judged: np.ndarray, samples: int = 1000, seed: int = 0) -> np.ndarray:
    """Spearman's rank correlation on each of `samples` bootstrap samples of the items, shape (samples,).

    Their standard deviation is the standard error of the correlation. The same seed draws the same items, so two models
    can be compared draw by draw: `(one > other).mean()`.
    """
    predicted, judged = np.asarray(predicted), np.asarray(judged)
    if predicted.shape != judged.shape or predicted.ndim != 1:
        raise ValueError(f"predictions {predicted.shape} and judgments {judged.shape} must be two rows of one length")
    draws = np.random.default_rng(seed).integers(0, len(judged), (samples, len(judged)))
    first, second = (rankdata(x[draws], axis=1) - (len(judged) + 1) / 2 for x in (predicted, judged))
    with np.errstate(invalid="ignore"):  # a sample of one item, drawn again and again, has no correlation: nan
        return (first * second).sum(1) / np.sqrt(np.square(first).sum(1) * np.square(second).sum(1))


def pair_cosines(vectors: WordVectors, pairs: Sequence[WordPair]) -> tuple[np.ndarray, np.ndarray]:
    """The cosines of the pairs whose words are both known, and what people said of them."""
    known = [p for p in pairs if p.first in vectors.vocab and p.second in vectors.vocab]
    first = vectors.unit[[vectors.vocab[p.first] for p in known]]
    second = vectors.unit[[vectors.vocab[p.second] for p in known]]
    return np.asarray((first * second).sum(1)), np.array([p.score for p in known])


def similarity(vectors: WordVectors, pairs: Sequence[WordPair]) -> Score:
    """Spearman's rank correlation between the cosines of word pairs and what people said of them, with its error."""
    cosines, judged = pair_cosines(vectors, pairs)
    if len(judged) < 3:
        return Score(math.nan, len(judged), len(pairs))
    rho = spearmanr(cosines, judged).statistic
    error = np.nanstd(rank_correlations(cosines, judged))
    return Score(float(rho), len(judged), len(pairs), float(error))


def analogy(
    vectors: WordVectors, questions: Sequence[Analogy], exclude: bool = True, among: int | None = None
) -> Score:
    """How often `b - a + c` is nearest to `d`: man is to king as woman is to queen.

    `exclude` bars the three words of the question from the answer, as is customary (and flattering); `among` limits
    questions and answers to the first, that is most frequent, words.
    """
    if not isinstance(vectors.matrix, np.ndarray):
        raise ValueError("analogies add and subtract vectors: they need a dense matrix, not a sparse one")
    if not np.isfinite(vectors.matrix).all():
        raise ValueError("some vectors are not finite numbers: the training diverged")
    among = min(among or len(vectors.vocab), len(vectors.vocab))
    ids = vectors.vocab.ids
    known = [q for q in questions if all(ids.get(w, among) < among for w in (q.a, q.b, q.c, q.d))]
    if not known:
        return Score(math.nan, 0, len(questions))
    table = torch.as_tensor(np.ascontiguousarray(vectors.unit[:among]), dtype=torch.float32)
    a, b, c, d = torch.tensor([[ids[w] for w in (q.a, q.b, q.c, q.d)] for q in known]).T
    correct = 0
    for i in range(0, len(known), 512):  # in blocks: all questions at once would need questions x words numbers
        block = slice(i, i + 512)
        targets = F.normalize(table[b[block]] - table[a[block]] + table[c[block]], dim=1)
        cosines = targets @ table.T
        if exclude:
            for asked in (a, b, c):
                cosines.scatter_(1, asked[block, None], -torch.inf)
        target = cosines.gather(1, d[block, None])
        correct += int(((cosines >= target).sum(1) == 1).sum())  # nothing else is as near: ties lose
    return Score(correct / len(known), len(known), len(questions))


def analogies(vectors: WordVectors, sections: Mapping[str, Sequence[Analogy]], **options) -> dict[str, Score]:
    """`analogy` for every section of a question set, and for all of them under the key "total"."""
    scores = {name: analogy(vectors, questions, **options) for name, questions in sections.items()}
    answered, asked = (sum(getattr(s, f) for s in scores.values()) for f in ("answered", "asked"))
    correct = sum(s.value * s.answered for s in scores.values() if s.answered)
    return scores | {"total": Score(correct / answered if answered else math.nan, answered, asked)}


def agreement(
    vectors: WordVectors, judge: WordVectors, words: Sequence[str], anchors: Sequence[str], others: Sequence[str]
) -> np.ndarray:
    """How alike two sets of vectors place each of some words among `anchors`, from -1 to 1, shape (words,).

    A word's place is its row of cosines with the anchors, less what the mean of `others` has there, so that what all
    words have in common counts for nothing; two rows are compared by Spearman's rank correlation.
    """

    def places(space: WordVectors) -> np.ndarray:
        def rows(some):
            return space.unit[[space.vocab[word] for word in some]]

        return (rows(words) - rows(others).mean(0)) @ rows(anchors).T

    ranks = (rankdata(places(space), axis=1) for space in (vectors, judge))
    a, b = (r - (len(anchors) + 1) / 2 for r in ranks)
    return (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))


def perplexity(total_nll: float, tokens: int) -> float:
    """The perplexity of a text: exp of its negative log likelihood (in nats) per token."""
    if tokens < 1:
        raise ValueError("perplexity needs at least one token")
    return math.exp(total_nll / tokens)


def retrieval(queries: np.ndarray, documents: np.ndarray, relevant: Sequence[int], k: int = 10) -> dict[str, float]:
    """Rank documents for each query by cosine; `relevant[i]` is the row of the one right answer to query i.

    Returns recall at 1 and at k, and the mean reciprocal rank. Ties count against the model.
    """
    if len(queries) != len(relevant):
        raise ValueError(f"{len(queries)} queries need as many right answers, not {len(relevant)}")
    if not (np.isfinite(queries).all() and np.isfinite(documents).all()):
        raise ValueError("some vectors are not finite numbers: the training diverged")
    q, d = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (queries, documents))
    cosines = q @ d.T
    target = cosines[np.arange(len(q)), list(relevant)][:, None]
    ranks = (cosines >= target).sum(1)  # the target itself is one of them, so the best rank is 1
    return {
        "recall@1": float((ranks == 1).mean()),
        f"recall@{k}": float((ranks <= k).mean()),
        "mrr": float((1 / ranks).mean()),
    }


def probe(
    features: np.ndarray, labels: np.ndarray, test_features: np.ndarray, test_labels: np.ndarray, penalty: float = 1e-3
) -> float:
    """Test accuracy of a linear classifier on frozen features: how plainly do they say what the labels ask?

    Features are standardized with the training set's mean and deviation; the classifier is logistic regression
    fitted to convergence by L-BFGS, `penalty` times the squared weights added to the mean loss.
    """
    classes, y = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError("a probe needs at least two classes in its training labels")
    mean, deviation = features.mean(0), features.std(0) + 1e-8
    x, x_test = (torch.as_tensor((f - mean) / deviation, dtype=torch.float32) for f in (features, test_features))
    weight, bias = (
        torch.zeros(x.shape[1], len(classes), requires_grad=True),
        torch.zeros(len(classes), requires_grad=True),
    )
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-9)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ weight + bias, torch.as_tensor(y)) + penalty * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    predicted = classes[(x_test @ weight + bias).argmax(1).numpy()]
    return float((predicted == np.asarray(test_labels)).mean())
