"""The gallery of the documentation: every screen in a real Chromium, light and dark, desktop and phone.

``python docs/gallery.py`` (or ``make gallery``) makes each screen anew from fixed seeds, takes four pictures
of it, and writes them to docs/images/gallery. ``--only NAME …`` makes some of the screens, ``--out FOLDER``
writes the pictures elsewhere. ``conf.py`` puts them into docs/gallery.md when the documentation is built.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bestarm as ba
from bestarm.report import page as pages

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
FOLDER = DOCS / "images" / "gallery"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
VIEWS = {"desktop": (1280, 2000), "phone": (360, 2000)}  # width, and the most height that is kept
SCHEMES = ("light", "dark")
PLACE = "*`make docs` shows the pictures here; they are in `docs/images/gallery`.*"

Open = Callable[[Path], contextlib.AbstractContextManager[str]]


@dataclass(frozen=True)
class Screen:
    """A screen: its title, what it shows, and how to open it (gives an address)."""

    title: str
    shows: str
    open: Open


def _file(html: str, folder: Path) -> str:
    target = folder / "screen.html"
    pages.write(html, target)
    return target.resolve().as_uri()


def _page(make: Callable[[], str]) -> Open:
    """A screen that is a file."""

    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[str]:
        yield _file(make(), folder)

    return opened


def _run(make: Callable[[], ba.Record], *, quick: bool = False) -> Open:
    return _page(lambda: pages.of_record(make(), quick=quick))


def _example(name: str, **keys: Any) -> Callable[[], ba.Record]:
    return lambda: ba.identify(ba.load(EXAMPLES / f"{name}.toml"), **keys)


def _many() -> ba.Record:
    groups = {f"site{j}": {f"v{a}": 0.3 + 0.01 * ((7 * j + 3 * a) % 40) for a in range(3)} for j in range(40)}
    groups["site7"]["v1"] = 0.95
    return ba.identify(ba.Problem.from_rewards(groups), "bet", seed=1)


def _fooled() -> ba.Record:
    return ba.identify(ba.load(EXAMPLES / "fake-reviews.toml"), byzantine=0)


def _study() -> str:
    vary: dict[str, Any] = {"sigma": [1, 5, 15], "method": ["bet", "fisher"]}
    return pages.of_trials(ba.study(ba.Problem.paper_instance, trials=40, seed=1, vary=vary, workers=1))


def _arena() -> str:
    from bestarm.study.arena.result import Arena

    return pages.of_arena(Arena.load(DOCS / "data" / "arena.json"))


def _evidence() -> str:
    columns = {"site": "hospital", "option": "treatment", "successes": "recovered", "trials": "patients"}
    return pages.of_evidence(ba.evidence(EXAMPLES / "hospitals.csv", question="overall", **columns))


def _experiment() -> str:
    """A live experiment after two days, at three sites; one of them is slow."""
    import random

    from bestarm.report.experiment import page_of

    draw, now = random.Random(7), 1_760_000_000.0
    start, rates = now, {"Oslo": 60, "Lima": 25, "Kyoto": 4}
    made = ba.Experiment(
        ["A", "B", "C"], list(rates), binary=True, seed=1, delta=0.01, deadline=21_600.0, missing=0.0,
        clock=lambda: now,
    )  # fmt: skip
    while now < start + 30 * 3600:
        now += 1800.0
        for site, rate in rates.items():
            busy = 1.6 if 8 <= now // 3600 % 24 < 20 else 0.4
            for own in made.ask_many(site, max(1, round(rate / 2 * busy))):
                if draw.random() < 0.97:
                    made.tell(own.token, float(draw.random() < {"A": 0.30, "B": 0.33, "C": 0.24}[own.option]))
    return page_of(made.status, made.alarms, made.settings)


@contextlib.contextmanager
def _serving(path: Path) -> Iterator[str]:
    """The address of a live page, served by a thread of its own."""
    import asyncio

    from bestarm.report import follow, live

    found: list[str] = []
    stop: list[tuple[Any, Any]] = []
    ready = threading.Event()

    async def main() -> None:
        stop.append((asyncio.get_running_loop(), asyncio.current_task()))
        with contextlib.suppress(asyncio.CancelledError):
            await live.serve(follow.source(path), ready=lambda url: (found.append(url), ready.set())[0])

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop, task = stop[0]
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


@contextlib.contextmanager
def _live(folder: Path) -> Iterator[str]:
    """A run in process that is half way: its journal ends in the middle."""
    from bestarm.util.journal import Journal

    whole, half = folder / "whole.db", folder / "run.db"
    ba.identify(ba.load(EXAMPLES / "target-detection.toml"), seed=7, journal=whole)
    with Journal.open(whole, write=False) as journal:
        events = list(journal.events())
        kind, header = journal.kind, journal.header
    with Journal.create(half, kind, header) as part:
        for event in events[: 2 * len(events) // 3]:
            part.append(event.kind, event.body)
    with _serving(half) as url:
        yield url


@contextlib.contextmanager
def _waiting(folder: Path) -> Iterator[str]:
    """A federation whose server has not started."""
    from bestarm.deploy.federation import files

    files.init(ba.load(EXAMPLES / "sites.toml"), folder / "trial", port=0)
    with _serving(folder / "trial") as url:
        yield url


@functools.cache
def _demo(kind: str) -> Path:
    """The folder of a finished federation or mesh, with a liar, a slow client and one that was killed."""
    folder = Path(tempfile.mkdtemp()) / kind
    command = [sys.executable, "-m", "bestarm.cli", kind, "demo", "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    """A federation's server, half way."""
    from bestarm.util.journal import Journal

    half = folder / "fed"
    shutil.copytree(_demo("federation"), half, ignore=shutil.ignore_patterns("journal.db*"))
    with Journal.open(_demo("federation") / "journal.db", write=False) as journal:
        events = list(journal.events())
        part = Journal.create(half / "journal.db", journal.kind, journal.header)
    with part:
        for event in events[: len(events) // 2]:
            part.append(event.kind, event.body)
    with _serving(half) as url:
        yield url


def _site(kind: str, under: str) -> Open:
    return _page(lambda: pages.read(sorted((_demo(kind) / under).iterdir())[0]))


def _notebook(body: dict[str, str], html: Callable[[], str]) -> Open:
    """A page that has the element and the attributes of a notebook's own page around an output."""
    attributes = " ".join(f'{key}="{value}"' for key, value in body.items() if key != "ground")
    ground = body["ground"]
    top = '<!DOCTYPE html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return _page(
        lambda: f'{top}<body {attributes} style="margin:1rem;background:{ground}"><div>{html()}</div></body>'
    )


