"""A client that floods the broker is named and cut off, and nobody else; the others reach their verdict."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bestarm import cli
from bestarm.deploy.envelope import Envelope
from bestarm.deploy.federation import attendance, files, wire
from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.desk import NOTE
from bestarm.deploy.federation.floods import (
    RECEIVED,
    UNANSWERED,
    USELESS,
    VIOLATIONS,
    Floods,
    Known,
    Totals,
)
from bestarm.deploy.federation.server import Status
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.process import checkpoint, free_port
from bestarm.errors import InputError
from bestarm.records.build import CUT_OFF
from federations import CASES, scenario
from helpers import SECONDS, client, get, serving, shown, until
from marking import examples

FLOODER = "west-1"
MOST_SECONDS = 5.0  # of the server's looks, before a flooder is named


def seen(floods, steps, slot="s1"):
    """Look once per step: (seconds, messages, answers, useless ones, violations); return what was found."""
    now, totals, found = 0.0, [0, 0, 0, 0], {}
    floods.look(now, {slot: Totals()})
    for seconds, *news in steps:
        now += seconds
        totals = [total + new for total, new in zip(totals, news, strict=True)]
        found |= floods.look(now, {slot: Totals(*totals)})
    return found


pauses = st.floats(0.01, 20.0)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(pauses, st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=60))
def test_a_client_that_waits_for_each_answer_is_never_cut_off(steps):
    honest = [
        (seconds, n := int(share * RECEIVED.rate * seconds), n, int(useless * USELESS.rate * seconds), 0)
        for seconds, share, useless in steps
    ]
    assert not seen(Floods(), honest)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(
        [
            (RECEIVED, (1, 1, 0, 0)),
            (UNANSWERED, (1, 0, 0, 0)),
            (USELESS, (0, 0, 1, 0)),
            (VIOLATIONS, (0, 0, 0, 1)),
        ]
    ),
    st.floats(1.5, 20.0),
    st.lists(st.floats(0.2, 3.0), min_size=1, max_size=10),
)
def test_a_client_above_a_limit_is_found_as_soon_as_its_burst_is_used_up(case, factor, pauses):
    limit, kind = case
    floods, now, sent, totals = Floods(), 0.0, 0, Totals()
    floods.look(now, {"s1": totals, "s2": Totals()})
    need = limit.burst / (limit.rate * (factor - 1))
    while now <= need + 3.1:
        seconds = pauses[int(now) % len(pauses)]
        now += seconds
        sent = int(factor * limit.rate * now) + 1
        found = floods.look(now, {"s1": Totals(*(sent * k for k in kind)), "s2": Totals()})
        assert "s2" not in found
        if found:
            assert now >= need - 0.1 - 2 / limit.rate
            return
    raise AssertionError("it was not found")


def test_totals_that_start_again_are_counted_from_zero():
    floods = Floods()
    floods.look(0.0, {"s1": Totals(10**9, 10**9)})
    assert not floods.look(1.0, {"s1": Totals(100, 100)})
    assert not floods.look(2.0, {"s1": Totals(200, 200)})
    assert floods.look(3.0, {"s1": Totals(50_000, 200)})


def test_a_client_may_acknowledge_all_broadcasts_at_once():
    floods, known = Floods(), lambda slot: Known(broadcasts=50_000)
    floods.look(0.0, {"s1": Totals()}, known)
    assert not floods.look(1.0, {"s1": Totals(50_000, 50_000)}, known)
    assert floods.look(2.0, {"s1": Totals(250_000, 250_000)}, known)


def test_a_client_may_send_all_its_messages_again():
    floods, known = Floods(), lambda slot: Known(messages=3_000)
    floods.look(0.0, {"s1": Totals()}, known)
    assert not floods.look(1.0, {"s1": Totals(received=3_000, answered=3_000, useless=3_000)}, known)
    assert floods.look(2.0, {"s1": Totals(received=9_000, answered=9_000, useless=9_000)}, known)


@pytest.mark.parametrize("rate", [200, 500, 1500])
def test_a_flood_that_keeps_below_the_other_limits_is_found_within_five_looks(rate):
    """A valid client repeats old messages and awaits each answer, one look per second."""
    floods = Floods()
    floods.look(0.0, {"s1": Totals()})
    found = [k for k in range(1, 60) if floods.look(float(k), {"s1": Totals(k * rate, k * rate, k * rate)})]
    assert found[0] <= 5


def test_after_it_was_forgotten_a_slot_starts_again():
    floods = Floods()
    floods.look(0.0, {"s1": Totals()})
    assert floods.look(1.0, {"s1": Totals(received=50_000)})
    floods.forget("s1")
    assert not floods.look(2.0, {"s1": Totals(received=50_100)})
    assert not floods.look(3.0, {"s1": Totals(received=50_200)})


class Flooder:
    """A client with a valid key that publishes as fast as it can, on as many connections as it gets."""

    def __init__(self, folder, kind):
        self.place, self.kind = files.Place.load(folder / "clients" / FLOODER), kind
        self.sent = self.refused = 0

    def data(self):
        place = self.place
        old = Envelope.sign(place.key, place.setup.run, place.client, NOTE, 0, b"old news").encode()
        return {"old": old, "garbage": b"\xff" * 500, "oversized": b"\xff" * 20_000, "answered": old}[
            self.kind
        ]

    async def connect(self):
        place = self.place
        inbox = f"_INBOX_{place.slot}"
        return await wire.connect(place.setup.url, place.nkey, place.folder / "ca.pem", "flooder", inbox)

    async def reconnect(self):
        """Connect again and again until the broker refuses its key."""
        while True:
            with contextlib.suppress(wire.Taken):  # the last one may not have ended yet
                await (await self.connect()).close()

    async def run(self):
        """Flood for ever; connections that are refused are made again."""
        await asyncio.gather(*(self._one() for _ in range(3)))

    async def _one(self):
        place, data = self.place, self.data()
        subject = f"{place.setup.subject}.up.{place.slot}"
        while True:
            checkpoint()
            nc = None
            try:
                nc = await self.connect()
                inbox = nc.new_inbox() if self.kind == "answered" else ""
                if inbox:
                    await nc.subscribe(inbox, cb=self._ignore)
                while nc.is_connected:
                    for _ in range(100):
                        await nc.publish(subject, data, reply=inbox)
                        self.sent += 1
                    await nc.flush()
            except Unreachable as error:
                self.refused += "refuses" in str(error)
            except Exception:  # a connection that the broker closes can raise anything
                await asyncio.sleep(0.01)
            finally:
                if nc is not None:
                    with contextlib.suppress(Exception):
                        await nc.close()
            await asyncio.sleep(0.01)

    async def _ignore(self, message):
        pass


@pytest.fixture
def often(monkeypatch):
    """Look often, so that the test is short."""
    monkeypatch.setattr(attendance, "LOOK_SECONDS", 0.2)


def go_on_without_the_flooder(server):
    """End the patience of a round that waits for nobody else; return whether the run is over."""
    if server.desk.waiting_for() == [FLOODER] and not server.publisher.pending:
        server.desk.patience_over()
    return server.desk.done


class Looks:
    """The server's looks at a flooder, until it is named: when, what it had sent, and what it exceeds."""

    def __init__(self, flooder, limit):
        self.flooder, self.limit, self.looks, self.named, self._look = flooder, limit, [], False, Floods.look

    def __call__(self, floods, now, totals, known):
        found = self._look(floods, now, totals, known)
        slot = self.flooder.place.slot
        if not self.named:
            sent = totals[slot].violations if self.limit is VIOLATIONS else self.flooder.sent
            self.looks.append((now, sent))
            self.named = slot in found
        return found

    def too_many(self):
        """How many looks came after its first message beyond the limit."""
        (began, before), limit = self.looks[0], self.limit
        return sum(sent - before > limit.burst + limit.rate * (now - began) for now, sent in self.looks)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "limit"),
    [("garbage", UNANSWERED), ("old", UNANSWERED), ("oversized", VIOLATIONS), ("answered", RECEIVED)],
    ids=["garbage", "old", "oversized", "answered"],
)
def test_a_flooder_is_named_and_cut_off_and_the_others_reach_the_verdict(
    tmp_path, caplog, monkeypatch, kind, limit
):
    case, folder = CASES["robust-fed-sel"], tmp_path / "f"
    others = [name for name in case.problem.layout.clients if name != FLOODER]
    caplog.set_level(logging.INFO, "bestarm.federation")

    async def main():
        async with serving(folder, case, patience=SECONDS) as (server, tasks):
            flooder = Flooder(folder, kind)
            looks = Looks(flooder, limit)
            monkeypatch.setattr(Floods, "look", lambda *args: looks(*args))
            await until(lambda: looks.looks)  # before the flood
            flooding = asyncio.create_task(flooder.run())
            await until(lambda: FLOODER in server.desk.cut_offs.now)
            await until(lambda: flooder.refused)
            flooding.cancel()
            await until(lambda: "(cut off)" in server.attendance.words())
            table = shown(Status(server.desk, True, None, 0, server.attendance.words()))
            metrics = server.attendance.metrics()
            for name in others:
                tasks[name] = asyncio.create_task(client(folder, case, name).run())
            await until(lambda: go_on_without_the_flooder(server) or tasks["server"].done(), 2 * SECONDS)
            record = await asyncio.wait_for(tasks["server"], SECONDS)
            return record, table, metrics, looks

    record, table, metrics, looks = asyncio.run(main())
    assert looks.named
    assert looks.too_many() * attendance.LOOK_SECONDS <= MOST_SECONDS
    warning = next(r.getMessage() for r in caplog.records if "floods the broker" in r.getMessage())
    assert warning.startswith(FLOODER)
    assert f"bestarm federation allow {folder} {FLOODER}" in warning
    assert f"{FLOODER} (cut off)" in table
    assert metrics["clients_cut_off"] == metrics["cut_offs_total"] == 1
    assert record.verdict.status == "identified"
    told = [w for w in record.warnings if CUT_OFF in w["text"]]
    assert [w["group"] for w in told] == ["west"]
    assert told[0]["text"].startswith(FLOODER)
    found = verify(folder)
    assert found.ok, found.failures
    assert any(CUT_OFF in text for text in found.changes)


