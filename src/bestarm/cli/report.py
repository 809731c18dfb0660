"""``bestarm report`` and ``bestarm watch``: a run as a page, written once or live."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from bestarm.cli.exit_codes import INTERRUPTED
from bestarm.cli.options import Json, check_folder
from bestarm.cli.terminal import say, warn
from bestarm.errors import InputError


def report(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="a record, evidence, a study's rows, a run's journal, or the folder of an arena, a server, "
            "a client, a mesh node or an experiment",
        ),
    ],
    save: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE.html",
            help="the file to write [default: beside RUN; for a folder: in the current directory]",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="leave out what takes further runs: the plan and the arms' traces")
    ] = False,
    as_json: Json = False,
) -> int:
    """Write a report as one HTML file that opens without a network: verdict, race, costs, faults, record."""
    from bestarm.report import page

    target = save or _beside(run)
    check_folder(target)
    html = page.read(run, quick=quick)
    page.write(html, target)
    size = len(html.encode())
    return say({"file": str(target), "bytes": size}, f"report: {target} ({size // 1000:,} kB)", as_json)


def _beside(run: Path) -> Path:
    """Where a report goes by default: beside its run, but not among the private keys of a folder."""
    folder, target = run if run.is_dir() else run.parent, run.with_suffix(".html")
    if run.is_dir() or any(folder.glob("*.key")):
        here = Path("..") if any(Path().glob("*.key")) else Path()
        target = here / f"{folder.resolve().name or 'report'}.html"
    if target.is_file() and b"bestarm" not in target.read_bytes()[:2000]:
        raise InputError(
            "the file exists and is not a report of bestarm", where=str(target), fix="Use --out FILE.html"
        )
    return target


def watch(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="a run's journal, a record, a study's rows, or the folder of a server, a client, a node or "
            "an experiment",
        ),
    ],
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="the address to listen on; one that other computers can reach requires a token",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="the port [default: a free one]")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="open it in a browser")] = False,
    as_json: Json = False,
) -> int:
    """Show a run as a live page that follows its journal, with a slider to look back. Read-only."""
    from bestarm.deploy.process import Interrupted as Stopped
    from bestarm.report import live
    from bestarm.util.loopback import is_loopback

    def ready(url: str) -> None:
        say({"url": url, "run": str(run)}, f"watch it at {url} (press Ctrl-C to stop)", as_json)
        sys.stdout.flush()
        if not is_loopback(host):
            warn(["this is plain HTTP: anyone on the network path can read the token and the page"])
        if browser:
            import webbrowser

            webbrowser.open(url)

    with suppress(Stopped):
        live.watch(run, host=host, port=port, ready=ready)
    return INTERRUPTED
