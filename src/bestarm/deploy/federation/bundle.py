"""The support bundle of a federation's server or client: see ``deploy.bundle`` for what never is in it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from bestarm.deploy.bundle import Bundle, scrub
from bestarm.deploy.federation import metrics
from bestarm.deploy.federation.broker import binary
from bestarm.deploy.federation.client_folders import CLIENT
from bestarm.deploy.federation.desk import KIND, Desk
from bestarm.deploy.federation.files import JOURNAL, RECORD, ROSTER, SETUP
from bestarm.deploy.federation.keys import CA
from bestarm.errors import InputError
from bestarm.util.journal import Journal

VERSION_SECONDS = 10.0


def bundle(folder: Path, logs: Sequence[Path] = ()) -> Bundle:
    """Collect what helps to find a problem of a server or a client; `logs` are log files in other folders."""
    server = (folder / SETUP).exists()
    if not server and not (folder / CLIENT).exists():
        fix = "Name the folder that bestarm federation init made, or the folder of a client"
        raise InputError("this is not a folder of a federation", where=str(folder), fix=fix)
    made = Bundle(folder, "server" if server else "client")
    for name in (SETUP, CLIENT, ROSTER):
        made.add_public(name)
    made.add_journal(folder / JOURNAL)
    made.add_record(folder / RECORD)
    certificates = [folder / CA, folder / "broker" / CA, folder / "broker" / "broker.pem"]
    made.add_certificates(certificates)
    if server:
        made.add("broker.json", {"nats-server": _broker_version()})
        _add_desk(made, folder / JOURNAL)
    made.add_logs([*sorted(folder.glob("*.log*")), *sorted((folder / "broker").glob("*.log*"))], logs)
    return made


def _add_desk(made: Bundle, path: Path) -> None:
    """Add where the run is, as the server's journal says: counts, notes and metrics."""
    if not path.exists():
        return
    try:
        with Journal.open(path, KIND, write=False) as journal:
            desk = Desk(journal)
            page = metrics.metrics_of(desk, 0, online=False, stores=False)
    except InputError:
        return  # journal.json says why
    made.add("metrics.txt", f"# From the journal: the broker was not asked.\n{page}")
    state = {
        "round": desk.machine.round, "done": desk.done, "waiting for": desk.waiting_for(),
        "messages": dict(desk.next), "dropped": desk.dropped, "suspects": desk.suspects(),
        "changes of keys": desk.changes, "failures": list(map(scrub, desk.failures)),
        "notes": [{"client": n.client, "round": n.round, "text": scrub(n.text)} for n in desk.notes],
    }  # fmt: skip
    made.add("state.json", state)


def _broker_version() -> str:
    """What ``nats-server --version`` prints, or why it can't be asked."""
    try:
        done = subprocess.run(
            [binary(), "--version"], capture_output=True, timeout=VERSION_SECONDS, check=False
        )
        return done.stdout.decode(errors="replace").strip()
    except (InputError, OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