def test_a_client_that_was_cut_off_connects_again_after_it_is_allowed(tmp_path):
    case, folder = CASES["fed-sel"], tmp_path / "f"
    names = case.problem.layout.clients

    async def main():
        async with serving(folder, case) as (server, tasks):
            files.block(folder, server.federation.slot_of(FLOODER))
            await until(lambda: server.federation.slots["s1"].blocked)
            flooder = Flooder(folder, "garbage")
            with pytest.raises(Unreachable, match="refuses"):
                await flooder.reconnect()
            files.allow(folder, FLOODER)
            await until(lambda: not server.federation.slots["s1"].blocked)
            for name in names:
                tasks[name] = asyncio.create_task(client(folder, case, name).run())
            return await asyncio.wait_for(tasks["server"], 2 * SECONDS)

    assert asyncio.run(main()).verdict.arm == "west/a"
    with pytest.raises(InputError, match="is not cut off"):
        files.allow(folder, FLOODER)
    with pytest.raises(InputError, match="no client"):
        files.allow(folder, "nobody")


def test_the_command_lets_a_client_in_again(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "f"
    files.init(CASES["fed-sel"], folder, port=0)

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["bestarm", "federation", "allow", str(folder), *args])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code, capsys.readouterr()

    files.block(folder, "s1")
    nkey = files.Federation.load(folder).slots["s1"].nkey
    assert nkey not in (folder / "broker" / "accounts.conf").read_text()
    code, said = run(FLOODER)
    assert code == 0
    assert "may connect again" in said.out
    assert nkey in (folder / "broker" / "accounts.conf").read_text()
    code, said = run(FLOODER)
    assert code == 2
    assert "is not cut off" in said.err


