"""Where the published full-size datasets come from, how a file gets into the data folder, and how archives are read.

The readers that turn the files into sentences and pairs are in `lrm_utils.data.published`.
"""

import gzip
import hashlib
import io
import os
import re
import stat
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import requests

from lrm_utils.data.installed import DataUnavailable


@dataclass(frozen=True)
class Published:
    """A published file: where it is, what it must hash to, who made it and under which license.

    `bundle` names a zip which, when it lies in the data folder, may hold the file in its stead.
    """

    name: str
    file: str
    urls: tuple[str, ...]  # the first is the publisher's own, then mirrors
    hash: str  # as pooch writes it, "algorithm:hexadecimal"
    license: str
    homepage: str
    size: int | None = None  # in bytes
    bundle: str | None = None


D2L = ("https://d2l-data.s3-accelerate.amazonaws.com/", "https://d2l-data.s3.amazonaws.com/")
SQUAD = (
    "https://rajpurkar.github.io/SQuAD-explorer/dataset/",
    "https://raw.githubusercontent.com/rajpurkar/SQuAD-explorer/master/dataset/",
)
EWT = ("https://raw.githubusercontent.com/UniversalDependencies/UD_English-EWT/r2.16/",)


def _at(bases: tuple[str, ...], file: str) -> tuple[str, ...]:
    return tuple(base + file for base in bases)


def _squad(name: str, file: str, sha256: str, size: int, bundle: str) -> Published:
    home = "https://rajpurkar.github.io/SQuAD-explorer/"
    return Published(name, file, _at(SQUAD, file), f"sha256:{sha256}", "CC BY-SA 4.0", home, size, bundle)


def _ewt(part: str, sha256: str, size: int) -> Published:
    file, home = f"en_ewt-ud-{part}.conllu", "https://universaldependencies.org/treebanks/en_ewt/"
    bundle = "ud_english_ewt.zip"
    return Published(f"ud-{part}", file, _at(EWT, file), f"sha256:{sha256}", "CC BY-SA 4.0", home, size, bundle)


def _glove(name: str, sha1: str) -> Published:
    """One table of GloVe alone, as d2l packs it: a zip with NAME/vec.txt inside."""
    file, home = f"{name}.zip", "https://nlp.stanford.edu/projects/glove/"
    return Published(name.lower().replace(".", "-"), file, _at(D2L, file), f"sha1:{sha1}", "PDDL 1.0", home)


