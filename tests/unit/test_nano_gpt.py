"""The smallest trainer: characters, windows, groups, rates, the loop, and the recipe that readers start themselves."""

import copy
import importlib.util
import json
import math
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lrm_utils as lrm
from lrm_utils import check, checkpoints, pretrain
from lrm_utils.models import nano_gpt as nano
from lrm_utils.models.gpt import GPT, next_token_loss
from lrm_utils.train import fit

ROOT = Path(__file__).resolve().parents[2]


def model(V=20, D=16, H=2, layers=2, T=8, dropout=0.0, seed=0):
    torch.manual_seed(seed)
    return nano.lean(GPT(V, D, H, layers, T, dropout=dropout))


def drawn(n, V=20, T=8, B=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(V, (B, T + 1), generator=generator) for _ in range(n)]


def state(net):
    return torch.cat([p.detach().flatten().clone() for p in net.parameters()])


# characters


def test_characters_are_numbered_by_their_codes():
    known = nano.Characters("gold and silver\n")
    assert known.symbols == "".join(sorted(set("gold and silver\n")))
    assert known.encode("\n a").tolist() == [0, 1, 2]
    assert known.encode("gold").dtype == np.int64
    assert len(known) == len(set("gold and silver\n"))


def test_an_unknown_character_is_named_in_one_line_with_those_that_are_known():
    with pytest.raises(ValueError, match=r"unknown characters \['x', 'é'\]: I know these 3, 'abc'") as error:
        nano.Characters("abc").encode("axébx")
    assert "\n" not in str(error.value)


def test_an_empty_text_has_no_alphabet():
    with pytest.raises(ValueError, match="the text is empty"):
        nano.Characters("")
    assert nano.Characters("a").encode("").tolist() == []


# windows


def test_a_window_never_crosses_the_end_and_every_beginning_is_drawn():
    source = nano.windows(torch.arange(12), 4, 6, torch.Generator().manual_seed(0))
    rows = torch.cat([next(source) for _ in range(200)])
    check.close(rows - rows[:, :1], torch.arange(5).expand(len(rows), 5), 0)
    assert sorted(set(rows[:, 0].tolist())) == list(range(8))  # 12 - 4 beginnings, the last one ends at the end
    assert rows.max() == 11


def test_all_beginnings_are_equally_probable():
    source = nano.windows(torch.arange(12), 4, 50, torch.Generator().manual_seed(0))
    counts = torch.bincount(torch.cat([next(source) for _ in range(160)])[:, 0]).double()
    chi2 = ((counts - 1000) ** 2 / 1000).sum()
    assert chi2 < 24.3  # seven degrees of freedom, one in a thousand


def test_the_only_window_of_a_text_is_the_text():
    assert next(nano.windows(np.arange(5), 4, 2)).tolist() == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize("N", [0, 1, 4])
def test_a_text_without_a_window_is_refused(N):
    with pytest.raises(ValueError, match=rf"{N} tokens have no window of 4 \+ 1"):
        next(nano.windows(torch.arange(N), 4, 2))


def test_a_generator_repeats_the_batches_and_leaves_the_global_one_alone():
    def some(seed):
        source = nano.windows(torch.arange(100), 4, 3, torch.Generator().manual_seed(seed))
        return torch.stack([next(source) for _ in range(3)])

    before = torch.get_rng_state()
    assert torch.equal(some(0), some(0)) and not torch.equal(some(0), some(1))
    assert torch.equal(before, torch.get_rng_state())


# the model


def test_a_lean_model_has_no_bias_and_the_gelu_itself():
    net = model()
    assert not [name for name, _ in net.named_parameters() if "bias" in name]
    assert all(block.feed_forward.layer.activation is F.gelu for block in net.blocks.blocks)
    assert sum(p.numel() for p in net.parameters()) == (20 + 8) * 16 + 2 * (12 * 16**2 + 2 * 16) + 16


def test_a_lean_model_is_the_model_whose_biases_are_zero_up_to_the_formula_of_the_gelu():
    torch.manual_seed(0)
    full = GPT(20, 16, 2, 2, 8, dropout=0.0)
    lean = nano.lean(copy.deepcopy(full))
    tokens = drawn(1)[0][:, :8]
    apart = (lean(tokens) - full(tokens)).abs().max()
    assert 0 < apart < 1e-3
    for block in full.blocks.blocks:
        block.feed_forward.layer.activation = F.gelu
    check.close(lean(tokens), full(tokens), 1e-6)


