"""The training loop does what it says: schedules, sums, stops, resumes, and the same on one process or two."""

import subprocess
import sys
import textwrap
from typing import NamedTuple

import pytest
import torch
from torch import nn

import lrm_utils as lrm

N, D = 24, 3


def problem(dropout=0.0):
    """A small regression: model, batches of 8 rows, and a loss that is the mean over the rows."""
    torch.manual_seed(0)
    x = torch.randn(N, D)
    y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3
    model = nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))
    return model, [(x[i : i + 8], y[i : i + 8]) for i in range(0, N, 8)], loss


def loss(model, batch):
    x, y = batch
    return (model(x)[:, 0] - y).square().mean()


def loss_as_sum(model, batch):
    x, y = batch
    return (model(x)[:, 0] - y).square().sum(), len(x)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr)


def test_training_lowers_the_loss_and_leaves_the_model_in_eval_mode():
    model, batches, loss = problem()
    history = lrm.fit(model, batches, loss, epochs=60, lr=0.03)
    assert len(history.losses) == 180
    assert history.losses[-1] < 0.1 * history.losses[0]
    assert not model.training


def test_the_first_loss_is_that_of_the_untrained_model():
    model, batches, loss = problem()
    before = loss(model, batches[0]).item()
    assert lrm.fit(model, batches, loss, steps=1).losses == [pytest.approx(before)]


def test_steps_may_end_inside_an_epoch_and_span_several():
    model, batches, loss = problem()
    assert len(lrm.fit(model, batches, loss, steps=2).losses) == 2
    assert len(lrm.fit(model, batches, loss, steps=7).losses) == 7


def test_plain_gradient_descent_equals_the_loop_written_out():
    model, batches, loss = problem()
    lrm.fit(model, batches, loss, epochs=2, optimizer=sgd(model))
    expected, batches, _ = problem()
    optimizer = sgd(expected)
    for _ in range(2):
        for batch in batches:
            optimizer.zero_grad()
            loss(expected, batch).backward()
            optimizer.step()
    torch.testing.assert_close(weights(model), weights(expected))


@pytest.mark.parametrize("loss", [loss, loss_as_sum])
def test_accumulated_batches_of_unequal_size_give_the_gradient_of_the_whole(loss):
    model, batches, _ = problem()
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    uneven = [(x[:5], y[:5]), (x[5:6], y[5:6]), (x[6:], y[6:])]
    history = lrm.fit(model, uneven, loss, epochs=3, optimizer=sgd(model), accumulate=3)
    whole, _, _ = problem()
    expected = lrm.fit(whole, [(x, y)], loss, epochs=3, optimizer=sgd(whole))
    torch.testing.assert_close(weights(model), weights(whole))
    assert history.losses == pytest.approx(expected.losses)


def test_the_schedule_scales_every_learning_rate_from_step_0_to_the_last():
    model, batches, loss = problem()
    seen = []
    optimizer = torch.optim.SGD([dict(params=[p], lr=0.1 * (i + 1)) for i, p in enumerate(model.parameters())])

    def schedule(step, steps):
        seen.append((step, steps))
        return 1 - step / steps

    used = []

    def watching(model, batch):
        used.append([group["lr"] for group in optimizer.param_groups])
        return loss(model, batch)

    lrm.fit(model, batches, watching, epochs=2, optimizer=optimizer, schedule=schedule)
    assert seen == [(i, 6) for i in range(6)]
    for step, rates in enumerate(used):
        assert rates == pytest.approx([0.1 * (i + 1) * (1 - step / 6) for i in range(4)])


def test_clipping_bounds_the_step():
    model, batches, loss = problem()
    before = weights(model)
    lrm.fit(model, batches, loss, steps=1, optimizer=sgd(model, lr=1.0), clip=0.01)
    assert (weights(model) - before).norm() == pytest.approx(0.01, rel=1e-3)


def test_an_optimizer_used_again_starts_from_its_own_learning_rate():
    model, batches, loss = problem()
    optimizer = sgd(model, lr=0.1)
    lrm.fit(model, batches, loss, epochs=1, optimizer=optimizer, schedule=lambda step, steps: 1 - step / steps)
    assert optimizer.param_groups[0]["lr"] == 0.1
    optimizer.param_groups[0]["lr"] = 0.01
    before = weights(model)
    lrm.fit(model, batches[:1], loss, steps=1, optimizer=optimizer, clip=1.0)
    assert (weights(model) - before).norm() <= 0.01 * (1 + 1e-4)


