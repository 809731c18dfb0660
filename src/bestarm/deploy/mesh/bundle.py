"""The support bundle of a mesh's node: see ``deploy.bundle`` for what never is in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bestarm.deploy.bundle import Bundle
from bestarm.deploy.mesh.files import JOURNAL, MESH, PEER, RECORD, ROSTER
from bestarm.errors import InputError


def bundle(folder: Path, logs: Sequence[Path] = ()) -> Bundle:
    """Collect what helps to find a problem of a node or a mesh; `logs` are log files in other folders."""
    if not (folder / PEER).exists() and not (folder / MESH).exists():
        fix = "Name a folder that bestarm mesh init made"
        raise InputError("this is not a folder of a mesh", where=str(folder), fix=fix)
    made = Bundle(folder, "node" if (folder / PEER).exists() else "mesh")
    for name in (PEER, MESH, ROSTER):
        made.add_public(name)
    made.add_journal(folder / JOURNAL)
    made.add_record(folder / RECORD)
    made.add_certificates([folder / "tls.pem"])
    made.add_logs(sorted(folder.glob("*.log*")), logs)
    return made
