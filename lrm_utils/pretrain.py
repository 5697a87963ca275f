"""Pretrain a model of the course: `python -m lrm_utils.pretrain NAME`, on a CPU, a GPU, or several under `torchrun`.

A recipe says what a model is made of: corpus, vocabulary, model, loss, schedule. This module owns the recipes and what
surrounds them: a run that can be killed and goes on exactly where it was, a log, and the checkpoint with its card.
"""

import argparse
import ast
import hashlib
import inspect
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from lrm_utils import checkpoints, data, text
from lrm_utils.scale import current, device, seed_all
from lrm_utils.train import Loss, fit

Documents = list[list[list[str]]]  # documents of sentences of words
SPECIALS = ("</s>", "<unk>")
LONGEST = 60  # words; longer sentences are cut


@dataclass
class Recipe:
    """All that `fit` needs, and what the card says of the corpus."""

    model: nn.Module
    vocab: object  # a `text.Vocab`, or a tokenizer of chapter 4
    batches: Callable[[int], Iterable]  # of the epoch's number
    loss: Loss
    validate: Callable[[nn.Module], dict[str, float]]
    corpus: str
    steps: int
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    groups: Callable[[nn.Module, float], list[dict]] | None = None  # of the model and lr, where layers have rates
    schedule: Callable[[int, int], float] = lambda step, steps: 1.0
    clip: float | None = 1.0
    carry: bool = False
    settings: dict = field(default_factory=dict)  # what a reader needs to build the same model


RECIPES: dict[str, Callable[..., Recipe]] = {}
TRIALS = {"nano-gpt"}  # for readers to make; their checkpoints stay beside the state of the run


def register(name: str) -> Callable:
    """Make a recipe known under a name; its keyword arguments are what `--set` can change."""

    def add(recipe: Callable[..., Recipe]) -> Callable[..., Recipe]:
        RECIPES[name] = recipe
        return recipe

    return add


# ---------------------------------------------------------------------------------------------------------- the corpus


def speech_texts() -> tuple[list[str], list[str], list[str]]:
    """The speeches as chapter 1 divides them, by year: to train on, to choose by, to report on."""
    years = sorted({speech.year for speech in data.sotu()})
    order = np.random.default_rng(0).permutation(years).tolist()
    part = dict.fromkeys(order[:24], 1) | dict.fromkeys(order[24:48], 2)
    texts = [], [], []
    for speech in data.sotu():
        texts[part.get(speech.year, 0)].append(speech.text)
    return texts


def speeches(most: int | None = None) -> tuple[Documents, Documents, Documents]:
    """The sentences of the speeches in their three parts; the first of each."""
    return tuple([_sentences(document) for document in texts[:most]] for texts in speech_texts())


def review_texts() -> Documents:
    """The reviews to train on without their labels, the long ones first."""
    return _review_texts(data.reviews("imdb").train + data.reviews("mr").train)


def _review_texts(reviews: Iterable[data.Review]) -> Documents:
    return [_sentences(review.text) for review in reviews]


def _sentences(document: str) -> list[list[str]]:
    found = map(text.words, text.sentences(document))
    return [words[i : i + LONGEST] for words in found for i in range(0, len(words), LONGEST)]


@dataclass
class Corpus:
    """What a general model reads: the speeches, and about as many words of reviews, so that their words are known."""

    train: Documents
    validation: dict[str, Documents]
    vocab: text.Vocab
    name: str

    @property
    def sha256(self) -> str:
        """The fingerprint of the training text, word by word."""
        digest = hashlib.sha256()
        for document in self.train:
            digest.update("\n".join(" ".join(sentence) for sentence in document).encode() + b"\n\n")
        return digest.hexdigest()


def general(documents: int | None = None) -> Corpus:
    """Speeches, the first 6,000 long reviews and all short ones; with `documents`, only so many of each, for a trial.

    The words are those that chapter 1 knows, seen five times in the speeches, and those seen forty times in reviews.
    """
    (train, validation, _), long, short = speeches(documents), data.reviews("imdb"), data.reviews("mr")
    reviews = _review_texts((long.train + short.train)[:documents])
    some = (reviews[:6000] + reviews[len(long.train) :])[:documents]
    known = {word for word, n in _counts(train).items() if n >= 5} | {w for w, n in _counts(reviews).items() if n >= 40}
    joined = train + some
    known |= set(SPECIALS)
    tokens = [word if word in known else "<unk>" for d in joined for s in d for word in (*s, "</s>")]
    vocab = text.Vocab.build((t for t in tokens if t not in SPECIALS), specials=SPECIALS)
    vocab.counts[:2] = tokens.count("</s>"), tokens.count("<unk>")
    unseen = _review_texts((long.validation + short.validation)[: documents or 150])
    held_out = {"speeches": validation[: documents or 8], "reviews": unseen}
    return Corpus(joined, held_out, vocab, "speeches, and reviews without labels")