REGISTRY = {
    item.name: item
    for item in (
        Published(
            name="ptb",
            file="ptb.zip",
            urls=_at(D2L, "ptb.zip"),
            hash="sha1:319d85e578af0cdc590547f26231e4e31cdf1e42",
            license="LDC User Agreement (Penn Treebank)",
            homepage="https://catalog.ldc.upenn.edu/LDC99T42",
        ),
        Published(
            name="wikitext-2",
            file="wikitext-2-v1.zip",
            urls=(
                "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
                "https://wikitext.smerity.com/wikitext-2-v1.zip",
            ),
            hash="sha256:92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c",
            license="CC BY-SA 3.0",
            homepage="https://arxiv.org/abs/1609.07843",
        ),
        Published(
            name="aclimdb",
            file="aclImdb_v1.tar.gz",
            urls=_at(("https://ai.stanford.edu/~amaas/data/sentiment/", D2L[0]), "aclImdb_v1.tar.gz"),
            hash="sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
            license="none stated; its authors ask to be cited",
            homepage="https://ai.stanford.edu/~amaas/data/sentiment/",
            size=84_125_825,
        ),
        Published(
            name="snli",
            file="snli_1.0.zip",
            urls=("https://nlp.stanford.edu/projects/snli/snli_1.0.zip",),
            hash="sha256:afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",
            license="CC BY-SA 4.0",
            homepage="https://nlp.stanford.edu/projects/snli/",
        ),
        _squad(
            "squad-train",
            "train-v1.1.json",
            "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955",
            30_288_272,
            "squad-v1.1-train.zip",
        ),
        _squad(
            "squad-dev",
            "dev-v1.1.json",
            "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9",
            4_854_279,
            "squad-v1.1-dev.zip",
        ),
        _ewt("train", "3fb78e2b55482c8ee00caa653af436c88c9e5bc9a73ce26e4ae3ddc79d2b7e7b", 14_203_025),
        _ewt("dev", "531a54ff90d6ab12201c5a50c3e78e6ddac4de69abc4bce5d275d3cd29efe2b6", 1_805_545),
        _ewt("test", "e266e515a0a7547657ed3d90d9ba46487d6bd251f27ad4269d4e8a427c8555cd", 1_804_515),
        Published(
            name="fra-eng",
            file="fra-eng.zip",
            urls=_at(D2L, "fra-eng.zip"),
            hash="sha1:94646ad1522d915e7b0f9296181140edcf86a4f5",
            license="CC BY 2.0 (Tatoeba)",
            homepage="https://www.manythings.org/anki/",
        ),
        Published(
            name="glove-6b",
            file="glove.6B.zip",
            urls=(
                "https://nlp.stanford.edu/data/glove.6B.zip",
                "https://downloads.cs.stanford.edu/nlp/data/glove.6B.zip",
            ),
            hash="sha256:617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
            license="PDDL 1.0",
            homepage="https://nlp.stanford.edu/projects/glove/",
            size=862_182_613,
        ),
        _glove("glove.6B.50d", "0b8703943ccdb6eb788e6f091b8946e82231bc4d"),
        _glove("glove.6B.100d", "cd43bfb07e44e6f27cbcc7bc9ae3d80284fdaf5a"),
        _glove("glove.42B.300d", "b5116e234e9eb9076672cfeabf5469f3eec904fa"),
        Published(
            name="wiki-en",
            file="wiki.en.zip",
            urls=_at(D2L, "wiki.en.zip"),
            hash="sha1:c1816da3821ae9f43899be655002f6c723e91b88",
            license="CC BY-SA 3.0",
            homepage="https://fasttext.cc/docs/en/pretrained-vectors.html",
        ),
        Published(
            name="tinyshakespeare",
            file="tinyshakespeare.txt",
            urls=(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
                "https://raw.githubusercontent.com/jcjohnson/torch-rnn/master/data/tiny-shakespeare.txt",
            ),
            hash="sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
            license="public domain",
            homepage="https://github.com/karpathy/char-rnn",
            size=1_115_394,
        ),
    )
}

_looked_at: set[tuple[Path, str]] = set()  # what was compared with its hash in this process


UNSAFE = re.compile(r"^[/\\]|^[A-Za-z]:|(^|[/\\])\.\.([/\\]|$)")  # absolute, with a drive letter, or upwards


def folder() -> Path:
    """The data folder: the environment variable LRM_DATA, or the usual cache folder of the operating system."""
    import pooch  # here, because importing it in a notebook warns of missing widgets, and few runs download

    return Path(os.environ.get("LRM_DATA") or pooch.os_cache("lrm")).expanduser()


def fetch(name: str) -> Path:
    """The path of a published file, downloaded if it is not in the data folder yet.

    A download gets its name only when its hash is right. A file that is there already is used as it is; if it is not
    the published one, a warning says so once.
    """
    item = REGISTRY[name]
    path = folder() / item.file
    if not path.is_file():
        _download(item, path)
    else:
        _compare(item, path)
    return path


def _compare(item: Published, path: Path, content: bytes | None = None) -> None:
    """Warn, once in a process, of a file that is not the published one; `content` is what a bundle holds of it."""
    if (path, item.file) in _looked_at:
        return
    _looked_at.add((path, item.file))
    algorithm, _, expected = item.hash.partition(":")
    with path.open("rb") if content is None else io.BytesIO(content) as file:
        if hashlib.file_digest(file, algorithm).hexdigest() == expected:
            return
    warnings.warn(
        f"{path} does not hold the published {item.file} ({algorithm} {expected[:12]}…) and is used as it is. "
        "Delete it to download the published file.",
        stacklevel=4,
    )