def test_a_lean_model_does_not_look_ahead():
    check.causal(model(), drawn(1)[0][:, :8])


@pytest.mark.parametrize("D", [64, 128, 768])
def test_a_widened_start_is_as_loud_at_every_width(D):
    torch.manual_seed(0)
    net = nano.widen(nano.lean(GPT(200, D, 2, 2, 8, dropout=0.0)))
    block = net.blocks.blocks[0]
    normed = F.layer_norm(torch.randn(300, D), (D,))
    for matrix in (block.attention.layer.inputs, block.feed_forward.layer.up):
        assert matrix(normed).std().item() == pytest.approx(0.02 * 768**0.5, rel=0.05)
    assert net.table.weight.norm(dim=1).mean().item() == pytest.approx(0.02 * 768**0.5, rel=0.05)
    assert all(torch.equal(p, torch.ones(D)) for p in net.parameters() if p.ndim == 1)


def test_at_the_width_of_gpt2_nothing_is_widened():
    net = nano.lean(GPT(5, 768, 12, 1, 4))
    before = state(net)
    check.close(state(nano.widen(net)), before, 1e-7)


# the groups and the rate


@pytest.mark.parametrize("net", [GPT(20, 16, 2, 2, 8), nano.lean(GPT(20, 16, 2, 2, 8)), nn.Sequential(nn.Linear(3, 4))])
def test_the_groups_are_complete_and_disjoint(net):
    groups = nano.decayed(net, 0.3)
    found = [id(p) for group in groups for p in group["params"]]
    assert sorted(found) == sorted(id(p) for p in net.parameters())
    assert len(found) == len(set(found))
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    assert all(p.ndim >= 2 for p in groups[0]["params"]) and all(p.ndim == 1 for p in groups[1]["params"])


def test_what_is_frozen_is_in_no_group():
    net = model()
    net.table.weight.requires_grad_(False)
    assert not any(p is net.table.weight for group in nano.decayed(net) for p in group["params"])


def test_the_rate_rises_along_a_line_and_falls_along_a_cosine_to_a_tenth():
    factors = [nano.warm_up_and_cosine(step, 2000) for step in range(2001)]
    assert factors[:100] == pytest.approx([(step + 1) / 101 for step in range(100)])
    assert factors[100] == max(factors) == 1
    assert factors[1050] == pytest.approx(0.55) and factors[2000] == pytest.approx(0.1)
    assert (np.diff(factors[100:]) < 0).all()


def test_the_schedule_is_that_of_the_published_loop():
    def published(step, rate=1e-3, least=1e-4, warm=100, steps=2000):
        if step < warm:
            return rate * (step + 1) / (warm + 1)
        return least + 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm))) * (rate - least)

    for step in range(2000):
        assert 1e-3 * nano.warm_up_and_cosine(step, 2000) == pytest.approx(published(step), rel=1e-12)


@pytest.mark.parametrize("steps, warm", [(1, 0), (1, 100), (100, 100), (5, 5)])
def test_a_training_shorter_than_its_warm_up_has_rates_too(steps, warm):
    assert all(0 < nano.warm_up_and_cosine(step, steps, warm) <= 1 for step in range(steps + 1))


# the loop


def test_the_loop_is_fit():
    batches = drawn(8)
    by_hand, by_fit = model(), model()
    ours = nano.train(by_hand, iter(batches), 8, schedule=lambda step, steps: (step + 1) / steps)
    optimizer = torch.optim.AdamW(nano.decayed(by_fit), lr=1e-3, betas=(0.9, 0.99))
    options = dict(optimizer=optimizer, schedule=lambda step, steps: (step + 1) / steps, clip=1.0)
    theirs = fit(by_fit, batches, next_token_loss, steps=8, **options).losses
    check.close(ours, theirs, 1e-5)
    check.close(state(by_hand), state(by_fit), 1e-4)


