"""The two consoles, and the short messages that every command prints: results, warnings, errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from bestarm.cli.exit_codes import OK, UNREACHABLE
from bestarm.util.text import visible

if TYPE_CHECKING:
    from bestarm.deploy.logs import Logs


class _Console(Console):
    """A console whose long lines run on in a file or a pipe, and are wrapped at words on a terminal."""

    def print(self, *objects: Any, soft_wrap: bool | None = None, **keys: Any) -> None:
        super().print(*objects, soft_wrap=soft_wrap and not self.is_terminal, **keys)


out = _Console(highlight=False, emoji=False)  # a name such as a:x:b is shown as it is
err = _Console(stderr=True, highlight=False, emoji=False)

_logs: list[Logs] = []  # of this process, if it logs events


def safe(text: str) -> str:
    """A user's text for the terminal: no markup, no control characters, no marks of writing direction."""
    return escape(visible(text))


def say(facts: Mapping[str, object], text: str, as_json: bool) -> int:
    """Print a command's result as JSON or as text, and return exit code 0."""
    if as_json:
        print(json.dumps(facts))
    else:
        out.print(safe(text), soft_wrap=True)
    return OK


def print_line(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints a user's text, or nothing if `quiet`."""
    return (lambda text: None) if quiet else lambda text: out.print(safe(text))


def complain(message: str, as_json: bool) -> None:
    """Print an error on stderr; with --json also as an object on stdout."""
    if not _logged(logging.ERROR, message):
        err.print(f"[bold red]error:[/] {safe(message)}", soft_wrap=True)
    if as_json:
        print(json.dumps({"error": message}))


def warn(warnings: list[str]) -> list[str]:
    """Print warnings on stderr, and return them."""
    for warning in warnings:
        if not _logged(logging.WARNING, warning):
            err.print(f"[bold yellow]warning:[/] {safe(warning)}", soft_wrap=True)
    return warnings


def unreachable(error: Exception, as_json: bool) -> int:
    """Print that something cannot be reached, and return its exit code."""
    complain(str(error), as_json)
    return UNREACHABLE


def remark(text: str, style: str | None = None) -> None:
    """Print a remark on stderr."""
    if not _logged(logging.INFO, text):
        err.print(safe(text), style=style, soft_wrap=True)


def log_with(logs: Logs) -> None:
    """Also log from now on what is printed on stderr; if that has JSON lines, only log it."""
    _logs[:] = [logs] if logs.events else []


def _logged(level: int, text: str) -> bool:
    """Log a text that is about to be printed on stderr, and return whether it must not be printed there."""
    if not _logs:
        return False
    logging.getLogger("bestarm.cli").log(level, "%s", text, extra={"printed": True})
    return _logs[0].takes_stderr
