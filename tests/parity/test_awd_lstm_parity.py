"""Our layers and optimizer compute what PyTorch 2.13's compute: nn.LSTM to 1e-6, the walks of ASGD and SGD to 1e-12.

`torch.optim.ASGD` also decays its weights (`lambd`) and its rate (`alpha`): both are switched off. Its mean is
overwritten, not averaged, up to and including step t0 + 2, so it is the mean of the points from t0 + 2 on. It keeps its
rate and its weights 1 / n in single precision: the rate here is a power of 2, and means agree to 1e-6.
"""

import pytest
import torch
from torch import nn

from lrm_utils.models import awd_lstm as awd


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def pair(size=6):
    start = torch.randn(size, dtype=torch.float64)
    return nn.Parameter(start.clone()), nn.Parameter(start.clone())


@pytest.mark.parametrize("t0", [0, 1, 7, 100])
def test_the_mean_is_that_of_torch_optim_asgd(t0):
    ours, theirs = pair()
    a = awd.ASGD([ours], lr=0.125)
    b = torch.optim.ASGD([theirs], lr=0.125, lambd=0, alpha=0, t0=t0)
    for k in range(1, 51):
        if k == t0 + 2:
            a.start()
        ours.grad = ours.detach() * torch.arange(1, 7) + torch.randn(6, dtype=torch.float64)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        if k >= t0 + 2:
            torch.testing.assert_close(a.state[ours]["mean"], b.state[theirs]["ax"], rtol=0, atol=1e-6)


def test_without_averaging_the_walk_is_that_of_torch_optim_sgd():
    ours, theirs = pair()
    a, b = awd.ASGD([ours], lr=0.3), torch.optim.SGD([theirs], lr=0.3)
    for _ in range(20):
        ours.grad = torch.randn(6, dtype=torch.float64)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_with_p_0_or_in_eval_mode_a_layer_is_torch_nn_lstm(training):
    layer = awd.WeightDropLSTM(5, 7, 0.0 if training else 0.6).train(training)
    theirs = nn.LSTM(5, 7, batch_first=True)
    theirs.load_state_dict(layer.lstm.state_dict())
    x, state = torch.randn(3, 9, 5), (torch.randn(1, 3, 7), torch.randn(1, 3, 7))
    for given in (None, state):
        ours, last = layer(x, given)
        expected, final = theirs(x, given)
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(last, final, rtol=0, atol=1e-6)


def test_with_weights_dropped_a_layer_is_torch_nn_lstm_with_the_thinned_matrix():
    layer, theirs, x = awd.WeightDropLSTM(5, 7, 0.4), nn.LSTM(5, 7, batch_first=True), torch.randn(3, 9, 5)
    torch.manual_seed(3)
    thinned = nn.functional.dropout(layer.lstm.weight_hh_l0, 0.4)
    theirs.load_state_dict(layer.lstm.state_dict() | {"weight_hh_l0": thinned})
    torch.manual_seed(3)
    torch.testing.assert_close(layer(x)[0], theirs(x)[0], rtol=0, atol=1e-6)


def test_a_stack_without_dropout_is_a_stack_of_torch_nn_lstm():
    encoder = awd.AWDLSTM(11, 6, 6, layers=2, words=0, inputs=0, hidden=0, weights=0)
    theirs = nn.LSTM(6, 6, 2, batch_first=True)
    for i, layer in enumerate(encoder.layers):
        for name, p in layer.lstm.named_parameters():
            getattr(theirs, name.replace("l0", f"l{i}")).data = p.data.clone()
    words = torch.randint(11, (2, 9))
    torch.testing.assert_close(encoder(words)[0], theirs(encoder.embedding(words))[0], rtol=0, atol=1e-6)
