"""Small pretrained weights, one safetensors file each beside a card that says how they were made.

`python -m lrm_utils.pretrain NAME` makes them; a notebook reads them with `load`. To stay small a file has one byte for
each entry of a matrix, and for each row the number that these bytes are multiplied by; vectors have two bytes an entry.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lrm_utils.text import Vocab

FOLDER = Path(__file__).parent
SCALE = ".scale"  # ends the name of what the rows of a matrix are multiplied by


@dataclass(frozen=True)
class Checkpoint:
    """The weights by name (float32), the words that the model knows, and the card: how it was made and its losses."""

    weights: dict[str, Tensor]
    vocab: Vocab  # or a tokenizer of chapter 4
    card: dict

    def __repr__(self) -> str:
        size = sum(w.numel() for w in self.weights.values())
        return f"Checkpoint({self.card['name']}, {size:,} weights, {len(self.vocab):,} words)"


def pack(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as a file has them: matrices as whole numbers up to 127 with a scale for each row, vectors in 16 bits."""
    packed = {}
    for name, weight in weights.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in weights:
            raise ValueError(f"{name!r} is the name of what the rows of another matrix are multiplied by: rename it")
        weight = weight.detach().cpu().float()
        if weight.dim() < 2:
            packed[name] = weight.half().contiguous()
            continue
        rows = weight.flatten(1)
        scale = rows.abs().amax(1, keepdim=True) / 127
        packed[name] = (rows / scale.clamp_min(torch.finfo().tiny)).round().to(torch.int8).view_as(weight).contiguous()
        packed[name + SCALE] = scale[:, 0].contiguous()
    return packed


def unpack(packed: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a file in single precision."""
    found = {}
    for name, weight in packed.items():
        if name.endswith(SCALE) and packed.get(name.removesuffix(SCALE), weight).dtype == torch.int8:
            continue
        found[name] = weight.float()
        if weight.dtype == torch.int8:
            found[name] *= packed[name + SCALE].view(-1, *[1] * (weight.dim() - 1))
    return found


def tokenizer(kind: str, state: dict) -> object:
    """A tokenizer of chapter 4 from what it is made of."""
    from lrm_utils.models import bpe_and_wordpiece

    return getattr(bpe_and_wordpiece, kind)(**state)


def load(name: str, folder: Path = FOLDER) -> Checkpoint:
    """Read a checkpoint; its file must be the one that its card describes."""
    path, card_path = folder / f"{name}.safetensors", folder / f"{name}.json"
    repair = f"install lrm-utils again, or make it anew: make pretrain NAME={name}"
    if not (path.is_file() and card_path.is_file()):
        known = ", ".join(sorted(p.stem for p in folder.glob("*.safetensors"))) or "none yet"
        raise ValueError(f"there is no checkpoint {name!r}; there are: {known}. To make it: make pretrain NAME={name}")
    try:
        card = json.loads(card_path.read_text())
        expected, described = card["sha256"], card["name"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{card_path.name} is not the card of a checkpoint: {error!r}; {repair}") from None
    if described != name:
        raise ValueError(f"{card_path.name} is the card of {described!r}, not of {name!r}; {repair}")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise ValueError(
            f"{path.name} is not the file that {card_path.name} describes: its sha256 is {found[:12]}…, expected "
            f"{str(expected)[:12]}…; {repair}"
        )
    try:
        with safe_open(path, framework="pt") as file:
            found, names = file.metadata(), set(file.keys()) - {"vocabulary.counts"}
            weights = unpack({n: file.get_tensor(n) for n in names})
            if "tokenizer" in found:
                return Checkpoint(weights, tokenizer(**json.loads(found["tokenizer"])), card)
            words, counts = json.loads(found["vocabulary"]), file.get_tensor("vocabulary.counts").numpy()
            if len(words) != len(counts):
                raise ValueError(f"{len(words):,} words and {len(counts):,} counts of words")
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path.name} cannot be read as a checkpoint: {error}; {repair}") from None
    return Checkpoint(weights, Vocab(tuple(words), counts), card)
