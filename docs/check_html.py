"""Checks built pages: nothing is loaded from elsewhere, and every inner link leads somewhere.

``python docs/check_html.py FOLDER`` prints what is wrong and ends with 1 if anything is. `make docs` runs it.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """What a page loads, where it links to, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.places |= {found[key] for key in ("id", "name") if key in found}
        if LOADS.get(tag) in found:
            self.loads.append(found[LOADS[tag]])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])


def outside(address: str) -> bool:
    """Whether an address leads to another host."""
    return bool(urlsplit(address).netloc)


def check(folder: Path) -> list[str]:
    """What is wrong with the pages of a folder, one sentence each."""
    folder = folder.resolve()
    pages = {path.resolve(): Page(path.read_text("utf-8")) for path in sorted(folder.rglob("*.html"))}
    wrong = [] if pages else [f"there is no page in {folder}"]
    for path, page in pages.items():
        name = path.relative_to(folder)
        wrong += [f"{name} loads {address}" for address in page.loads if outside(address)]
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                wrong.append(f"{name} links to {address}, which is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
                wrong.append(f"{name} links to {address}: no such place")
    for style in sorted(folder.rglob("*.css")):
        for address in re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", style.read_text("utf-8")):
            if outside(address):
                wrong.append(f"{style.relative_to(folder)} loads {address}")
    return wrong


if __name__ == "__main__":
    problems = check(Path(sys.argv[1]))
    print("\n".join(problems))
    sys.exit(bool(problems))
