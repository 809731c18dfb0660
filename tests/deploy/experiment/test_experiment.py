"""A live experiment: ask, tell, late and missing rewards, and what survives a crash."""

from __future__ import annotations

import collections
import threading

import numpy as np
import pytest

import bestarm as ba
from bestarm.deploy.experiment.audit import audit
from bestarm.deploy.experiment.clerk import REMEMBERED
from bestarm.deploy.experiment.experiment import Request, SecondReward
from visitors import seconds, visitors

TWO = {"us": (3.0, (0.3, 0.5)), "eu": (1.0, (0.4, 0.6))}


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def play(experiment, clock, people, *, keys=False, until=None):
    """Let visitors come, second by second; what each was given, and what telling its reward meant."""
    given, meant = {}, collections.Counter()
    for now, arriving, told in seconds(people):
        clock.now = now
        asked = [Request(site=p.site, key=str(p.number) if keys else "") for p in arriving]
        experiment.run(asked)
        for person, request in zip(arriving, asked, strict=True):
            (given[person.number],) = request.assigned
        rewards = []
        for person in told:
            own = given[person.number]
            place = experiment.settings.sites[person.site].index(own.option)
            rewards.append((own.token, person.rewards[place]))
        meant.update(experiment.tell_many(rewards) if rewards else [])
        if until is not None and until(experiment):
            break
    return given, meant


def decided(experiment):
    return experiment.verdict is not None


def test_the_better_option_wins_and_the_record_verifies_and_has_a_report(tmp_path):
    from bestarm.report import page

    clock = Clock()
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, seed=3, clock=clock)
    play(experiment, clock, visitors(1, 4000, TWO), until=decided)
    record = experiment.record()
    assert record.verdict.arm == "B"
    assert ba.verify(record).ok
    page.write(page.of_record(record), tmp_path / "report.html")
    assert "B" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("question", ["overall", "each", "control", "anywhere"])
def test_every_question_gets_its_answer(question):
    clock = Clock()
    options = {"us": ["A", "B"], "eu": ["C", "D"]} if question == "anywhere" else ["A", "B"]
    more = {"control": "A"} if question == "control" else {}
    experiment = ba.Experiment(options, None if question == "anywhere" else ["us", "eu"], question,
                               binary=True, seed=3, clock=clock, **more)  # fmt: skip
    means = {"us": (3.0, (0.1, 0.3)), "eu": (2.0, (0.2, 0.8))}
    play(experiment, clock, visitors(1, 8000, means), until=decided)
    answers = {"overall": "B", "each": "us: B, eu: B", "control": "B: better", "anywhere": "eu/D"}
    assert experiment.verdict.summary == answers[question]
    assert ba.verify(experiment.record()).ok


def test_rewards_of_any_range_and_goal_are_taken():
    experiment = ba.Experiment(["slow", "fast"], bounds=(0, 200), goal="min", unit="ms", seed=1)
    while experiment.verdict is None:
        own = experiment.ask()
        experiment.tell(own.token, {"slow": 120.0, "fast": 80.0}[own.option])
    assert experiment.verdict.arm == "fast"
    assert experiment.verdict.interval[0] <= 80.0 <= experiment.verdict.interval[1]
    assert experiment.record().problem["scale"]["unit"] == "ms"
    with pytest.raises(ba.InputError, match="from 0 to 200"):
        experiment.tell(experiment.ask().token, 201)


def test_every_window_of_a_block_has_its_proportions_in_a_seeded_random_order():
    orders = []
    for seed in (1, 1, 2):
        experiment = ba.Experiment(["A", "B"], seed=seed, n1=100)
        orders.append("".join(own.option for own in experiment.ask_many(times=200)))
    assert orders[0] == orders[1] != orders[2]
    windows = [orders[0][k : k + 8] for k in range(0, 200, 8)]
    assert all(window.count("A") == 4 for window in windows)
    assert len(set(windows)) > 10


def test_a_straggler_holds_up_its_block_and_nobody_waits_for_an_assignment():
    experiment = ba.Experiment(["A", "B"], binary=True, seed=1)
    first, *others = experiment.ask_many(times=2000)
    outcomes = experiment.tell_many([(own.token, float(own.option == "B")) for own in others])
    assert set(outcomes) == {"counted"}
    assert (experiment.verdict, experiment.status.blocks) == (None, 0)
    assert experiment.status.waiting == 1999
    assert experiment.tell(first.token, 0.0) == "counted"
    assert experiment.verdict.arm == "B"


def test_the_order_in_which_rewards_arrive_does_not_matter():
    records = []
    for step in (1, -1):
        experiment = ba.Experiment(["A", "B", "C"], binary=True, seed=5)
        given = experiment.ask_many(times=5000)
        reward = {
            own.token: float(k % 10 < {"A": 3, "B": 5, "C": 4}[own.option]) for k, own in enumerate(given)
        }
        for own in given[::step]:
            experiment.tell(own.token, reward[own.token])
        records.append(experiment.record())
    assert records[0].verdict == records[1].verdict
    assert records[0].verdict.arm is not None


