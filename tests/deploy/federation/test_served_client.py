"""A client of a federation whose rewards come from subjects who arrive over HTTP."""

from __future__ import annotations

import asyncio
import collections
import http.client
import http.server
import json
import random
import secrets
import threading
import time
import urllib.error
import urllib.request

import pytest

import bestarm as ba
from bestarm.cli.sources import Rewards
from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.clerk import Request
from bestarm.deploy.experiment.live_source import LiveSource, Serving
from bestarm.deploy.experiment.webhooks import news
from bestarm.deploy.federation import files
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.process import free_port
from bestarm.problem.layout import Group, Layout
from bestarm.problem.scale import Scale
from bestarm.protocol.events import Pull
from bestarm.protocol.verdict import Verdict
from bestarm.records.record import Record
from helpers import SECONDS, Processes

PAIR = Layout((Group("us", ("A", "B"), ("us-1",)),))


def source(folder, made=None, scale=None, ready=lambda url, token: None, **keys):
    return LiveSource(
        folder, PAIR, PAIR.groups[0], scale or Scale(), made or {}, Serving("127.0.0.1", 0, **keys), ready
    )


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
        source(tmp_path / "p", scale=Scale(privacy=1.0))


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"serve": "8080"}, "HOST:PORT"),
        ({"serve": "localhost:8080", "http": "http://x/{arm}"}, "more than one source"),
        ({"http": "http://x/{arm}", "missing": 0.0}, "--missing belongs to --serve"),
    ],
)
def test_wrong_flags_are_refused(keys, what):
    with pytest.raises(ba.InputError, match=what):
        Rewards(**keys).source()


def wait_for(condition, federation):
    """Wait until the condition is true."""
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, federation.logs()
        time.sleep(0.01)


RETRY = (429, 503)  # "try again later"; any other error of HTTP is one of the test


class Crowd(threading.Thread):
    """Subjects of one site, until the end: each gets an option, and its reward is told some time later.

    A request without an answer is made again with the same key: its process may have been killed in the
    middle of it, and no assignment may be lost, because a site waits for all of them.
    """

    def __init__(self, port, token, site, means, times=20, pause=0.0, lag=0):
        super().__init__(daemon=True)
        self.times, self.pause, self.lag = times, pause, lag  # the reward is told after `lag` further ones
        self.url, self.token, self.site, self.means = f"http://127.0.0.1:{port}", token, site, means
        self.rng, self.end, self.late = random.Random(site), threading.Event(), collections.deque()

    def call(self, path, body):
        """The answer to a request; None if the crowd ends before there is one."""
        head = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": secrets.token_hex(8)}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), head)
        while not self.end.is_set():
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code not in RETRY:
                    raise
            except (OSError, http.client.HTTPException, ValueError):
                pass  # not open yet, or killed, maybe in the middle of its answer
            time.sleep(0.1)
        return None

    def run(self):
        while (given := self.call("/assign", {"site": self.site, "times": self.times})) is not None:
            for own in given["assignments"]:
                reward = float(self.rng.random() < self.means[own["option"]])
                self.late.append({"token": own["token"], "reward": reward})
            known = list(self.late)[: max(0, min(40, len(self.late) - self.lag))]
            if self.call("/reward", {"rewards": known}) is not None:
                for _ in known:
                    self.late.popleft()
            time.sleep(self.pause)


@pytest.mark.slow
def test_a_federation_of_served_clients_finds_the_best_option_although_one_is_killed(tmp_path):
    means = {"us": {"A": 0.3, "B": 0.6}, "eu": {"A": 0.5, "B": 0.7}}
    case = ba.Scenario(ba.Problem.from_rewards(means).asking("overall"), "bet", None, {"delta": 0.05})
    federation = Processes(tmp_path / "f", case)
    names = dict(zip(means, federation.names, strict=True))
    ports = {site: free_port() for site in means}
    crowds, flags = [], {}
    try:
        federation.start("server")
        for site, name in names.items():
            token = Callers(tmp_path / "f" / "clients" / name / "callers.json").add("test")
            flags[site] = ("--serve", f"127.0.0.1:{ports[site]}")
            federation.start(name, *flags[site])
            crowds.append(Crowd(ports[site], token, site, means[site]))
            crowds[-1].start()
        wait_for(lambda: crowds[0].late, federation)
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