@pytest.mark.parametrize("k", [2, 4])
def test_accumulated_batches_are_one_large_batch(k):
    batches = drawn(5, B=8)
    options = dict(lr=1e-2, schedule=lambda step, steps: 1.0)
    whole, parts = model().double(), model().double()
    one = nano.train(whole, iter(batches), 5, **options)
    many = nano.train(parts, (part for batch in batches for part in batch.chunk(k)), 5, accumulate=k, **options)
    check.close(one, many, 1e-10)
    check.close(state(whole), state(parts), 1e-7)


def test_the_loss_of_a_step_is_that_before_its_update():
    net, batch = model(), drawn(1)[0]
    loss, n = next_token_loss(net, batch)
    assert nano.train(net, iter([batch]), 1) == [pytest.approx(loss.item() / n, rel=1e-6)]
    assert next_token_loss(net, batch)[0].item() < loss.item()


def test_a_step_moves_by_the_rate_of_its_step():
    rates = [0.0, 1.0]
    net, batches = model(), drawn(2)
    states = []
    nano.train(
        net, iter(batches), 2, schedule=lambda step, steps: rates[step], watch=lambda _: states.append(state(net))
    )
    assert torch.equal(states[0], states[1])
    moved = (state(net) - states[1]).abs()
    assert 0 < moved.max() < 2.5e-3  # Adam's steps are about the rate; decay adds a ten-thousandth of the weight


def test_matrices_decay_and_gains_do_not():
    """Without a gradient there is nothing but the decay."""

    class Still(GPT):
        def forward(self, tokens, caches=None):
            return super().forward(tokens, caches) * 0.0

    torch.manual_seed(0)
    net = nano.lean(Still(20, 16, 2, 2, 8, dropout=0.0))
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    nano.train(net, iter(drawn(1)), 1, lr=0.5, decay=0.2, schedule=lambda step, steps: 1.0)
    for name, p in net.named_parameters():
        check.close(p, before[name] * (0.9 if p.ndim == 2 else 1.0), 1e-6)


def test_the_gradient_is_clipped_as_a_whole():
    net, batch, lengths = model(), drawn(1)[0], []
    step = torch.optim.AdamW.step

    class Watching(torch.optim.AdamW):
        def step(self, *given):
            grads = [p.grad for group in self.param_groups for p in group["params"]]
            lengths.append(torch.cat([g.flatten() for g in grads]).norm().item())
            return step(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "AdamW", Watching)
        nano.train(net, iter([batch, batch]), 2, clip=0.01)
        nano.train(model(), iter([batch]), 1, clip=math.inf)
    assert lengths[:2] == pytest.approx([0.01, 0.01], rel=1e-3)
    assert lengths[2] > 0.1


def test_dropout_is_on_in_every_step_even_if_the_watcher_switches_it_off_and_off_at_the_end():
    net, modes = model(dropout=0.5), []
    net.register_forward_pre_hook(lambda module, _: modes.append(module.training))
    nano.train(net, iter(drawn(3)), 3, watch=lambda step: net.eval())
    assert modes == [True] * 3 and not net.training


def test_the_watcher_sees_every_step_once():
    steps = []
    nano.train(model(), iter(drawn(4)), 4, watch=steps.append)
    assert steps == [0, 1, 2, 3]


def test_the_loop_learns_a_text_that_repeats_itself():
    text = "the gold and the silver, " * 40
    known = nano.Characters(text)
    net = model(len(known), 32, 2, 2, 16)
    source = nano.windows(known.encode(text), 16, 8, torch.Generator().manual_seed(0))
    losses = nano.train(net, source, 150, lr=3e-3)
    check.learns(losses, below=0.5)


# the recipe

STEPS = 6
TINY = dict(steps=STEPS, D=16, H=2, layers=1, T=16, rows=4, warm=2, shakespeare=0)
NAME = "nano-gpt"


def arguments(folder, minutes=0, **changes):
    pairs = [f"--set={key}={value}" for key, value in (TINY | changes).items()]
    return [NAME, f"--folder={folder}", f"--minutes={minutes}", "--validations=2", "--threads=1", *pairs]


def spawn(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300)


def call(monkeypatch, *argv):
    monkeypatch.setattr(sys, "argv", ["pretrain", *argv])
    with lrm.threads(1):
        pretrain.main()


@pytest.fixture(scope="module", autouse=True)
def short():
    """Little of the validation part, for speed; processes that are spawned read all of it."""
    characters = pretrain.characters
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain, "characters", lambda *given: tuple(part[:60_000] for part in characters(*given)))
        yield characters