def test_the_model_and_its_batches_draw_from_unrelated_seeds():
    drawn = []

    def batches(epoch):
        for _ in range(3):
            drawn.append(torch.rand(4))
            yield problem()[1][0]

    def noisy_loss(model, batch):
        drawn.append(torch.rand(4))
        return loss(model, batch)

    lrm.fit(problem()[0], batches, noisy_loss, epochs=2)
    values = torch.cat(drawn)
    assert len(values.unique()) == len(values) == 48


def test_batches_may_be_named_tuples_and_dictionaries():
    class Named(NamedTuple):
        x: torch.Tensor
        y: torch.Tensor

    model, batches, _ = problem()
    lrm.fit(model, [Named(*b) for b in batches], lambda m, b: loss(m, (b.x, b.y)), steps=1)
    lrm.fit(model, [dict(x=x, y=y) for x, y in batches], lambda m, b: loss(m, (b["x"], b["y"])), steps=1)


def test_frozen_layers_do_not_move():
    model, batches, loss = problem()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    lrm.fit(model, batches, loss, epochs=2, lr=0.1)
    assert torch.equal(model[0].weight, before)


def test_early_stop_returns_to_the_best_weights():
    model, batches, loss = problem()
    values, seen = iter([3.0, 1.0, 2.0, 2.5, 9.0]), []

    def validate(model):
        assert not model.training
        seen.append(weights(model))
        return {"loss": next(values), "accuracy": 0.5}

    history = lrm.fit(model, batches, loss, epochs=50, validate=validate, patience=2)
    assert history.metrics == {"step": [3, 6, 9, 12], "loss": [3.0, 1.0, 2.0, 2.5], "accuracy": [0.5] * 4}
    assert torch.equal(weights(model), seen[1])


def test_validation_runs_every_so_many_steps_and_at_the_end():
    model, batches, loss = problem()
    history = lrm.fit(model, batches, loss, steps=5, validate=lambda m: 1.0, validate_every=2)
    assert history.metrics["step"] == [2, 4, 5]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop_at", [2, 3, 7])
def test_an_interrupted_run_ends_where_it_would_have_ended(tmp_path, stop_at):
    def noisy(epoch):
        """Batches drawn at random from the global generator, as masking on the fly would."""
        for x, y in problem()[1]:
            yield x + 0.1 * torch.randn_like(x), y

    options = dict(epochs=4, lr=0.02, validate=lambda m: float(weights(m).norm()), patience=9, seed=5)
    straight, _, _ = problem(dropout=0.3)
    expected = lrm.fit(straight, noisy, loss, **options)

    count = 0

    def failing(model, batch):
        nonlocal count
        count += 1
        if count > stop_at:
            raise Interrupted
        return loss(model, batch)

    path = tmp_path / "run.pt"
    model, _, _ = problem(dropout=0.3)
    with pytest.raises(Interrupted):
        lrm.fit(model, noisy, failing, checkpoint=path, checkpoint_minutes=0, **options)
    model, _, _ = problem(dropout=0.3)
    history = lrm.fit(model, noisy, loss, checkpoint=path, **options)
    assert torch.equal(weights(model), weights(straight))
    assert history == expected
    assert not list(tmp_path.glob("*.partial"))


def test_a_finished_run_is_not_trained_again(tmp_path):
    model, batches, loss = problem()
    first = lrm.fit(model, batches, loss, epochs=2, checkpoint=tmp_path / "run.pt")
    after = weights(model)
    assert lrm.fit(model, batches, loss, epochs=2, checkpoint=tmp_path / "run.pt") == first
    assert torch.equal(weights(model), after)