def target(vocab: text.Vocab, documents: int | None = None) -> Corpus:
    """What a model is tuned on: all reviews that are there to train on, long and short, without their labels."""
    long, short = data.reviews("imdb"), data.reviews("mr")
    unseen = _review_texts((long.validation + short.validation)[: documents or 150])
    return Corpus(
        review_texts()[:documents],
        {"speeches": speeches(documents)[1][: documents or 8], "reviews": unseen},
        vocab,
        "reviews without labels",
    )


def written(documents: int | None = None) -> tuple[list[str], dict[str, list[str]]]:
    """The texts of `general` as they are written: those to train on, and some of both kinds to judge by."""
    long, short = data.reviews("imdb"), data.reviews("mr")
    train, validation, _ = speech_texts()
    reviews = [review.text for review in long.train[:6000] + short.train]
    unseen = [review.text for review in (long.validation + short.validation)[: documents or 150]]
    return train[:documents] + reviews[:documents], {"speeches": validation[: documents or 8], "reviews": unseen}


def characters(shakespeare: bool = False) -> tuple[str, str]:
    """One text to train on and one to judge by: of speeches, or the first nine tenths of Shakespeare and the rest."""
    if shakespeare:
        whole = data.tinyshakespeare()
        cut = int(0.9 * len(whole))
        return whole[:cut], whole[cut:]
    train, validation, _ = speech_texts()
    return "\n\n".join(train), "\n\n".join(document[:20_000] for document in validation[:5])


def _counts(documents: Documents) -> dict[str, int]:
    found: dict[str, int] = {}
    for document in documents:
        for sentence in document:
            for word in sentence:
                found[word] = found.get(word, 0) + 1
    return found


def stream(documents: Documents, vocab: text.Vocab, seed: int | None = None, backward: bool = False) -> np.ndarray:
    """All documents one after the other as ids, each sentence closed by `</s>`; shuffled by a seed, from either end."""
    order = range(len(documents)) if seed is None else np.random.default_rng(seed).permutation(len(documents))
    ids = [vocab.encode((*sentence, "</s>")) for i in order for sentence in documents[i]]
    joined = np.concatenate([[vocab["</s>"]], *ids])
    return joined[::-1].copy() if backward else joined


def skip_gram(corpus: Corpus, D: int) -> torch.Tensor:
    """The word vectors that chapter 2 finds in a corpus, (V, D), with a spread of a tenth."""
    from lrm_utils.models import training_word2vec

    order = np.random.default_rng(0).permutation(len(corpus.train))
    documents = [stream([corpus.train[i]], corpus.vocab) for i in order]
    vectors = training_word2vec.train(documents, corpus.vocab, D=D).V
    return 0.1 * vectors / vectors.std()


