"""Pretraining by command: the same on one process or two and after a kill, told in a log and a card, or refused."""

import json
import shlex
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import lrm_utils as lrm
from lrm_utils import checkpoints, data, pretrain, text

STEPS = 6
TINY = dict(documents=2, steps=STEPS, D=8, H=16, dropout=0, candidates=0)
SETTINGS = {"elmo": TINY | dict(tokens=300), "awd-lstm": TINY | dict(rows=4, T=20)}
FOREVER = 300  # seconds; a run takes about three


def arguments(name, folder, minutes=0, **changes):
    """The command line of a tiny run that keeps all it writes below a folder."""
    pairs = [f"--set={key}={value}" for key, value in (SETTINGS[name] | changes).items()]
    places = [f"--folder={folder / 'run'}", f"--out={folder / 'out'}"]
    return [name, *places, f"--minutes={minutes}", "--validations=3", "--threads=1", *pairs]


def call(monkeypatch, *argv):
    """The command, in this process."""
    monkeypatch.setattr(sys, "argv", ["pretrain", *argv])
    with lrm.threads(1):
        pretrain.main()


def spawn(*command):
    """A command of this Python, in another process."""
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=FOREVER)


def read(folder, name):
    """The log and the card of a run."""
    return json.loads((folder / "run/log.json").read_text()), json.loads((folder / f"out/{name}.json").read_text())


@pytest.fixture(scope="module", params=SETTINGS)
def finished(request, tmp_path_factory):
    """An uninterrupted run of each recipe, made by the real command in one process."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    done = spawn("-m", "lrm_utils.pretrain", *arguments(name, folder))
    assert done.returncode == 0, done.stderr[-2000:]
    return SimpleNamespace(name=name, folder=folder, out=done.stdout)


def test_the_command_tells_what_it_did_and_leaves_a_checkpoint_that_loads(finished):
    assert f"{finished.name}: {STEPS} steps," in finished.out.splitlines()[-1]
    assert not list(finished.folder.rglob("*.partial"))
    found = checkpoints.load(finished.name, finished.folder / "out")
    recipe = pretrain.RECIPES[finished.name](**SETTINGS[finished.name])
    assert found.vocab == recipe.vocab
    assert found.vocab.counts.tolist() == recipe.vocab.counts.tolist()
    recipe.model.load_state_dict(found.weights)
    losses = recipe.validate(recipe.model.eval())
    assert losses["loss"] == pytest.approx(found.card["losses"]["loss"], rel=1e-5), (
        "the losses on the card are those of the file"
    )


def test_the_card_says_how_the_model_was_made(finished):
    _, card = read(finished.folder, finished.name)
    corpus = pretrain.general(2)
    assert card["name"] == finished.name
    assert card["corpus"] == f"{corpus.name}; sha256 {corpus.sha256}"
    assert card["steps"] == STEPS == card["curve"][-1][0]
    trained = {k: v for k, v in card["validations"][-1].items() if k != "step"}
    assert card["losses"] == pytest.approx(trained, rel=1e-3), "rounding to a byte costs next to nothing"
    assert [v["step"] for v in card["validations"]] == [2, 4, 6]
    assert card["seconds"] >= 0
    assert card["versions"]["torch"] == version("torch") and card["versions"].keys() >= {"python", "safetensors"}
    assert len(card["sha256"]) == 64
    json.dumps(card, allow_nan=False)


def test_the_command_on_the_card_makes_the_same_run_again(finished, monkeypatch):
    log, card = read(finished.folder, finished.name)
    assert card["command"] == log["command"]
    python, dash_m, module, *argv = shlex.split(card["command"])
    assert (python, dash_m, module) == ("python", "-m", "lrm_utils.pretrain")
    asked = []
    monkeypatch.setattr(pretrain, "run", lambda *given: asked.append(given) or card)
    call(monkeypatch, *argv)
    name, *_, seed, options = asked[0]
    assert (name, seed, options) == (finished.name, 0, SETTINGS[finished.name])


def test_the_log_has_every_validation_with_its_step_and_seconds_that_only_grow(finished):
    log, card = read(finished.folder, finished.name)
    assert [line["step"] for line in log["validations"]] == [2, 4, 6]
    for line, validation in zip(log["validations"], card["validations"], strict=True):
        assert {k: line[k] for k in validation} == pytest.approx(validation, abs=1e-5)
    seconds = [line["seconds"] for line in log["validations"]]
    assert seconds[0] > 0 and seconds == sorted(seconds) and seconds[-1] <= log["seconds"]


def test_two_processes_give_the_losses_of_one(finished, tmp_path):
    """`torchrun` with two gloo processes and the full softmax without dropout, so that nothing is drawn at random."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "lrm_utils.pretrain"]
    done = spawn(*launcher, *arguments(finished.name, tmp_path))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count(f"{finished.name}: {STEPS} steps") == 1, "one process speaks for all"
    (_, one), (log, two) = read(finished.folder, finished.name), read(tmp_path, finished.name)
    assert [loss for _, loss in two["curve"]] == pytest.approx([loss for _, loss in one["curve"]], abs=2e-4)
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-4)
    assert two["command"] == one["command"].replace("python ", "torchrun --nproc-per-node 2 ")
    assert [line["step"] for line in log["validations"]] == [2, 4, 6]


