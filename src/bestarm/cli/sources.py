"""Where the rewards of a client or a peer come from: --arms, --exec, --http or --csv."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm.cli.terminal import warn
from bestarm.errors import InputError

if TYPE_CHECKING:
    from bestarm.deploy.sources import Source
    from bestarm.deploy.trial import Wants

TestOption = Annotated[
    bool,
    typer.Option(
        "--test",
        help="draw a few rewards that do not count, check keys, clock, folder and connection, then exit",
    ),
]


@dataclass(frozen=True)
class Rewards:
    """The options that say where rewards come from; the last three say how to read a CSV file."""

    arms: Annotated[
        str | None,
        typer.Option(metavar="package.module:object", help="rewards from a Python function or object"),
    ] = None
    command: Annotated[
        str | None, typer.Option("--exec", metavar="CMD", help="rewards from a command: 'read-sensor {arm}'")
    ] = None
    http: Annotated[
        str | None, typer.Option(metavar="URL", help="rewards from a web address with {arm} in it")
    ] = None
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="rewards from a CSV file with the columns arm and reward"),
    ] = None
    rows: Annotated[
        str,
        typer.Option(metavar="once|resample", help="play each row once, or draw rows with replacement"),
    ] = "once"
    arm_column: Annotated[str, typer.Option(metavar="NAME", help="the CSV file's column of arms")] = "arm"
    reward_column: Annotated[str, typer.Option(metavar="NAME", help="the CSV file's column of rewards")] = (
        "reward"
    )

    def source(self) -> Callable[[Wants], Source]:
        """Return how a site makes its source of rewards; InputError unless exactly one is given."""
        from bestarm.deploy.pulling import source_from

        given = sum(option is not None for option in (self.arms, self.command, self.http, self.csv))
        if given != 1:
            raise InputError(
                f"{'more than one' if given else 'no'} source of rewards was given",
                expected="one of --csv FILE, --exec CMD, --http URL, --arms package.module:object",
            )
        if self.rows not in ("once", "resample"):
            raise InputError(f"--rows {self.rows}", expected="once or resample")
        if self.csv is not None and self.rows == "resample":
            why = f"this is a simulation: pulls draw from {self.csv} with replacement"
            warn([f"{why}, so a verdict is about the file; see --rows once"])
        return lambda site: source_from(
            site.place.setup.scale, site.made, site.place.key.public, names=site.group.arms, **vars(self)
        )
