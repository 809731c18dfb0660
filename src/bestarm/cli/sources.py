"""Where the rewards of a client or a peer come from: --arms, --exec, --http, --csv or --serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm.cli.experiment import duration
from bestarm.cli.terminal import remark, warn
from bestarm.errors import InputError

if TYPE_CHECKING:
    from bestarm.deploy.sources import Source
    from bestarm.deploy.trial import Wants

LIVE = ("serve", "deadline", "missing", "webhook", "stalled_after", "rate", "after")  # of served subjects
TestOption = Annotated[
    bool,
    typer.Option(
        "--test",
        help="draw a few rewards that do not count, check keys, clock, folder and connection, then exit",
    ),
]


@dataclass(frozen=True)
class Rewards:
    """The options that say where rewards come from; most others say how to read a CSV file."""

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

    serve: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="rewards of subjects who arrive over HTTP"),
    ] = None
    deadline: Annotated[
        str | None, typer.Option(help="with --serve: when a missing reward counts as --missing, such as 24h")
    ] = None
    missing: Annotated[float | None, typer.Option(help="with --serve: what a missing reward counts as")] = (
        None
    )
    webhook: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="with --serve: send the verdict, alarms and stalls to this address"),
    ] = None
    stalled_after: Annotated[
        str | None, typer.Option(help="with --serve: when the site counts as stalled [default: 24h]")
    ] = None
    rate: Annotated[
        float | None, typer.Option(help="with --serve: requests per second of a caller [default: 1000]")
    ] = None
    after: Annotated[
        str | None,
        typer.Option(metavar="stop|winner", help="with --serve: after the verdict, end or give the winner"),
    ] = None

    def source(self) -> Callable[[Wants], Source]:
        """Return how a site makes its source of rewards; InputError unless exactly one is given."""
        from bestarm.deploy.pulling import source_from

        given = sum(
            option is not None for option in (self.arms, self.command, self.http, self.csv, self.serve)
        )
        if given != 1:
            raise InputError(
                f"{'more than one' if given else 'no'} source of rewards was given",
                expected="one of --csv FILE, --exec CMD, --http URL, --arms package.module:object, "
                "--serve HOST:PORT",
            )
        if self.serve is not None:
            return self._served(self.serve)
        for name in LIVE[1:]:
            if getattr(self, name) is not None:
                flag = name.replace("_", "-")
                raise InputError(f"--{flag} belongs to --serve", expected="--serve HOST:PORT with it")
        if self.rows not in ("once", "resample"):
            raise InputError(f"--rows {self.rows}", expected="once or resample")
        if self.csv is not None and self.rows == "resample":
            why = f"this is a simulation: pulls draw from {self.csv} with replacement"
            warn([f"{why}, so a verdict is about the file; see --rows once"])
        keys = {name: value for name, value in vars(self).items() if name not in LIVE}
        return lambda site: source_from(
            site.place.setup.scale, site.made, site.place.key.public, names=site.group.arms, **keys
        )

    def demand_testable(self) -> None:
        """InputError if there are no rewards to try."""
        if self.serve is not None:
            raise InputError(
                "--test draws rewards, and those of a served client come from subjects",
                fix="Leave out --test, and ask for GET /health when the client runs",
            )

    def _served(self, address: str) -> Callable[[Wants], Source]:
        """Rewards of subjects that arrive over HTTP."""
        from bestarm.deploy.experiment.limits import RATE
        from bestarm.deploy.experiment.live_source import LiveSource, Serving

        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InputError(f"--serve {address}", expected="HOST:PORT, such as 127.0.0.1:8080")

        def ready(url: str, token: str | None) -> None:
            remark(f"serving at {url}")
            if token is not None:
                remark(f"the token of the first caller, not shown again: {token}")

        if self.after not in (None, "stop", "winner"):
            raise InputError(f"--after {self.after}", expected="stop or winner")
        serving = Serving(
            host.strip("[]"), int(port), deadline=duration(self.deadline), missing=self.missing,
            webhooks=self.webhook or (), stalled=duration(self.stalled_after or "24h"),
            rate=RATE if self.rate is None else self.rate, after=self.after or "stop",
        )  # fmt: skip
        return lambda site: LiveSource(
            site.place.folder, site.place.setup.layout, site.group, site.place.setup.scale, site.made,
            serving, ready,
        )  # fmt: skip
