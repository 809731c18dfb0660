"""Shares and moments in a federation: arms take turns, and no pull is lost or paid twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections import Counter

import pytest
from test_report import Page

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.deploy.federation.site import Site
from bestarm.deploy.pulling import FIRST_BATCH, MOST_TURNS, Puller
from bestarm.deploy.sources import Exhausted, FromCommand, FromHttp, FromPython
from bestarm.problem.rewards import Beta
from bestarm.protocol.events import Pull
from bestarm.report import follow, page
from bestarm.util.journal import Journal
from federations import Coins, Folds, comparable, in_process, scenario
from test_federation_folds import Fuse, shelf  # noqa: F401 (a fixture)
from uneven import METHOD, SHARE, totals

GROUPS = {"west": {"a": 0.95, "b": 0.2}, "east": {"c": 0.3}}


@pytest.fixture
def made(shelf):  # noqa: F811
    """A federation and its folder."""
    ba.register_method(METHOD)
    case = scenario("uneven", GROUPS, delta=0.2)
    if not (shelf / "fed").exists():
        files.init(case, shelf / "fed", port=0)
    return case, fresh(shelf / "fed")


def fresh(folder):
    for path in folder.rglob("journal.db*"):
        path.unlink()
    return folder


@pytest.fixture
def place(tmp_path):
    """A client whose rewards are in [0, 1]."""
    ba.register_method(METHOD)
    case = scenario(
        "uneven", {"west": {"a": Beta(3.0, 1.0), "b": Beta(1.0, 3.0)}, "east": {"c": 0.5}}, delta=0.2
    )
    files.init(case, tmp_path / "any", port=0)
    return files.Place.load(tmp_path / "any" / "clients" / "west-1")


@pytest.mark.parametrize("batch", [10**9, 7])
def test_a_federation_agrees_with_the_simulator_in_any_batches(made, batch):
    case, folder = made
    folds = Folds(folder, Coins(case.problem), batch=batch)
    assert comparable(folds.go()) == comparable(in_process(case, Coins(case.problem)))
    folds.check_pulls()
    folds.close()


def test_a_crash_at_any_append_changes_neither_sums_nor_moments(made, monkeypatch):
    fuse, (case, folder) = Fuse(monkeypatch), made

    def run(at, before):
        fuse.set(at, before)
        folds = Folds(fresh(folder), Coins(case.problem), batch=30)
        record = folds.go()
        folds.check_pulls()
        folds.close()
        clients = [folds.sites[name].machine for name in folds.names]
        return comparable(record), [totals(client.rewards, client.shares) for client in clients]

    whole = run(0, before=False)
    for at in range(1, fuse.count + 1):
        for before in (True, False):
            assert run(at, before) == whole
    assert whole[1][0][0][0] == SHARE * whole[1][0][1][0]


def work(place, source, until):
    """Let a client pull until the condition is true, or an error occurs."""
    site = Site.open(place)

    async def main():
        puller = Puller(site, source, place.setup.scale, coins=False, end="budget", after=lambda: None)
        working = asyncio.create_task(puller.run())
        while not working.done() and not until(site):
            await asyncio.sleep(0)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

    asyncio.run(main())
    site.journal.close()
    return site


def rewards_of(place):
    with Journal.open(place.folder / files.JOURNAL, write=False) as journal:
        return [json.loads(event.body) for event in journal.events() if event.kind == "rewards"]


def test_single_pulls_go_round_by_round(place):
    order = []

    async def one(arm):
        order.append(arm)
        return 0.25

    site = work(place, FromPython(one), lambda site: site.ups)
    assert "".join(order) == "aaaab" * 32
    assert site.made == Counter(a=128, b=32)


def test_requests_for_many_rewards_come_in_few_turns(place):
    order = []

    async def many(arm, times):
        order.append((arm, times))
        return [0.25] * times

    work(place, FromPython(many), lambda site: site.ups)
    batches = [body["times"] for body in rewards_of(place)]
    assert sum(batches) == 32
    assert batches[0] == FIRST_BATCH * 2 // (SHARE + 1)
    turns = min(batches[0], MOST_TURNS)
    rounds = [batches[0] * k // turns - batches[0] * (k - 1) // turns for k in range(1, turns + 1)]
    assert order[: 2 * turns] == [pair for n in rounds for pair in (("a", SHARE * n), ("b", n))]


def test_pulls_without_shares_or_moments_keep_their_order(tmp_path):
    files.init(scenario("fisher", GROUPS, delta=0.2), tmp_path / "fed", port=0)
    place, order = files.Place.load(tmp_path / "fed" / "clients" / "west-1"), []

    async def one(arm):
        order.append(arm)
        return 1.0

    work(place, FromPython(one), lambda site: site.ups)
    assert "".join(order).startswith("a" * FIRST_BATCH + "b" * FIRST_BATCH)
    assert not {"squares", "least", "most"} & set().union(*rewards_of(place))


@pytest.mark.parametrize(
    ("source", "batch"),
    [
        (lambda: FromHttp("http://x/{arm}"), False),
        (lambda: FromHttp("http://x/{arm}?n={times}"), True),
        (lambda: FromCommand("read {arm}"), False),
        (lambda: FromCommand("read {arm} {times}"), True),
        (lambda: FromCommand("serve"), False),
    ],
)
def test_a_source_says_whether_a_request_may_return_several_rewards(source, batch):
    assert source().batch is batch


def test_the_journal_keeps_moments_and_a_restart_replays_them(place):
    values, given = [0.1, 0.7, 0.2, 1.0, 0.0], {"a": 0, "b": 0}

    async def one(arm):
        given[arm] += 1
        return values[given[arm] % 5]

    work(place, FromPython(one), lambda site: site.pulls >= 20)  # stopped within the look
    before = dict(given)
    site = Site.open(place)
    assert site.made == before
    taken = list(site.machine.rewards)
    site.journal.close()
    assert [body["times"] for body in rewards_of(place) if body["times"]] == [event.times for event in taken]
    site = work(place, FromPython(one), lambda site: site.ups)
    assert site.machine.rewards[: len(taken)] == taken
    assert site.made == given == {"a": 128, "b": 32}
    for arm, found in zip("ab", totals(site.machine.rewards, (SHARE, 1)), strict=True):
        paid = [values[k % 5] for k in range(1, given[arm] + 1)]
        squares = math.fsum(x * x for x in paid)
        assert found == (len(paid), pytest.approx(sum(paid)), pytest.approx(squares), 0.0, 1.0)


def test_rewards_that_run_out_count_in_whole_rounds(place):
    paid = Counter()

    async def few(arm):
        if paid[arm] == 18 and arm == "a":
            raise Exhausted("no more")
        paid[arm] += 1
        return 0.5

    site = work(place, FromPython(few), lambda site: site.ups)
    assert (site.machine.count, site.pulls) == (4, 22)
    assert [len(rewards) for rewards in site.kept] == [2, 0]


def test_a_lost_batch_is_announced_with_its_number_of_pulls(place, caplog):
    site = Site.open(place)
    site.ask(site.pull, 5)
    site.rewards({0: [0.5] * 17, 1: [0.5] * 4})  # an error: 4 rounds count, and 1 reward is kept
    site.ask(site.pull, 3)
    site.journal.close()
    site = Site.open(place)
    assert (site.machine.count, site.pull) == (4, Pull((0, 1), 28, (SHARE, 1), moments=True))
    site.warn("west-1")
    assert "west-1: 14 pulls (a, b) had no answer" in caplog.text
    site.journal.close()


def test_a_page_of_a_client_counts_the_pulls_of_each_arm(place):
    site = Site.open(place)
    site.ask(site.pull, 5)
    site.rewards({0: [0.5] * 20, 1: [0.25] * 5})
    site.journal.close()
    source = follow.Journalled(place.folder)
    source.catch_up()
    facts = source.facts()
    source.close()
    text = Page("".join(body for _, _, body in page.sections(facts))).text
    assert f"Next2 arms, {27 * (SHARE + 1)} pulls in all" in text
    assert [(arm.pulls, arm.counted) for arm in facts.arms] == [(20, 20), (5, 5)]