KILLED = """
import os, signal, sys
from pathlib import Path
from lrm_utils import pretrain
replace, saves = os.replace, 0

def replace_or_die(source, target):
    global saves
    if Path(target).name == "state.pt":
        saves += 1
        if saves == 4:  # the fourth state is written, but not yet in its place
            os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

os.replace = replace_or_die
pretrain.main()
"""


def test_a_killed_run_goes_on_and_ends_with_the_very_same_file(finished, tmp_path, monkeypatch):
    """Killed after the validation of step 4 and before its state is in place: the run goes on from step 3."""
    name = finished.name
    killed = spawn("-c", KILLED, *arguments(name, tmp_path))
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert not (tmp_path / "out").exists()
    state = torch.load(tmp_path / "run/state.pt", weights_only=True)
    before = json.loads((tmp_path / "run/log.json").read_text())
    assert state["at"]["step"] == 3 and [line["step"] for line in before["validations"]] == [2, 4]

    call(monkeypatch, *arguments(name, tmp_path))
    file = f"out/{name}.safetensors"
    assert (tmp_path / file).read_bytes() == (finished.folder / file).read_bytes()
    (log, card), (_, expected) = read(tmp_path, name), read(finished.folder, name)
    for key in ("curve", "validations", "losses", "steps", "sha256", "command"):
        assert card[key] == expected[key], key
    assert [line["step"] for line in log["validations"]] == [2, 4, 6], "what was measured twice is listed once"
    seconds = [line["seconds"] for line in log["validations"]]
    assert seconds == sorted(seconds) and seconds[1] >= before["seconds"], "the time before the kill is counted"
    assert not list(tmp_path.rglob("*.partial"))

    call(monkeypatch, *arguments(name, tmp_path))  # once more: there is nothing left to do
    assert read(tmp_path, name)[1]["sha256"] == expected["sha256"]
    assert [line["step"] for line in read(tmp_path, name)[0]["validations"]] == [2, 4, 6]


@pytest.mark.parametrize(
    "change, said",
    [
        (
            "T=21",
            r"holds a run of `python -m lrm_utils.pretrain awd-lstm .*--set T=20.*`, and `.*--set T=21.*` is asked",
        ),
        ("steps=7", "--set steps=7.* is asked for: keep that one elsewhere .--run., or delete it to start anew"),
        ("D=9", "--set D=9"),
    ],
)
def test_the_state_of_a_run_with_other_settings_is_refused(finished, monkeypatch, change, said):
    if finished.name != "awd-lstm":
        pytest.skip("one recipe is enough")
    before = {path: path.read_bytes() for path in finished.folder.rglob("*.*")}
    with pytest.raises(SystemExit, match=said) as stop:
        call(monkeypatch, *arguments("awd-lstm", finished.folder), f"--set={change}")
    assert "\n" not in stop.value.code
    assert before == {path: path.read_bytes() for path in finished.folder.rglob("*.*")}


def test_the_state_of_another_recipe_of_the_same_shape_is_refused(finished, monkeypatch):
    if finished.name != "awd-lstm":
        pytest.skip("elmo has no twin")
    monkeypatch.setitem(SETTINGS, "awd-lstm-backward", SETTINGS["awd-lstm"])
    with pytest.raises(SystemExit, match="holds a run of .* awd-lstm --set .* awd-lstm-backward --set .* is asked for"):
        call(monkeypatch, *arguments("awd-lstm-backward", finished.folder))


