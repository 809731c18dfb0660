"""What ``federation init`` and ``mesh init`` have made: which folder goes to which site."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bestarm.cli.terminal import out, safe
from bestarm.problem.layout import Layout

if TYPE_CHECKING:
    from bestarm.deploy.federation.files import Federation

MOST_ROWS = 20

NAMES_ONLY = "Means and data of the scenario were not taken: rewards come from the sites."


def made_facts(folder: Path, made: Federation) -> dict[str, Any]:
    """The facts that --json prints, with the folder of each client."""
    folders = {client: str(folder / "clients" / name) for client, name in made.folders().items()}
    return {
        "folder": str(folder),
        "url": made.setup.url,
        "clients": len(folders),
        "run": made.setup.run.hex(),
        "folders": folders,
        "layout": None if made.setup.small else str(folder / "layout.json"),
    }


def show_made(folder: Path, made: Federation) -> None:
    """Print which folder goes to which site, and what to do there and here."""
    folders = made.folders()
    count = "1 client" if len(folders) == 1 else f"{len(folders):,} clients"
    out.print(safe(f"{folder}: a federation of {count} at {made.setup.url}. {NAMES_ONLY}"), soft_wrap=True)
    places = {client: folder / "clients" / name for client, name in folders.items()}
    show_folders(
        places, made.setup.layout, "with --json, init prints all of them; federation.json has them too"
    )
    with_layout = "" if made.setup.small else f", and {folder}/layout.json into it or next to it"
    text = (
        f"Copy each folder to its site{with_layout}; there: bestarm client FOLDER --csv FILE (or --exec, "
        f"--http, --arms). Here: bestarm server {shlex.quote(str(folder))}"
    )
    out.print(safe(text), soft_wrap=True)


def show_folders(folders: Mapping[str, Path], layout: Layout, others: str) -> None:
    """Print the folder of each client; if there are many, only the first, and `others` says where to look."""
    for client, place in list(folders.items())[:MOST_ROWS]:
        group = layout.groups[layout.group_of[client]].name
        out.print(safe(f"  {client} (group {group}): {place}"), soft_wrap=True)
    if len(folders) > MOST_ROWS:
        out.print(f"  and {len(folders) - MOST_ROWS:,} more: {others}", soft_wrap=True)
