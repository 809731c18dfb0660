"""The folder of an experiment: its journal, its callers, and what was sent to webhooks."""

from __future__ import annotations

from pathlib import Path

from bestarm.deploy.experiment import ledger
from bestarm.deploy.experiment.callers import FILE as CALLERS
from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.engine import Engine
from bestarm.deploy.experiment.settings import Settings
from bestarm.errors import InputError
from bestarm.util.journal import Journal

JOURNAL = "journal.db"
RECORD = "record.json"
STOP = "stop"  # a file that asks the server of an experiment to end it
FIRST_CALLER = "app"


def journal_of(folder: Path) -> Path:
    """The journal in a folder, which must exist."""
    path = folder / JOURNAL if folder.is_dir() else folder
    if not path.is_file():
        raise InputError(
            "there is no experiment here",
            where=str(folder),
            fix=f"Create one: bestarm experiment new {folder} --option A --option B",
        )
    return path


def is_experiment(path: Path) -> bool:
    """Whether this is the folder of an experiment, or its journal."""
    if path.is_dir():
        return (path / CALLERS).is_file() and not (path / "client.json").exists()
    if path.suffix != ".db" or not path.is_file():
        return False
    with Journal.open(path, write=False) as journal:
        return journal.kind == ledger.KIND


def create(folder: Path, settings: Settings) -> str:
    """Create the folder of an experiment, and return the token of its first caller."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("the folder exists and is not empty", where=str(folder), fix="Choose another one")
    ledger.create_journal(folder / JOURNAL, settings).close()
    return callers_of(folder).add(FIRST_CALLER)


def callers_of(folder: Path) -> Callers:
    """The callers of an experiment."""
    return Callers((folder if folder.is_dir() else folder.parent) / CALLERS)


def read(folder: Path) -> Engine:
    """The state of an experiment, from its journal, which another process may be writing."""
    with ledger.open_journal(journal_of(folder), write=False) as journal:
        engine = Engine(ledger.settings_of(journal))
        for entry in ledger.entries(journal):
            ledger.apply(engine, entry)
    return engine