def test_a_run_made_longer_equals_one_that_was_long_from_the_start(tmp_path):
    options = dict(lr=0.02, validate=lambda m: float(weights(m).norm()), patience=50)
    model, batches, loss = problem(dropout=0.3)
    lrm.fit(model, batches, loss, steps=3, checkpoint=tmp_path / "run.pt", **options)
    history = lrm.fit(model, batches, loss, steps=12, checkpoint=tmp_path / "run.pt", **options)
    straight, batches, loss = problem(dropout=0.3)
    assert lrm.fit(straight, batches, loss, steps=12, **options) == history
    assert torch.equal(weights(model), weights(straight))


def test_a_checkpoint_made_with_other_settings_is_refused(tmp_path):
    model, batches, loss = problem()
    lrm.fit(model, batches, loss, steps=1, lr=0.001, checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match=r"made with learning rates \[0.001\], and \[1.0\] is asked for; delete it"):
        lrm.fit(model, batches, loss, steps=2, lr=1.0, checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match="made with seed 0, and 1 is asked for"):
        lrm.fit(model, batches, loss, steps=2, seed=1, checkpoint=tmp_path / "run.pt")


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    model, batches, loss = problem()
    lrm.fit(model, batches, loss, steps=1, checkpoint=tmp_path / "run.pt")
    with pytest.raises(ValueError, match="does not fit this run.*delete it to start anew"):
        lrm.fit(nn.Linear(D, 1), batches, loss, steps=1, checkpoint=tmp_path / "run.pt")
    (tmp_path / "run.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="delete it to start anew"):
        lrm.fit(model, batches, loss, steps=1, checkpoint=tmp_path / "run.pt")


def test_mixed_precision_learns_too():
    model, batches, _ = problem()
    kinds = set()

    def watching(model, batch):
        kinds.add(model(batch[0]).dtype)
        return loss(model, batch)

    history = lrm.fit(model, batches, watching, epochs=60, lr=0.03, amp=True)
    assert history.losses[-1] < 0.2 * history.losses[0]
    assert kinds == {torch.bfloat16}, "on a CPU, mixed precision computes in bfloat16"
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_bad_requests_are_answered_in_one_sentence():
    model, batches, loss = problem()
    with pytest.raises(ValueError, match="either epochs=… or steps=…"):
        lrm.fit(model, batches, loss)
    with pytest.raises(ValueError, match="give validate=… too"):
        lrm.fit(model, batches, loss, steps=1, patience=1)
    with pytest.raises(ValueError, match="epoch 0 has no batches"):
        lrm.fit(model, [], loss, epochs=1)
    with pytest.raises(ValueError, match="a generator can be looped over only once"):
        lrm.fit(model, (b for b in batches), loss, epochs=2)
    with pytest.raises(ValueError, match="a schedule must know how many steps"):
        lrm.fit(model, lambda epoch: batches, loss, epochs=2, schedule=lambda step, steps: 1.0)
    with pytest.raises(FloatingPointError, match="the loss is nan at step 0: lower the learning rate"):
        lrm.fit(model, batches, lambda m, b: loss(m, b) * torch.nan, steps=1)
    assert weights(model).isfinite().all(), "the weights from before the bad step are kept"
    with pytest.raises(ValueError, match="taken over nothing"):
        lrm.fit(model, batches, lambda m, b: (loss(m, b), 0), steps=1)


def test_a_progress_bar_is_shown_to_people_and_never_where_outputs_are_stored(monkeypatch, capfd):
    model, batches, loss = problem()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)  # as in a notebook
    monkeypatch.setenv("LRM_PROGRESS", "0")
    lrm.fit(model, batches, loss, epochs=3)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("LRM_PROGRESS", "1")
    lrm.fit(model, batches, loss, epochs=3)
    assert "0/9" in capfd.readouterr().err


