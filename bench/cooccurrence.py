"""Co-occurrence counts of the whole SOTU text, window 5: the product of matrices beside the dictionary loop.

    python bench/cooccurrence.py            compare in one run and write the record cooccurrence

Both count the same text in the same process, on one thread; the median of several runs each. The record also holds the
peak memory of the product alone, measured in a process of its own.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import resource
import subprocess
import sys

from record import save, seconds, speeches

from lrm_utils.models.cooccurrence import co_occurrence

WINDOW, REPEATS, LOOP_REPEATS = 5, 11, 3


def dictionary_loop(documents: list[list[int]], window: int) -> dict[tuple[int, int], int]:
    """The naive count: a dictionary and three nested loops."""
    counts: dict[tuple[int, int], int] = {}
    for document in documents:
        for here, word in enumerate(document):
            for context in document[max(0, here - window) : here]:
                counts[word, context] = counts.get((word, context), 0) + 1
                counts[context, word] = counts.get((context, word), 0) + 1
    return counts


def main() -> None:
    """Measure, compare, record."""
    ids, V = speeches()
    if sys.argv[1:] == ["--memory"]:
        co_occurrence(ids, V, WINDOW)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        return
    co_occurrence(ids, V, WINDOW)  # once unmeasured: the first run also asks the system for its memory
    product = seconds(lambda: co_occurrence(ids, V, WINDOW), REPEATS)
    lists = [document.tolist() for document in ids]
    loop = seconds(lambda: dictionary_loop(lists, WINDOW), LOOP_REPEATS)
    counted, X = dictionary_loop(lists, WINDOW), co_occurrence(ids, V, WINDOW).tocoo()
    equal = len(counted) == X.nnz and all(
        counted[i, j] == n for i, j, n in zip(X.row.tolist(), X.col.tolist(), X.data.tolist(), strict=True)
    )
    memory = subprocess.run([sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True)
    save(
        "cooccurrence",
        tokens=sum(map(len, ids)),
        words=V,
        window=WINDOW,
        nonzero=X.nnz,
        product_seconds=product,
        loop_seconds=loop,
        ratio=round(loop["median"] / product["median"], 1),
        equal_on_the_whole_text=equal,
        product_peak_mb=int(memory.stdout),
    )


if __name__ == "__main__":
    main()
