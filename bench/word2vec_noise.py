"""How many noise words a block should share: the quality of skip-gram by their number.

    python bench/word2vec_noise.py    train, score and write the record word2vec_noise

The speeches in the order of their dates, five epochs, three seeds. About five minutes; nothing here is timed.
"""

from record import save
from word2vec import CORPORA, WINDOW, D, K, encode, sentences
from word2vec_quality import SEEDS, score, summary

from lrm_utils.models.training_word2vec import train

EPOCHS, SHARED = 5, (5, 10, 26, 58)


def main() -> None:
    """Train with each number of noise words, score, record."""
    _, min_count, sample = CORPORA["speeches"]
    vocab, ids = encode(sentences("speeches"), min_count)
    runs = []
    for shared in SHARED:
        options = dict(D=D, window=WINDOW, k=K, epochs=EPOCHS, sample=sample, shared=shared)
        scores = [score(train(ids, vocab, seed=seed, **options).vectors) for seed in SEEDS]
        runs.append({"shared": shared} | summary(scores))
        print(runs[-1], flush=True)
    save(
        "word2vec_noise", settings={"D": D, "window": WINDOW, "k": K, "epochs": EPOCHS, "seeds": list(SEEDS)}, runs=runs
    )


if __name__ == "__main__":
    main()
