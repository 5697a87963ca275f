"""Downloads are checked before they get their name and leave nothing behind; archives are read in place, or refused.

The server is a local one on 127.0.0.1: no test needs the network.
"""

import hashlib
import io
import random
import re
import socket
import stat
import tarfile
import threading
import time
import traceback
import warnings
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lrm_utils.data import DataUnavailable, fetch

CONTENT = b"We the people of the miniature world.\n" * 2_000
PAGES = {"/good.txt": CONTENT, "/corrupt.txt": CONTENT[:-1] + b"!", "/truncated.txt": CONTENT[:50_000]}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path not in PAGES:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))  # more than /truncated.txt sends
        self.end_headers()
        self.wfile.write(PAGES[self.path])

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        running.url = f"http://127.0.0.1:{running.server_address[1]}"
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def dead():
    """An address where nobody listens."""
    with socket.socket() as taken:  # bound, so that nobody else gets the port
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder, and no waiting between two tries of a download."""
    monkeypatch.setenv("LRM_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fetch, "_looked_at", set())
    for proxy in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    return tmp_path / "data"


@pytest.fixture
def publish(monkeypatch, folder):
    """Register a file `people.txt` at the given addresses."""

    def register(*urls, bundle=None):
        item = fetch.Published(
            "people",
            "people.txt",
            urls,
            f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
            "CC0",
            "http://127.0.0.1/",
            len(CONTENT),
            bundle,
        )
        monkeypatch.setitem(fetch.REGISTRY, "people", item)
        return item

    return register


def left_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def test_a_download_arrives_under_its_name_with_a_progress_bar(publish, server, folder, capfd):
    publish(f"{server.url}/good.txt")
    path = fetch.fetch("people")
    assert path == folder / "people.txt" and path.read_bytes() == CONTENT
    assert left_in(folder) == ["people.txt"]
    assert "100%" in capfd.readouterr().err


def test_a_file_in_the_folder_is_not_downloaded_again(publish, server):
    publish(f"{server.url}/good.txt")
    fetch.fetch("people")
    before = len(server.asked)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fetch.read("people") == CONTENT
        fetch._looked_at.clear()  # as a new process would see it
        assert fetch.read("people") == CONTENT
    assert len(server.asked) == before


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("corrupt.txt", "wrong bytes"),
        ("truncated.txt", "the transfer broke off"),
        ("absent.txt", "the server answered 404"),
    ],
)
def test_a_bad_download_is_an_error_and_leaves_nothing_in_the_folder(publish, server, folder, page, reason):
    publish(f"{server.url}/{page}")
    with pytest.raises(DataUnavailable) as error:
        fetch.fetch("people")
    assert re.search(reason, str(error.value))
    assert f"{server.url}/{page}" in str(error.value)
    assert left_in(folder) == []


def test_a_failed_download_is_tried_once_more(publish, server):
    publish(f"{server.url}/absent.txt")
    before = len(server.asked)
    with pytest.raises(DataUnavailable):
        fetch.fetch("people")
    assert server.asked[before:] == ["/absent.txt", "/absent.txt"]


@pytest.mark.parametrize("page", ["dead", "corrupt.txt", "truncated.txt", "absent.txt"])
def test_the_mirror_is_used_when_the_first_address_fails(publish, server, dead, folder, page):
    publish(f"{dead if page == 'dead' else server.url}/{page}", f"{server.url}/good.txt")
    assert fetch.fetch("people").read_bytes() == CONTENT
    assert left_in(folder) == ["people.txt"]


def test_without_network_one_message_names_file_addresses_and_folder(publish, dead, folder):
    publish(f"{dead}/people.txt", f"{dead}/mirror/people.txt")
    with pytest.raises(DataUnavailable) as error:
        fetch.fetch("people")
    message = str(error.value)
    for part in (
        "people.txt",
        f"{len(CONTENT):,} bytes",
        f"{dead}/people.txt: no connection",
        f"{dead}/mirror/people.txt: no connection",
        str(folder / "people.txt"),
        "LRM_DATA",
    ):
        assert part in message
    assert len(message.splitlines()) < 8
    shown = "".join(traceback.format_exception(error.value))
    assert "urllib3" not in shown and "During handling" not in shown


def test_a_folder_that_cannot_be_made_is_named(publish, server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LRM_DATA", str(tmp_path / "file" / "data"))
    publish(f"{server.url}/good.txt")
    with pytest.raises(DataUnavailable, match=r"could not be written[\s\S]*put a copy at .*file.data.people.txt"):
        fetch.fetch("people")


def test_a_hand_made_copy_is_used_with_one_warning(publish, dead, folder):
    publish(f"{dead}/people.txt")
    folder.mkdir()
    (folder / "people.txt").write_bytes(b"repacked")
    with pytest.warns(UserWarning, match="people.txt .*does not hold the published") as caught:
        assert fetch.read("people") == fetch.read("people") == b"repacked"
    assert len(caught) == 1


@pytest.mark.parametrize(("content", "expected"), [(CONTENT, 0), (b"repacked", 1)])
def test_a_plain_file_may_lie_in_its_bundle(publish, dead, folder, content, expected):
    publish(f"{dead}/people.txt", bundle="people-and-others.zip")
    folder.mkdir()
    with zipfile.ZipFile(folder / "people-and-others.zip", "w") as archive:
        archive.writestr("people.txt", content)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert fetch.read("people") == fetch.read("people") == content
    assert len(caught) == expected


def test_the_folder_is_moved_by_the_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("LRM_DATA", str(tmp_path))
    assert fetch.folder() == tmp_path
    monkeypatch.setenv("LRM_DATA", "")
    assert fetch.folder().name == "lrm"


def test_every_registered_file_has_a_sound_entry():
    for name, item in fetch.REGISTRY.items():
        algorithm, _, value = item.hash.partition(":")
        assert name == item.name
        assert re.fullmatch(r"[0-9a-f]+", value) and len(value) == {"sha256": 64, "sha1": 40}[algorithm]
        assert item.urls and len(set(item.urls)) == len(item.urls)
        assert all(url.startswith("https://") for url in item.urls)
        assert item.license and item.homepage.startswith("https://")
    assert len({item.file for item in fetch.REGISTRY.values()}) == len(fetch.REGISTRY)


# ------------------------------------------------------------------------------------------------------- archives
def make_zip(path, members, mode=0o644):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.filename = name  # as it is: ZipInfo would tidy some names
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return path


def make_tar(path, members, kind=tarfile.REGTYPE):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            info.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(info, io.BytesIO(content))
    return path


def everything_in(path):
    return dict(fetch.tar_members(path, lambda name: True))


def test_members_are_read_where_they_lie(tmp_path):
    members = {"set/a.txt": b"alpha", "set/b.txt": "bêta".encode(), "set/..dots.txt": b"harmless"}
    assert fetch.read_member(make_zip(tmp_path / "set.zip", members), "set/b.txt") == "bêta".encode()
    assert everything_in(make_tar(tmp_path / "set.tar.gz", members)) == members
    assert dict(fetch.tar_members(tmp_path / "set.tar.gz", re.compile(".*a.txt").fullmatch)) == {"set/a.txt": b"alpha"}
    assert left_in(tmp_path) == ["set.tar.gz", "set.zip"]


UNSAFE = ["../evil.txt", "set/../../evil.txt", "/etc/evil.txt", "C:\\evil.txt", "..\\evil.txt", "set/.."]


@pytest.mark.parametrize("name", UNSAFE)
def test_an_archive_with_a_member_that_leads_out_of_it_is_refused(tmp_path, name):
    members = {"set/a.txt": b"alpha", name: b"evil"}
    with pytest.raises(DataUnavailable, match="leads out of the archive") as error:
        fetch.read_member(make_zip(tmp_path / "set.zip", members), "set/a.txt")
    assert repr(name) in str(error.value) and "set.zip" in str(error.value)
    with pytest.raises(DataUnavailable, match="leads out of the archive") as error:
        everything_in(make_tar(tmp_path / "set.tar.gz", members))
    assert repr(name) in str(error.value)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_an_archive_with_a_link_or_device_is_refused(tmp_path, kind):
    with pytest.raises(DataUnavailable, match="'set/link' is a link or a device"):
        everything_in(make_tar(tmp_path / "set.tar.gz", {"set/link": b""}, kind))
    make_zip(tmp_path / "set.zip", {"set/link": b"/etc/passwd"}, stat.S_IFLNK | 0o777)
    with pytest.raises(DataUnavailable, match="'set/link' is a link or a device"):
        fetch.read_member(tmp_path / "set.zip", "set/link")


def test_an_archive_that_declares_absurd_sizes_is_refused(tmp_path):
    members = {"set/zeros.txt": bytes(64 << 20)}  # shrinks a thousandfold
    with pytest.raises(DataUnavailable, match="declares 67,108,864 bytes"):
        fetch.read_member(make_zip(tmp_path / "bomb.zip", members), "set/zeros.txt")
    with pytest.raises(DataUnavailable, match="declares 67,108,864 bytes"):
        everything_in(make_tar(tmp_path / "bomb.tar.gz", members))


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_damaged_archive_is_one_clear_error_that_says_to_delete_it(tmp_path, kind):
    path, members = tmp_path / f"set.{kind}", {f"set/{i}.txt": random.Random(i).randbytes(5_000) for i in range(4)}
    (make_zip if kind == "zip" else make_tar)(path, members)
    whole = path.read_bytes()

    def read_all():
        if kind == "tar.gz":
            return everything_in(path)
        return {name: fetch.read_member(path, name) for name in members}

    assert read_all() == members
    choose = random.Random(0)
    for cut in (0, 10, len(whole) // 2, len(whole) - 9):  # a transfer that broke off
        path.write_bytes(whole[:cut])
        with pytest.raises(DataUnavailable, match=f"set.{kind} is damaged .* delete it"):
            read_all()
    for _ in range(300):  # or a flipped bit: an error, or no harm done
        broken = bytearray(whole)
        broken[choose.randrange(len(whole))] ^= 1 << choose.randrange(8)
        path.write_bytes(broken)
        try:
            assert read_all() == members
        except DataUnavailable as error:
            assert "delete" in str(error)


def test_a_missing_member_is_named_with_what_there_is(tmp_path):
    with pytest.raises(DataUnavailable, match="no member 'b.txt'; it holds a.txt"):
        fetch.read_member(make_zip(tmp_path / "set.zip", {"a.txt": b""}), "b.txt")


def test_text_that_is_not_utf8_is_named():
    with pytest.raises(DataUnavailable, match=r"notes.txt is not UTF-8 text \(byte 3\)"):
        fetch.decode(b"caf\xe9", "notes.txt")