def warm_and_cool(step: int, steps: int) -> float:
    """The factor on the learning rate: up in the first twentieth, then down along a cosine to a hundredth."""
    rise = max(1, steps // 20)
    if step < rise:
        return (step + 1) / rise
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


# --------------------------------------------------------------------------------------------------------- the recipes


@register("elmo")
def elmo(
    steps: int = 5400,
    lr: float = 2e-3,
    D: int = 128,
    H: int = 512,
    tokens: int = 1536,
    candidates: int = 6144,
    dropout: float = 0.1,
    documents: int | None = None,
) -> Recipe:
    """The bidirectional language model of chapter 7: sentences in batches of about `tokens` words."""
    from lrm_utils.models import bilm

    corpus = general(documents)
    filters = [(1, 16), (2, 32), (3, 64), (4, 96), (5, 128), (6, 128)]
    model = bilm.LanguageModel(bilm.BiLM(filters, D, H, dropout=dropout), bilm.Softmax(len(corpus.vocab), D))
    sentences = [s for document in corpus.train for s in document]
    held_out = {name: [s for d in part for s in d] for name, part in corpus.validation.items()}
    lexicon = bilm.Lexicon.of([*sentences, *(s for part in held_out.values() for s in part)], corpus.vocab)

    def validate(model: nn.Module) -> dict[str, float]:
        losses = {name: bilm.perplexities(model, lexicon, part) for name, part in held_out.items()}
        found = {f"{name} {way}": math.log(p) for name, both in losses.items() for way, p in both.items()}
        return {"loss": sum(found.values()) / len(found)} | found

    return Recipe(
        model=model,
        vocab=corpus.vocab,
        batches=bilm.sentence_batches(lexicon, sentences, tokens),
        loss=bilm.joint_loss(lexicon, candidates),
        validate=validate,
        corpus=f"{corpus.name}; sha256 {corpus.sha256}",
        steps=steps,
        lr=lr,
        schedule=warm_and_cool,
        settings=dict(filters=filters, D=D, H=H, layers=2, highways=1),
    )


def _awd_lstm(
    backward: bool,
    steps: int = 4400,
    lr: float = 3e-3,
    D: int = 192,
    H: int = 448,
    rows: int = 40,
    T: int = 64,
    candidates: int = 6144,
    dropout: float = 1.0,
    table: float = 0.1,
    documents: int | None = None,
) -> Recipe:
    """The AWD-LSTM of chapter 8, from left to right or from right to left; `dropout` scales all its rates.

    Its table starts as the skip-gram vectors of the same text and learns at the share `table` of the rate; with 0 it
    starts at random and learns as all else does. That gives the better language model and the worse classifier: see
    the part `start` of bench/ulmfit.py.
    """
    corpus = general(documents)
    parts = _reads_on(corpus, D, H, backward, rows, T, candidates, dropout, bool(documents))
    words = parts["model"].encoder.embedding.weight
    if table:
        words.data.copy_(skip_gram(corpus, D))

    def groups(model: nn.Module, lr: float) -> list[dict]:
        others = [p for p in model.parameters() if p is not words]
        return [dict(params=others, lr=lr), dict(params=[words], lr=(table or 1) * lr)]

    return Recipe(**parts, steps=steps, lr=lr, betas=(0.8, 0.99), groups=groups, schedule=warm_and_cool)


def _awd_lstm_reviews(
    backward: bool,
    steps: int = 2200,
    lr: float = 2e-3,
    rows: int = 40,
    T: int = 64,
    candidates: int = 6144,
    dropout: float = 0.5,
    documents: int | None = None,
) -> Recipe:
    """The AWD-LSTM of the recipe before, tuned to the text of reviews as ULMFiT does it: a rate for each layer."""
    from lrm_utils.models import ulmfit

    start = checkpoints.load("awd-lstm-backward" if backward else "awd-lstm")
    D, H = start.card["settings"]["D"], start.card["settings"]["H"]
    corpus = target(start.vocab, documents)
    parts = _reads_on(corpus, D, H, backward, rows, T, candidates, dropout, bool(documents))
    parts["model"].load_state_dict(start.weights)
    parts["corpus"] += f"; from {start.card['name']}, sha256 {start.card['sha256']}"
    return Recipe(
        **parts,
        steps=steps,
        lr=lr,
        betas=(0.7, 0.99),
        groups=lambda model, lr: ulmfit.discriminative(ulmfit.lm_groups(model), lr),
        schedule=ulmfit.slanted_triangular,
    )


def _reads_on(
    corpus: Corpus,
    D: int,
    H: int,
    backward: bool,
    rows: int,
    T: int,
    candidates: int,
    dropout: float,
    trial: int | None,
) -> dict:
    """What all AWD-LSTMs have in common: one long text, read in rows and chunks from either end."""
    from lrm_utils.models import awd_lstm

    vocab = corpus.vocab
    rates = dict(words=0.05, inputs=0.2, hidden=0.15, weights=0.2)
    encoder = awd_lstm.AWDLSTM(len(vocab), D, H, **{k: dropout * p for k, p in rates.items()})
    held_out = {
        name: awd_lstm.rows_of(stream(part, vocab, backward=backward), 1 if trial else 10)
        for name, part in corpus.validation.items()
    }

    def batches(epoch: int) -> Iterator[dict]:
        ids = stream(corpus.train, vocab, seed=epoch, backward=backward)
        return awd_lstm.chunks(awd_lstm.rows_of(ids, rows), T, np.random.default_rng(epoch))

    def validate(model: nn.Module) -> dict[str, float]:
        found = {name: -awd_lstm.log_probabilities(model, part).mean().item() for name, part in held_out.items()}
        return {"loss": sum(found.values()) / len(found)} | found

    return dict(
        model=awd_lstm.AWDLanguageModel(encoder, output=0.15 * dropout),
        vocab=vocab,
        batches=batches,
        loss=awd_lstm.lm_loss(alpha=1.0, beta=0.5, K=candidates),
        validate=validate,
        corpus=f"{corpus.name}; sha256 {corpus.sha256}",
        carry=True,
        settings=dict(D=D, H=H, layers=3),
    )


register("awd-lstm")(partial(_awd_lstm, False))
register("awd-lstm-backward")(partial(_awd_lstm, True))
register("awd-lstm-reviews")(partial(_awd_lstm_reviews, False))
register("awd-lstm-backward-reviews")(partial(_awd_lstm_reviews, True))


@register("gpt")
def gpt(
    steps: int = 10_000,
    lr: float = 2e-3,
    D: int = 192,
    H: int = 6,
    layers: int = 4,
    T: int = 256,
    rows: int = 8,
    tokens: int = 6000,
    documents: int | None = None,
) -> Recipe:
    """The GPT of chapter 9, on the texts as they are written, in `tokens` tokens of byte-level BPE."""
    from lrm_utils.models import gpt as model_of
    from lrm_utils.models.bpe_and_wordpiece import train_byte_bpe

    train, validation = written(documents)
    tokenizer = train_byte_bpe(train, tokens)
    model = model_of.GPT(len(tokenizer), D, H, layers, T, dropout=0.0)
    held_out = {name: model_of.stream(tokenizer, texts) for name, texts in validation.items()}

    def validate(model: nn.Module) -> dict[str, float]:
        found = {name: model_of.mean_loss(model, ids) for name, ids in held_out.items()}
        return {"loss": sum(found.values()) / len(found)} | found

    digest = hashlib.sha256("\0".join(train).encode()).hexdigest()
    return Recipe(
        model=model,
        vocab=tokenizer,
        batches=model_of.stretches(model_of.stream(tokenizer, train, seed=0), T, rows),
        loss=model_of.next_token_loss,
        validate=validate,
        corpus=f"speeches, and reviews without labels, as they are written; sha256 {digest}",
        steps=steps,
        lr=lr,
        betas=(0.9, 0.95),
        schedule=warm_and_cool,
        settings=dict(D=D, H=H, layers=layers, limit=T),
    )


@register("nano-gpt")
def nano_gpt(
    steps: int = 2000,
    lr: float = 1e-3,
    T: int = 64,
    rows: int = 12,
    D: int = 128,
    H: int = 4,
    layers: int = 4,
    dropout: float = 0.0,
    decay: float = 0.1,
    warm: int = 100,
    shakespeare: int | None = None,
) -> Recipe:
    """The character model of chapter 9 at nanoGPT's CPU setting, on the speeches, or on Shakespeare with 1.

    Without `shakespeare` the scale decides. It is there to be tried and is not shipped: see `TRIALS`.
    """
    from lrm_utils.models import gpt as model_of
    from lrm_utils.models import nano_gpt as nano

    chosen = current() == "full" if shakespeare is None else bool(shakespeare)
    train, validation = characters(chosen)
    known = nano.Characters(train + validation)
    ids, held_out = torch.as_tensor(known.encode(train)), known.encode(validation)
    model = nano.widen(nano.lean(model_of.GPT(len(known), D, H, layers, T, dropout)))
    digest = hashlib.sha256(train.encode()).hexdigest()
    return Recipe(
        model=model,
        vocab=text.Vocab(tuple(known.symbols), np.bincount(ids, minlength=len(known))),
        batches=lambda epoch: nano.windows(ids, T, rows),
        loss=model_of.next_token_loss,
        validate=lambda model: {"loss": model_of.mean_loss(model, held_out)},
        corpus=f"{'Shakespeare' if chosen else 'speeches'} in characters; sha256 {digest}",
        steps=steps,
        lr=lr,
        betas=(0.9, 0.99),
        groups=lambda model, lr: [group | {"decoupled_weight_decay": True} for group in nano.decayed(model, decay)],
        schedule=partial(nano.warm_up_and_cosine, warm=warm),
        settings=dict(D=D, H=H, layers=layers, limit=T),
    )


# ------------------------------------------------------------------------------------------------------------- the run


class Log:
    """What has been measured so far, as JSON: the losses at each validation and the seconds of training up to it.

    It lies beside the state of a run and names the command, so that no run goes on from the state of another.
    """

    def __init__(self, path: Path, command: str, step: int, minutes: float = 5.0):
        """`step` is where the run stands if it takes no step any more."""
        self.path, self.command, self.step, self.minutes = path, command, step, minutes
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kept.get("command", command) != command:
            raise ValueError(
                f"{path.parent} holds a run of `{kept['command']}`, and `{command}` is asked for: keep that one "
                "elsewhere (--run), or delete it to start anew"
            )
        self.entries = kept.get("validations", [])
        self.before = kept.get("seconds", self.entries[-1]["seconds"] if self.entries else 0.0)
        self.begin, self.written = time.monotonic(), -math.inf

    @property
    def seconds(self) -> float:
        """The time spent on this run, earlier sittings included."""
        return self.before + time.monotonic() - self.begin

    def start(self, step: int) -> None:
        """A step begins, counted from 0: forget what was measured after it, and note the time every few minutes."""
        self.step = step + 1
        self.entries = [e for e in self.entries if e.get("step", 0) <= step]
        if time.monotonic() - self.written >= 60 * self.minutes:
            self.write()

    def add(self, metrics: dict[str, float]) -> None:
        """One more line, of the step that has just been taken."""
        line = {"step": self.step, "seconds": round(self.seconds, 1)} | {k: round(v, 5) for k, v in metrics.items()}
        self.entries = [e for e in self.entries if e.get("step", 0) < self.step] + [line]
        self.write()
        print(json.dumps(line), flush=True)

    def write(self) -> None:
        """Replace the file in one go."""
        self.written = time.monotonic()
        found = {"command": self.command, "seconds": round(self.seconds, 1), "validations": self.entries}
        _write(self.path, json.dumps(found, indent=1) + "\n")


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(content)
    os.replace(partial, path)


def run(
    name: str,
    run_folder: Path,
    out: Path = checkpoints.FOLDER,
    minutes: float = 5.0,
    validations: int = 10,
    seed: int = 0,
    options: dict | None = None,
) -> dict:
    """Train a recipe to its end, going on from what `run_folder` holds, and write the checkpoint; return the card."""
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; there are: {', '.join(RECIPES)}")
    options = _changed(name, options or {})
    command = " ".join(["-m lrm_utils.pretrain", name, *(f"--set {key}={value}" for key, value in options.items())])
    command += f" --seed {seed}" if seed else ""
    seed_all(seed)
    recipe = RECIPES[name](**options)
    first, processes = int(os.environ.get("RANK", 0)) == 0, int(os.environ.get("WORLD_SIZE", 1))
    log = Log(run_folder / "log.json", f"python {command}", recipe.steps, minutes)

    def schedule(step: int, steps: int) -> float:
        if first:
            log.start(step)
        return recipe.schedule(step, steps)

    def validate(model: nn.Module) -> dict[str, float]:
        metrics = recipe.validate(model)
        if first:
            log.add(metrics)
        return metrics

    recipe.model.to(device())
    groups = recipe.groups(recipe.model, recipe.lr) if recipe.groups else recipe.model.parameters()
    history = fit(
        recipe.model,
        recipe.batches,
        recipe.loss,
        steps=recipe.steps,
        optimizer=torch.optim.Adam(groups, lr=recipe.lr, betas=recipe.betas),
        schedule=schedule,
        clip=recipe.clip,
        validate=validate,
        validate_every=max(1, recipe.steps // max(1, validations)),
        checkpoint=run_folder / "state.pt",
        checkpoint_minutes=minutes,
        carry=recipe.carry,
        seed=seed,
    )
    card = {
        "name": name,
        "command": f"torchrun --nproc-per-node {processes} {command}" if processes > 1 else f"python {command}",
        "corpus": recipe.corpus,
        "settings": recipe.settings,
        "options": _own(name) | options,
        "steps": len(history.losses),
        "seconds": round(log.seconds),
        "curve": [[int(at), round(float(np.mean(part)), 4)] for at, part in _thinned(history.losses)],
        "validations": history.validation,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in ("numpy", "torch", "safetensors")},
        "machine": {"processor": platform.machine(), "threads": torch.get_num_threads(), "device": device().type},
    }
    if first:
        packed = pack(name, recipe.model)
        recipe.model.load_state_dict(checkpoints.unpack(packed))  # from here on, what a reader will load
        card["losses"] = recipe.validate(recipe.model.eval())
        write(name, packed, recipe.vocab, card, out)
    return card


def _own(name: str) -> dict:
    """The settings of a recipe that `--set` can change."""
    return {key: parameter.default for key, parameter in inspect.signature(RECIPES[name]).parameters.items()}


def _changed(name: str, options: dict) -> dict:
    """The options that differ from a recipe's own, in its order; what it does not have or cannot use is refused."""
    own = _own(name)
    for key, value in options.items():
        if key not in own:
            raise ValueError(f"{name} has no setting {key!r}; there are: {', '.join(own)}")
        kind = float if isinstance(own[key], float) else int
        fits = type(value) in (int, kind) and value >= (key == "steps")  # no step is no training
        if not fits and value is not own[key]:
            wanted = "a number" if kind is float else "a whole number"
            raise ValueError(f"{key}={value!r} cannot be used: {name} expects {wanted}, such as {key}={own[key] or 10}")
    return {key: options[key] for key in own if key in options and options[key] != own[key]}


def _thinned(losses: list[float], points: int = 100) -> Iterator[tuple[int, list[float]]]:
    """The losses in about `points` groups, each with the step after its last one."""
    size = max(1, math.ceil(len(losses) / points))
    for start in range(0, len(losses), size):
        yield min(start + size, len(losses)), losses[start : start + size]


def pack(name: str, model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a model as its checkpoint will have them, if they are numbers that it can hold."""
    packed = checkpoints.pack(model.state_dict())
    if not all(w.isfinite().all() for w in packed.values()):
        raise ValueError(f"{name} has weights that a checkpoint cannot hold: the training diverged")
    return packed


def write(name: str, packed: dict, vocab: object, card: dict, out: Path = checkpoints.FOLDER) -> None:
    """Store packed weights with the vocabulary, and the card beside them with the file's sha256."""
    path = out / f"{name}.safetensors"
    out.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    if isinstance(vocab, text.Vocab):
        packed = packed | {"vocabulary.counts": torch.as_tensor(vocab.counts)}
        found = {"vocabulary": json.dumps(vocab.words, ensure_ascii=False)}
    else:
        found = {"tokenizer": json.dumps({"kind": type(vocab).__name__, "state": vocab.state}, ensure_ascii=False)}
    save_file(packed, partial, metadata=found)
    sha256 = hashlib.sha256(partial.read_bytes()).hexdigest()
    os.replace(partial, path)
    _write(out / f"{name}.json", json.dumps(card | {"sha256": sha256}, indent=1) + "\n")


def _setting(pair: str) -> tuple[str, object]:
    key, equals, value = pair.partition("=")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise argparse.ArgumentTypeError(f"{pair!r} is not of the form steps=100") from None


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m lrm_utils.pretrain", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=RECIPES, help="which model")
    where = "where the run keeps its state and log (.run/NAME); torchrun takes --run for its own: there, say --folder"
    parser.add_argument("--run", "--folder", type=Path, help=where)
    where = "where the checkpoint goes; by default into the package, and beside the state if anything is changed"
    parser.add_argument("--out", type=Path, help=where)
    parser.add_argument("--minutes", type=float, default=5.0, help="between two saves of the state")
    parser.add_argument("--validations", type=int, default=10, help="how many on the way")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--set", type=_setting, action="append", default=[], metavar="KEY=VALUE", help="e.g. steps=100")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    folder = asked.run or Path(".run") / asked.name
    trial = asked.set or asked.seed or asked.name in TRIALS
    out = asked.out or (folder if trial else checkpoints.FOLDER)  # a trial is not shipped
    try:
        card = run(asked.name, folder, out, asked.minutes, asked.validations, asked.seed, dict(asked.set))
    except (ValueError, FloatingPointError) as error:
        sys.exit(str(error))
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    if int(os.environ.get("RANK", 0)) == 0:
        done = f"{card['steps']:,} steps, {card['seconds']:,} s"
        print(f"{asked.name}: {done}, validation loss {card['losses']['loss']:.4f}")


if __name__ == "__main__":
    main()
