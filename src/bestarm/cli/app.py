"""The Typer app with all its commands, in the order in which ``bestarm --help`` lists them, and ``main``."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from bestarm.cli.arena import arena
from bestarm.cli.evidence import evidence
from bestarm.cli.exit_codes import BAD_INPUT, DISK_FULL, INTERRUPTED, OK
from bestarm.cli.experiment import app as experiment
from bestarm.cli.federation import app as federation
from bestarm.cli.federation import client, server
from bestarm.cli.figures import figures
from bestarm.cli.mesh import app as mesh
from bestarm.cli.mesh import peer
from bestarm.cli.network import network
from bestarm.cli.options import InPanels
from bestarm.cli.plan import plan
from bestarm.cli.report import report, watch
from bestarm.cli.run import check, new, run
from bestarm.cli.study import study
from bestarm.cli.terminal import complain, err
from bestarm.cli.verify import verify
from bestarm.errors import DiskFull, InputError
from bestarm.util.disk_errors import is_full
from bestarm.version import __version__

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _version(value: bool) -> None:
    if value:
        print(f"bestarm {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Which option is best? Best-arm identification across sites that can't pool their data.

    Exit codes: 0 identified or ok, 1 internal error, 2 bad input, 3 undecided, 4 verification failed
    or network too weak, 5 unreachable, 6 promise withdrawn, 75 disk full, 130 interrupted.
    """


for _command in (
    run, evidence, report, watch, study, arena, check, network, new, verify, plan, figures,
    server, client, peer,
):  # fmt: skip
    # The first sentence, which the list of commands shows whole.
    _short = " ".join((_command.__doc__ or "").split("\n\n")[0].split()).split(". ")[0].rstrip(".")
    app.command(cls=InPanels, short_help=f"{_short}.")(_command)
app.add_typer(federation, name="federation")
app.add_typer(mesh, name="mesh")
app.add_typer(experiment, name="experiment")


def main() -> None:
    """The `bestarm` command: runs it and turns errors into exit codes."""
    as_json = "--json" in sys.argv[1:]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that can't show a character shows "?"
            stream.reconfigure(errors="replace")
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except DiskFull as error:
        complain(str(error), as_json)
        code = DISK_FULL
    except InputError as error:
        complain(str(error), as_json)
        code = BAD_INPUT
    except OSError as error:
        if not is_full(error):
            raise
        where = error.filename or "standard output"
        complain(f"{where}: the disk is full. Free some space and run the command again.", as_json)
        code = DISK_FULL
    except typer.TyperException as error:
        complain(error.format_message(), as_json)
        err.print('See "bestarm --help" or "bestarm COMMAND --help".')
        code = BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        err.print("interrupted")
        code = INTERRUPTED
    sys.exit(code or OK)
