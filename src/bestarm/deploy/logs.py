"""Logs of long-running processes: text or JSON lines, on stderr or in a file that rotates.

By default warnings go to stderr as text. With JSON, or in a file, events of the run are logged as well: each
line is one object with ``time`` (UTC), ``level``, ``logger``, ``message``, what is known about the process
(``run``, ``client``, ``node``), and the fields of the event (``round``, ``broadcasts``, ``refused`` …).

A module that logs an event passes its fields as ``extra=fields(round=3)``.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bestarm.errors import InputError
from bestarm.util.disk_errors import disk_error
from bestarm.util.text import counted, nearest, visible

if TYPE_CHECKING:
    from bestarm.deploy.federation.client import Progress
    from bestarm.deploy.federation.server import Status

FORMATS = ("text", "json")

LARGEST, KEPT = 10.0, 5  # MB of a log file, and how many older ones are kept

TEXT = "%(asctime)s %(message)s"

log = logging.getLogger("bestarm")


def fields(**facts: object) -> dict[str, dict[str, object]]:
    """The fields of an event, for the argument `extra` of a logging call.

    >>> fields(round=3, refused=0)
    {'fields': {'round': 3, 'refused': 0}}
    """
    return {"fields": facts}


class TextLines(logging.Formatter):
    """Log lines in which control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(map(visible, super().format(record).split("\n")))