def _download(item: Published, path: Path) -> None:
    """Try each address in turn; pooch writes to a temporary file, which is deleted unless its hash is right."""
    import pooch

    problems = []
    for url in item.urls:
        cache = pooch.create(
            path.parent, base_url="", registry={item.file: item.hash}, urls={item.file: url}, retry_if_failed=1
        )
        try:
            cache.fetch(item.file, downloader=pooch.HTTPDownloader(progressbar=True, chunk_size=1 << 16, timeout=20))
            return
        except (OSError, ValueError) as error:  # what requests raises is an OSError
            problems.append(f"  {url}: {_in_short(error)}")
    size = f" ({item.size:,} bytes)" if item.size else ""
    raise DataUnavailable(
        "\n".join(
            [
                f"{item.file}{size} is not in the data folder and could not be downloaded:",
                *problems,
                f"Connect to the network and try again, or put a copy at {path}.",
                "The environment variable LRM_DATA moves the data folder.",
            ]
        )
    )


def _in_short(error: Exception) -> str:
    """What went wrong with a download, in a few words."""
    match error:
        case requests.HTTPError(response=response):
            return f"the server answered {response.status_code} {response.reason}"
        case requests.Timeout():
            return "no answer within 20 seconds"
        case requests.ConnectionError():
            return "no connection"
        case requests.exceptions.ChunkedEncodingError():
            return "the transfer broke off"
        case requests.RequestException():
            return type(error).__name__
        case OSError():
            return f"the file could not be written ({error.strerror or error})"
        case _:
            return "wrong bytes: the hash is not the published one"


def read(name: str) -> bytes:
    """The bytes of a published plain file, which may also lie in the data folder inside its bundle."""
    item = REGISTRY[name]
    bundle = folder() / item.bundle if item.bundle else None
    if bundle and bundle.is_file() and not (folder() / item.file).is_file():
        content = read_member(bundle, item.file)
        _compare(item, bundle, content)
        return content
    return fetch(name).read_bytes()


def decode(content: bytes, name: str) -> str:
    """Turn the bytes of the named file, which must be UTF-8, into text."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataUnavailable(
            f"{name} is not UTF-8 text (byte {error.start:,}): delete the file that holds it and try again"
        ) from None


DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error, OSError, EOFError, ValueError, RuntimeError)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the many errors of a damaged archive into one."""
    try:
        yield
    except (DataUnavailable, FileNotFoundError, PermissionError):
        raise
    except DAMAGE as error:
        raise DataUnavailable(f"{path} is damaged ({error}): delete it and try again") from None


class _Guard:
    """Refuses an archive whose members lead out of it, are no plain files, or declare absurd sizes."""

    def __init__(self, path: Path):
        self.path, self.declared = path, 0
        self.limit = 100 * path.stat().st_size + (16 << 20)  # text shrinks to a tenth, not to a hundredth

    def check(self, member: str, plain: bool, size: int) -> None:
        self.declared += size
        if not plain:
            problem = f"its member {member!r} is a link or a device"
        elif UNSAFE.search(member):
            problem = f"its member {member!r} leads out of the archive"
        elif self.declared > self.limit:
            problem = f"up to its member {member!r} it declares {self.declared:,} bytes, over 100 times its own size"
        else:
            return
        raise DataUnavailable(f"{self.path} is refused: {problem}; delete the file and get it elsewhere")


@contextmanager
def open_member(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open one file inside a zip for reading; nothing is extracted."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        guard = _Guard(path)
        for info in archive.infolist():
            guard.check(info.filename, not stat.S_ISLNK(info.external_attr >> 16), info.file_size)
        if name not in archive.namelist():
            held = ", ".join(archive.namelist()[:5]) or "nothing"
            raise DataUnavailable(f"{path} has no member {name!r}; it holds {held}; delete the file and try again")
        with archive.open(name) as file:
            yield file


def read_member(path: Path, name: str) -> bytes:
    """The bytes of one file inside a zip."""
    with open_member(path, name) as file:
        return file.read()


def tar_members(path: Path, wanted: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    """The name and bytes of each wanted file inside a tar.gz, in one pass; nothing is extracted."""
    guard = _Guard(path)
    with _readable(path), gzip.open(path) as unzipped:
        with tarfile.open(fileobj=unzipped, mode="r|") as archive:
            for info in archive:
                guard.check(info.name, info.isfile() or info.isdir(), info.size)
                if info.isfile() and wanted(info.name):
                    yield info.name, archive.extractfile(info).read()
        while unzipped.read(1 << 20):  # to the end, where the checksum is
            pass
