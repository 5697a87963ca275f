"""Photograph one page of the built book, for authors who want to see what readers will see.

python tools/screenshots.py notation.html notation.png --width 390 --dark --full
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PIECE = 2000
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
]


def photograph(page_file: Path, out: Path, width: int, height: int, dark: bool, full: bool, paper: bool) -> None:
    """Open `page_file` from disk in headless Chromium, wait for its formulas, and write PNGs (or a PDF) to `out`."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed: on Debian, apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, device_scale_factor=2)
        page.goto(page_file.as_uri())
        page.evaluate("window.MathJax?.startup?.promise")
        if paper:
            page.pdf(path=out, format="A4", print_background=True, prefer_css_page_size=True)
        elif not full:
            page.screenshot(path=out)
        else:
            bottom = page.evaluate("document.documentElement.scrollHeight")
            for number, top in enumerate(
                range(0, bottom, PIECE)
            ):  # Chromium leaves what lies far down a tall picture blank
                piece = {"x": 0, "y": top, "width": width, "height": min(PIECE, bottom - top)}
                name = out if bottom <= PIECE else out.with_stem(f"{out.stem}-{number:02}")
                page.screenshot(path=name, full_page=True, clip=piece)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", help="a page of the book, such as intro.html")
    parser.add_argument("out", type=Path, help="the PNG to write (a PDF as printed, if the name ends in .pdf)")
    parser.add_argument("--width", type=int, default=1280, help="390 is a phone")
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--dark", action="store_true", help="the dark theme")
    parser.add_argument("--full", action="store_true", help="the whole page, in pieces out-00.png, out-01.png, …")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html", help="where the built book is")
    args = parser.parse_args()
    page_file = (args.html / args.page).resolve()
    if not page_file.is_file():
        sys.exit(f"{page_file} does not exist: build the book first, or name a page such as intro.html")
    photograph(page_file, args.out, args.width, args.height, args.dark, args.full, args.out.suffix == ".pdf")


if __name__ == "__main__":
    main()
