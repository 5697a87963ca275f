"""A local server, one Chromium, and one visit to each page of the built book, whose findings the tests share."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import BrowserContext, Page, sync_playwright
from screenshots import FLAGS

ROOT = Path(__file__).resolve().parents[2]
HTML = ROOT / "_build" / "html"
HELPERS = {"search.html", "genindex.html", "index.html", "prf-prf.html"}  # made by Sphinx; index.html redirects
PHONE = 390
DESKTOP = {"width": 1280, "height": 900}


def book_pages() -> list[str]:
    """Every page that somebody wrote, as a path from the root of the book."""
    pages = (path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html"))
    return sorted(page for page in pages if page not in HELPERS and not page.startswith(("_static/", "_sources/")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take `page_name` run once for each page."""
    if "page_name" in metafunc.fixturenames:
        metafunc.parametrize("page_name", book_pages() or ["(no book)"])


def missing(what: str) -> None:
    """Skip, or fail where a browser is required (LRM_BROWSER=required)."""
    if os.environ.get("LRM_BROWSER") == "required":
        pytest.fail(f"LRM_BROWSER=required, but {what}", pytrace=False)
    pytest.skip(what)


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass
class Visit:
    """What one page did when it was opened, and how it looked."""

    console: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    report: dict = field(default_factory=dict)


@pytest.fixture(scope="session")
def config() -> dict:
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of the book, served from 127.0.0.1."""
    if not (HTML / "intro.html").is_file():
        missing("the book has not been built at _build/html: run make book")
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(HTML)))
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}/"
    httpd.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserContext]:
    """One Chromium with one cache, so that scripts and fonts are read once."""
    executable = shutil.which("chromium")
    if executable is None:
        missing("chromium is not installed")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield chromium.new_context(viewport=DESKTOP, color_scheme="light")
        chromium.close()


@pytest.fixture
def page(browser: BrowserContext) -> Iterator[Page]:
    """A fresh page for tests that click and type."""
    fresh = browser.new_page()
    yield fresh
    fresh.close()


@pytest.fixture(scope="session")
def visits() -> dict[str, Visit]:
    return {}


@pytest.fixture
def visit(page_name: str, server: str, browser: BrowserContext, visits: dict[str, Visit]) -> Visit:
    """Open a page once, in both themes and two widths, and remember what was seen."""
    if page_name not in visits:
        visits[page_name] = look_at(browser, server, page_name)
    return visits[page_name]


def look_at(browser: BrowserContext, server: str, page_name: str) -> Visit:
    seen = Visit()
    page = browser.new_page()
    page.on("console", lambda message: seen.console.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("requestfailed", lambda request: seen.failed.append(f"{request.url}: {request.failure}"))
    page.on("response", lambda r: seen.failed.append(f"{r.url}: {r.status}") if r.status >= 400 else None)
    page.on(
        "request",
        lambda r: None if r.url.startswith((server, "data:", "blob:")) else seen.foreign.append(r.url),
    )
    page.goto(server + page_name)
    page.evaluate("window.MathJax?.startup?.promise?.then(() => null)")
    page.evaluate("document.fonts.ready.then(() => null)")
    seen.report = page.evaluate((Path(__file__).parent / "look.js").read_text(encoding="utf-8"))
    page.set_viewport_size({"width": PHONE, "height": 800})
    seen.report["phone"] = page.evaluate((Path(__file__).parent / "overflow.js").read_text(encoding="utf-8"))
    page.close()
    return seen
