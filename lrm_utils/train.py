"""One training loop for every chapter: `fit(model, batches, loss)`.

It knows nothing of any model: the `loss` function says what a batch means. On a laptop, on a GPU with mixed
precision, or on several through `torchrun`, the call is the same and so is the result, up to rounding.
"""

import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from lrm_utils.scale import device as best_device
from lrm_utils.scale import seed_all

Loss = Callable[..., Tensor | tuple[Tensor, Tensor | int] | tuple[Tensor, Tensor | int, Any]]


@dataclass
class History:
    """What happened: the training loss of every step (before its update), and every validation."""

    losses: list[float] = field(default_factory=list)
    validation: list[dict[str, float]] = field(default_factory=list)

    @property
    def metrics(self) -> dict[str, list[float]]:
        """The validations as columns: `history.metrics["loss"]`."""
        return {name: [v[name] for v in self.validation] for name in (self.validation[0] if self.validation else {})}


@dataclass
class Progress:
    """Where a run stands; saved with the weights, so that it can go on after an interruption."""

    step: int = 0  # optimizer steps taken
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    best: float = math.inf
    best_step: int = 0
    waited: int = 0  # validations since the best one


def fit(
    model: nn.Module,
    batches: Iterable | Callable[[int], Iterable],
    loss: Loss,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    lr: float = 1e-3,
    schedule: Callable[[int, int], float] | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    validate: Callable[[nn.Module], float | dict[str, float]] | None = None,
    validate_every: int | None = None,
    patience: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_minutes: float = 5.0,
    carry: bool = False,
    amp: bool | None = None,
    seed: int = 0,
) -> History:
    """Train `model` for a number of epochs or steps and return what happened; the model is left in eval mode.

    batches: something to loop over once an epoch (a list, a DataLoader), or a function of the epoch number that
        returns it. A batch is a tensor, or tensors in a tuple, list or dict, rows first.
    loss: `loss(model, batch)` returns the mean over the rows, or a pair (sum, count) when rows do not weigh the same,
        as with padded tokens. Sums and counts are added up over accumulated batches and processes *before* they are
        divided, so neither changes the gradient. Under `torchrun` the model comes wrapped for data parallelism: call
        it, `model(x)`, rather than its parts, and let every trainable parameter take part.
    optimizer: Adam at `lr` over the trainable parameters, unless another is given (then `lr` is not used).
    schedule: `schedule(step, steps)` returns the factor on every learning rate at that step, counted from 0.
    clip: the largest norm of the gradient. accumulate: batches per optimizer step.
    validate: called with the model in eval mode after every epoch, or `validate_every` steps, and at the end; returns
        a number or a dict. The first number is the one to watch: lower is better.
    patience: stop after so many validations without a new best one, and return to the best weights.
    checkpoint: a file written every `checkpoint_minutes` and at the end. When it exists, the run goes on from it and
        ends where it would have ended without the interruption; a file of a run with other settings is refused.
    carry: the batches of an epoch continue one another, row by row, as in truncated backpropagation through time. The
        loss is called as `loss(model, batch, carried)` and returns (sum, count, carried), the last being tensors for
        the next batch, in tuples, lists or dicts: they are cut off from the graph and kept in the checkpoint. An
        epoch begins with None.
    amp: mixed precision (float16 on a GPU, bfloat16 on a CPU); by default on a GPU only.
    """
    if (epochs is None) == (steps is None):
        raise ValueError("say how long to train: either epochs=… or steps=…")
    if patience is not None and validate is None:
        raise ValueError("patience=… watches the validation loss: give validate=… too")
    rank, world = _join()
    device = best_device()
    amp = device.type == "cuda" if amp is None else amp
    total = steps if steps is not None else _total_steps(batches, epochs, accumulate)
    if schedule is not None and total is None:
        raise ValueError("a schedule must know how many steps there are: give steps=…, or batches with a length")

    model.to(device)
    if optimizer is None:
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=lr)
    scaler = torch.amp.GradScaler(device.type, init_scale=256.0, enabled=amp and device.type == "cuda")
    wrapped = model if world == 1 else DistributedDataParallel(model)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    settings = {
        "learning rates": [group["lr"] for group in optimizer.param_groups],
        "seed": seed,
        "accumulate": accumulate,
        "clip": clip,
        "steps of the schedule": total if schedule else None,
    }

    history, at, best_weights = History(), Progress(), None
    carried = _Carried(carry, world)
    path = Path(checkpoint) if checkpoint else None
    if path and path.exists():
        history, at, best_weights, kept = _load(path, model, optimizer, scaler, device, settings)
        carried.restore(kept, rank, path)
    saved = time.monotonic()

    def save() -> None:
        kept = carried.collect() if path else None  # all processes take part
        if path and rank == 0:
            _save(path, model, optimizer, scaler, history, at, best_weights, settings, kept)

    def due() -> bool:
        """Is it time to save? The first process looks at its clock for all when they must meet to do it."""
        late = time.monotonic() - saved >= 60 * checkpoint_minutes
        return carried.agreed(late) if path else False

    def stop() -> bool:
        return at.step >= steps if steps is not None else at.epoch >= epochs

    def validated() -> bool:
        """Validate, unless this very step was; remember the best weights; say whether patience has run out."""
        nonlocal best_weights
        if history.validation and history.validation[-1]["step"] == at.step:
            return patience is not None and at.waited >= patience
        metrics = _validate(model, validate, world)
        history.validation.append({"step": at.step, **metrics})
        watched = next(iter(metrics.values()))
        at.waited += 1
        if watched < at.best:
            at.best, at.best_step, at.waited = watched, at.step, 0
            if patience is not None:
                best_weights = {name: w.detach().clone() for name, w in model.state_dict().items()}
        return patience is not None and at.waited >= patience

    with tqdm(total=total, initial=at.step, leave=False, disable=not (_watched() and rank == 0)) as bar:
        exhausted = patience is not None and at.waited >= patience
        while not stop() and not exhausted:
            if at.batch == 0:
                carried.value = None
            for group in _groups(batches, at, seed, accumulate):
                model.train()
                factor = schedule(at.step, total) if schedule else 1.0
                for parameters in optimizer.param_groups:
                    parameters["lr"] = parameters["initial_lr"] * factor
                value = _gradients(wrapped, group, loss, carried, optimizer, scaler, device, amp, rank, world)
                if not math.isfinite(value):  # before the step: the weights are still good
                    raise FloatingPointError(
                        f"the loss is {value} at step {at.step}: lower the learning rate, clip the gradient (clip=1), "
                        "or look for a logarithm of 0 in the loss"
                    )
                if clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                scaler.step(optimizer)
                scaler.update()
                history.losses.append(value)
                at.step, at.batch = at.step + 1, at.batch + len(group)
                bar.update()
                bar.set_postfix(loss=f"{value:.4f}", refresh=False)
                if validate and validate_every and at.step % validate_every == 0:
                    exhausted = validated()
                if due():
                    save()
                    saved = time.monotonic()
                if exhausted or (steps is not None and stop()):
                    break
            else:
                at.epoch, at.batch = at.epoch + 1, 0
                if validate and not validate_every:
                    exhausted = validated()
    if validate and at.step:
        validated()
    save()  # the last weights, so that the run can be made longer; the best ones lie beside them
    if best_weights is not None:
        model.load_state_dict(best_weights)
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"]
    model.eval()
    return history


