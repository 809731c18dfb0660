"""A client of a federation whose rewards come from subjects who arrive over HTTP."""

from __future__ import annotations

import asyncio
import collections
import json
import random
import threading
import time
import urllib.error
import urllib.request

import pytest

import bestarm as ba
from bestarm.cli.sources import Rewards
from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.clerk import Request
from bestarm.deploy.experiment.live_source import LiveSource
from bestarm.deploy.federation import files
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.process import free_port
from bestarm.problem.layout import Group
from bestarm.problem.scale import Scale
from bestarm.protocol.events import Pull
from bestarm.records.record import Record
from helpers import SECONDS, Processes

PAIR = Group("us", ("A", "B"), ("us-1",))


def source(folder, made=None, **keys):
    return LiveSource(folder, PAIR, Scale(), made or {}, host="127.0.0.1", port=0, **keys)


def asked(live, times=1):
    request = Request(site="us", times=times)
    live.site.run([request])
    return request.assigned


def told(live, given, reward):
    live.site.run([Request(rewards=[(own.token, reward(own)) for own in given])])


def test_subjects_fill_what_the_machine_needs_and_rewards_come_in_the_order_of_assignment(tmp_path):
    async def main():
        live = source(tmp_path)
        assert asked(live)[0].option in "AB"  # nothing is needed yet: it does not count
        live.plan({}, (Pull((0, 1), 10, (1, 3)),))
        given = asked(live, 40)
        assert collections.Counter(own.option for own in given) == {"A": 10, "B": 30}
        told(live, given[::-1], lambda own: float(own.option == "B"))
        assert await live.pull("A", 10) == [0.0] * 10
        assert await live.pull("B", 30) == [1.0] * 30
        assert live.site.status.sites[0].unplanned == 1
        await live.close()

    asyncio.run(main())


def test_after_a_crash_it_goes_on_where_the_client_s_journal_ends(tmp_path):
    async def main():
        live = source(tmp_path)
        live.plan({}, (Pull((0, 1), 8),))
        given = asked(live, 10)
        told(live, given[:9], lambda own: 1.0)
        await live.close()
        again = source(tmp_path, {"A": 2, "B": 0})  # two rewards of A are in the client's journal
        again.plan({"A": 0, "B": 0}, (Pull((0, 1), 8),))  # the same pull: nothing is planned twice
        rest = asked(again, 6)
        told(again, [given[9], *rest], lambda own: 1.0)
        assert asked(again)[0].option in "AB"
        assert again.site.status.sites[0].unplanned == 1
        first = [own.option for own in (*given, *rest)]
        assert collections.Counter(first) == {"A": 8, "B": 8}
        assert await again.pull("A", 6) == [1.0] * 6
        await again.close()

    asyncio.run(main())


def test_a_missing_reward_is_filled_in_and_other_settings_are_refused(tmp_path):
    async def main():
        live = source(tmp_path, deadline=0.01, missing=0.0)
        live.plan({}, (Pull((0, 1), 2),))
        asked(live, 4)
        assert await live.pull("A", 2) == [0.0, 0.0]
        await live.close()

    asyncio.run(main())
    with pytest.raises(ba.InputError, match="other settings: deadline"):
        source(tmp_path, deadline=5.0, missing=0.0)
    with pytest.raises(ba.InputError, match="privacy"):
        LiveSource(tmp_path / "p", PAIR, Scale(privacy=1.0), {}, host="127.0.0.1", port=0)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"serve": "8080"}, "HOST:PORT"),
        ({"serve": "localhost:8080", "http": "http://x/{arm}"}, "more than one source"),
        ({"http": "http://x/{arm}", "missing": 0.0}, "belong to --serve"),
    ],
)
def test_wrong_flags_are_refused(keys, what):
    with pytest.raises(ba.InputError, match=what):
        Rewards(**keys).source()


class Crowd(threading.Thread):
    """Subjects of one site, until the end: each gets an option, and its reward is told some time later."""

    def __init__(self, port, token, site, means):
        super().__init__(daemon=True)
        self.url, self.token, self.site, self.means = f"http://127.0.0.1:{port}", token, site, means
        self.rng, self.end, self.late = random.Random(site), threading.Event(), collections.deque()

    def call(self, path, body):
        head = {"Authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), head)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def run(self):
        while not self.end.is_set():
            try:
                for own in self.call("/assign", {"site": self.site, "times": 20})["assignments"]:
                    reward = float(self.rng.random() < self.means[own["option"]])
                    self.late.append({"token": own["token"], "reward": reward})
                self.call("/reward", {"rewards": list(self.late)[:40]})
                for _ in range(min(len(self.late), 40)):
                    self.late.popleft()
            except (OSError, urllib.error.URLError):  # it is not open yet, or was killed
                time.sleep(0.1)


@pytest.mark.slow
def test_a_federation_of_served_clients_finds_the_best_option_although_one_is_killed(tmp_path):
    means = {"us": {"A": 0.3, "B": 0.6}, "eu": {"A": 0.5, "B": 0.7}}
    case = ba.Scenario(ba.Problem.from_rewards(means).asking("overall"), "bet", None, {"delta": 0.05})
    federation = Processes(tmp_path / "f", case)
    names = dict(zip(means, federation.names, strict=True))
    ports = {site: free_port() for site in means}
    crowds, flags = [], {}  # subjects whose answer was lost with the process count as 0 after five seconds
    try:
        federation.start("server")
        for site, name in names.items():
            token = Callers(tmp_path / "f" / "clients" / name / "callers.json").add("test")
            flags[site] = ("--serve", f"127.0.0.1:{ports[site]}", "--deadline", "5s", "--missing", "0")
            federation.start(name, *flags[site])
            crowds.append(Crowd(ports[site], token, site, means[site]))
            crowds[-1].start()
        until = time.monotonic() + SECONDS
        while not crowds[0].late and time.monotonic() < until:
            time.sleep(0.01)
        federation.running[names["us"]].kill()
        federation.running[names["us"]].wait()
        federation.start(names["us"], *flags["us"])
        federation.wait()
    finally:
        for crowd in crowds:
            crowd.end.set()
        federation.end()
    record = Record.load(tmp_path / "f" / files.RECORD)
    assert record.verdict.arm == "B"
    found = verify(tmp_path / "f")
    assert found.ok, found.failures