def test_after_its_deadline_a_missing_reward_is_filled_in_and_a_late_one_is_not_counted():
    clock = Clock()
    experiment = ba.Experiment(["A", "B"], binary=True, deadline=60, missing=0, seed=1, clock=clock, n1=4)
    given = experiment.ask_many(times=8)
    clock.now = 59.0
    assert experiment.tell(given[0].token, 1) == "counted"
    assert experiment.status.blocks == 0
    clock.now = 60.0
    assert experiment.status.blocks == 1
    assert experiment.tell(given[1].token, 1) == "late"
    assert experiment.tell(given[1].token, 1) == "again"
    site = experiment.status.sites[0]
    assert (site.counted, site.filled, site.late) == (1, 7, 1)
    experiment.stop()
    record = experiment.record()
    assert ba.verify(record).ok
    assert (
        "7 of the 8 rewards that count did not come by their deadline and count as 0"
        in record.warnings[0]["text"]
    )


def test_without_a_deadline_it_waits_for_ever():
    clock = Clock()
    experiment = ba.Experiment(["A", "B"], binary=True, seed=1, clock=clock, n1=4)
    experiment.ask_many(times=8)
    clock.now = 1e12
    assert experiment.status.blocks == 0


def test_a_second_reward_is_refused_and_nothing_of_the_call_is_recorded():
    experiment = ba.Experiment(["A", "B"], binary=True, seed=1)
    first, second = experiment.ask_many(times=2)
    experiment.tell(first.token, 1)
    with pytest.raises(SecondReward, match=r"rewards\[1\], so none of the 2 counts: .*second reward"):
        experiment.tell_many([(second.token, 1), (first.token, 0)])
    assert experiment.status.told == 1


@pytest.mark.parametrize("token", ["", "0", "0-0000000000000000", "1-", None, 7, "٣-00"])
def test_a_token_that_was_not_given_out_is_refused(token):
    experiment = ba.Experiment(["A", "B"], seed=1)
    experiment.ask_many(times=4)
    with pytest.raises(ba.InputError, match="not a token"):
        experiment.tell(token, 1.0)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"options": []}, "list of names"),
        ({"options": ["A", "A"]}, "used twice"),
        ({"options": "AB"}, "list of names"),
        ({"deadline": 3600}, "both or none"),
        ({"deadline": -1, "missing": 0}, "seconds above 0"),
        ({"deadline": 60, "missing": 2}, "from 0 to 1"),
        ({"after": "party"}, '"winner" or "stop"'),
        ({"delta": 0}, "delta"),
        ({"question": "control"}, "needs the name of the control"),
        ({"binary": True, "deadline": 60, "missing": 0.5}, "0 or 1"),
        ({"byzantine": 1}, "no site can lie"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(keys, what, tmp_path):
    with pytest.raises(ba.InputError, match=what):
        ba.Experiment(**{"options": ["A", "B"], "journal": tmp_path / "e.db", **keys})
    assert list(tmp_path.iterdir()) == []


def test_after_the_verdict_everybody_gets_the_winner_or_nobody_gets_anything():
    for after in ("winner", "stop"):
        experiment = ba.Experiment(["A", "B"], binary=True, seed=1, after=after)
        while experiment.verdict is None:
            own = experiment.ask()
            experiment.tell(own.token, own.option == "A")
        if after == "winner":
            own = experiment.ask()
            assert own.option == "A"
            assert experiment.tell(own.token, 0) == "after"
            assert experiment.verdict.arm == "A"
        else:
            with pytest.raises(ba.ExperimentOver):
                experiment.ask()


def test_it_resumes_from_its_journal_with_its_tokens_and_keys(tmp_path):
    clock, path = Clock(), tmp_path / "e.db"
    sites = {"us": (30.0, (0.3, 0.5)), "eu": (10.0, (0.4, 0.6))}
    people = visitors(7, 1500, sites, delay=10, lost=0.1, repeats=0.5)
    whole = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, seed=2, deadline=50, missing=0, clock=clock)
    play(whole, clock, people)
    given = {}
    for stop in (4, 30, 10**9):  # seconds
        clock.now = 0.0
        experiment = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, deadline=50, missing=0, seed=2,
                                   journal=path, clock=clock)  # fmt: skip
        before = dict(given)
        given, _ = play(experiment, clock, people, keys=True, until=lambda _, stop=stop: clock.now >= stop)
        assert all(given[number] == own for number, own in before.items())
        experiment.close()
    resumed = ba.Experiment.open(path, clock=clock)
    assert resumed.record().to_dict() == whole.record().to_dict()
    resumed.close()
    found = audit(path)
    assert found.failures == ()
    assert found.assigned == 1500
    assert found.filled > 0