def _gradients(model, group, loss, carried, optimizer, scaler, device, amp, rank, world) -> float:
    """The gradient over a group of batches; returns the mean loss over all of them and all processes."""
    optimizer.zero_grad(set_to_none=True)
    summed = torch.zeros(2, dtype=torch.float64)  # the sum of the losses, and what it is to be divided by
    for i, (batch, place) in enumerate(group):
        batch, weight = _shard(batch, rank, world)
        batch = _to(batch, device)
        seed_all(_mix(*place, rank, "model"))  # every batch has its own seed, so a resumed run repeats itself
        alone = world > 1 and i + 1 < len(group)  # processes need to meet once a step, not once a batch
        dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
        with model.no_sync() if alone else nullcontext():
            with torch.autocast(device.type, dtype=dtype, enabled=amp):
                value = carried.call(loss, model, batch)
            if not isinstance(value, tuple):
                rows = _rows(batch)
                value = value * rows, rows
            value = value[0] * weight, value[1] * weight
            scaler.scale(value[0]).backward()
        summed += torch.tensor([torch.as_tensor(part).item() for part in value], dtype=torch.float64)
    if world > 1:
        summed = summed.to(device)
        dist.all_reduce(summed)
    value, count = summed.tolist()
    if count <= 0:
        raise ValueError("the loss was taken over nothing: its counts add up to 0")
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    for p in parameters:
        p.grad.mul_(world / count)  # DDP averages over processes: undo that, then divide by the count
    return value / count


class _Carried:
    """What one batch hands to the next: each process has that of its own rows, and the checkpoint has all of them."""

    def __init__(self, on: bool, world: int):
        self.on, self.world, self.value = on, world, None

    def call(self, loss: Loss, model, batch):
        if not self.on:
            return loss(model, batch)
        total, count, carried = loss(model, batch, self.value)
        self.value = _map(lambda x: x.detach(), carried)
        return total, count

    def agreed(self, late: bool) -> bool:
        if not self.on or self.world == 1:
            return late
        shared = [late]
        dist.broadcast_object_list(shared)
        return shared[0]

    def collect(self) -> list | None:
        if not self.on or self.world == 1:
            return [self.value] if self.on else None
        found = [None] * self.world
        dist.all_gather_object(found, _map(lambda x: x.cpu(), self.value))
        return found

    def restore(self, kept: list | None, rank: int, path: Path) -> None:
        made, asked = (len(kept) if kept else 0), (self.world if self.on else 0)  # processes that carry
        if made != asked:
            words = {0: "without carry=True", 1: "with carry=True by one process"}
            made, asked = (words.get(n, f"with carry=True by {n} processes") for n in (made, asked))
            raise ValueError(
                f"the checkpoint {path} does not fit this run: it was made {made}, and this one goes {asked}; go on "
                "as it was made, or delete it to start anew"
            )
        self.value = kept[rank] if kept else None