def _record_fragment() -> str:
    return pages.record_fragment(_example("target-detection", seed=7, method="bet")())


JUPYTER_LIGHT = {"data-jp-theme-light": "true", "ground": "#ffffff"}
JUPYTER_DARK = {"data-jp-theme-light": "false", "ground": "#111111"}
VSCODE_DARK = {"class": "vscode-dark", "data-vscode-theme-kind": "vscode-dark", "ground": "#1e1e1e"}

SCREENS = {
    "bet": Screen(
        "A run of Fed-Bet", "Three sensors, nine options: leaderboard and the race of wealths.",
        _run(_example("target-detection", seed=7, method="bet")),
    ),
    "fisher": Screen(
        "A run of Fed-Fisher", "Intervals round by round.",
        _run(lambda: ba.identify(ba.Problem.paper_instance(5), "fisher", delta=0.1, seed=7)),
    ),
    "fed-sel": Screen(
        "A run of Fed-SEL", "Claimed intervals that shrink with the rounds.",
        _run(lambda: ba.identify(ba.Problem.paper_instance(5), "fed-sel", delta=0.1, seed=7, period=20_000)),
    ),
    "reviews": Screen("Liars", "Six of 21 clients lie; the answer is right.", _run(_example("fake-reviews"))),
    "fooled": Screen("Too many liars", "A plain mean is fooled: nothing is promised.", _run(_fooled)),
    "robots": Screen("Peers", "A network of 24 robots without a server.", _run(_example("robots"))),
    "overall": Screen(
        "Best overall", "Three treatments at four hospitals; who disagrees.", _run(_example("hospitals"))
    ),
    "each": Screen(
        "Best at each site", "One answer per hospital.", _run(_example("hospitals", question="each"))
    ),
    "control": Screen(
        "Against a control", "Which treatments beat A, and by how much.",
        _run(_example("hospitals", question="control", control="A", margin=0.04)),
    ),
    "undecided": Screen(
        "Undecided", "The budget ended before the answer.",
        _run(lambda: ba.identify(ba.Problem.paper_instance(5), seed=7, budget=300)),
    ),
    "many": Screen("Many options", "120 options at 40 sites.", _run(_many, quick=True)),
    "study": Screen("A study", "240 runs side by side.", _page(_study)),
    "arena": Screen("An arena", "Methods of the literature on the same instances.", _page(_arena)),
    "evidence": Screen("Recorded data", "What a table of patients shows.", _page(_evidence)),
    "live": Screen("The live page", "A run in process, half way.", _live),
    "server": Screen("A federation, live", "Its server, half way: a liar, and who was heard.", _server),
    "client": Screen("A client", "What one client of a federation sees.", _site("federation", "clients")),
    "node": Screen("A node", "What one node of a mesh sees.", _site("mesh", "nodes")),
    "experiment": Screen(
        "A live experiment", "Arrivals per hour, each site's pace, who holds things up.", _page(_experiment)
    ),
    "waiting": Screen("The live page waits", "A federation whose server has not started.", _waiting),
    "jupyter": Screen(
        "In JupyterLab, light", "The output follows the notebook, not the system.",
        _notebook(JUPYTER_LIGHT, _record_fragment),
    ),
    "jupyter-dark": Screen(
        "In JupyterLab, dark", "The same record, dark.", _notebook(JUPYTER_DARK, _record_fragment)
    ),
    "vscode": Screen("In VS Code, dark", "The same record.", _notebook(VSCODE_DARK, _record_fragment)),
}  # fmt: skip


