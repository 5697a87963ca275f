"""Checks that a chapter runs on its own claims: each states something that must be true and raises if it is not.

A failed check says what differs, where, and what usually causes it. With `says="…"` a check that holds prints that
sentence behind a tick. It owns no tolerance wide enough to hide a bug: the defaults are those of float arithmetic.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from scipy import sparse
from torch import nn


class CheckFailed(AssertionError):
    """A claim that does not hold."""


def _hold(says: str | None) -> None:
    if says:
        print(f"✓ {says}")


def _fail(says: str | None, what: str, causes: str) -> None:
    claim = f"this does not hold: {says}\n  " if says else ""
    raise CheckFailed(f"{claim}{what}\n  usual causes: {causes}")


def _array(x) -> np.ndarray:
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        return x.to(torch.float64).numpy() if x.is_floating_point() else x.numpy()
    if sparse.issparse(x):
        return x.toarray()
    return np.asarray(x)


@contextmanager
def _evaluating(model):
    """Switch dropout off while a model is examined, and restore its mode."""
    was_training = isinstance(model, nn.Module) and model.training
    if was_training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if was_training:
            model.train()


def close(actual, expected, tolerance: float | None = None, says: str | None = None) -> None:
    """Every entry of `actual` is within `tolerance` of `expected`, by default a millionth of its largest magnitude."""
    where = None  # the rows and columns of the entries that are compared, when only some of them are
    if sparse.issparse(actual) and sparse.issparse(expected) and actual.shape == expected.shape:
        where = ((actual != 0) + (expected != 0)).nonzero()  # elsewhere both are 0
        if not len(where[0]):
            return _hold(says)
        actual, expected = actual.tocsr()[where], expected.tocsr()[where]
    a, e = _array(actual), _array(expected)
    if not a.size:
        _fail(says, "there is nothing to compare: the array is empty", "a filter that kept no row")
    if a.shape != e.shape and e.ndim:
        _fail(says, f"the shapes differ: {a.shape} against {e.shape}", "a missing axis, or a transpose")
    a, e = np.broadcast_arrays(np.asarray(a, float), np.asarray(e, float))
    if tolerance is None:
        tolerance = max(1e-6 * float(np.abs(e[np.isfinite(e)]).max(initial=0.0)), 1e-9)
    with np.errstate(invalid="ignore"):
        difference = np.where(a == e, 0.0, np.abs(a - e))  # equal infinities differ by 0, not by nan
    wrong = ~(difference <= tolerance)  # nan is never within a tolerance
    if wrong.any():
        worst = np.unravel_index(np.argmax(np.where(np.isnan(difference), np.inf, difference)), a.shape)
        place = tuple(int(axis[worst]) for axis in where) if where else tuple(map(int, worst))
        what = f"{wrong.sum():,} of {a.size:,} entries differ by more than {tolerance:.2g}; " if a.size > 1 else ""
        what += f"the largest difference is{f' at {place}' if place else ''}: {a[worst]:.6g} against {e[worst]:.6g}"
        _fail(says, what, _diagnose(a, e, tolerance))
    _hold(says)


def _diagnose(a: np.ndarray, e: np.ndarray, tolerance: float) -> str:
    """Name the mistake where the numbers themselves give it away."""
    if np.isnan(a).any():
        return "a logarithm of 0, 0/0, or a softmax over a row that is masked everywhere"
    if a.ndim == 2 and a.shape[0] == a.shape[1] and np.allclose(a.T, e, atol=tolerance):
        return "the transpose agrees: two axes are swapped"
    if a.size > 1 and np.allclose(-a, e, atol=tolerance):
        return "the negative agrees: a sign is wrong"
    both = (np.abs(e) > tolerance) & np.isfinite(a) & np.isfinite(e)
    if both.sum() > 1:
        ratio, shift = a[both] / e[both], a[both] - e[both]
        if np.ptp(ratio) < 1e-4 * max(abs(ratio[0]), 1e-12):
            return f"all are {ratio[0]:.4g} times what they should be: a sum for a mean, or a missing factor"
        if np.ptp(shift) < 1e-4 * max(abs(shift[0]), 1e-12):
            return f"all are off by {shift[0]:.4g}: a missing bias or a normalizing constant"
    return "a sum over the wrong axis, a missing scale, or precision lost in float32"


def shape(x, letters: str, **sizes: int) -> dict[str, int]:
    """The shape of `x` reads as `letters`, such as "B H T T"; a letter has one size wherever it stands.

    Sizes that are not given are read off; all are returned. A number stands for itself: "B T 3".
    """
    names, found = letters.split(), tuple(x.shape)
    if len(names) != len(found):
        _fail(
            None, f"expected {len(names)} axes ({letters}) and found {len(found)}: {found}", "a missing or extra axis"
        )
    sizes = dict(sizes)
    for axis, (name, size) in enumerate(zip(names, found, strict=True)):
        expected = int(name) if name.isdigit() else sizes.setdefault(name, size)
        if expected != size:
            _fail(
                None,
                f"axis {axis} ({name}) of {found} has {size} entries, expected {expected} ({letters})",
                "swapped axes, or a batch that lost its last rows",
            )
    return sizes


def gradient(
    loss: Callable[[], torch.Tensor],
    parameters: nn.Module | Mapping[str, torch.Tensor],
    by_hand: Mapping[str, torch.Tensor] | None = None,
    tolerance: float = 1e-6,
    entries: int = 20,
    says: str | None = None,
) -> None:
    """The gradient of `loss()` that autograd finds equals the one derived by hand, or else central differences.

    Everything must be float64: in float32, differences drown in rounding. Without `by_hand`, `entries` entries of
    each tensor, drawn at random, are nudged up and down and the loss is evaluated at both. `tolerance` is relative to
    the largest entry of each gradient.
    """
    named = dict(parameters.named_parameters() if isinstance(parameters, nn.Module) else parameters)
    for name, tensor in named.items():
        if tensor.dtype != torch.float64:
            _fail(says, f"{name} is {tensor.dtype}, expected torch.float64", "a missing .double()")
    values = [p for p in named.values() if p.requires_grad]
    if len(values) != len(named):
        _fail(says, "some tensors do not require a gradient", "a missing requires_grad_(), or a frozen layer")
    automatic = dict(zip(named, torch.autograd.grad(loss(), values, allow_unused=True), strict=True))
    for name, tensor in named.items():
        if automatic[name] is None:
            _fail(says, f"the loss does not depend on {name}", "a .detach(), a .data, or a layer that is never called")
        if by_hand is not None:
            if name not in by_hand:
                _fail(says, f"no gradient by hand was given for {name}", "a name spelled in two ways")
            try:
                close(by_hand[name], automatic[name], tolerance * max(float(automatic[name].abs().max()), 1e-9))
            except CheckFailed as error:
                _fail(says, f"the gradient of {name}, by hand against autograd: {error}", "a slip in the derivation")
            continue
        picks = torch.randperm(tensor.numel(), generator=torch.Generator().manual_seed(0))[:entries].tolist()
        step, reach = 1e-5, max(float(automatic[name].abs().max()), 1e-3)  # below that, differences are rounding
        for i in (tuple(map(int, np.unravel_index(pick, tuple(tensor.shape)))) for pick in picks):
            kept = tensor.data[i].item()
            tensor.data[i] = kept + step
            above = loss().item()
            tensor.data[i] = kept - step
            below = loss().item()
            tensor.data[i] = kept
            slope, found = (above - below) / (2 * step), automatic[name][i].item()
            if not abs(slope - found) <= tolerance * reach:
                _fail(
                    says,
                    f"the gradient of {name} at entry {i}: autograd {found:.6g}, central difference {slope:.6g}",
                    "a detached term, randomness inside the loss, or a kink such as max at exactly 0",
                )
    _hold(says)


def _replaced(inputs: torch.Tensor) -> torch.Tensor:
    """The same inputs with every position changed: other ids of the same range, or shifted numbers."""
    if inputs.is_floating_point():
        return inputs + 1.0 + torch.rand(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    return (inputs + 1) % max(2, int(inputs.max()) + 1)


def causal(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    backward: bool = False,
    tolerance: float = 1e-5,
    says: str | None = None,
) -> None:
    """Outputs up to position t do not change when the inputs after t do (`backward`: the inputs before t).

    `inputs` is (B, T) ids or (B, T, D) vectors, `model(inputs)` is (B, T, …). A model that ignores its inputs
    altogether does not pass.
    """
    B, T = inputs.shape[:2]
    other = _replaced(inputs)
    if T < 2:
        _fail(says, "one position has neither past nor future", "an input of length 1")

    def run(x: torch.Tensor) -> torch.Tensor:
        return model(x).reshape(B, T, -1)

    with _evaluating(model):
        outputs = run(inputs)
        if not outputs.isfinite().all():
            _fail(says, "some outputs are not finite", "a softmax over a row that is masked everywhere")
        if not torch.equal(outputs, run(inputs)):
            _fail(says, "two runs on the same input differ", "randomness in the model: dropout outside nn.Dropout?")
        if torch.allclose(run(other), outputs, atol=tolerance):
            _fail(
                says, "the outputs ignore the inputs, so they say nothing of time", "inputs that never reach the output"
            )
        for t in range(1, T):  # the border: `seen` must not depend on `unseen`
            past, future = slice(None, t), slice(t, None)
            seen, unseen, leak = (future, past, "past") if backward else (past, future, "future")
            changed = inputs.clone()
            changed[:, unseen] = other[:, unseen]
            moved = (run(changed)[:, seen] - outputs[:, seen]).abs().amax((0, 2))  # one number for each position seen
            if not moved.max() <= tolerance:
                position = int(moved.argmax()) + (t if backward else 0)
                what = f"the output at position {position} moved by {moved.max():.3g} when the inputs"
                what += f" {'before' if backward else 'from'} position {t} {'' if backward else 'on '}changed"
                causes = "a mask that is missing, transposed, off by one, or applied after the softmax"
                _fail(says, f"{what}: the {leak} leaks", causes)
    _hold(says)


def padding(
    model: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    tolerance: float = 1e-5,
    says: str | None = None,
) -> None:
    """What stands in the padding, and how much padding there is, does not change the outputs at real positions.

    `model(inputs, lengths)` is (B, T, …), compared at the first `lengths` positions, or one output a row: (B, …).
    """
    T = inputs.shape[1]
    real = torch.arange(T) < lengths[:, None]  # (B, T)
    if bool(real.all()):
        _fail(says, "no row has any padding, so nothing is tested", "lengths that all equal T")
    filled = torch.where(real.reshape(real.shape + (1,) * (inputs.ndim - 2)), inputs, _replaced(inputs))
    longer = torch.cat([inputs, _replaced(inputs)[:, :2]], dim=1)
    with _evaluating(model):
        outputs = model(inputs, lengths)
        if torch.allclose(model(_replaced(inputs), lengths), outputs, atol=tolerance):
            _fail(says, "the outputs ignore the inputs altogether", "inputs that never reach the output")
        per_position = outputs.ndim > 1 and outputs.shape[1] == T
        for changed, how in ((filled, "other values in the padding"), (longer, "two more columns of padding")):
            moved = model(changed, lengths)
            moved = (moved[:, :T] if per_position else moved) - outputs
            moved = (moved[real] if per_position else moved).abs()
            if not moved.max() <= tolerance:
                _fail(
                    says,
                    f"{how} moved an output by {moved.max():.3g}: padding leaks",
                    "a mean over all positions, a mask on queries instead of keys, an RNN that runs on, or batch norm",
                )
    _hold(says)


def permutation(
    model: Callable[[torch.Tensor], torch.Tensor],
    inputs: torch.Tensor,
    invariant: bool = False,
    tolerance: float = 1e-5,
    says: str | None = None,
) -> None:
    """Permuting the positions of the inputs permutes the outputs alike, or with `invariant` leaves them alone.

    Tried with all swaps of two neighbors, from which every permutation can be made.
    """
    T = inputs.shape[1]
    with _evaluating(model):
        outputs = model(inputs)
        if torch.allclose(model(_replaced(inputs)), outputs, atol=tolerance):
            _fail(says, "the outputs ignore the inputs altogether", "inputs that never reach the output")
        for t in range(T - 1):
            order = torch.arange(T)
            order[t], order[t + 1] = t + 1, t
            expected = outputs if invariant else outputs[:, order]
            moved = (model(inputs[:, order]) - expected).abs().max()
            if not moved <= tolerance:
                kind = "leave the output alone" if invariant else "swap the outputs"
                _fail(
                    says,
                    f"swapping positions {t} and {t + 1} does not {kind}: they differ by {moved:.3g}",
                    "position embeddings, a causal mask, a convolution or a recurrence: something that knows order",
                )
    _hold(says)


def sums_to_one(p, axis: int = -1, allowed=None, tolerance: float = 1e-5, says: str | None = None) -> None:
    """`p` holds distributions along `axis`: nothing negative, every sum 1, and exactly 0 where not `allowed`."""
    p = _array(p).astype(float)
    if not np.isfinite(p).all():
        _fail(says, "some entries are not finite", "0/0 in the normalization, or a row that is masked everywhere")
    if (p < 0).any():
        _fail(
            says,
            f"{(p < 0).sum():,} entries are negative, the least is {p.min():.3g}",
            "scores that skipped the softmax",
        )
    if allowed is not None and (leaked := p[~np.broadcast_to(_array(allowed).astype(bool), p.shape)]).any():
        _fail(
            says,
            f"a forbidden entry has probability {leaked.max():.3g}, expected exactly 0",
            "a mask added after the softmax, or a fill value such as -10 in place of -inf",
        )
    off = np.abs(p.sum(axis) - 1)
    if not off.max(initial=0.0) <= tolerance:
        where = tuple(map(int, np.unravel_index(off.argmax(), off.shape)))
        _fail(
            says,
            f"the distribution at {where} sums to {p.sum(axis)[where]:.6g}, expected 1",
            "a softmax over the wrong axis",
        )
    _hold(says)


def learns(losses: Sequence[float], below: float | None = None, says: str | None = None) -> None:
    """Training worked: the loss ends below its untrained value `losses[0]`, and below `below` (a plain baseline).

    The end is the mean of the last tenth of the losses, and the fall must exceed three times their spread: one lucky
    batch decides nothing.
    """
    losses = np.asarray(losses, float)
    if len(losses) < 2:
        _fail(says, f"{len(losses)} losses are too few to learn from", "a training loop that never ran")
    if not np.isfinite(losses).all():
        _fail(
            says,
            f"the loss is {losses[~np.isfinite(losses)][0]} at step {int(np.argmin(np.isfinite(losses)))}",
            "a learning rate that is too high, or a logarithm of 0",
        )
    tail = losses[-max(1, len(losses) // 10) :]
    end = tail.mean()
    if losses[0] - end <= 3 * tail.std():
        _fail(
            says,
            f"the loss went from {losses[0]:.4g} to {end:.4g}",
            "a loss that is detached from the parameters, an optimizer that got none of them, or the wrong sign",
        )
    if below is not None and end >= below:
        _fail(
            says,
            f"the loss ends at {end:.4g}, not below the baseline {below:.4g}",
            "too few steps, or a model that only learned the frequencies",
        )
    _hold(says)


def near(word: str, words: Collection[str], says: str | None = None) -> None:
    """`word` is among `words` (a list of neighbors, say)."""
    if word not in words:
        _fail(
            says,
            f"{word!r} is not among {', '.join(map(str, words))}",
            "too little training, or vectors compared by length",
        )
    _hold(says)


def above(actual, bound, says: str | None = None) -> None:
    """Every entry of `actual` is greater than `bound`: a claim with one side, which a better result cannot break."""
    a, b = np.broadcast_arrays(np.asarray(_array(actual), float), np.asarray(_array(bound), float))
    if not a.size:
        _fail(says, "there is nothing to compare: the array is empty", "a filter that kept no row")
    wrong = ~(a > b)  # nan is above nothing
    if wrong.any():
        first = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
        place = f" at {first}" if a.ndim else ""
        x, y = np.atleast_1d(a)[first], np.atleast_1d(b)[first]
        _fail(says, f"{x:.6g}{place} is not above {y:.6g}", "too little training, or a claim that was luck")
    _hold(says)