def test_the_journal_of_another_experiment_is_refused(tmp_path):
    ba.Experiment(["A", "B"], journal=tmp_path / "e.db").close()
    with pytest.raises(ba.InputError, match="another experiment: it differs in delta"):
        ba.Experiment(["A", "B"], delta=0.1, journal=tmp_path / "e.db")


def test_threads_share_writes_and_every_reward_counts_once(tmp_path):
    experiment = ba.Experiment(["A", "B"], binary=True, seed=1, n1=2000, journal=tmp_path / "e.db")

    def work():
        for _ in range(40):
            own = experiment.ask()
            experiment.tell(own.token, 1)
            experiment.tell(own.token, 1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert experiment.status.sites[0].counted == 320
    experiment.close()
    assert audit(tmp_path / "e.db").told == 320


def test_a_request_that_fails_does_not_disturb_the_others():
    experiment = ba.Experiment(["A", "B"], binary=True, seed=1)
    good, bad, other = Request(site="site"), Request(site="mars"), Request(site="site", key="k")
    again = Request(site="site", key="k")
    experiment.run([good, bad, other, again])
    assert len(good.assigned) == 1
    assert "no site" in str(bad.error)
    assert again.assigned == other.assigned
    assert experiment.status.assigned == 2


def test_a_site_that_is_dropped_is_out_of_the_question():
    experiment = ba.Experiment(["A", "B"], ["us", "eu"], binary=True, seed=1)
    for own in experiment.ask_many("us", 3000):
        experiment.tell(own.token, own.option == "A")
    assert experiment.verdict is None
    assert "eu has 24 assignments to make, and no arrivals" in experiment.status.hold_up
    experiment.drop("eu")
    assert experiment.verdict.arm == "A"
    assert ba.verify(experiment.record()).ok


def lived_each(after="winner", journal=None):
    """Two sites with their own answers, one with a tenth of the subjects, until the faster is done."""
    rng, now = np.random.default_rng(3), [0.0]
    experiment = ba.Experiment(
        ["A", "B"], ["fast", "slow"], "each", binary=True, seed=3, after=after, journal=journal,
        clock=lambda: now[0],
    )  # fmt: skip
    means = {"fast": {"A": 0.2, "B": 0.6}, "slow": {"A": 0.7, "B": 0.3}}
    while experiment.status.sites[0].answer is None:
        now[0] += 60.0
        for site, times in (("fast", 20), ("slow", 2)):
            for own in experiment.ask_many(site, times):
                experiment.tell(own.token, float(rng.random() < means[site][own.option]))
    return experiment


def test_each_site_has_its_answer_when_its_own_blocks_are_in_and_gives_it_from_then_on(tmp_path):
    experiment = lived_each(journal=tmp_path / "each.db")
    fast, slow = experiment.status.sites
    assert (experiment.verdict, fast.answer, slow.answer) == (None, "B", None)
    assert experiment.status.hold_up == ""  # nobody waits for the slow site
    own = experiment.ask("fast")
    assert (own.option, experiment.tell(own.token, 0.0)) == ("B", "after")
    assert experiment.status.sites[0].unplanned == 0
    experiment.close()
    again = ba.Experiment.open(tmp_path / "each.db", clock=lambda: 1e6)
    assert again.status.sites[0].answer == "B"
    assert again.ask("fast").option == "B"
    assert again.tell(again.ask("slow").token, 1.0) == "counted"
    again.close()
    assert audit(tmp_path / "each.db").failures == ()


def test_a_site_of_each_that_has_its_answer_stops_by_itself():
    experiment = lived_each(after="stop")
    with pytest.raises(ba.ExperimentOver, match="the answer of fast is known"):
        experiment.ask("fast")
    assert experiment.ask("slow").option in "AB"


def test_a_key_is_remembered_for_a_week_also_after_a_restart(tmp_path):
    now = 0.0
    path = tmp_path / "j.db"
    with ba.Experiment(["A", "B"], seed=1, journal=path, clock=lambda: now) as experiment:
        first = experiment.ask(key="visitor")
        now = REMEMBERED
        assert experiment.ask(key="visitor") == first
        now += 1.0
        second = experiment.ask(key="visitor")
        assert second.token != first.token
        assert experiment.ask_many(times=2, key="other")
        assert list(experiment._clerk._keys) == ["visitor", "other"]
    with ba.Experiment.open(path, clock=lambda: now) as again:
        assert again.ask(key="visitor") == second
        assert again.status.assigned == 4
    now += REMEMBERED + 1.0
    with ba.Experiment.open(path, clock=lambda: now) as again:
        again.ask(key="new")
        assert list(again._clerk._keys) == ["new"]


@pytest.mark.parametrize("deadline", ["5", "soon", "-1h", "nanh", "infd", "h"])
def test_a_deadline_is_a_number_of_seconds_or_a_text_with_a_unit(deadline):
    assert ba.Experiment(["A", "B"], deadline="24h", missing=0).settings.deadline == 86_400.0
    with pytest.raises(ba.InputError, match="is not a duration"):
        ba.Experiment(["A", "B"], deadline=deadline, missing=0)