def test_that_a_client_was_allowed_again_is_in_the_journal_and_the_log(tmp_path, caplog, often):
    case, folder = CASES["fed-sel"], tmp_path / "f"

    async def main():
        async with serving(folder, case) as (server, tasks):
            tasks["flooder"] = asyncio.create_task(Flooder(folder, "garbage").run())
            await until(lambda: FLOODER in server.desk.cut_offs.now)
            tasks.pop("flooder").cancel()
        files.allow(folder, FLOODER)  # while the server does not run
        async with serving(folder, case) as (server, _):
            await until(lambda: not server.desk.cut_offs.now)
            return server.desk.changes

    changes = asyncio.run(main())
    assert f"{FLOODER} is allowed again" in caplog.text
    assert [text.partition(": ")[2].split(" at ")[0] for text in changes] == [
        f"{FLOODER} {CUT_OFF}", f"{FLOODER} was allowed again",
    ]  # fmt: skip


def test_a_patient_client_that_repeats_messages_is_not_cut_off(tmp_path, often):
    case, folder, messages = CASES["fed-sel"], tmp_path / "f", 300

    async def main():
        async with serving(folder, case) as (server, _):
            flooder = Flooder(folder, "old")
            nc, place = await flooder.connect(), flooder.place
            for _ in range(messages):
                await wire.publish(nc, f"{place.setup.subject}.up.{place.slot}", flooder.data())
            await nc.close()
            await until(lambda: server.attendance.useless["s1"] + 1 >= messages)
            await asyncio.sleep(1.0)  # several looks
            return server.desk.cut_offs.now

    assert not asyncio.run(main())


def test_the_server_says_who_is_connected_and_who_is_not_yet(tmp_path, caplog, often, monkeypatch):
    case, folder = scenario("robust-fed-sel", clients=4, byzantine=1, period=3000), tmp_path / "f"
    monkeypatch.setattr(attendance, "CALM_SECONDS", 0.5)
    statuses = []

    async def main():
        async with serving(folder, case, ["west-2"], watch=statuses.append) as (server, _):
            await until(lambda: "1 of 12 connected since" in server.attendance.words())
            await until(lambda: any("1 of 12" in r.getMessage() for r in caplog.records))
            await until(lambda: "1 of 12" in statuses[-1].attendance)
            assert server.attendance.metrics()["clients_connected"] == 1
            return server.attendance.words(), shown(statuses[-1])

    words, table = asyncio.run(main())
    assert words in table
    assert words.endswith("(not yet: west-1, west-3, west-4, east-1, east-2, east-3, east-4, mid-1, …)")


def test_the_page_of_metrics_counts_connections(tmp_path, often):
    case, folder = CASES["fed-sel"], tmp_path / "f"
    port = free_port()

    async def main():
        async with serving(folder, case, metrics=port) as (server, _):
            await until(lambda: server.attendance.connected is not None)
            return (await asyncio.to_thread(get, port, "/metrics"))[1]

    text = asyncio.run(main())
    assert "\nbestarm_clients_connected 0\n" in text
    assert "\nbestarm_clients_cut_off 0\n" in text
