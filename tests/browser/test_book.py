"""Every page of the built book, opened in a real browser: what a reader meets, offline, on a phone, in the dark."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page, expect

from conftest import HTML, PHONE, ROOT, Visit, book_pages

SOLUTION = "div.solution.dropdown, div.solution.toggle"


def notebook_of(page_name: str) -> Path | None:
    """The notebook a page was made from, from the root of the repository; None for a page of Markdown."""
    path = Path(page_name).with_suffix(".ipynb")
    return path if (ROOT / path).is_file() or (HTML / "_sources" / path).is_file() else None


def has_solution(page_name: str) -> bool:
    path = HTML / page_name
    return path.is_file() and 'class="solution' in path.read_text(encoding="utf-8")


def test_page_opens_without_errors(visit: Visit) -> None:
    assert not visit.console, f"errors in the console: {visit.console}"
    assert not visit.failed, f"failed requests: {visit.failed}"


def test_no_request_leaves_this_machine(visit: Visit) -> None:
    assert not visit.foreign, f"the page asked other hosts for {visit.foreign}"


def test_formulas_are_rendered(visit: Visit) -> None:
    assert not visit.report["unrendered"], f"not rendered: {visit.report['unrendered']}"
    assert not visit.report["mathErrors"], f"MathJax complains: {visit.report['mathErrors']}"


def test_nothing_is_wider_than_a_phone(visit: Visit) -> None:
    phone = visit.report["phone"]
    assert phone["wide"] <= PHONE + 1, f"the page is {phone['wide']} px wide; widest: {phone['offenders']}"
    assert not phone["offenders"], f"cut off at the right edge: {phone['offenders']}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_background(visit: Visit, theme: str) -> None:
    worst = visit.report[theme]
    assert worst["count"] > 0, "no text was found"
    assert worst["ratio"] >= 4.5, f"contrast {worst['ratio']:.1f} in {theme}: {worst['text']!r} in {worst['tag']}"


def test_pictures_have_text_alternatives(visit: Visit) -> None:
    assert not visit.report["withoutAlt"], f"no alt text: {visit.report['withoutAlt']}"


def test_pictures_keep_their_shape_on_a_phone(visit: Visit) -> None:
    assert not (squashed := visit.report["phone"]["squashed"]), f"squashed to fit: {squashed}"


def test_links_within_the_book_lead_somewhere(visit: Visit, server: str) -> None:
    local = {link for link in visit.report["links"] if link.startswith(server)}
    paths = {unquote(urlsplit(link).path).lstrip("/") or "index.html" for link in local}
    assert not (broken := sorted(path for path in paths if not (HTML / path).is_file())), f"broken: {broken}"


def test_notebook_opens_in_colab_and_downloads(visit: Visit, page_name: str, server: str, config: dict) -> None:
    notebook = notebook_of(page_name)
    if notebook is None:
        pytest.skip("not a notebook")
    repository = urlsplit(config["repository"]["url"]).path.strip("/")
    address = f"https://colab.research.google.com/github/{repository}/blob/{config['repository']['branch']}/{notebook}"
    assert address in visit.report["links"], f"no button leads to {address}"
    assert f"{server}_sources/{notebook.as_posix()}" in visit.report["links"], "no button downloads the notebook"


def test_solutions_unfold(page_name: str, server: str, page: Page) -> None:
    if not has_solution(page_name):
        pytest.skip("no solution on this page")
    page.goto(server + page_name)
    for solution in page.locator(SOLUTION).all():
        content = solution.locator(".admonition-title ~ *").first
        expect(content).to_be_hidden()
        solution.locator(".admonition-title").first.click(position={"x": 6, "y": 12})
        expect(content).to_be_visible()


def test_some_notebook_has_a_solution(server: str) -> None:
    notebooks = [name for name in book_pages() if notebook_of(name)]
    if not notebooks:
        pytest.skip("the book has no notebook yet")
    assert any(has_solution(name) for name in notebooks)


@pytest.mark.parametrize(
    ("word", "where"), [("strangers", "Counting the company"), ("transformer", "Language Representation")]
)
@pytest.mark.parametrize("scheme", ["http", "file"])
def test_search_finds_a_word_of_the_book(server: str, page: Page, scheme: str, word: str, where: str) -> None:
    start = server if scheme == "http" else HTML.as_uri() + "/"
    page.goto(f"{start}search.html?q={word}")
    expect(page.locator("#search-results ul.search li").first).to_be_visible()
    expect(page.locator("#search-results ul.search li", has_text=where).first).to_be_visible()


def test_theme_can_be_switched(server: str, page: Page) -> None:
    page.goto(server + "intro.html")
    button = page.locator("button.theme-switch-button:visible").first
    seen = set()
    for _ in range(3):
        seen.add(page.evaluate("document.documentElement.dataset.theme"))
        button.click()
    assert seen == {"light", "dark"}


def test_paper_shows_the_article_alone(server: str, page: Page) -> None:
    """In print there is no sidebar and no dark theme, and every solution is open, because paper cannot be clicked."""
    page.goto(server + ([name for name in book_pages() if has_solution(name)] or ["notation.html"])[0])
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    for part in [".bd-sidebar-primary", ".bd-sidebar-secondary", ".bd-header-article"]:
        expect(page.locator(part).first).to_be_hidden()
    for solution in page.locator(SOLUTION).all():
        expect(solution.locator(".admonition-title ~ *").first).to_be_visible()
    page.emulate_media(media="screen")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_drawings_of_the_landing_page_fit_the_screen(server: str, page: Page) -> None:
    """One version of each drawing at a time, with a title, its text no smaller than nine pixels on a phone."""
    page.goto(server + "intro.html")
    for width, shown in [(1280, ".lrm-wide"), (PHONE, ".lrm-narrow")]:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.locator("svg.lrm-svg:visible").count() == 2
        assert page.locator(f"{shown} svg.lrm-svg:visible title").count() == 2
        smallest = page.evaluate(
            """() => Math.min(...[...document.querySelectorAll("svg.lrm-svg text")].filter(t => t.checkVisibility())
              .map(t => parseFloat(t.getAttribute("font-size")) * t.ownerSVGElement.getScreenCTM().a))"""
        )
        assert smallest >= 9, f"text of {smallest:.1f} px at a width of {width}"
