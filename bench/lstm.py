"""Training speed of the bidirectional language model of chapter 7 beside plain stacks of `torch.nn.LSTM`, one thread.

All have the same two layers in two directions, the same batch and the same sampled loss. The peers read word vectors
from a table: `projected` is torch's own stack with proj_size, `wide` an LSTM without projection whose states are as
wide as the projected ones, `hidden` one whose states are as wide as the cells. They take turns, and a ratio is the
median over the turns: a machine that slows down for a while slows down both.
"""

import statistics
import time

import torch
from record import save, summary
from torch import nn

from lrm_utils.models import bilm

V, D, H, B, T, K, REPEATS = 14_675, 128, 512, 48, 32, 6144, 101
FILTERS = [(1, 16), (2, 32), (3, 64), (4, 96), (5, 128), (6, 128)]


class Plain(nn.Module):
    """Word vectors from a table and torch's own LSTM, both directions by turning the text around."""

    def __init__(self, **options):
        super().__init__()
        self.embedding = nn.Embedding(V, D)
        self.ahead, self.behind = (nn.LSTM(D, num_layers=2, batch_first=True, **options) for _ in range(2))
        width = options.get("proj_size") or options["hidden_size"]
        self.softmax = bilm.Softmax(V, width)

    def loss(self, words):
        """Half the sum of both directions' losses."""
        x = self.embedding(words)
        y, z = self.ahead(x)[0], self.behind(x.flip(1))[0].flip(1)
        total = 0
        for states, targets in ((y[:, :-1], words[:, 1:]), (z[:, 1:], words[:, :-1])):
            flat = states.flatten(0, 1)
            total += bilm.sampled_loss(flat, targets.flatten(), self.softmax.vectors, self.softmax.bias, K)
        return total / 2


class Ours(nn.Module):
    """The biLM of the chapter, from characters."""

    def __init__(self, spellings):
        super().__init__()
        self.model = bilm.LanguageModel(bilm.BiLM(FILTERS, D, H, dropout=0.0), bilm.Softmax(V, D))
        self.spellings = spellings

    def loss(self, words):
        """Half the sum of both directions' losses."""
        different, index = words.unique(return_inverse=True)
        lengths = torch.full((len(words),), words.shape[1])
        losses, _ = self.model(self.spellings[different], index, words, lengths, K)
        return losses.sum() / 2


def main():
    """Take the models in turn, so that the machine's moods fall on all of them."""
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(0)
    share = 1 / torch.arange(1, V + 1.0)
    batches = [torch.multinomial(share, B * T, True, generator=random).view(B, T) for _ in range(REPEATS)]
    spellings = bilm.spell([f"word{i}" for i in range(V)])
    models = {
        "ours": Ours(spellings),
        "projected": Plain(hidden_size=H, proj_size=D),
        "wide": Plain(hidden_size=D),
        "hidden": Plain(hidden_size=H),
    }
    optimizers = {name: torch.optim.Adam(model.parameters()) for name, model in models.items()}
    taken = {name: [] for name in models}
    for words in batches:
        for name, model in models.items():
            begin = time.perf_counter()
            (model.loss(words) / words.numel()).backward()
            optimizers[name].step()
            optimizers[name].zero_grad()
            taken[name].append(time.perf_counter() - begin)
    taken = {name: seconds[1:] for name, seconds in taken.items()}
    speed = {name: round(B * T / statistics.median(seconds)) for name, seconds in taken.items()}
    turns = {
        name: [theirs / ours for ours, theirs in zip(taken["ours"], seconds, strict=True)]
        for name, seconds in taken.items()
        if name != "ours"
    }
    save(
        "lstm",
        shape=dict(V=V, D=D, H=H, B=B, T=T, K=K),
        seconds={name: summary(seconds) for name, seconds in taken.items()},
        tokens_per_second=speed,
        ours_against={name: summary(ratios) for name, ratios in turns.items()},
    )


if __name__ == "__main__":
    main()
