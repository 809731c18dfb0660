"""When no more messages can arrive, the machine decides how the run ends, not its driver."""

from __future__ import annotations

import pytest

from bestarm.protocol.events import SPENT, Quiet, Start, Stop
from bestarm.protocol.rounds import SERVER, heard
from protocol.test_transitions import VARIANTS, Game

SERVED = [name for name, method in VARIANTS.items() if not method.peers]


def quiet_server(variant, spent):
    server = Game(variant).machines[SERVER]
    server.handle(Start())
    for _ in range(2):  # a server of groups first ends its patience
        server.handle(Quiet(spent=spent))
    return server


@pytest.mark.parametrize("variant", SERVED)
@pytest.mark.parametrize(("spent", "reason"), [(True, "budget"), (False, "silence")])
def test_a_quiet_server_ends_for_lack_of_pulls_or_of_messages(variant, spent, reason):
    assert quiet_server(variant, spent).verdict.reason == reason


@pytest.mark.parametrize("variant", SERVED)
@pytest.mark.parametrize("spent", [True, False])
def test_the_certificate_replays_to_the_same_verdict_without_quiet_events(variant, spent):
    """A record can therefore be checked with the events that every driver has."""
    server, again = quiet_server(variant, spent), Game(variant).machines[SERVER]
    again.handle(Start())
    for event in heard(server.certificate()["events"]):
        assert not isinstance(event, Quiet)
        again.handle(event)
    assert again.verdict == server.verdict
    assert again.certificate() == server.certificate()


@pytest.mark.parametrize(("spent", "reason"), [(True, "budget"), (False, "silence")])
def test_an_idle_peer_without_a_verdict_ends_too(spent, reason):
    variant = next(name for name, method in VARIANTS.items() if method.peers)
    peer = next(iter(Game(variant).machines.values()))
    peer.handle(Start())
    peer.handle(Stop(SPENT))  # its data have run out
    assert (peer.state, peer.verdict) == ("resting", None)
    peer.handle(Quiet(spent=spent))
    assert peer.verdict.reason == reason
    assert peer.handle(Quiet(spent=not spent)) == []
    assert peer.verdict.reason == reason
