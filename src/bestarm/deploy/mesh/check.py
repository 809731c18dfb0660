"""Checks for problems between a node and its neighbours: certificates, addresses, clocks."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path

from bestarm.deploy.mesh.certificates import fingerprint, problems_of
from bestarm.deploy.mesh.files import Neighbour, Place, folder_name, places
from bestarm.deploy.process import demand_packages
from bestarm.errors import InputError

SKEW = 5.0  # seconds between two clocks that are worth reporting
PATIENCE = 10.0


@dataclass(frozen=True)
class Trouble:
    """A problem: the node that has it, the node it concerns, and a description."""

    node: str
    about: str
    what: str


def check(folder: Path, *, connect: bool = True) -> tuple[list[Trouble], int]:
    """Check the node or all nodes in a folder; return the problems and the number of nodes checked.

    With `connect` it contacts the neighbours with the node's own key, so they must be running. In a mesh's
    folder, nodes whose keys were moved to their machines are skipped: check them there.
    """
    demand_packages("mesh")
    found: list[Trouble] = []
    looked = 0
    for path in places(folder):
        if path != folder and not (path / "peer.key").exists():
            continue
        looked += 1
        try:
            place = Place.load(path)
            found += _offline(place)
            if connect:
                found += asyncio.run(_online(place))
        except InputError as error:
            found.append(Trouble(path.name, path.name, str(error)))
    if not looked:
        raise InputError(
            "no node can be checked here: the keys of all nodes were moved away",
            where=str(folder),
            fix="Run bestarm mesh check NODE on each machine",
        )
    return found, looked


def _offline(place: Place) -> list[Trouble]:
    key, certificate = place.tls
    found = [Trouble(place.name, place.name, what) for what in problems_of(certificate.decode(), key)]
    for neighbour in place.neighbours:
        found += [Trouble(place.name, neighbour.name, what) for what in problems_of(neighbour.certificate)]
        k = place.setup.layout.clients.index(neighbour.name)
        beside = place.folder.parent / folder_name(neighbour.name, k) / "tls.pem"
        if beside.exists() and fingerprint(beside.read_bytes()) != fingerprint(neighbour.certificate):
            found.append(Trouble(place.name, neighbour.name, "the pinned certificate differs from its own"))
    return found


async def _online(place: Place) -> list[Trouble]:
    async with asyncio.TaskGroup() as group:
        looks = [(n.name, group.create_task(_look(place, n))) for n in place.neighbours]
    return [Trouble(place.name, name, what) for name, look in looks if (what := look.result())]


async def _look(place: Place, neighbour: Neighbour) -> str | None:
    import grpc

    from bestarm.deploy.mesh.wire import SERVICE, channel_to

    channel = channel_to(neighbour, place.tls)
    try:
        before = time.time()
        look = channel.unary_unary(f"/{SERVICE}/Look")
        facts = json.loads(await look(b"", timeout=PATIENCE, wait_for_ready=False))
        after = time.time()
        # It read its clock at some moment in between; that interval may be long on a slow machine.
        skew = facts["time"] - min(max(facts["time"], before), after)
    except grpc.RpcError as error:
        return _reason(error, neighbour)
    except (ValueError, KeyError, TypeError):
        return f"{neighbour.address}: sent an invalid answer"
    finally:
        await channel.close()
    if facts["run"] != place.setup.run.hex():
        return f"{neighbour.address}: belongs to another run"
    if abs(skew) > SKEW:
        return f"its clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
    return None


def _reason(error: object, neighbour: Neighbour) -> str:
    details = str(getattr(error, "details", lambda: "")() or "").lower()
    if "certificate" in details or "handshake" in details or "ssl" in details:
        return f"{neighbour.address}: TLS fails: it has another certificate, or does not know this node's"
    if "not a neighbour" in details:
        return f"{neighbour.address}: it does not know this node's certificate"
    return f"{neighbour.address}: not reachable"
