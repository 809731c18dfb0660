"""The six pages of the home page's gallery, and pictures of them.

``conf.py`` makes the pages anew whenever the documentation is built, into the folder ``pages`` of the site.
``python docs/showcase.py`` takes a light and a dark picture of each in a Chromium that must be installed, and
writes them to docs/images/home. Everything is computed by the project itself, with fixed seeds.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import bestarm as ba
from bestarm.report import page as pages
from bestarm.util.journal import Journal

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
FOLDER = DOCS / "images" / "home"
PLACE = "*`make docs` makes these pages, and shows a picture of each here.*"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCHEMES = {"dark": 0, "light": 1}  # Chromium's numbers
SIZE, SCALE, COLOURS = "1100,760", 0.6, 64


def report() -> str:
    """A run of the default method."""
    return pages.of_record(ba.identify(ba.load(EXAMPLES / "target-detection.toml"), "bet", seed=7))


def live() -> str:
    """A run in process as its live page shows it at two thirds of its journal."""
    with tempfile.TemporaryDirectory() as folder:
        whole, part = Path(folder) / "whole.db", Path(folder) / "run.db"
        ba.identify(ba.load(EXAMPLES / "target-detection.toml"), "bet", seed=7, journal=whole)
        with Journal.open(whole, write=False) as journal:
            events, kind, header = list(journal.events()), journal.kind, journal.header
        with Journal.create(part, kind, header) as half:
            for event in events[: 2 * len(events) // 3]:
                half.append(event.kind, event.body)
        return pages.read(part)


def overall() -> str:
    """The same treatments at four hospitals."""
    return pages.of_record(ba.identify(ba.load(EXAMPLES / "hospitals.toml")))


def liars() -> str:
    """Review sites, some of which lie."""
    return pages.of_record(ba.identify(ba.load(EXAMPLES / "fake-reviews.toml")))


def arena() -> str:
    """Methods of the literature and ours on the same instances."""
    from bestarm.study.arena.result import Arena

    return pages.of_arena(Arena.load(DOCS / "data"))


def evidence() -> str:
    """A table of recorded results."""
    columns = {"successes": "recovered", "trials": "patients"}
    table = EXAMPLES / "hospitals.csv"
    return pages.of_evidence(ba.evidence(table, site="hospital", option="treatment", **columns))


@dataclass(frozen=True)
class Page:
    """A page of the gallery: its title, a sentence about it, and how to make it."""

    title: str
    shows: str
    make: Callable[[], str]


PAGES = {
    "report": Page("A report", "The answer, the race and what it cost, in one file.", report),
    "live": Page("A live page", "A run that is two thirds through.", live),
    "overall": Page("One answer for all sites", "Three treatments, four hospitals that differ.", overall),
    "liars": Page("Liars", "Six of 21 review sites lie, and the answer is right.", liars),
    "arena": Page("The arena", "Methods side by side on the same instances.", arena),
    "evidence": Page("Recorded data", "What a table of 4,200 patients shows.", evidence),
}


def make(folder: Path) -> list[Path]:
    """Write the pages to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return [pages.write(page.make(), folder / f"{name}.html") for name, page in PAGES.items()]


def markdown() -> str:
    """The gallery as Markdown: a light and a dark picture of each page, both links to the page."""
    shown = []
    for name, page in PAGES.items():
        pictures = "".join(
            f'<img class="only-{scheme}" src="_images/{name}-{scheme}.png" alt="{page.title}">'
            for scheme in SCHEMES
        )
        shown.append(
            f'<div><a href="pages/{name}.html">{pictures}</a><p><b>{page.title}.</b> {page.shows}</p></div>'
        )
    return '```{raw} html\n<div class="gallery">\n' + "\n".join(shown) + "\n</div>\n```"


def copy_pictures(folder: Path) -> None:
    """Copy the pictures to a folder of the site."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)


def picture(browser: str, page: Path, scheme: str, target: Path) -> None:
    """Take a picture of the top of a page, with few colours."""
    from PIL import Image

    raw = page.with_suffix(".png")
    asked = [
        "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}",
        f"--force-device-scale-factor={SCALE}", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--screenshot={raw}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run([browser, *asked], check=True, capture_output=True, timeout=120)
    image = Image.open(io.BytesIO(raw.read_bytes())).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


def main() -> int:
    """Take the pictures of all pages."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"no Chromium on the PATH (looked for {', '.join(BROWSERS)})", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for page in make(Path(folder)):
            for scheme in SCHEMES:
                target = FOLDER / f"{page.stem}-{scheme}.png"
                picture(browser, page, scheme, target)
                print(target.name, f"{target.stat().st_size // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
