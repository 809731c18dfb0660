"""What would keep a node from its neighbours: certificates, addresses, clocks."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path

from bestarm.deploy import demand_packages
from bestarm.errors import InputError
from bestarm.mesh.files import Neighbour, Place, fingerprint, folder_name, places, problems_of

SKEW = 5.0  # seconds between two clocks that are worth a word
PATIENCE = 10.0


@dataclass(frozen=True)
class Trouble:
    """Something that is not right: at which node, with whom, and what."""

    node: str
    about: str
    what: str


def check(folder: Path, *, connect: bool = True) -> tuple[list[Trouble], int]:
    """Look at a node's folder, or at all in a mesh's; what is wrong, and how many nodes were looked at.

    With `connect` it calls the neighbours, with the node's own key: they must be running. In a mesh's folder,
    a node whose keys were moved to its machine is checked there.
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
            "nothing can be checked here: the keys of all nodes were moved away",
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
            found.append(Trouble(place.name, neighbour.name, "the pinned certificate is not the one it has"))
    return found


async def _online(place: Place) -> list[Trouble]:
    said = await asyncio.gather(*(_look(place, neighbour) for neighbour in place.neighbours))
    return [Trouble(place.name, n.name, what) for n, what in zip(place.neighbours, said, strict=True) if what]


async def _look(place: Place, neighbour: Neighbour) -> str | None:
    import grpc

    from bestarm.mesh.wire import SERVICE, channel_to

    channel = channel_to(neighbour, place.tls)
    try:
        before = time.time()
        look = channel.unary_unary(f"/{SERVICE}/Look")
        facts = json.loads(await look(b"", timeout=PATIENCE, wait_for_ready=False))
        after = time.time()
        # It looked at its clock at some moment in between, which may be long on a slow machine.
        skew = facts["time"] - min(max(facts["time"], before), after)
    except grpc.RpcError as error:
        return _reason(error, neighbour)
    except (ValueError, KeyError, TypeError):
        return f"{neighbour.address}: an answer that is none"
    finally:
        await channel.close()
    if facts["run"] != place.setup.run.hex():
        return f"{neighbour.address}: it is in another run"
    if abs(skew) > SKEW:
        return f"its clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
    return None


def _reason(error: object, neighbour: Neighbour) -> str:
    details = str(getattr(error, "details", lambda: "")() or "").lower()
    if "certificate" in details or "handshake" in details or "ssl" in details:
        return f"{neighbour.address}: TLS fails: it shows another certificate, or does not know this node's"
    if "not a neighbour" in details:
        return f"{neighbour.address}: it does not know this node's certificate"
    return f"{neighbour.address}: not reachable"
