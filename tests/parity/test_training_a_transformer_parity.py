"""Label smoothing and Adam against PyTorch 2.13, float64, within 1e-9."""

import pytest
import torch
from torch.nn import functional as F

from lrm_utils.models.training_a_transformer import adam_step, label_smoothing_loss


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.7])
def test_label_smoothing_equals_torch_with_padding(eps):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4, 9, 31, dtype=torch.float64, generator=generator)
    target = torch.randint(1, 31, (4, 9), generator=generator)
    lengths = torch.tensor([9, 1, 4, 6])
    padded = target.masked_fill(torch.arange(9) >= lengths[:, None], 0)
    ours = logits.clone().requires_grad_()
    loss, count = label_smoothing_loss(ours, padded, lengths, eps)
    theirs = logits.clone().requires_grad_()
    expected = F.cross_entropy(
        theirs.flatten(0, 1), padded.flatten(), ignore_index=0, label_smoothing=eps, reduction="sum"
    )
    torch.testing.assert_close(loss, expected, atol=1e-9, rtol=0)
    assert count == lengths.sum()
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("betas", "eps"), [((0.9, 0.98), 1e-9), ((0.9, 0.999), 1e-8), ((0.0, 0.5), 0.1)])
def test_our_step_of_adam_equals_torch_for_a_hundred_steps(betas, eps):
    generator = torch.Generator().manual_seed(1)
    theta = torch.randn(20, dtype=torch.float64, generator=generator)
    parameter = torch.nn.Parameter(theta.clone())
    optimizer = torch.optim.Adam([parameter], lr=0.03, betas=betas, eps=eps)
    m = v = torch.zeros_like(theta)
    for t in range(1, 101):
        g = torch.randn(20, dtype=torch.float64, generator=generator) * 10.0 ** (t % 5 - 3)
        parameter.grad = g
        optimizer.step()
        theta, m, v = adam_step(theta, g, m, v, t, 0.03, betas, eps)
        torch.testing.assert_close(theta, parameter.data, atol=1e-9, rtol=0)


def test_the_default_settings_are_the_papers():
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = torch.optim.Adam([parameter], lr=0.01, betas=(0.9, 0.98), eps=1e-9)
    theta, m, v = torch.ones(3, dtype=torch.float64), *torch.zeros(2, 3, dtype=torch.float64)
    for t, g in enumerate(torch.tensor([[1e-9, 1.0, -3.0], [2e-9, -1.0, 0.5]], dtype=torch.float64), 1):
        parameter.grad = g
        optimizer.step()
        theta, m, v = adam_step(theta, g, m, v, t, 0.01)
        torch.testing.assert_close(theta, parameter.data, atol=1e-12, rtol=0)
