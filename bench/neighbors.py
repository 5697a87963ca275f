"""Nearest neighbors among the 400,000 words of GloVe: seconds for 1,000 queries, ours beside d2l's loop,
gensim, and a plain product.

    python bench/neighbors.py          compare in one run and write the record neighbors

d2l's loop takes one word at a time, multiplies the whole table with it, works out the length of every row again, and
takes the largest k; it is written out below. gensim's `most_similar` takes one word at a time, too, but keeps the
lengths. The plain product takes 256 words at a time, multiplies them with the table, and picks the largest k of every
score. Ours takes 256 at a time, too, and picks by groups. All are run in turn, with one thread and with two. The two
loops do the same work for every word, so a round gives them 100 words and what they take is multiplied by ten; once,
with one thread, d2l's loop is also run on all 1,000. What is ready before the clock starts: for d2l the table, for
gensim the table and its lengths, for the last two the table with rows of length 1. `load` is how many processes the
machine was busy with at the start. About two minutes on two idle cores; on busy ones two threads wait for each other.
"""

import os
import statistics

import numpy as np
import torch
from record import clock, save, summary
from threadpoolctl import threadpool_limits

from lrm_utils import data
from lrm_utils.models.similarity_and_analogy import BLOCK, WordSpace, nearest, to_keyed

QUERIES, LOOPED, K, REPEATS = 1000, 100, 10, 5
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1000)


def knn(table: torch.Tensor, x: torch.Tensor, k: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The k rows nearest to x, as in d2l's section on similarity and analogy."""
    lengths = torch.sqrt(torch.sum(table * table, axis=1) + 1e-9) * torch.sqrt((x * x).sum())
    cosines = torch.mv(table, x.reshape(-1)) / lengths
    _, best = torch.topk(cosines, k=k)
    return best, [cosines[int(i)] for i in best]


def d2l_loop(table: torch.Tensor, ids: np.ndarray, k: int) -> np.ndarray:
    """The neighbors of some rows, one at a time; the nearest is the row itself and is left out."""
    return np.array([knn(table, table[i], k + 1)[0][1:].numpy() for i in ids])


def plain_product(space: WordSpace, ids: np.ndarray, k: int) -> np.ndarray:
    """The neighbors of some rows, a block at a time: all scores, then the largest k; the row itself is left out."""
    unit, found = torch.from_numpy(space.unit), []
    for start in range(0, len(ids), BLOCK):
        queries = unit[torch.from_numpy(ids[start : start + BLOCK])]
        found.append((queries @ unit.T).topk(k + 1).indices[:, 1:].numpy())
    return np.concatenate(found)


def compare(space: WordSpace, table: torch.Tensor, keyed, ids: np.ndarray) -> dict[str, dict]:
    """Seconds for all queries with one thread and with two; every way once a round."""
    words, scale = [space.vocab.words[i] for i in ids], QUERIES / LOOPED
    ways = {
        "d2l's loop": lambda: scale * clock(lambda: d2l_loop(table, ids[:LOOPED], K))[0],
        "gensim's loop": lambda: scale * clock(lambda: [keyed.most_similar(w, topn=K) for w in words[:LOOPED]])[0],
        "plain product": lambda: clock(lambda: plain_product(space, ids, K))[0],
        "ours": lambda: clock(lambda: nearest(space, space.unit[ids], K, ids[:, None]))[0],
    }
    nearest(space, space.unit[ids[:10]], K)  # once unmeasured, each
    plain_product(space, ids[:BLOCK], K)
    d2l_loop(table, ids[:2], K), keyed.most_similar(words[0], topn=K)
    taken = {threads: {name: [] for name in ways} for threads in (1, 2)}
    for _ in range(REPEATS):
        for threads, times in taken.items():
            torch.set_num_threads(threads)
            with threadpool_limits(threads):
                for name, way in ways.items():
                    times[name].append(way())
    torch.set_num_threads(1)
    results = {}
    for threads, times in taken.items():
        seconds = {name: summary(values) for name, values in times.items()}
        faster = {name: round(s["median"] / seconds["ours"]["median"], 1) for name, s in seconds.items()}
        results[str(threads)] = {"seconds": seconds, "times_ours": faster}
    return results


def by_batch(space: WordSpace, ids: np.ndarray) -> list[list[float]]:
    """Milliseconds for a query, by how many are asked at once; one thread."""
    found = []
    for size in BATCHES:
        rounds = max(1, min(30, 300 // size))
        taken = [
            clock(lambda part=ids[:size]: nearest(space, space.unit[part], K, part[:, None]))[0] for _ in range(rounds)
        ]
        found.append([size, round(1000 * statistics.median(taken) / size, 3)])
    return found


def main() -> None:
    """Measure, compare, record."""
    vectors = data.glove()
    space, table, keyed = WordSpace(vectors), torch.from_numpy(vectors.matrix), to_keyed(vectors)
    ids = np.random.default_rng(0).choice(100_000, QUERIES, replace=False)
    load = round(os.getloadavg()[0], 1)
    results = compare(space, table, keyed, ids)
    whole = round(clock(lambda: d2l_loop(table, ids, K))[0], 3)
    ours = nearest(space, space.unit[ids], K, ids[:, None])[0]
    same = {"d2l's loop": d2l_loop(table, ids[:LOOPED], K), "plain product": plain_product(space, ids, K)}
    settings = {"words": len(space.vocab), "D": table.shape[1], "queries": QUERIES, "k": K, "repeats": REPEATS}
    save(
        "neighbors",
        settings=settings | {"looped": LOOPED},
        load=load,
        threads=results,
        d2l_loop_on_all_queries_once=whole,
        by_batch=by_batch(space, ids),
        same_neighbors={name: round(float((ours[: len(x)] == x).mean()), 4) for name, x in same.items()},
    )


if __name__ == "__main__":
    main()
