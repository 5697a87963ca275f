"""CoVe against libraries: torch 2.13 (LSTM, LSTMCell, scaled dot-product attention), d2l 1.0.3 (masked softmax,
dot-product attention). Tolerance 1e-5: the same sums in another order, in float32."""

import math

import torch
from record import import_d2l
from torch import nn
from torch.nn import functional as F

from lrm_utils.models import cove as cv

TOLERANCE = dict(atol=1e-5, rtol=1e-5)


def test_the_encoder_is_torchs_two_layer_bidirectional_lstm():
    torch.manual_seed(0)
    ours, theirs = cv.MTLSTM(6, 8), nn.LSTM(6, 4, num_layers=2, batch_first=True, bidirectional=True)
    theirs.load_state_dict(ours.rnn.state_dict())
    x, lengths = torch.randn(4, 7, 6), torch.tensor([7, 1, 4, 6])
    states, _ = ours(x, lengths)
    for i, n in enumerate(lengths):
        torch.testing.assert_close(states[i, :n], theirs(x[i : i + 1, :n])[0][0], **TOLERANCE)


def test_a_decoder_step_is_torchs_lstm_cells_and_scaled_dot_product_attention():
    torch.manual_seed(0)
    B, S, E, D = 3, 5, 4, 6
    for layers in (1, 2):
        decoder = cv.CoveDecoder(E, D, layers)
        H, lengths = torch.randn(B, S, D), torch.tensor([5, 2, 3])
        allowed = cv.places(lengths, S)
        state = decoder.start(H, (torch.randn(B, 2, D), torch.randn(B, 2, D)), allowed)
        reader = nn.LSTM(E + D, D, layers)
        for i, cell in enumerate(decoder.cells):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                getattr(reader, f"{name}_l{i}").data = getattr(cell, name).data
        h, c, fed = (state[name].transpose(0, 1).contiguous() for name in ("h", "c")), None, state["fed"]
        h, c = h
        for _ in range(4):
            z = torch.randn(B, E)
            ours, alpha, state = decoder.step(z, state)
            d, (h, c) = reader(torch.cat([z, fed], -1)[None], (h, c))
            query = decoder.W_1(d[0])[:, None] * math.sqrt(D)  # torch divides by sqrt(D)
            context = F.scaled_dot_product_attention(query, H, H, attn_mask=allowed[:, None])[:, 0]
            fed = torch.tanh(F.linear(torch.cat([context, d[0]], -1), decoder.W_2.weight, decoder.W_2.bias))
            torch.testing.assert_close(ours, fed, **TOLERANCE)
            torch.testing.assert_close(state["c"], c.transpose(0, 1), **TOLERANCE)
            torch.testing.assert_close((alpha[:, None] @ H)[:, 0], context, **TOLERANCE)


def test_summaries_are_torchs_and_d2ls_dot_product_attention():
    torch.manual_seed(0)
    X, Y, lengths = torch.randn(3, 4, 6), torch.randn(3, 5, 6), torch.tensor([5, 2, 3])
    real = cv.places(lengths, 5)
    C, weights = cv.summarize(X, Y, real)
    torch.testing.assert_close(
        C, F.scaled_dot_product_attention(X * math.sqrt(6), Y, Y, attn_mask=real[:, None]), **TOLERANCE
    )
    library = import_d2l()
    theirs = library.DotProductAttention(dropout=0).eval()
    torch.testing.assert_close(C, theirs(X * math.sqrt(6), Y, Y, lengths), **TOLERANCE)
    torch.testing.assert_close(weights, theirs.attention_weights, **TOLERANCE)


def test_self_attentive_pooling_is_d2ls_masked_softmax():
    torch.manual_seed(0)
    pool, X, lengths = cv.Pooling(6), torch.randn(3, 5, 6), torch.tensor([5, 2, 3])
    scores = pool.v(X).transpose(1, 2)  # (B, 1, T)
    beta = import_d2l().masked_softmax(scores, lengths)
    torch.testing.assert_close(pool(X, cv.places(lengths, 5))[:, 18:], (beta @ X)[:, 0], **TOLERANCE)