def _mix(*parts) -> int:
    """One seed out of several numbers and words; different parts give unrelated seeds."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()) >> 1


def _groups(batches, at: Progress, seed: int, accumulate: int) -> Iterator[list[tuple[Any, tuple[int, int, int]]]]:
    """The batches of one epoch, `accumulate` at a time, each with its place; those already done are passed over."""

    def seeded() -> Iterator[tuple[Any, tuple[int, int, int]]]:
        seed_all(_mix(seed, at.epoch, "epoch"))
        source, index = iter(batches(at.epoch) if callable(batches) else batches), 0
        while True:
            place = (seed, at.epoch, index)
            seed_all(_mix(*place, "batch"))  # batches that draw at random (masks, noise) are repeatable, too
            try:
                yield next(source), place
            except StopIteration:
                return
            index += 1

    done = at.batch
    stream = seeded()
    for _ in islice(stream, done):
        pass
    empty = done == 0
    while group := list(islice(stream, accumulate)):
        empty = False
        yield group
    if empty:
        again = "; a generator can be looped over only once: pass a function of the epoch" if at.epoch else ""
        raise ValueError(f"epoch {at.epoch} has no batches{again}")


def _total_steps(batches, epochs: int, accumulate: int) -> int | None:
    return epochs * math.ceil(len(batches) / accumulate) if hasattr(batches, "__len__") else None


def _join() -> tuple[int, int]:
    """This process's number and how many there are; joins the group when `torchrun` started several."""
    world = int(os.environ.get("WORLD_SIZE", 1))
    if world > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return (dist.get_rank(), world) if world > 1 else (0, 1)


def _leaves(batch) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict | tuple | list):
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from _leaves(part)


def _map(function: Callable[[Tensor], Tensor], batch):
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, dict):
        return {name: _map(function, part) for name, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_map(function, part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def _rows(batch) -> int:
    for tensor in _leaves(batch):
        return len(tensor)
    raise ValueError("a batch without a tensor: the loss must then return a pair (sum, count)")


def _to(batch, device: torch.device):
    return _map(lambda x: x.to(device, non_blocking=True), batch)


def _shard(batch, rank: int, world: int) -> tuple[Any, float]:
    """The rows of a batch that belong to this process, every `world`-th one, and their weight.

    In a batch too short for all, a process without rows runs along on the first row, with weight 0.
    """
    if world == 1:
        return batch, 1.0
    if rank >= _rows(batch):
        return _map(lambda x: x[:1] if x.ndim else x, batch), 0.0
    return _map(lambda x: x[rank::world] if x.ndim else x, batch), 1.0


def _validate(model: nn.Module, validate, world: int) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        metrics = validate(model)
    metrics = {k: float(v) for k, v in (metrics if isinstance(metrics, dict) else {"loss": metrics}).items()}
    if world > 1:  # one process decides for all, or they would part company on the last digit
        shared = [metrics]
        dist.broadcast_object_list(shared)
        metrics = shared[0]
    return metrics


def _watched() -> bool:
    """Is a person looking? Never in stored outputs: `LRM_PROGRESS=0` while notebooks are executed."""
    return os.environ.get("LRM_PROGRESS", "1") != "0" and ("ipykernel" in sys.modules or sys.stderr.isatty())


def _save(
    path: Path, model, optimizer, scaler, history: History, at: Progress, best_weights, settings, carried
) -> None:
    """Write the state beside its place and move it there in one go: an interrupted save loses nothing."""
    state = dict(model=model.state_dict(), optimizer=optimizer.state_dict(), scaler=scaler.state_dict())
    state |= dict(history=asdict(history), at=asdict(at), best=best_weights, settings=settings, carried=carried)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def _load(path: Path, model, optimizer, scaler, device, settings) -> tuple[History, Progress, dict | None, list | None]:
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        for name, asked in settings.items():
            if state["settings"][name] != asked:
                raise ValueError(f"it was made with {name} {state['settings'][name]}, and {asked} is asked for")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"the checkpoint {path} does not fit this run: {reason}; delete it to start anew") from None
    return History(**state["history"]), Progress(**state["at"]), state["best"], state.get("carried")
