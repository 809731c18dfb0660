"""What an experiment shows and tells: status, page, webhooks and alarms."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.server
import json
import logging
import threading
from datetime import datetime

import numpy as np
import pytest

import bestarm as ba
from bestarm.deploy.experiment.alarms import FIRST_LOOK
from bestarm.deploy.experiment.webhooks import Hooks, news
from bestarm.deploy.process import free_port
from bestarm.report.experiment import page_of


def rewarded(reward, options=("A", "B"), subjects=8 * FIRST_LOOK, **keys):
    """An experiment whose k-th subject gets ``reward(option, k)``, and that is not decided soon."""
    experiment = ba.Experiment(list(options), seed=1, delta=1e-9, **keys)
    for k in range(subjects):
        own = experiment.ask()
        experiment.tell(own.token, reward(own.option, k))
    return experiment


def test_rewards_that_drift_or_depend_on_each_other_raise_an_alarm():
    rng = np.random.default_rng(1)
    drifting = rewarded(lambda option, k: float(rng.random() < 0.2 + 0.6 * (k > 500)))
    assert {alarm.kind for alarm in drifting.alarms} >= {"drift"}
    waves = rewarded(lambda option, k: float((k // 20) % 2))
    assert "dependence" in {alarm.kind for alarm in waves.alarms}


def test_independent_rewards_raise_none_at_any_look():
    """Null: P(any alarm in a whole run) ≤ 0.01. More than 4 of 10 runs with one: 3e-8."""
    raised = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        raised += bool(rewarded(lambda option, k, rng=rng: float(rng.random() < 0.5)).alarms)
    assert raised <= 4


def test_each_look_takes_a_fixed_number_of_rewards_and_the_levels_sum_to_the_rate():
    experiment = rewarded(lambda option, k: float(k % 3 == 0))
    assert experiment.alarms is not None
    looks = experiment._watch.looks
    assert {look.rows for look in looks.values()} == {FIRST_LOOK, 2 * FIRST_LOOK}
    share = sum(1.0 / ((m + 1) * (m + 2)) for m in range(100_000))
    assert share < 1.0
    first = [look.level for (_, _, m), look in looks.items() if m == 0]
    assert sum(first) == pytest.approx(0.01 / 2)


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes notices; refuses the first one."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((body, self.headers["X-Bestarm-Signature"]))
        self.send_response(500 if len(self.server.got) == 1 else 200)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.got = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_notice_is_sent_signed_until_it_is_accepted_and_not_again_after_a_restart(tmp_path, receiver):
    experiment = rewarded(lambda option, k: float(option == "B"), subjects=600, name="shop")
    found = news(experiment, None)
    assert [(notice.event, notice.answer) for notice in found] == [("verdict", "B")]
    url, key = f"http://127.0.0.1:{receiver.server_port}/", experiment.settings.key
    hooks = Hooks([url], tmp_path, key)
    for now in (0.0, 0.5, 10.0, 20.0):
        asyncio.run(hooks.tell(found, now))
    assert len(receiver.got) == 2  # refused, then accepted after a pause
    body, signature = receiver.got[1]
    told = json.loads(body)
    assert (told["answer"], told["experiment"], told["delta"]) == ("B", "shop", 1e-9)
    assert told["asked"] in told["text"]
    assert datetime.fromisoformat(told["time"]).timestamp() == int(experiment.status.ends)
    assert signature == hmac.new(bytes.fromhex(key), body, hashlib.sha256).hexdigest()
    asyncio.run(Hooks([url], tmp_path, key).tell(found, 0.0))
    assert len(receiver.got) == 2
    with pytest.raises(ba.InputError, match="http"):
        Hooks(["file:///etc/passwd"], tmp_path, key)


def test_a_webhook_that_is_down_is_tried_at_growing_intervals(tmp_path, caplog):
    experiment = rewarded(lambda option, k: float(option == "B"), subjects=600)
    found = news(experiment, None)
    hooks = Hooks([f"http://127.0.0.1:{free_port()}/"], tmp_path, experiment.settings.key)
    with caplog.at_level(logging.WARNING, "bestarm"):
        for now in range(40):
            asyncio.run(hooks.tell(found, float(now)))
    waits = [record.getMessage().rpartition("; next attempt in ")[2] for record in caplog.records]
    assert waits == ["1 s", "2 s", "4 s", "8 s", "16 s", "32 s"]
    assert all("urlopen" not in record.getMessage() for record in caplog.records)


def test_the_report_counts_visitors_and_only_the_rewards_that_count(tmp_path):
    """Those of blocks that are not closed are in none of its numbers."""
    now, rng = 0.0, np.random.default_rng(1)
    experiment = ba.Experiment(
        ["A", "B"], ["us", "eu"], binary=True, seed=1, deadline=20, missing=0, clock=lambda: now
    )
    while experiment.verdict is None:
        now += 0.05
        own = experiment.ask("us" if rng.random() < 0.8 else "eu")
        if rng.random() < {"A": 0.1, "B": 0.6}[own.option]:
            experiment.tell(own.token, 1)
    record, status = experiment.record(), experiment.status
    assert record.visitors.assigned == status.assigned
    assert 0 < record.visitors.filled < sum(site.filled for site in status.sites)
    assert record.visitors.filled <= record.pulls.total < status.assigned
    said = [warning["text"] for warning in record.warnings]
    assert sum(int(text.split(" ")[0].replace(",", "")) for text in said) == record.visitors.filled
    counts = [int(text.split(" of the ")[1].split(" ")[0].replace(",", "")) for text in said]
    assert counts == [record.pulls.by_client[site] for site in ("us", "eu")]
    assert ba.verify(record).ok
    page = ba.Record.load(record.save(tmp_path / "r.json")).report(tmp_path / "r.html").read_text()
    assert f"{status.assigned:,} visitors" in page
    assert f"{record.pulls.total:,} rewards that count ({record.visitors.filled:,} of them filled in" in page
    assert not any(word in page for word in ("honest client", "proven faulty", "Group us"))


@pytest.mark.parametrize("also", [(), ("each",)])
def test_an_experiment_that_was_stopped_before_its_first_visitor_has_a_report(also, tmp_path):
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], also=also, seed=1)
    experiment.stop()
    assert "0 visitors" in experiment.record().report(tmp_path / "r.html").read_text()


def test_a_stopped_experiment_is_not_told_to_be_repeated_until_it_has_an_answer(tmp_path):
    experiment = ba.Experiment(["A", "B"], seed=1)
    experiment.ask()
    experiment.stop()
    page = experiment.record().report(tmp_path / "r.html").read_text()
    assert "larger budget" not in page
    assert "no pulls" not in page_of(experiment.status, [], experiment.settings)
    assert "Do not repeat it until one names a winner" in page


@pytest.mark.parametrize("after", ["winner", "stop"])
def test_subjects_of_a_dropped_site_get_what_leads_there_and_do_not_count(after, tmp_path):
    path = tmp_path / "j.db"
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, seed=1, after=after, journal=path)
    early = experiment.ask_many("eu", 40)
    for own in early[1:]:
        experiment.tell(own.token, float(own.option == "B"))
    experiment.drop("eu")
    experiment.drop("eu")
    status = experiment.status
    assert [site.dropped for site in status.sites] == [False, True]
    assert "dropped: eu" in status.note
    assert "Dropped: eu" in page_of(status, [], experiment.settings)
    assert experiment.tell(early[0].token, 1.0) == "after"
    if after == "stop":
        with pytest.raises(ba.ExperimentOver, match="eu was dropped"):
            experiment.ask("eu")
    else:
        own = experiment.ask("eu")
        assert experiment.tell(own.token, 1.0) == "after"
    while experiment.verdict is None:
        own = experiment.ask("us")
        experiment.tell(own.token, float(own.option == "A"))
    assert experiment.status.leader == experiment.verdict.arm == "A"
    if after == "winner":
        assert experiment.ask("eu").option == "A"
    assert ba.verify(experiment.record()).ok
    experiment.close()
    with ba.Experiment.open(path) as again:
        assert [site.dropped for site in again.status.sites] == [False, True]
        assert again.verdict.arm == "A"


def test_each_site_has_its_means_and_leads_on_the_page_after_a_stop():
    rng = np.random.default_rng(3)
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], "each", binary=True, seed=1)
    for own in (*experiment.ask_many("us", 600), *experiment.ask_many("eu", 600)):
        experiment.tell(own.token, float(rng.random() < 0.5))
    experiment.stop()
    status = experiment.status
    assert {row.name for row in status.estimates} == {"us/A", "us/B", "eu/A", "eu/B"}
    assert {lead.option.partition("/")[0] for lead in status.leads} == {"us", "eu"}
    page = page_of(status, [], experiment.settings)
    assert "Means" in page
    assert all(row.name in page for row in status.estimates)


def test_after_the_verdict_the_lead_is_that_of_the_answer():
    rng = np.random.default_rng(3)
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, seed=1, weights={"us": 3, "eu": 1})
    while experiment.verdict is None:
        own = experiment.ask("us" if rng.random() < 0.7 else "eu")
        experiment.tell(own.token, float(rng.random() < {"A": 0.3, "B": 0.7}[own.option]))
    status = experiment.status
    assert (status.leader, status.lead) == (status.leads[0].option, status.leads[0].value)


def test_nobody_holds_things_up_when_nobody_waits():
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], seed=1)
    sites = experiment.status.sites
    assert [(site.awaited, site.holds_up) for site in sites] == [(True, False), (True, False)]
    for own in experiment.ask_many("us", 100):
        experiment.tell(own.token, 1.0)
    assert [site.holds_up for site in experiment.status.sites] == [False, True]


def test_a_site_that_others_wait_for_is_reported_as_stalled():
    now = 0.0
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], seed=1, clock=lambda: now)
    for own in experiment.ask_many("us", 100):
        experiment.tell(own.token, 1.0)
    experiment.ask_many("eu", 100)
    now = 3600.0
    assert [notice.event for notice in news(experiment, 7200.0)] == []
    (notice,) = news(experiment, 3600.0)
    assert (notice.event, notice.site) == ("stalled", "eu")
    assert "100 rewards to come" in notice.text


def test_a_site_without_visitors_is_reported_as_stalled():
    now = 0.0
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], seed=1, clock=lambda: now)
    for own in experiment.ask_many("us", 100):
        experiment.tell(own.token, 1.0)
    now = 3600.0
    assert news(experiment, 7200.0) == []
    (notice,) = news(experiment, 3600.0)
    assert "no visitors" in notice.text


def test_the_status_says_who_leads_who_holds_things_up_and_when_it_may_end():
    rng = np.random.default_rng(2)
    now = 0.0
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, seed=1, delta=1e-6, clock=lambda: now)
    for k in range(60):
        now = 60.0 * k
        for site, times in (("us", 30), ("eu", 3)):
            for own in experiment.ask_many(site, times):
                experiment.tell(own.token, float(rng.random() < (0.7 if own.option == "B" else 0.4)))
    status = experiment.status
    assert status.leader == "B"
    assert 0.2 < status.lead < 0.4
    assert status.sites[0].per_hour == pytest.approx(1800, rel=0.05)
    assert status.more is None or status.more > 0
    page = page_of(status, experiment.alarms, experiment.settings)
    for said in ("Leads", "Lead so far", "Not a result yet", "Expected end", "assignments per hour"):
        assert said in page
    assert "will be wrong with probability at most 1e-06" in page
    assert "holds things up" in page
    assert "eu has" in page
    assert "<script" not in page


def test_nobody_leads_before_every_option_has_a_reward_that_counts():
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], seed=1)
    for own in experiment.ask_many("us", 40):
        experiment.tell(own.token, 1.0)
    status = experiment.status
    assert (status.leader, status.lead) == (None, None)
    assert "nobody yet" in page_of(status, [], experiment.settings)
    for own in experiment.ask_many("eu", 40):
        experiment.tell(own.token, 1.0)
    assert experiment.status.leader is not None


def test_the_seed_of_the_assignments_is_shown_only_when_there_are_no_more():
    experiment = ba.Experiment(["A", "B"], seed=8675309)
    assert "8675309" not in page_of(experiment.status, [], experiment.settings)
    experiment.stop()
    assert "8675309" in page_of(experiment.status, [], experiment.settings)


def test_only_its_owner_can_read_a_journal_which_has_the_key_of_webhooks(tmp_path):
    with ba.Experiment(["A", "B"], journal=tmp_path / "j.db") as experiment:
        experiment.ask()
        files = list(tmp_path.glob("j.db*"))
        assert tmp_path / "j.db" in files
        assert all(file.stat().st_mode & 0o077 == 0 for file in files)


def test_names_on_the_page_and_in_the_metrics_are_escaped():
    from bestarm.deploy.experiment.metrics import metrics_of

    experiment = ba.Experiment(["<b>A", "B"], ['s"1', "s2"], seed=1)
    experiment.ask("s2")
    assert "<b>" not in page_of(experiment.status, [])
    assert 'site="s\\"1"' in metrics_of(experiment.status, [])


@pytest.mark.parametrize("question", ["overall", "each", "anywhere", "control"])
def test_the_status_guesses_the_end_of_every_question(question):
    """It is a guess; here it is right up to a factor of five."""
    rng, now = np.random.default_rng(2), 0.0
    options = {"us": ["A", "B"], "eu": ["C"]} if question == "anywhere" else ["A", "B"]
    more = {"control": "A"} if question == "control" else {}
    sites = None if question == "anywhere" else ["us", "eu"]
    experiment = ba.Experiment(options, sites, question, binary=True, seed=1, clock=lambda: now, **more)
    guesses = []
    while experiment.verdict is None:
        now += 60.0
        for site, times in (("us", 12), ("eu", 6)):
            for own in experiment.ask_many(site, times):
                experiment.tell(own.token, float(rng.random() < (0.55 if own.option == "B" else 0.4)))
        guesses.append((now, experiment.status.ends))
    known = [ends for when, ends in guesses[len(guesses) // 2 : -1] if ends is not None]
    assert known
    assert now / 5 < np.median(known) < 5 * now
    assert experiment.status.note == ""


def test_with_epsilon_anywhere_has_one_open_block_and_the_status_says_why():
    options = {"us": ["A", "B"], "eu": ["C"]}
    experiment = ba.Experiment(options, binary=True, seed=1, epsilon=0.1)
    experiment.ask_many("us", 1000)
    assert "one block is open at a time" in experiment.status.note
    assert experiment.status.sites[0].unplanned > 0
    free = ba.Experiment(options, binary=True, seed=1)
    free.ask_many("us", 1000)
    assert (free.status.note, free.status.sites[0].unplanned) == ("", 0)


def test_the_status_has_the_facts_of_a_page_as_numbers():
    now = 7200.0
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], seed=1, clock=lambda: now)
    assert (experiment.status.began, experiment.status.ends) == (None, None)
    early = experiment.ask_many("us", 10)
    now += 3600.0
    for own in (*early, *experiment.ask_many("us", 100)):
        experiment.tell(own.token, 1.0)
    experiment.ask_many("eu", 5)
    status = experiment.status
    assert (status.began, status.time) == (7200.0, 10_800.0)
    assert [site.hours for site in status.sites] == [(10, 100), (0, 5)]
    (wait,) = status.waits
    assert (wait.site, wait.to_come, wait.rewards) == ("eu", 5, status.waiting)
    assert wait.seconds == pytest.approx(wait.to_assign * 3600.0 / status.sites[1].per_hour)
    assert wait.text in status.hold_up
    experiment.stop()
    assert experiment.status.ends == now
