"""A trial of a mesh's peer (``--test``): its folder, its source of rewards and its neighbours.

The journal is only read, and nothing that is drawn counts. Neighbours that run are contacted with this node's
own key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from bestarm.deploy.mesh.check import check
from bestarm.deploy.mesh.files import JOURNAL, Place
from bestarm.deploy.mesh.node import KIND, Node
from bestarm.deploy.process import demand_packages
from bestarm.deploy.sources import Source
from bestarm.deploy.trial import (
    RESTORE,
    Finding,
    Fresh,
    Wants,
    noted,
    try_clock,
    try_folder,
    try_keys,
    try_source,
)
from bestarm.util.journal import Journal
from bestarm.util.text import counted


def trial(folder: Path, make: Callable[[Wants], Source]) -> list[Finding]:
    """Check all that a peer needs, and return what was found.

    Parameters
    ----------
    folder : Path
        The node's folder.
    make : callable
        Makes the source of rewards for a node.

    Returns
    -------
    list of Finding
        One for each check; ``ok`` is false for a problem.
    """
    demand_packages("mesh")
    checked = try_keys(folder, ("peer.key", "tls.key"), Place.load, _owner)
    place, found = checked
    if place is None:
        return found
    certificates = {n.name: n.certificate.encode() for n in place.neighbours}
    found += try_clock(folder, {"tls.pem": place.tls[1], **certificates})
    found += try_folder(folder)
    with noted(found, "journal", RESTORE):
        node, what = _node(place)
        found.append(Finding("journal", what))
        found += asyncio.run(try_source(make, node))
    troubles, _ = check(folder)
    fix = "Start that peer; bestarm mesh check shows the state of all nodes"
    found += [Finding(f"neighbour {t.about}", t.what, fix, "unreachable") for t in troubles]
    if not troubles:
        found.append(Finding("neighbours", f"all {len(place.neighbours)} answer"))
    return found


def _owner(place: Place) -> str:
    return place.name


def _node(place: Place) -> tuple[Wants, str]:
    """The node as its journal says, which is only read; and the journal in words."""
    path, layout = place.folder / JOURNAL, place.setup.layout
    if not path.exists():
        return Fresh(place, layout.groups[layout.group_of[place.name]]), "there is none yet: a new run"
    journal = Journal.open(path, KIND, write=False)
    with journal:
        node = Node(place, journal, speak=False)
        state = "has its verdict" if node.verdict is not None else "can be resumed"
        return node, f"{counted(len(journal), 'event')}, {counted(node.pulls, 'pull')}; the run {state}"
