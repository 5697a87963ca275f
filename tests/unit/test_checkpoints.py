"""Checkpoints: what was written is read back, what was changed is refused, and all that ship say how they were made."""

import hashlib
import json
import shlex
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

from lrm_utils import checkpoints, pretrain, text

ROOT = Path(__file__).resolve().parents[2]
MOST = 40_000_000  # bytes of all that ship together


def store(name, model, vocab, folder, command="python -m lrm_utils.pretrain elmo"):
    """What a run of `command` leaves behind."""
    pretrain.write(name, pretrain.pack(name, model), vocab, {"name": name, "command": command}, folder)


@pytest.fixture
def written(tmp_path):
    """A small model as a checkpoint, and where it lies."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    vocab = text.Vocab.build('über über naïve naïve naïve "quoted"'.split(), specials=pretrain.SPECIALS)
    store("m", model, vocab, tmp_path)
    return model, vocab, tmp_path


def rehash(folder):
    """Let the card fit the file, so that only what is inside can be wrong."""
    card = json.loads((folder / "m.json").read_text())
    card["sha256"] = hashlib.sha256((folder / "m.safetensors").read_bytes()).hexdigest()
    (folder / "m.json").write_text(json.dumps(card))


def test_weights_words_and_card_come_back(written):
    model, vocab, folder = written
    found = checkpoints.load("m", folder)
    assert found.weights.keys() == model.state_dict().keys()
    for name, w in model.state_dict().items():
        assert found.weights[name].dtype == torch.float32
        if w.dim() == 1:
            assert torch.equal(found.weights[name], w.half().float())
            continue
        largest = w.abs().amax(1, keepdim=True)
        assert ((found.weights[name] - w).abs() <= largest / 127 / 2 * 1.001).all(), "off by half a step at most"
        assert torch.equal(found.weights[name].abs().argmax(1), w.abs().argmax(1))
    assert found.vocab == vocab and found.vocab.counts.tolist() == vocab.counts.tolist()
    assert found.card["name"] == "m"
    assert repr(found) == "Checkpoint(m, 35 weights, 5 words)"
    assert sorted(path.name for path in folder.iterdir()) == ["m.json", "m.safetensors"]


def test_the_same_weights_make_the_same_file(written, tmp_path):
    model, vocab, folder = written
    store("m", model, vocab, tmp_path / "again")
    assert (tmp_path / "again/m.safetensors").read_bytes() == (folder / "m.safetensors").read_bytes()


def test_rows_of_zeros_and_of_tiny_and_large_numbers_keep_their_size_and_rounding_twice_is_rounding_once():
    weights = {"w": torch.tensor([[0.0, 0.0], [1e-30, -5e-31], [3e4, 1.0]]), "c": torch.randn(3, 2, 4)}
    once = checkpoints.unpack(checkpoints.pack(weights))
    assert once["w"][0].tolist() == [0, 0]
    assert once["w"][1].tolist() == pytest.approx([1e-30, -5e-31], rel=0.01)
    assert once["w"][2].tolist() == pytest.approx([3e4, 0], abs=3e4 / 254)
    assert once["c"].shape == (3, 2, 4) and once.keys() == weights.keys()
    twice = checkpoints.unpack(checkpoints.pack(once))
    for name in once:
        torch.testing.assert_close(twice[name], once[name], rtol=1e-6, atol=0)


def test_a_weight_that_is_called_scale_is_kept_and_one_that_would_be_mistaken_is_refused():
    weights = {"norm.scale": torch.ones(3), "norm.bias": torch.zeros(3)}
    assert checkpoints.unpack(checkpoints.pack(weights)).keys() == weights.keys()
    with pytest.raises(ValueError, match="'w.scale' is the name of what the rows of another matrix are multiplied by"):
        checkpoints.pack({"w": torch.ones(2, 2), "w.scale": torch.ones(2)})


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda f: flip(f / "m.safetensors"), "m.safetensors is not the file that m.json describes: its sha256 is "),
        (lambda f: cut(f / "m.safetensors"), "m.safetensors is not the file that m.json describes: its sha256 is "),
        (lambda f: (cut(f / "m.safetensors"), rehash(f)), "m.safetensors cannot be read as a checkpoint: "),
        (lambda f: (f / "m.safetensors").unlink(), "there is no checkpoint 'm'; there are: none yet. To make it: make"),
        (lambda f: (f / "m.json").unlink(), "there is no checkpoint 'm'"),
        (lambda f: (f / "m.json").write_text("{"), "m.json is not the card of a checkpoint: "),
        (lambda f: (f / "m.json").write_text("[]"), "m.json is not the card of a checkpoint: "),
        (lambda f: (f / "m.json").write_text("{}"), "m.json is not the card of a checkpoint: "),
        (lambda f: (f / "m.json").write_bytes(b"\xff"), "m.json is not the card of a checkpoint: "),
        (lambda f: (f / "m.json").write_text('{"name": "m", "sha256": 3}'), "is not the file that m.json describes"),
        (lambda f: rename_in_card(f, "other"), "m.json is the card of 'other', not of 'm'"),
        (lambda f: (save(f, {}), rehash(f)), "m.safetensors cannot be read as a checkpoint: "),
        (lambda f: (save(f, {"vocabulary": "["}), rehash(f)), "m.safetensors cannot be read as a checkpoint: "),
        (lambda f: (save(f, {"vocabulary": "[]"}), rehash(f)), "0 words and 2 counts of words"),
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_sentence(written, damage, said):
    _, _, folder = written
    damage(folder)
    with pytest.raises(ValueError) as error:
        checkpoints.load("m", folder)
    message = str(error.value)
    assert said in message and "\n" not in message and message.endswith("make pretrain NAME=m")


def rename_in_card(folder, name):
    card = json.loads((folder / "m.json").read_text())
    (folder / "m.json").write_text(json.dumps(card | {"name": name}))


def save(folder, metadata):
    pretrain.save_file({"vocabulary.counts": torch.ones(2)}, folder / "m.safetensors", metadata=metadata)


def faults(folder):
    """What is wrong with the checkpoints of a folder."""
    names = {path.stem for path in folder.iterdir() if path.suffix in (".safetensors", ".json")}
    found = []
    for name in sorted(names):
        try:
            card = checkpoints.load(name, folder).card
        except ValueError as error:
            found.append(str(error))
            continue
        command = shlex.split(card.get("command", ""))
        if "lrm_utils.pretrain" not in command[:-1]:
            found.append(f"{name} does not say by which command it was made")
        elif (recipe := command[command.index("lrm_utils.pretrain") + 1]) != name or name not in pretrain.RECIPES:
            found.append(f"{name} was made by the recipe {recipe}; there are: {', '.join(pretrain.RECIPES)}")
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if size > MOST:
        found.append(f"the checkpoints have {size:,} bytes together; {MOST:,} are allowed")
    return found


def test_the_checkpoints_that_ship_are_whole_and_small_and_name_their_command():
    assert faults(checkpoints.FOLDER) == []


def test_a_fault_of_a_checkpoint_that_ships_would_be_found(written, tmp_path, monkeypatch):
    model, vocab, _ = written
    folder = tmp_path / "shipped"
    folder.mkdir()
    assert faults(folder) == [], "a folder without any is fine"
    store("elmo", model, vocab, folder)
    assert faults(folder) == []
    monkeypatch.setitem(globals(), "MOST", 100)
    assert "allowed" in faults(folder)[0]
    monkeypatch.undo()
    store("elmo", model, vocab, folder, "x")
    assert faults(folder) == ["elmo does not say by which command it was made"]
    store("elmo", model, vocab, folder, "python -m lrm_utils.pretrain gpt")
    assert "made by the recipe gpt" in faults(folder)[0]
    flip(folder / "elmo.safetensors")
    assert "is not the file that elmo.json describes" in faults(folder)[0]
    (folder / "elmo.safetensors").unlink()
    assert "no checkpoint 'elmo'" in faults(folder)[0], "a card without its file"


def test_checkpoints_are_installed_with_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "lrm_utils.checkpoints" in settings["packages"]
    assert settings["package-data"]["lrm_utils.checkpoints"] == ["*.safetensors", "*.json"]
