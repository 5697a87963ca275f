"""Beside libraries that were not written here: BLEU beside sacreBLEU 2.6, the encoder beside torch 2.13 GRU cells."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU
from torch import nn

from lrm_utils.models import seq2seq as s2s

sentence = st.lists(st.sampled_from(["a", "b", "c", "the"]), min_size=1, max_size=12)
rows = st.lists(st.tuples(sentence, st.lists(sentence, min_size=2, max_size=2)), min_size=1, max_size=6)


def theirs(candidates, references):
    """sacreBLEU without its tokenizer and without smoothing: the formula of the paper."""
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    columns = [[" ".join(refs[i]) for refs in references] for i in range(len(references[0]))]
    return metric.corpus_score([" ".join(c) for c in candidates], columns).score / 100


@given(rows)
@settings(max_examples=200)
def test_bleu_equals_sacrebleu_with_two_references(rows):
    candidates, references = [c for c, _ in rows], [refs for _, refs in rows]
    assert s2s.bleu(candidates, references) == pytest.approx(theirs(candidates, references), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_bleu_equals_sacrebleu_on_a_corpus_of_near_copies(seed):
    random = np.random.default_rng(seed)
    references = [[[str(w) for w in random.integers(0, 30, random.integers(5, 25))]] for _ in range(50)]
    candidates = [
        [w if random.random() < 0.8 else "x" for w in refs[0] if random.random() < 0.95] for refs in references
    ]
    ours = s2s.bleu(candidates, references)
    assert 0.2 < ours < 0.8
    assert ours == pytest.approx(theirs(candidates, references), abs=1e-9)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_encoder_equals_torch_cells_run_word_by_word(bidirectional):
    """torch.nn.GRUCell with copied weights, float64 within 1e-9."""
    torch.manual_seed(0)
    encoder = s2s.Encoder(5, 6, bidirectional).double()
    x, lengths = torch.randn(3, 7, 5, dtype=torch.float64), torch.tensor([7, 4, 1])
    states, last = encoder(x, lengths)
    width = 3 if bidirectional else 6
    for suffix, offset in (("", 0), ("_reverse", width))[: 1 + bidirectional]:
        cell = nn.GRUCell(5, width).double()
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        cell.load_state_dict({name: getattr(encoder.rnn, f"{name}_l0{suffix}") for name in names})
        for row, n in enumerate(lengths.tolist()):
            h = torch.zeros(1, width, dtype=torch.float64)
            for s in range(n) if not suffix else reversed(range(n)):
                h = cell(x[row, s][None], h)
                assert torch.allclose(states[row, s, offset : offset + width], h[0], atol=1e-9)
            assert torch.allclose(last[row, offset : offset + width], h[0], atol=1e-9)