def test_two_processes_give_the_result_of_one_at_the_same_global_batch(tmp_path):
    """`torchrun` with two gloo processes, odd batches, one of a single row, accumulation, clipping, unequal counts."""
    script = tmp_path / "job.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys, torch
        from torch import nn
        import lrm_utils as lrm
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 9))
        ids, lengths = torch.randint(9, (27, 5)), torch.randint(2, 6, (27,))

        def loss(model, batch):
            ids, lengths = batch
            real = torch.arange(4) < lengths[:, None] - 1
            scores = model(ids[:, :-1]).transpose(1, 2)
            nll = nn.functional.cross_entropy(scores, ids[:, 1:], reduction="none")
            return (nll * real).sum(), real.sum()

        batches = [(ids[a:b], lengths[a:b]) for a, b in ((0, 9), (9, 18), (18, 26), (26, 27))]
        history = lrm.fit(model, batches, loss, epochs=5, lr=0.05, accumulate=2, clip=0.5,
                          validate=lambda m: float(m[1].weight.norm()))
        if int(os.environ.get("RANK", 0)) == 0:
            torch.save([history.losses, history.metrics["loss"], model.state_dict()], sys.argv[1])
        """)
    )
    results = []
    for launcher in ([], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]):
        out = tmp_path / f"{len(results)}.pt"
        command = [sys.executable, *launcher, str(script), str(out)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr[-2000:]
        results.append(torch.load(out, weights_only=True))
    (losses, validation, one), (losses_two, validation_two, two) = results
    assert losses_two == pytest.approx(losses, rel=1e-5)
    assert validation_two == pytest.approx(validation, rel=1e-5)
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5)


class Recurrent(nn.Module):
    """A small recurrent network that goes on from a state (1, B, 4)."""

    def __init__(self, dropout=0.0):
        super().__init__()
        torch.manual_seed(1)
        self.rnn, self.out, self.dropout = nn.GRU(D, 4, batch_first=True), nn.Linear(4, 1), nn.Dropout(dropout)

    def forward(self, x, state):
        y, state = self.rnn(x, state)
        return self.out(self.dropout(y))[..., 0], state


def text_chunks():
    """Six rows of eight steps, read in chunks of 3, 2 and 3: each row goes on in the next chunk."""
    torch.manual_seed(2)
    x, y = torch.randn(6, 8, D), torch.randn(6, 8)
    return [(x[:, a:b], y[:, a:b]) for a, b in ((0, 3), (3, 5), (5, 8))]


def carried_loss(model, batch, carried):
    x, y = batch
    found, state = model(x, carried["layers"][0] if carried else None)
    return (found - y).square().sum(), y.numel(), {"layers": [state]}


def test_a_carried_state_equals_truncated_backpropagation_written_out():
    model, seen = Recurrent(), []

    def watching(model, batch, carried):
        seen.append(carried)
        return carried_loss(model, batch, carried)

    history = lrm.fit(model, text_chunks(), watching, epochs=2, optimizer=sgd(model), carry=True)
    expected, losses, states = Recurrent(), [], []
    optimizer = sgd(expected)
    for _ in range(2):
        state = None
        for x, y in text_chunks():
            states.append(state)
            optimizer.zero_grad()
            found, last = expected(x, state)
            loss = (found - y).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            state = last.detach()
    torch.testing.assert_close(weights(model), weights(expected))
    assert history.losses == pytest.approx(losses)
    assert [carried is None for carried in seen] == [True, False, False] * 2, "an epoch begins with nothing"
    for carried, state in zip(seen, states, strict=True):
        if carried is not None:
            torch.testing.assert_close(carried["layers"][0], state)
            assert not carried["layers"][0].requires_grad, "the gradient ends where the batch begins"


def test_accumulated_batches_carry_on_within_a_step_and_from_step_to_step():
    seen = []

    def counting(model, batch, carried):
        seen.append(None if carried is None else carried.item())
        return *carried_loss(model, batch, None)[:2], torch.tensor(float(len(seen)))

    lrm.fit(Recurrent(), text_chunks(), counting, epochs=2, accumulate=2, carry=True)
    assert seen == [None, 1, 2, None, 4, 5]


@pytest.mark.parametrize("stop_at", [2, 3, 4, 7])
def test_an_interrupted_run_that_carries_states_ends_where_it_would_have_ended(tmp_path, stop_at):
    options = dict(epochs=4, lr=0.02, validate=lambda m: float(weights(m).norm()), seed=5, carry=True)
    straight = Recurrent(dropout=0.3)
    expected = lrm.fit(straight, text_chunks(), carried_loss, **options)
    count = 0

    def failing(model, batch, carried):
        nonlocal count
        count += 1
        if count > stop_at:
            raise Interrupted
        return carried_loss(model, batch, carried)

    path = tmp_path / "run.pt"
    with pytest.raises(Interrupted):
        lrm.fit(Recurrent(dropout=0.3), text_chunks(), failing, checkpoint=path, checkpoint_minutes=0, **options)
    model = Recurrent(dropout=0.3)
    history = lrm.fit(model, text_chunks(), carried_loss, checkpoint=path, **options)
    assert torch.equal(weights(model), weights(straight))
    assert history == expected


def test_a_checkpoint_is_refused_when_it_carries_states_and_the_run_does_not_or_the_other_way_round(tmp_path):
    def plain_loss(model, batch):
        return carried_loss(model, batch, None)[:2]

    carried, plain, two = (tmp_path / name for name in ("carried.pt", "plain.pt", "two.pt"))
    lrm.fit(Recurrent(), text_chunks(), carried_loss, steps=2, carry=True, checkpoint=carried)
    lrm.fit(Recurrent(), text_chunks(), plain_loss, steps=2, checkpoint=plain)
    state = torch.load(carried, weights_only=True)
    torch.save(state | {"carried": state["carried"] * 2}, two)
    one, none = "with carry=True by one process", "without carry=True"
    for path, asked, made in ((carried, none, one), (plain, one, none), (two, one, "with carry=True by 2 processes")):
        loss = plain_loss if asked == none else carried_loss
        message = (
            f"^the checkpoint .*{path.name} does not fit this run: it was made {made}, and this one goes {asked}; "
        )
        with pytest.raises(ValueError, match=message + "go on as it was made, or delete it to start anew$"):
            lrm.fit(Recurrent(), text_chunks(), loss, steps=3, carry=asked == one, checkpoint=path)


CARRYING = """
import os, sys, torch
from torch import nn
import lrm_utils as lrm

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.out = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x, state):
        y, state = self.rnn(x, state)
        return self.out(y)[..., 0], state

