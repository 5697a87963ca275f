"""Deletes from the built book what no page can ask for, most of it alternative builds of MathJax. Run it after a build.

Kept of MathJax: the script that pages load, the TeX extensions and fonts it fetches when a formula needs them, and what
a reader can switch on in the menu of a formula (speech in English, Braille, SVG output). tests/browser proves the rest.

    python tools/prune_book.py [_build/html]
"""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MATHJAX = "_static/mathjax/"
KEEP = [
    "tex-chtml.js",
    "input/tex/extensions/*.js",
    "output/chtml/fonts/woff-v2/*.woff",
    "output/svg.js",
    "output/svg/fonts/tex.js",
    "a11y/*.js",
    "sre/mathmaps/base.json",
    "sre/mathmaps/en.json",
    "sre/mathmaps/nemeth.json",
]
DROP = [
    "_static/*.map",
    "_static/locales/*",
    "_static/vendor/*.ttf",
]  # source maps, translations, fonts for old browsers


def needless(html: Path) -> list[Path]:
    """The files under `html` that can go."""
    if not (html / MATHJAX / "tex-chtml.js").is_file():
        raise FileNotFoundError(f"{html} is no built book with its own MathJax: run make book first")
    found = []
    for path in sorted(p for p in html.rglob("*") if p.is_file()):
        name = path.relative_to(html).as_posix()
        if name.startswith(MATHJAX):
            drop = not any(fnmatch(name.removeprefix(MATHJAX), pattern) for pattern in KEEP)
        else:
            drop = any(fnmatch(name, pattern) for pattern in DROP)
        if drop:
            found.append(path)
    return found


def prune(html: Path) -> tuple[int, int]:
    """Delete them and the folders left empty; return how many files and bytes went."""
    paths = needless(html)
    size = sum(path.stat().st_size for path in paths)
    for path in paths:
        path.unlink()
        for parent in path.parents:
            if parent == html or any(parent.iterdir()):
                break
            parent.rmdir()
    return len(paths), size


if __name__ == "__main__":
    count, size = prune(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "_build" / "html")
    print(f"pruned {count} files, {size / 1e6:.1f} MB")
