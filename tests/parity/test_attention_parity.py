"""Attention beside d2l 1.0.3 and torch 2.13, which were not written here: weights copied, float64 within 1e-9."""

import pytest
import torch
from record import import_d2l
from torch import nn
from torch.nn import functional as F

from lrm_utils.models import attention as at

LENGTHS = torch.tensor([5, 2, 1])
ALLOWED = (torch.arange(5) < LENGTHS[:, None])[:, None]


def tensors(*shapes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def test_the_additive_score_equals_d2ls_additive_attention():
    d2l = import_d2l()
    theirs = d2l.AdditiveAttention(7, dropout=0.0).double().eval()
    q, k, v = tensors((3, 4, 6), (3, 5, 8), (3, 5, 2))
    expected = theirs(q, k, v, LENGTHS)
    score = at.AdditiveScore(6, 8, A=7).double()
    score.load_state_dict(
        {"W_q.weight": theirs.W_q.weight, "W_k.weight": theirs.W_k.weight, "v.weight": theirs.w_v.weight}
    )
    weights = at.masked_softmax(score(q, k), ALLOWED)
    assert torch.allclose(weights, theirs.attention_weights, atol=1e-9)
    assert torch.allclose(weights @ v, expected, atol=1e-9)


def test_the_dot_score_equals_d2ls_and_torchs_up_to_their_scale():
    """Both divide by the root of the width, which this chapter does not do yet."""
    d2l = import_d2l()
    q, k, v = tensors((3, 4, 6), (3, 5, 6), (3, 5, 2))
    ours = at.masked_softmax(at.DotScore()(q / 6**0.5, k), ALLOWED) @ v
    assert torch.allclose(ours, d2l.DotProductAttention(dropout=0.0).eval()(q, k, v, LENGTHS), atol=1e-9)
    assert torch.allclose(ours, F.scaled_dot_product_attention(q, k, v, attn_mask=ALLOWED), atol=1e-9)


def test_masked_softmax_equals_d2ls_where_theirs_is_exact():
    """d2l fills with -1e6 instead of leaving out: the same in float64, as long as a row has a place to look at."""
    d2l = import_d2l()
    (scores,) = tensors((3, 4, 5))
    assert torch.allclose(at.masked_softmax(scores, ALLOWED), d2l.masked_softmax(scores, LENGTHS), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_before_equals_torch_cells_and_a_softmax_put_together_by_hand(seed):
    torch.manual_seed(seed)
    D = 6
    model = at.AttentionSeq2Seq(9, 9, D).double().eval()
    source, lengths, target = torch.randint(4, 9, (1, 5)), torch.tensor([5]), torch.randint(1, 9, (1, 4))
    decoder, score = model.decoder, model.decoder.attention.scores[0]
    cell = nn.GRUCell(2 * D, D).double()
    cell.load_state_dict({n.removesuffix("_l0"): p for n, p in decoder.gru.named_parameters()})
    states, h = model.encoder(model.source_table(source), lengths)
    for t in range(4):
        a = score.v(torch.tanh(score.W_q(h)[:, None] + score.W_k(states)))[..., 0]
        c = (F.softmax(a, -1)[..., None] * states).sum(1)
        h = cell(torch.cat([model.target_table(target[:, t]), c], -1), h)
        logits = model.output(torch.tanh(decoder.join(torch.cat([c, h], -1))))
        assert torch.allclose(logits, model(source, lengths, target)[:, t], atol=1e-9)
