"""How served clients tell their pace, and what the server makes of it."""

from __future__ import annotations

import msgspec
import pytest

import bestarm as ba
from bestarm.deploy.envelope import Envelope, Slots
from bestarm.deploy.federation.pace import MOST_PACES, PACE, Paces, Teller, Told
from bestarm.deploy.identity import Key, Member, Roster
from bestarm.deploy.sources.base import Standing
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.server import Server
from bestarm.protocol.events import Ahead, Pace, Start

RUN = bytes(16)
LAYOUT = (
    ba.Problem.from_rewards({"us": {"A": 0.4, "B": 0.6}, "eu": {"A": 0.4, "B": 0.6}}).asking("overall").layout
)


@pytest.fixture
def keys():
    return {name: Key.generate() for name in LAYOUT.clients}


@pytest.fixture
def paces(keys):
    roster = Roster(tuple(Member(name, name.removesuffix("-1"), key.public) for name, key in keys.items()))
    return Paces(Slots(roster, RUN), LAYOUT)


def message(keys, client, at, told, signer=None):
    content = msgspec.json.encode(told) if isinstance(told, Told) else told
    return Envelope.sign(keys[signer or client], RUN, client, PACE, at, content)


def heard(paces, envelope, broadcasts=3, gone=()):
    assert paces.offer(envelope).outcome == "accepted"
    return list(paces.take(envelope, broadcasts, set(gone)))


def test_paces_are_told_to_the_machine_when_all_are_known_and_change(keys, paces):
    slow, fast = Told(10, 5, 0, 3, False), Told(400, 0, 9, 3, True)
    assert heard(paces, message(keys, "us-1", 100, fast)) == [Ahead("us-1", ())]
    assert heard(paces, message(keys, "eu-1", 100, slow)) == [Pace((400, 10))]
    assert heard(paces, message(keys, "us-1", 101, fast)) == [Ahead("us-1", (400, 10))]
    assert heard(paces, message(keys, "us-1", 102, fast), broadcasts=4) == []  # it has not seen the last one
    assert heard(paces, message(keys, "us-1", 103, slow), gone=["eu-1"]) == [Pace((10, 0))]


@pytest.mark.parametrize(
    ("told", "at", "signer", "reason"),
    [
        (b"[1]", 100, None, "malformed"),
        (b'["\xff", 0, 0, 0, false]', 100, None, "malformed"),
        (b"[" * 90, 100, None, "malformed"),
        (b'["x", 0, 0, 0, false]', 100, None, "malformed"),
        (Told(1, 0, 0, 0, False), 50, None, "old"),
        (b"[1099511627777, 0, 0, 0, false]", 100, None, "malformed"),
        (b"[-1, 0, 0, 0, false]", 100, None, "malformed"),
        (b"[1, 0, 0, 0, false" + b" " * 100 + b"]", 100, None, "pace"),
        (Told(1, 0, 0, 0, False), 100, "eu-1", "signature"),
    ],
)
def test_a_message_that_no_honest_client_sends_is_refused(keys, paces, told, at, signer, reason):
    heard(paces, message(keys, "us-1", 50, Told(1, 0, 0, 0, False)))
    assert paces.offer(message(keys, "us-1", at, told, signer)).reason == reason


def test_a_client_can_not_fill_the_journal(keys, paces):
    paces._count["us-1"] = MOST_PACES
    assert paces.offer(message(keys, "us-1", 100, Told(1, 0, 0, 0, False))).reason == "pace"


def test_the_server_says_which_client_is_waited_for_and_what_that_costs(keys, paces):
    server = Server(LAYOUT, Bet(open_blocks=4))
    server.handle(Start())
    heard(paces, message(keys, "eu-1", 100, Told(6, 12, 3, 0, False)))
    assert paces.waits(server) == []  # nobody has reported anything
    block = server.open[0]
    block.parts[0] = None
    (wait,) = paces.waits(server)
    assert (wait.site, wait.rewards, wait.seconds) == ("eu-1", int(block.pulls[0].sum()), 7200.0)
    assert wait.text == "eu-1 has 12 assignments to make, about 2 hours"


def test_a_client_tells_its_pace_at_first_when_ahead_and_when_it_changes():
    teller, calm = Teller(), Standing(100.0, 5, 0)
    assert not teller.due(Standing(0.0, 5, 0), 0, 0.0)  # nobody has come yet
    assert teller.due(calm, 0, 0.0)
    teller._last = (0.0, calm, 0)
    assert not teller.due(calm, 0, 59.0)
    assert not teller.due(Standing(200.0, 5, 0), 0, 59.0)
    assert teller.due(Standing(200.0, 5, 0), 0, 60.0)
    assert teller.due(calm, 0, 600.0)
    assert not teller.due(Standing(100.0, 0, 0), 0, 600.0)  # nobody waits for it
    ahead = Standing(100.0, 0, 7)
    assert teller.due(ahead, 0, 1.0)
    teller._last = (1.0, ahead, 3)
    assert not teller.due(ahead, 3, 2.0)
    assert teller.due(ahead, 4, 2.0)  # another block was announced, and is assigned, too