class JsonLines(logging.Formatter):
    """Log records as JSON objects, one per line. `known` is added to each of them."""

    def __init__(self, known: dict[str, object]) -> None:
        super().__init__()
        self.known = known

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        facts = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.known,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            facts["error"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=str)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to the present stderr. Skips what a command prints there itself, unless it writes JSON."""

    def __init__(self, every: bool) -> None:
        super().__init__(sys.stderr)
        self.every = every

    def emit(self, record: logging.LogRecord) -> None:
        if self.every or not getattr(record, "printed", False):
            self.stream = sys.stderr
            super().emit(record)


class _LogFile(logging.handlers.RotatingFileHandler):
    """A file that rotates. One warning goes to `stderr` when it can't be written; each line tries again."""

    def __init__(self, path: Path, size: int, keep: int, stderr: logging.Handler) -> None:
        self.stderr = stderr
        self.lost = 0  # lines since the file could be written
        self.whole = 0  # bytes of the file that are complete lines
        super().__init__(path, maxBytes=size, backupCount=keep, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        file = super()._open()
        self.whole = os.fstat(file.fileno()).st_size
        return file

    def emit(self, record: logging.LogRecord) -> None:
        lost = self.lost
        super().emit(record)
        if self.lost == lost and self.stream is not None:
            self.whole = os.fstat(self.stream.fileno()).st_size
            if lost:
                super().emit(_warning(f"{lost} lines are missing here: the log file could not be written"))
                self.lost = 0 if self.lost == lost else self.lost

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        if not self.lost:
            why = error.strerror or str(error)
            text = f"{self.baseFilename}: the log can't be written: {why}. Lines are missing until it can be."
            self.stderr.handle(_warning(text))
        self.lost += 1
        with contextlib.suppress(OSError):
            if self.stream is not None:
                self.stream.close()
        self.stream = None  # opened again for the next line
        with contextlib.suppress(OSError):
            if os.path.getsize(self.baseFilename) > self.whole:
                os.truncate(self.baseFilename, self.whole)  # no half line


def _warning(text: str) -> logging.LogRecord:
    """A record that goes to one handler only."""
    return logging.LogRecord(log.name, logging.WARNING, __file__, 0, text, None, None)


class Logs:
    """Where a process logs to. ``start`` begins it.

    Parameters
    ----------
    form : str
        "text" or "json".
    file : Path, optional
        A file to log to; warnings then go to stderr as well, as text.
    size : float
        MB at which the file is renamed to FILE.1, and a new one is begun.
    keep : int
        How many older files are kept.

    Raises
    ------
    InputError
        If the format is not known, or the file can't be written. Its folder must exist.
    """

    def __init__(
        self, form: str = "text", file: Path | None = None, *, size: float = LARGEST, keep: int = KEPT
    ) -> None:
        if form not in FORMATS:
            raise InputError(
                f'there is no log format "{form}"', expected="text or json", fix=nearest(form, FORMATS)
            )
        if not size > 0 or keep < 1:
            raise InputError(
                f"log files of {size:g} MB, {keep} kept", expected="a positive size, at least 1 kept"
            )
        self.form, self.file, self.size, self.keep = form, file, size, keep
        self.known: dict[str, object] = {}  # about this process, in each JSON line
        self.handlers: list[logging.Handler] = []

    @property
    def takes_stderr(self) -> bool:
        """Whether stderr has JSON lines, so that nothing else may be printed there."""
        return self.form == "json" and self.file is None

    @property
    def events(self) -> bool:
        """Whether events are logged, not warnings alone."""
        return self.form == "json" or self.file is not None

    def start(self) -> None:
        """Log to stderr and to the file from now on."""
        logging.getLogger("asyncio").setLevel(logging.ERROR)  # it remarks on every TLS connection that ends
        if not self.events:
            handler = _Stderr(every=False)
            handler.setFormatter(TextLines(TEXT))
            logging.basicConfig(level=logging.WARNING, handlers=[handler])
            return
        logging.raiseExceptions = False  # a full disk must not fill stderr with tracebacks
        stderr = _Stderr(every=self.takes_stderr)
        if self.file is not None:
            self._add(self._file(self.file, stderr), self.form)
            stderr.setLevel(logging.WARNING)
        self._add(stderr, self.form if self.file is None else "text")
        log.setLevel(logging.INFO)

    def stop(self) -> None:
        """Close the handlers that ``start`` has added."""
        for handler in self.handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
        self.handlers.clear()
        log.setLevel(logging.NOTSET)

    def _file(self, path: Path, stderr: logging.Handler) -> logging.Handler:
        if not path.parent.exists():
            fix = "Create it, or choose another --log-file"
            raise InputError("the folder of the log file does not exist", where=str(path.parent), fix=fix)
        try:
            return _LogFile(path, int(self.size * 1e6), self.keep, stderr)
        except OSError as error:
            what, fix = "can't be written", "Choose another --log-file"
            if found := disk_error(error, path, what):
                raise found from None
            raise InputError(f"{what}: {error.strerror}", where=str(path), fix=fix) from None

    def _add(self, handler: logging.Handler, form: str) -> None:
        handler.setFormatter(JsonLines(self.known) if form == "json" else TextLines(TEXT))
        logging.getLogger().addHandler(handler)
        self.handlers.append(handler)


def log_verdict(status: str, arm: str | None) -> None:
    """Log how a process's run has ended."""
    log.info("%s: %s", status, arm, extra=fields(event="verdict", status=status, arm=arm))


def server_events() -> Callable[[Status], None]:
    """Return a watcher that logs what changes at a server: connection, rounds, refused messages."""
    seen: dict[str, Any] = {}

    def watch(status: Status) -> None:
        desk, machine = status.desk, status.desk.machine
        facts = {
            "round": machine.round, "broadcasts": len(desk.broadcasts), "accepted": sum(desk.next.values()),
            "refused": sum(desk.refused.values()), "missing": len(desk.waiting_for()),
            "bits_up": machine.bits_up, "bits_down": machine.bits_down,
        }  # fmt: skip
        if seen.get("connected", False) != status.connected:
            text = "connected to the broker" if status.connected else "lost the connection to the broker"
            log.info(text, extra=fields(event="connection", connected=status.connected, **facts))
        if seen.get("round") != machine.round:
            log.info("round %d", machine.round, extra=fields(event="round", **facts))
            seen["refused"] = facts["refused"]
        elif facts["refused"] >= 2 * seen.get("refused", 0) + 1:
            log.info("messages were refused", extra=fields(event="refused", **facts))
            seen["refused"] = facts["refused"]
        seen.update(connected=status.connected, round=machine.round)

    return watch


def client_events() -> Callable[[Progress], None]:
    """Return a watcher that logs what changes at a client: connection, state, messages."""
    seen: list[tuple[object, ...]] = []

    def watch(progress: Progress) -> None:
        now = (progress.online, progress.state, progress.messages)
        if seen[-1:] != [now]:
            seen[:] = [now]
            facts = {"online": progress.online, "state": progress.state, "messages": progress.messages}
            text = ", ".join(
                [progress.state, counted(progress.messages, "message"), counted(progress.pulls, "pull")]
            )
            log.info(text, extra=fields(event="progress", pulls=progress.pulls, **facts))

    return watch


def peer_events() -> Callable[[dict[str, Any]], None]:
    """Return a watcher that logs what changes at a peer: state, neighbours, suspects."""
    seen: list[dict[str, object]] = []
    keys = ("state", "decided", "arm", "waits_for", "unreachable", "suspects")

    def watch(status: dict[str, Any]) -> None:
        now = {key: status[key] for key in keys}
        if seen[-1:] != [now]:
            seen[:] = [now]
            text = f"{status['state']}, {counted(status['pulls'], 'pull')}"
            log.info(text, extra=fields(event="progress", pulls=status["pulls"], **now))

    return watch