def shoot(browser: Any, name: str, folder: Path) -> list[Path]:
    """Take the four pictures of a screen."""
    taken = []
    with (
        tempfile.TemporaryDirectory() as work,
        contextlib.chdir(work),  # a screen that shows a path shows a short one
        SCREENS[name].open(Path()) as url,
    ):
        for view, (width, most) in VIEWS.items():
            for scheme in SCHEMES:
                context = browser.new_context(
                    viewport={"width": width, "height": 800}, color_scheme=scheme, device_scale_factor=1
                )
                tab = context.new_page()
                tab.goto(url)
                if url.startswith("http"):
                    tab.locator("#state").filter(has_text=re.compile("^(Live|Wait)")).wait_for()
                    tab.get_by_text("Similar runs are being simulated").wait_for(state="detached")
                tab.wait_for_timeout(300)
                height = min(most, tab.evaluate("document.documentElement.scrollHeight"))
                tab.set_viewport_size({"width": width, "height": max(height, 300)})
                tab.wait_for_timeout(200)
                target = folder / f"{name}-{view}-{scheme}.webp"
                save(tab.screenshot(), target)
                taken.append(target)
                context.close()
    return taken


def save(data: bytes, target: Path) -> None:
    """Write a picture as lossless WebP, which is smaller than PNG."""
    from PIL import Image

    Image.open(io.BytesIO(data)).convert("RGB").save(target, lossless=True, quality=50, method=4)


def markdown() -> str:
    """All screens, each with its pictures; the reader sees those of the page's own theme."""
    parts = []
    for name, screen in SCREENS.items():
        parts.append(f"## {screen.title}\n\n{screen.shows}")
        for view, (width, _) in VIEWS.items():
            shown = 640 if view == "desktop" else 240
            parts += [
                f"```{{image}} images/gallery/{name}-{view}-{scheme}.webp\n:alt: {screen.title}, {view}, "
                f"{scheme}, {width} pixels wide\n:width: {shown}px\n:class: only-{scheme}\n```"
                for scheme in SCHEMES
            ]
    return "\n\n".join(parts)


def main() -> None:
    """Make the gallery."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="Make the gallery of the documentation.")
    parser.add_argument("--only", nargs="*", choices=sorted(SCREENS), default=list(SCREENS))
    parser.add_argument("--out", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        parser.error(f"no Chromium on the PATH (looked for {', '.join(BROWSERS)})")
    chosen.out = chosen.out.resolve()
    chosen.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name in chosen.only:
            for target in shoot(browser, name, chosen.out):
                print(target.name, f"{target.stat().st_size // 1024} kB", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
