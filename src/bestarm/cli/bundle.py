"""``bestarm federation bundle`` and ``bestarm mesh bundle``: a zip file for support, without secrets."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm.cli.exit_codes import OK
from bestarm.cli.options import Json
from bestarm.cli.terminal import print_line, say

if TYPE_CHECKING:
    from bestarm.deploy.bundle import Bundle

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE.zip", help="the file to write [default: in the current directory]"),
]
MoreLogs = Annotated[
    list[Path] | None, typer.Option("--log-file", metavar="FILE", help="include this log; may be repeated")
]


def federation_bundle(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="the folder of federation init, or of a client")
    ],
    out: Out = None,
    log_file: MoreLogs = None,
    as_json: Json = False,
) -> int:
    """Write a zip file for support, without secrets.

    It has versions, setup, counts and logs, but no keys, rewards or messages.
    """
    from bestarm.deploy.federation.bundle import bundle

    return _save(bundle(folder, log_file or []), folder, out, as_json)


def mesh_bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a node's folder, or that of mesh init")],
    out: Out = None,
    log_file: MoreLogs = None,
    as_json: Json = False,
) -> int:
    """Write a zip file for support, without secrets.

    It has versions, setup, counts and logs, but no keys, rewards or messages.
    """
    from bestarm.deploy.mesh.bundle import bundle

    return _save(bundle(folder, log_file or []), folder, out, as_json)


def _save(made: Bundle, folder: Path, out: Path | None, as_json: bool) -> int:
    """Write the file, and print what is in it."""
    now = datetime.datetime.now(datetime.UTC)
    target = out or Path(f"bestarm-{folder.resolve().name}-{now:%Y%m%d-%H%M%S}.zip")
    names = made.save(target)
    text = f"{target}: no private keys, rewards or messages; read it before you send it. It contains:"
    say({"file": str(target), "contains": names}, text, as_json)
    for name in names:
        print_line(quiet=as_json)(f"  {name} ({len(made.parts[name]):,} bytes)")
    return OK
