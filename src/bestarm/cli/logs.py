"""The options of a long-running command that say where and how it logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from bestarm.cli import terminal
from bestarm.errors import InputError

if TYPE_CHECKING:
    from bestarm.deploy.logs import Logs

T = TypeVar("T")


@dataclass(frozen=True)
class LogOptions:
    """The options --log, --log-file, --log-size and --log-keep."""

    log: Annotated[
        str, typer.Option(metavar="FORMAT", help="text, or json: one object per line, with all events")
    ] = "text"
    log_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="log all events here; warnings also go to stderr")
    ] = None
    log_size: Annotated[
        float | None,
        typer.Option(metavar="MB", help="begin a new log file at this size (10), and rename the old one"),
    ] = None
    log_keep: Annotated[
        int | None, typer.Option(metavar="N", help="how many older log files to keep (5)")
    ] = None

    def start(self) -> Logs:
        """Begin to log, and return what the process logs with."""
        from bestarm.deploy.logs import KEPT, LARGEST, Logs

        size, keep = self.log_size, self.log_keep
        if self.log_file is None and (size is not None or keep is not None):
            raise InputError("--log-size and --log-keep are about a log file", fix="Add --log-file FILE")
        logs = Logs(
            self.log,
            self.log_file,
            size=LARGEST if size is None else size,
            keep=KEPT if keep is None else keep,
        )
        logs.start()
        terminal.log_with(logs)
        return logs


def watched(*watchers: Callable[[T], None] | None) -> Callable[[T], None] | None:
    """Return one function that calls all of these, or None if there are none."""
    active = [watcher for watcher in watchers if watcher is not None]
    if not active:
        return None

    def watch(status: T) -> None:
        for watcher in active:
            watcher(status)

    return watch
