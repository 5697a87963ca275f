"""The bidirectional language model beside libraries that nobody here wrote: torch 2.13."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lrm_utils.models import bilm


@pytest.mark.parametrize("D, H, P", [(6, 16, 4), (3, 5, 4), (8, 8, 1)])
@pytest.mark.parametrize("B, T", [(3, 7), (1, 4), (2, 1)])
def test_lstmp_equals_torch_lstm_with_projection_in_values_and_gradients(D, H, P, B, T):
    torch.manual_seed(0)
    ours, torchs = bilm.LSTMP(D, H, P).double(), nn.LSTM(D, H, proj_size=P, batch_first=True).double()
    torchs.load_state_dict(ours.state_dict())
    x = torch.randn(B, T, D, dtype=torch.double)
    kept = x.clone()
    x.requires_grad_(), kept.requires_grad_()
    y, expected = ours(x), torchs(kept)[0]
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    y.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, kept.grad, rtol=1e-9, atol=1e-11)
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, getattr(torchs, name).grad, rtol=1e-9, atol=1e-11)


def test_one_layer_without_residual_equals_torchs_bidirectional_lstm_on_packed_sentences():
    torch.manual_seed(0)
    D, H = 4, 6
    model = bilm.BiLM([(1, 5)], D, H, layers=1).double().eval()
    both = nn.LSTM(D, H, proj_size=D, batch_first=True, bidirectional=True).double()
    for name, part in (("l0", model.forwards), ("l0_reverse", model.backwards)):
        for key, weight in part.layers[0].named_parameters():
            getattr(both, key.replace("l0", name)).data.copy_(weight.data)
    spellings, index, lengths = bilm.spell(["a", "bc", "def"]), torch.randint(3, (3, 6)), torch.tensor([6, 4, 1])
    layers = model(spellings, index, lengths)
    x = layers[0, ..., :D]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(both(packed)[0], batch_first=True)
    real = torch.arange(6) < lengths[:, None]
    torch.testing.assert_close(layers[1][real], expected[real], rtol=0, atol=1e-12)


def test_with_every_word_drawn_the_sampled_loss_is_torchs_cross_entropy():
    torch.manual_seed(0)
    V, D, N = 12, 5, 40
    softmax = bilm.Softmax(V, D).double()
    states, targets = torch.randn(N, D, dtype=torch.double), torch.randint(V, (N,))
    sampled = bilm.sampled_loss(states, targets, softmax.vectors, softmax.bias, K=5000)
    full = F.cross_entropy(softmax(states), targets, reduction="sum")
    torch.testing.assert_close(sampled, full, rtol=1e-9, atol=1e-9)


def test_convolution_and_maximum_are_those_of_the_formula():
    torch.manual_seed(0)
    reader = bilm.CharacterCNN([(3, 4)], D=2, D_char=5, highways=0).double()
    spelling = bilm.spell(["treaty"], 10)
    x = reader.embedding(spelling)[0]  # (C, D_char)
    conv = reader.convolutions[0]
    by_hand = torch.stack([sum(conv.weight[:, :, j] @ x[i + j] for j in range(3)) + conv.bias for i in range(8)]).amax(
        0
    )
    torch.testing.assert_close(reader(spelling)[0], reader.projection(F.relu(by_hand)), rtol=0, atol=1e-12)


def test_best_windows_have_the_scores_and_gradients_of_a_convolution_and_a_maximum():
    torch.manual_seed(0)
    reader = bilm.CharacterCNN([(1, 3), (3, 4), (6, 5)], D=2, D_char=5, highways=0).double()
    spellings = bilm.spell(["treaty", "a", "disinterestedness", "</s>"], 20)
    table = reader.embedding.weight
    for conv in reader.convolutions:
        letters = reader.embedding(torch.arange(bilm.CHARACTERS))
        ours = bilm.best_window(conv, letters, spellings)
        torchs = conv(reader.embedding(spellings).transpose(1, 2)).max(-1).values
        torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-12)
        wanted = torch.randn_like(ours)
        found, expected = (
            torch.autograd.grad(y, (conv.weight, conv.bias, table), wanted, allow_unused=True) for y in (ours, torchs)
        )
        for got, right in zip(found, expected, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-11)
        assert not found[2][bilm.PAD].any()


@pytest.mark.parametrize("B, T", [(3, 4), (1, 5), (4, 1)])
def test_the_way_back_leaves_the_gradient_from_above_as_it_is(B, T):
    torch.manual_seed(0)
    y = bilm.LSTMP(3, 5, 4)(torch.randn(B, T, 3))
    above = torch.randn_like(y)
    kept = above.clone()
    y.backward(above)
    torch.testing.assert_close(above, kept, rtol=0, atol=0)


def test_in_mixed_precision_the_layer_is_torchs():
    torch.manual_seed(0)
    ours = bilm.LSTMP(3, 5, 4)
    torchs = nn.LSTM(3, 5, proj_size=4, batch_first=True)
    torchs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 6, 3)
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = ours(x), torchs(x)[0]
    assert y.dtype == expected.dtype
    torch.testing.assert_close(y, expected, rtol=0, atol=0)