def test_a_state_without_its_log_is_refused_when_its_weights_do_not_fit(finished, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/state.pt").write_bytes((finished.folder / "run/state.pt").read_bytes())
    with pytest.raises(SystemExit, match="state.pt does not fit this run: .*; delete it to start anew"):
        call(monkeypatch, *arguments(finished.name, tmp_path, D=9))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "argv, said",
    [
        (["gpt-9"], "invalid choice: 'gpt-9'"),
        (["elmo", "--set", "steps"], "'steps' is not of the form steps=100"),
        (["elmo", "--set", "steps=ten"], "'steps=ten' is not of the form steps=100"),
        (["elmo", "--set", "rows=4"], "elmo has no setting 'rows'; there are: steps, lr, D, H, tokens, "),
        (["awd-lstm", "--set", "backward=1"], "awd-lstm has no setting 'backward'; there are: steps, lr, "),
        (["elmo", "--set", "steps='9'"], "steps='9' cannot be used: elmo expects a whole number, such as steps="),
        (["elmo", "--set", "steps=0"], "steps=0 cannot be used"),
        (["elmo", "--set", "D=8.5"], "D=8.5 cannot be used: elmo expects a whole number"),
        (["elmo", "--set", "lr=-1"], "lr=-1 cannot be used: elmo expects a number, such as lr=0.002"),
        (["elmo", "--set", "documents=True"], "documents=True cannot be used"),
        (["elmo", "--seeds", "1"], "unrecognized arguments: --seeds"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_nothing_is_written(argv, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrain, "general", lambda *_: pytest.fail("it began to read"))
    with pytest.raises(SystemExit) as stop:
        call(monkeypatch, *argv, "--out", str(tmp_path / "out"))
    assert stop.value.code not in (0, None)
    line = stop.value.code if isinstance(stop.value.code, str) else capsys.readouterr().err.strip().splitlines()[-1]
    assert said in line and "\n" not in line
    assert not list(tmp_path.iterdir())


def test_an_unknown_recipe_is_an_error_that_lists_the_known_ones(tmp_path):
    with pytest.raises(ValueError, match="no recipe 'gpt-9'; there are: elmo, awd-lstm"):
        pretrain.run("gpt-9", tmp_path / "run", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_command_names_only_what_differs_from_the_recipe_in_its_order():
    assert pretrain._changed("elmo", dict(documents=None, H=16, candidates=0, steps=3, dropout=0.1)) == dict(
        steps=3, H=16, candidates=0
    )
    assert list(pretrain._changed("awd-lstm", dict(D=1, steps=3))) == ["steps", "D"]


def test_the_log_forgets_what_lies_after_the_resumed_step_and_no_second(tmp_path, monkeypatch, capsys):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(pretrain.time, "monotonic", lambda: clock.now)
    path = tmp_path / "log.json"

    def written():
        found = json.loads(path.read_text())
        return found["seconds"], [(line["step"], line["seconds"]) for line in found["validations"]]

    log = pretrain.Log(path, "python x", step=9, minutes=1)
    for step in range(6):
        log.start(step)
        clock.now += 10
        if step % 2:
            log.add({"loss": 1.0})
    assert written() == (60, [(2, 20), (4, 40), (6, 60)])
    clock.now += 100
    log.start(6)
    assert written()[0] == 160, "time that was spent since the last validation is noted, too"

    clock.now = 5.0  # another sitting, with a clock of its own, from the state of step 3
    log = pretrain.Log(path, "python x", step=9)
    log.start(3)
    assert written() == (160, [(2, 20)])
    clock.now += 10
    log.add({"loss": 1.0})
    assert written() == (170, [(2, 20), (4, 170)])
    log = pretrain.Log(path, "python x", step=4)  # at its end, but killed before its last state was saved
    log.add({"loss": 2.0})
    assert written() == (170, [(2, 20), (4, 170)])


def test_a_log_without_steps_and_command_is_read_on(tmp_path):
    """As the first version wrote it."""
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"validations": [{"seconds": 7.0, "loss": 1.0}]}))
    log = pretrain.Log(path, "python x", step=9)
    log.start(3)
    assert log.seconds >= 7 and len(log.entries) == 1


def test_diverged_weights_are_not_written_and_leave_the_checkpoint_before_them_alone(tmp_path):
    model, vocab = nn.Linear(2, 2), text.Vocab.build(["a"], specials=pretrain.SPECIALS)
    diverged = nn.Linear(2, 2)
    diverged.bias.data[0] = 1e6  # finite, but not in 16 bits
    with pytest.raises(ValueError, match="m has weights that a checkpoint cannot hold: the training diverged"):
        pretrain.write("m", pretrain.pack("m", diverged), vocab, {"name": "m"}, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    pretrain.write("m", pretrain.pack("m", model), vocab, {"name": "m"}, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="the training diverged"):
        pretrain.write("m", pretrain.pack("m", diverged), vocab, {"name": "m"}, tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.fixture(scope="module")
def corpus():
    """The whole of it, once."""
    return pretrain.general()


def sentences(documents):
    return [tuple(sentence) for document in documents for sentence in document]


def test_no_held_out_year_is_in_the_training_text(corpus):
    years = sorted({speech.year for speech in data.sotu()})
    held_out = set(np.random.default_rng(0).permutation(years)[:48].tolist())  # as chapter 1 draws them
    trained = set(map(tuple, (sentences([document]) for document in corpus.train)))
    for speech in data.sotu():
        document = tuple(sentences([pretrain._sentences(speech.text)]))
        assert (document in trained) == (speech.year not in held_out), speech
    for name, part in corpus.validation.items():
        assert part and not trained & {tuple(sentences([document])) for document in part}, name


def test_the_words_are_sorted_by_frequency_after_two_specials(corpus):
    """The sampled candidates are drawn by rank."""
    assert corpus.vocab.words[:2] == pretrain.SPECIALS == ("</s>", "<unk>")
    assert (np.diff(corpus.vocab.counts[2:]) <= 0).all()
    found = pretrain._counts(corpus.train)
    for word, count in zip(corpus.vocab.words[2:], corpus.vocab.counts[2:], strict=True):
        assert found[word] == count
    assert corpus.vocab.counts.sum() == sum(found.values()) + len(sentences(corpus.train))
    assert corpus.vocab.counts[0] == len(sentences(corpus.train))


def test_every_word_of_chapter_1_is_known(corpus):
    years = np.random.default_rng(0).permutation(sorted({speech.year for speech in data.sotu()}))
    spoken = (text.words(s.text) for s in data.sotu() if s.year not in years[:48])
    chapter = text.Vocab.build((word for words in spoken for word in words), min_count=5)
    assert len(chapter) + 2 == 11_488, "what the chapter prints"
    assert set(chapter.words) <= set(corpus.vocab.words)


def test_no_sentence_is_longer_than_allowed(corpus):
    assert max(map(len, sentences(corpus.train))) == pretrain.LONGEST


def test_the_corpus_is_the_same_every_time_and_its_fingerprint_tells_it_from_another():
    first, again, more = pretrain.general(3), pretrain.general(3), pretrain.general(4)
    assert first == again and first.vocab.counts.tolist() == again.vocab.counts.tolist()
    assert first.sha256 == again.sha256 != more.sha256
    assert len(first.train) == 6 and {len(part) for part in first.validation.values()} == {3}
    assert first.train[:3] == more.train[:3]


def test_the_stream_from_the_right_is_the_reverse_of_that_from_the_left():
    corpus = pretrain.general(3)
    for seed in (None, 0, 1):
        forward = pretrain.stream(corpus.train, corpus.vocab, seed)
        assert forward.tolist() == pretrain.stream(corpus.train, corpus.vocab, seed, backward=True)[::-1].tolist()
        assert forward[0] == forward[-1] == corpus.vocab["</s>"], "either end is the edge of a sentence"
        assert np.bincount(forward, minlength=len(corpus.vocab))[2:].tolist() == corpus.vocab.counts[2:].tolist()
    plain, shuffled = (pretrain.stream(corpus.train, corpus.vocab, seed) for seed in (None, 1))
    assert plain.tolist() != shuffled.tolist() and sorted(plain) == sorted(shuffled)
    expected = corpus.vocab.encode(w for s in sentences(corpus.train) for w in (*s, "</s>"))
    assert plain[1:].tolist() == expected.tolist()


@given(st.integers(1, 3000))
def test_the_learning_rate_rises_for_a_twentieth_and_then_falls_to_a_hundredth(steps):
    factors = np.array([pretrain.warm_and_cool(step, steps) for step in range(steps)])
    rise = max(1, steps // 20)
    assert factors.max() == factors[rise - 1] == 1.0
    assert (np.diff(factors[:rise]) > 0).all() and (np.diff(factors[rise - 1 :]) <= 0).all()
    assert factors.min() > 0
    assert pretrain.warm_and_cool(steps, steps) == pytest.approx(0.01) or steps == 1


@pytest.mark.parametrize("argv, shipped", [([], True), (["--set=steps=3"], False), (["--seed=1"], False)])
def test_a_trial_with_other_settings_does_not_replace_what_ships(argv, shipped, monkeypatch, tmp_path):
    asked = []
    done = {"steps": 1, "seconds": 1, "losses": {"loss": 1.0}}
    monkeypatch.setattr(pretrain, "run", lambda name, folder, out, *rest: asked.append((folder, out)) or done)
    call(monkeypatch, "elmo", f"--run={tmp_path}", *argv)
    assert asked == [(tmp_path, checkpoints.FOLDER if shipped else tmp_path)]


def test_make_pretrain_asks_for_a_name():
    makefile = (Path(__file__).resolve().parents[2] / "Makefile").read_text()
    assert 'test -n "$(NAME)" || { echo "Say which model: make pretrain NAME=elmo"; exit 1; }' in makefile
    assert "$(BIN)/python -m lrm_utils.pretrain $(NAME)" in makefile


SMALL = dict(documents=2, D=8, H=16, rows=4, T=20)


def spread(recipe):
    """The standard deviation of a recipe's word vectors, and the rate of each group of parameters."""
    return recipe.model.encoder.embedding.weight.std().item(), [g["lr"] for g in recipe.groups(recipe.model, 1.0)]


def test_the_table_of_the_awd_lstm_begins_as_skip_gram_vectors_and_learns_at_a_tenth():
    recipe = pretrain.RECIPES["awd-lstm"](**SMALL)
    found = pretrain.skip_gram(pretrain.general(2), 8)
    assert torch.equal(recipe.model.encoder.embedding.weight, found)
    assert spread(recipe) == (pytest.approx(0.1), [1.0, 0.1])
    groups = recipe.groups(recipe.model, 1.0)
    assert groups[1]["params"][0] is recipe.model.encoder.embedding.weight
    assert {id(p) for g in groups for p in g["params"]} == {id(p) for p in recipe.model.parameters()}


def test_without_skip_gram_the_table_begins_at_random_and_learns_as_all_else():
    recipe = pretrain.RECIPES["awd-lstm"](**SMALL, table=0)
    assert spread(recipe) == (pytest.approx(0.2 / 12**0.5, rel=0.05), [1.0, 1.0])


@pytest.mark.parametrize("name", ["awd-lstm", "awd-lstm-backward"])
def test_the_tuned_models_begin_where_the_general_ones_ended_with_a_rate_for_each_layer(name):
    recipe, start = pretrain.RECIPES[f"{name}-reviews"](documents=2, rows=4, T=20), checkpoints.load(name)
    assert all(torch.equal(w, start.weights[key]) for key, w in recipe.model.state_dict().items())
    assert recipe.vocab == start.vocab
    rates = [g["lr"] for g in recipe.groups(recipe.model, 1.0)]
    assert rates == pytest.approx([2.6**-4, 2.6**-3, 2.6**-2, 2.6**-1, 1.0])
    assert start.card["sha256"] in recipe.corpus
    assert recipe.schedule(220, 2200) == 1 and recipe.schedule(0, 2200) == pytest.approx(1 / 32)


def test_the_text_to_tune_on_has_no_review_that_is_judged():
    read = {tuple(map(tuple, document)) for document in pretrain.target(checkpoints.load("awd-lstm").vocab).train}
    for source in ("imdb", "mr"):
        found = data.reviews(source)
        for part in (found.validation, found.test):
            seen = [tuple(map(tuple, d)) in read for d in pretrain._review_texts(part)]
            assert sum(seen) <= 0.001 * len(seen), "but for a sentence or two that somebody wrote twice"