def fit(steps_before_failing, **more):
    model, count = Model(), 0
    x, y = torch.randn(5, 12, 3), torch.randn(5, 12)  # five rows: one process has three of them, the other two
    batches = [(x[:, a:b], y[:, a:b]) for a, b in ((0, 3), (3, 5), (5, 9), (9, 12))]

    def loss(model, batch, state):
        nonlocal count
        count += 1
        if count > steps_before_failing:
            raise InterruptedError
        found, state = model(batch[0], state[0] if state else None)
        return (found - batch[1]).square().sum(), batch[1].numel(), (state,)

    history = lrm.fit(model, batches, loss, epochs=3, lr=0.05, clip=0.5, carry=True, **more)
    return history.losses, model.state_dict()

folder = sys.argv[1]
straight = fit(99)
try:
    fit(6, checkpoint=folder + "/run.pt", checkpoint_minutes=0)
except InterruptedError:
    pass
resumed = fit(99, checkpoint=folder + "/run.pt")
if int(os.environ.get("RANK", 0)) == 0:
    torch.save([straight, resumed], folder + "/out.pt")
"""


def test_two_processes_that_carry_states_give_the_result_of_one_and_resume_only_as_two(tmp_path):
    """`torchrun` with two gloo processes; a run is also stopped after 6 of 12 steps and taken up again by both."""
    script, results = tmp_path / "job.py", []
    script.write_text(CARRYING)
    for launcher in ([], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]):
        folder = tmp_path / str(len(results))
        folder.mkdir()
        command = [sys.executable, *launcher, str(script), str(folder)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stderr[-2000:]
        results.append(torch.load(folder / "out.pt", weights_only=True))
    for straight, resumed in results:
        assert resumed[0] == straight[0]
        assert all(torch.equal(resumed[1][name], straight[1][name]) for name in straight[1])
    ((losses, one), _), ((losses_two, two), _) = results
    assert len(losses) == 12
    assert losses_two == pytest.approx(losses, rel=1e-5)
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5)
    kept = torch.load(tmp_path / "1" / "run.pt", weights_only=True)["carried"]
    assert [len(states[0][0]) for states in kept] == [3, 2], "the checkpoint has the states of all rows"
    run = subprocess.run([sys.executable, str(script), str(tmp_path / "1")], capture_output=True, text=True, timeout=60)
    assert "made with carry=True by 2 processes, and this one goes with carry=True by one process" in run.stderr