LESS = """
from lrm_utils import pretrain
whole = pretrain.characters
pretrain.characters = lambda *given: tuple(part[:60_000] for part in whole(*given))
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An uninterrupted run, in this process."""
    folder = tmp_path_factory.mktemp("nano")
    with pytest.MonkeyPatch.context() as patch:
        call(patch, *arguments(folder))
    return SimpleNamespace(folder=folder, card=json.loads((folder / f"{NAME}.json").read_text()))


def test_the_recipe_leaves_a_model_that_can_be_loaded_and_read(finished):
    found = checkpoints.load(NAME, finished.folder)
    known = nano.Characters(found.vocab.words)
    assert known.decode(known.encode("My fellow citizens,\n")) == "My fellow citizens,\n"
    net = nano.lean(GPT(len(known), **found.card["settings"]))
    net.load_state_dict(found.weights)
    assert found.vocab.counts.sum() == 60_000
    assert found.card["steps"] == STEPS and found.card["corpus"].startswith("speeches in characters; sha256 ")


def test_a_killed_run_goes_on_and_ends_with_the_very_same_file(finished, tmp_path, monkeypatch):
    killed = (
        LESS
        + """
import os, signal
from pathlib import Path
replace, saves = os.replace, 0

def replace_or_die(source, target):
    global saves
    saves += Path(target).name == "state.pt"
    if saves == 4:  # the fourth state is written, but not yet in its place
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

os.replace = replace_or_die
pretrain.main()
"""
    )
    done = spawn("-c", killed, *arguments(tmp_path))
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    assert torch.load(tmp_path / "state.pt", weights_only=True)["at"]["step"] == 3
    call(monkeypatch, *arguments(tmp_path))
    file = f"{NAME}.safetensors"
    assert (tmp_path / file).read_bytes() == (finished.folder / file).read_bytes()
    card = json.loads((tmp_path / f"{NAME}.json").read_text())
    for key in ("curve", "validations", "losses", "steps", "sha256", "command"):
        assert card[key] == finished.card[key], key


def test_two_processes_give_the_losses_of_one(finished, tmp_path):
    script = tmp_path / "less.py"
    script.write_text(LESS + "pretrain.main()\n")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = spawn(*launcher, *arguments(tmp_path / "run"))
    assert done.returncode == 0, done.stderr[-2000:]
    card = json.loads((tmp_path / f"run/{NAME}.json").read_text())
    assert card["command"].startswith(f"torchrun --nproc-per-node 2 -m lrm_utils.pretrain {NAME}")
    assert [loss for _, loss in card["curve"]] == pytest.approx([x for _, x in finished.card["curve"]], abs=2e-4)
    assert card["losses"]["loss"] == pytest.approx(finished.card["losses"]["loss"], rel=1e-4)


def test_another_seed_draws_another_model_and_other_windows(finished, tmp_path, monkeypatch):
    call(monkeypatch, *arguments(tmp_path), "--seed=1")
    card = json.loads((tmp_path / f"{NAME}.json").read_text())
    assert card["curve"] != finished.card["curve"] and card["losses"] != finished.card["losses"]


def test_the_recipe_takes_the_steps_of_the_loop(monkeypatch):
    """Its optimizer is Adam with decoupled decay, and that is AdamW."""
    recipe = pretrain.RECIPES[NAME](**TINY | dict(decay=0.3))
    other, batches = copy.deepcopy(recipe.model), drawn(4, len(recipe.vocab), 16)
    optimizer = torch.optim.Adam(recipe.groups(recipe.model, recipe.lr), lr=recipe.lr, betas=recipe.betas)
    options = dict(optimizer=optimizer, schedule=recipe.schedule, clip=recipe.clip, steps=4)
    theirs = fit(recipe.model, batches, recipe.loss, **options).losses
    schedule = partial(nano.warm_up_and_cosine, warm=TINY["warm"])
    ours = nano.train(other, iter(batches), 4, decay=0.3, schedule=schedule)
    check.close(ours, theirs, 1e-5)
    check.close(state(other), state(recipe.model), 1e-4)