@pytest.mark.slow
def test_served_clients_tell_their_pace_go_ahead_and_give_the_winner_after_the_verdict(tmp_path):
    """One site has a twentieth of the subjects: blocks are planned by pace, and the fast one goes ahead."""
    means = {"us": {"A": 0.4, "B": 0.6}, "eu": {"A": 0.4, "B": 0.6}}
    options = {"delta": 0.05, "allocation": "pace", "open_blocks": 16}
    case = ba.Scenario(ba.Problem.from_rewards(means).asking("overall"), "bet", None, options)
    federation = Processes(tmp_path / "f", case)
    names, ports = dict(zip(means, federation.names, strict=True)), {site: free_port() for site in means}
    crowds, told = [], []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as hook:
        threading.Thread(target=hook.serve_forever, daemon=True).start()
        try:
            federation.start("server")
            for site, name in names.items():
                token = Callers(tmp_path / "f" / "clients" / name / "callers.json").add("test")
                flags = ["--serve", f"127.0.0.1:{ports[site]}"]
                if site == "us":
                    flags += ["--webhook", f"http://127.0.0.1:{hook.server_port}/", "--after", "winner"]
                federation.start(name, *flags)
                keys = {"times": 20, "lag": 1000} if site == "us" else {"times": 1}
                crowds.append(Crowd(ports[site], token, site, means[site], pause=0.05, **keys))
                crowds[-1].start()
            federation.ends("server", 2 * SECONDS)
            wait_for(lambda: told and told[-1]["event"] == "verdict", federation)
            assert {crowds[0].call("/assign", {})["option"] for _ in range(20)} == {"B"}
        finally:
            for crowd in crowds:
                crowd.end.set()
            federation.end()
            hook.shutdown()
    record = Record.load(tmp_path / "f" / files.RECORD)
    assert (record.verdict.arm, told[-1]["answer"]) == ("B", "B")
    kinds = collections.Counter(row[0] for row in record.verdict.certificate["server"]["events"])
    assert kinds["pace"] >= 1
    assert kinds["ahead"] >= 1
    assert verify(tmp_path / "f").ok


def test_a_served_client_raises_the_alarms_of_an_experiment_at_its_share_of_the_rate(tmp_path):
    async def main():
        live = source(tmp_path, deadline=1e6, missing=0.0)
        live.plan({}, (Pull((0, 1), 1024),))
        given = asked(live, 2048)
        told(live, given, lambda own: float(int(own.token.split("-")[0]) > 300))
        assert {alarm.kind for alarm in live.site.alarms} >= {"drift"}
        assert any("us/A: rewards drift" in text for text in live.remarks())
        await live.close()

    asyncio.run(main())
    both = Layout((*PAIR.groups, Group("eu", ("A", "B"), ("eu-1",))))
    half = LiveSource(tmp_path / "half", both, both.groups[1], Scale(), {}, Serving("127.0.0.1", 0))
    alone = source(tmp_path / "alone")
    assert half.site.watch.level == alone.site.watch.level / 2


def test_the_site_stands_still_in_the_eyes_of_its_webhook(tmp_path):
    async def main():
        live = source(tmp_path)
        live.plan({}, (Pull((0, 1), 4),))
        asked(live, 2)
        live.site.clock = lambda: time.time() + 7200.0
        (notice,) = news(live.site, 3600.0)
        assert (notice.event, notice.site) == ("stalled", "us")
        standing = live.site.standing()
        assert (standing.to_assign, standing.to_come, standing.ahead) == (6, 2, False)
        asked(live, 6)
        assert live.site.standing().ahead
        live.site.end(Verdict(status="identified", arm="B"), 1)
        assert {own.option for own in asked(live, 9)} == {"B"}
        assert [note.event for note in news(live.site, 3600.0)] == ["verdict"]
        await live.close()
        again = source(tmp_path)
        assert {own.option for own in asked(again, 9)} == {"B"}
        await again.close()

    asyncio.run(main())
