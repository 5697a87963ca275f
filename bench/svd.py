"""From the SOTU text to 100 dimensions: co-occurrence, PPMI and truncated SVD, beside gensim's LsiModel.

    python bench/svd.py            compare in one run and write the record svd

Both decompose the same PPMI matrix in the same process, in turn, the median of several runs each. ARPACK, to machine
precision, says what the singular values are: for each method the record holds the largest relative error of the 100
values, and the share of the best possible sum of squares that its directions hold (measured on the matrix itself).
"""

import logging
import statistics

import numpy as np
from gensim.matutils import Sparse2Corpus
from gensim.models import LsiModel
from record import save, seconds, speeches
from scipy import sparse
from scipy.sparse.linalg import svds

from lrm_utils.models.cooccurrence import co_occurrence, ppmi
from lrm_utils.models.svd_and_lsa import truncated_svd

WINDOW, K, REPEATS = 5, 100, 5
# gensim's own settings, and then as many power iterations as it takes to come near ours.
GENSIM = {"default": {}, "one chunk": {"chunksize": 20_000}, "6 rounds": {"chunksize": 20_000, "power_iters": 6}}


def lsi(columns: sparse.csc_matrix, options: dict) -> LsiModel:
    """gensim's model of the matrix, a column for each document."""
    names = {i: str(i) for i in range(columns.shape[0])}  # it insists on a dictionary
    return LsiModel(Sparse2Corpus(columns), num_topics=K, id2word=names, random_seed=0, **options)


def accuracy(A: sparse.csr_array, left: np.ndarray, s: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    """How far the values are off, and how much of A the span of the left vectors holds, against the best possible."""
    Q = np.linalg.qr(left.astype(float))[0]
    held = np.square(A.T @ Q).sum() / np.square(exact).sum()
    return {"largest_error": float(f"{np.abs(s[:K] / exact - 1).max():.2g}"), "held": round(float(held), 6)}


def main() -> None:
    """Measure, compare, record."""
    logging.disable(logging.WARNING)
    ids, V = speeches()
    counts = co_occurrence(ids, V, WINDOW)
    A = ppmi(counts, alpha=0.75, k=2)
    single, columns = A.astype(np.float32), sparse.csc_matrix(A)
    exact = svds(A, K, return_singular_vectors=False, rng=np.random.default_rng(0))[::-1]
    methods = {"ours": lambda: truncated_svd(single, K)}
    methods |= {f"gensim, {name}": lambda o=options: lsi(columns, o) for name, options in GENSIM.items()}
    methods["scipy svds"] = lambda: svds(single, K, rng=np.random.default_rng(0))
    steps = {"count": lambda: co_occurrence(ids, V, WINDOW), "ppmi": lambda: ppmi(counts, alpha=0.75, k=2)}
    times = {name: [] for name in methods | steps}
    for _ in range(REPEATS):  # in turn, so that a busy moment hits all alike
        for name, work in (methods | steps).items():
            times[name].append(seconds(work, 1)["median"])
    taken = {name: round(statistics.median(values), 2) for name, values in times.items()}
    quality = {}
    for name, work in methods.items():
        found = work()
        left, s = (found.projection.u, found.projection.s) if isinstance(found, LsiModel) else found[:2]
        quality[name] = accuracy(A, left, np.sort(s)[::-1], exact)
    save(
        "svd",
        words=V,
        window=WINDOW,
        nonzero=A.nnz,
        dimensions=K,
        repeats=REPEATS,
        seconds={
            name: {"median": taken[name], "min": min(values), "max": max(values)} for name, values in times.items()
        },
        total_seconds=round(taken["count"] + taken["ppmi"] + taken["ours"], 2),
        total_below_15=taken["count"] + taken["ppmi"] + taken["ours"] < 15,
        quality=quality,
        times_as_long_as_ours={name: round(taken[name] / taken["ours"], 2) for name in methods if name != "ours"},
    )


if __name__ == "__main__":
    main()