def test_the_recipe_as_it_stands_is_the_published_cpu_setting():
    own = pretrain._own(NAME)
    assert {k: own[k] for k in ("T", "rows", "layers", "H", "D", "steps", "dropout")} == dict(
        T=64, rows=12, layers=4, H=4, D=128, steps=2000, dropout=0.0
    )
    assert (own["lr"], own["warm"], own["decay"]) == (1e-3, 100, 0.1)


@pytest.mark.parametrize("scale, asked, text", [("small", {}, "speeches"), ("full", {}, "Shakespeare"),
                                                ("full", dict(shakespeare=0), "speeches"),
                                                ("small", dict(shakespeare=1), "Shakespeare")])  # fmt: skip
def test_the_scale_or_a_setting_chooses_the_text(scale, asked, text, monkeypatch):
    monkeypatch.setenv("LRM_SCALE", scale)
    monkeypatch.setattr(
        pretrain, "characters", lambda shakespeare: ("To be, " * 99, "or not." if shakespeare else "to")
    )
    recipe = pretrain.RECIPES[NAME](**asked)
    assert recipe.corpus.startswith(f"{text} in characters")


def test_the_two_parts_of_shakespeare_are_nine_tenths_and_the_rest(short, monkeypatch):
    monkeypatch.setattr(pretrain.data, "tinyshakespeare", lambda: "0123456789abcdefghijklmno")
    assert short(True) == ("0123456789abcdefghijkl", "mno")


def test_no_held_out_speech_is_read(short):
    train, held_out = short()
    assert len(held_out) > 60_000
    assert not any(part in train for part in held_out.split("\n\n") if len(part) > 80)


@pytest.mark.parametrize("argv", [[], ["--set=steps=3"]])
def test_what_a_reader_trains_stays_out_of_the_package(argv, monkeypatch, tmp_path):
    asked = []
    done = {"steps": 1, "seconds": 1, "losses": {"loss": 1.0}}
    monkeypatch.setattr(pretrain, "run", lambda name, folder, out, *rest: asked.append(out) or done)
    monkeypatch.chdir(tmp_path)
    call(monkeypatch, NAME, *argv)
    assert asked == [Path(".run") / NAME]


@pytest.mark.parametrize(
    "change, said",
    [
        (dict(rows="'many'"), "rows='many' cannot be used"),
        (dict(D=30, H=4), "width 30 cannot be shared by 4 heads"),
        (dict(T=70_000), "have no window of 70000"),
        (dict(tokens=3), "nano-gpt has no setting 'tokens'"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(change, said, monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match=said) as stop:
        call(monkeypatch, *arguments(tmp_path, **change))
    assert "\n" not in stop.value.code and not list(tmp_path.iterdir())


# the benchmark


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "bench")
        spec = importlib.util.spec_from_file_location("bench_nano_gpt", ROOT / "bench/nano_gpt.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_without_the_published_code_its_parts_are_passed_over_with_a_message(bench, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(bench, "run_parts", lambda name, parts: asked.append(sys.argv[1:]))
    monkeypatch.setattr(sys, "argv", ["nano_gpt.py"])
    bench.main()
    assert asked == [["ours", "counts", "speeches", "parts"]]
    assert "peer and steps passed over: give --peer FOLDER" in capsys.readouterr().err


def test_a_folder_without_the_published_code_is_refused(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["nano_gpt.py", "--peer", str(tmp_path)])
    with pytest.raises(SystemExit, match="there is no model.py"):
        bench.main()


def test_sliding_judges_every_character_once_with_half_a_window_before_it(bench):
    net = model(T=8)
    tokens = np.random.default_rng(0).integers(20, size=61)
    losses = []
    for i in range(4, 60):  # the last window that fits begins at 52
        start = (i - 4) // 4 * 4
        logits = net(torch.as_tensor(tokens[start : start + 8])[None])[0]
        losses.append(F.cross_entropy(logits[i - start], torch.as_tensor(tokens[i + 1])).item())
    assert bench.sliding(net, tokens) == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_stream_of_the_counts_asks_for_every_character_with_those_before_it(bench):
    contexts, words = bench.stream_windows(np.array([3, 1, 2]), 5, 3)
    assert contexts.tolist() == [[5, 5], [5, 3], [3, 1]] and words.tolist() == [3, 1, 2]
