"""One reward counts once: recordings of clients, files of sites, restarts, copies."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import bestarm as ba
from bestarm import InputError, Problem, Recording, cli
from bestarm.cli.verify import verify_federation
from bestarm.deploy.federation import files
from bestarm.deploy.federation.desk import NOTE_BYTES
from bestarm.deploy.federation.site import Site
from bestarm.deploy.federation.verification import verify
from bestarm.deploy.mesh import files as mesh
from bestarm.deploy.mesh.node import Node
from bestarm.deploy.pulling import PLAYED, Puller, recordings
from bestarm.deploy.sources import FromCsv, FromHttp, FromPython
from bestarm.graphs.generators import complete
from bestarm.problem.layout import Layout
from bestarm.problem.rewards import Bernoulli
from bestarm.protocol.rounds import DROPPED
from bestarm.records.build import FOREIGN
from bestarm.records.describe import nothing_promised
from bestarm.report import page
from bestarm.scenario.load import scenario_from_dict
from bestarm.simulate import run_journal as kept
from bestarm.simulate.network import Network
from federations import Coins, Folds, scenario
from rates import rate_exceeds

ONE = {"kind": "recording", "values": [0, 1, 1]}
EACH = {"kind": "recording", "values": [[0, 1, 1], [0, 1, 1], [1, 0]]}
SHARED = "play the same recording"
SECONDS = 120.0  # long enough for any step on a slow machine; reached only if something never happens


# --- recordings of a problem ---


def test_clients_of_a_group_can_t_share_a_recording(tmp_path):
    whole = Recording((0.0, 1.0, 0.5))
    alone = Problem.from_rewards({"g": {"a": whole, "b": 0.5}})
    three = Problem.from_rewards({"g": {"a": 0.5, "b": 0.5}}, clients=3)
    plain = alone.to_dict()
    plain["groups"][0]["clients"] = ["p", "q", "r"]
    header = {"problem": plain, "means": [[None, 0.5]] * 3}
    values = [0, 1, 1]
    ways = {
        "a table of keys": lambda: Problem.from_rewards({"g": {"a": ONE, "b": 0.5}}, clients=3),
        "a model": lambda: Problem.from_rewards({"g": {"a": whole, "b": 0.5}}, clients=3),
        "one list, thrice": lambda: Problem.from_rewards(
            {"g": {"a": {**ONE, "values": [values] * 3}, "b": 0.5}}, clients=3
        ),
        "a scenario": lambda: scenario_from_dict(
            {"group": [{"name": "g", "clients": 3, "arms": {"a": ONE, "b": 0.5}}]}, tmp_path
        ),
        "its parts": lambda: Problem(
            Layout(three.layout.groups, finite=True), ((whole, Bernoulli(0.5)),) * 3
        ),
        "coins": lambda: Problem(three.layout, tuple(alone.coined().rewards[0] for _ in range(3))),
        "a record": lambda: Problem.from_dict(plain),
        "a journal": lambda: kept.Rerun(
            tmp_path / "run.db",
            {**header, "method": "fisher", "options": {}, "network": None, "adversaries": [], "seed": 1},
        ),
    }
    for way, make in ways.items():
        with pytest.raises(InputError) as error:
            make()
        assert 'group "g", arm "a": 3 clients share one recording' in str(error.value), way
        assert "one recording per client. Give one list of values per client" in str(error.value), way


def test_rewards_that_run_out_are_not_treated_as_endless():
    """A study would otherwise play a recording of three values thousands of times and name an arm."""
    problem = Problem.from_rewards({"g": {"a": Recording((0.0, 1.0, 0.5)), "b": Recording((0.0, 0.0, 0.5))}})
    with pytest.raises(InputError, match=r"rewards that run out, .* Expected Layout\(groups, finite=True\)"):
        Problem(Layout(problem.layout.groups), problem.rewards)
    trials = ba.study(problem, "fisher", trials=2, seed=1, workers=1)
    assert trials["pulls_total"].max() <= 6
    assert set(trials["reason"]) == {"budget"}


def test_several_arms_or_groups_may_have_the_same_recording():
    whole = Recording((0.0, 1.0))
    problem = Problem.from_rewards({"g": {"a": whole, "b": whole}, "h": {"a": whole}})
    assert problem.layout.finite


def test_a_recording_may_have_one_list_of_values_per_client(tmp_path):
    groups = {"g": {"a": EACH, "b": 0.2}, "h": {"c": 0.1}}
    problem = Problem.from_rewards(groups, clients={"g": 3})
    assert [row[0].values for row in problem.rewards[:3]] == [(0, 1, 1), (0, 1, 1), (1, 0)]
    assert problem.layout.finite
    assert Problem.from_dict(problem.to_dict()) == problem
    tables = [{"name": name, "arms": arms} for name, arms in groups.items()]
    tables[0]["clients"] = 3
    assert scenario_from_dict({"group": tables}, tmp_path).problem == problem
    on_scale = Problem.from_rewards(
        {"g": {"a": {**ONE, "values": [[60, 30], [15, 0]]}}}, clients=2, bounds=(0, 60), goal="min"
    )
    assert [row[0].values for row in on_scale.rewards] == [(0.0, 0.5), (0.75, 1.0)]
    assert not on_scale.layout.groups[0].binary


def test_equal_lists_that_were_given_per_client_stay_each_client_s_own():
    same = Problem.from_rewards({"g": {"a": {**ONE, "values": [[0, 1, 1], [0, 1, 1]]}, "b": 0.5}}, clients=2)
    plain = same.to_dict()
    assert len(plain["groups"][0]["rewards"]) == 2
    assert Problem.from_dict(plain) == same
    record = ba.identify(same, "fisher", n0=2, seed=1)
    assert record.verdict.reason == "budget"
    assert ba.verify(record, replay=True).ok


COINS = np.random.default_rng(3).integers(0, 2, 200).tolist()
RARE = [0] * 150 + [1] + [0] * 49  # another recording of rare ones may well be the same


@pytest.mark.parametrize(
    ("lists", "clients"),
    [
        ([COINS, list(COINS), [0, 1, 1]], 2),
        ([[*COINS, 0], [1, 0], [*COINS, 1], list(COINS)], 3),
        ([COINS[:64], [0, 1], COINS], 2),
        ([[k / 16 for k in range(12)], [k / 16 for k in range(13)]], 2),
    ],
    ids=["a copy", "copies with rows added", "a copy of the first rows", "few values that all differ"],
)
def test_copies_of_a_recording_are_refused(lists, clients):
    with pytest.raises(InputError, match=f"{clients} clients share one recording"):
        Problem.from_rewards({"g": {"a": {**ONE, "values": lists}, "b": 0.5}}, clients=len(lists))
    models = tuple((Recording(tuple(map(float, values))), Bernoulli(0.5)) for values in lists)
    layout = Problem.from_rewards({"g": {"a": 0.5, "b": 0.5}}, clients=len(lists)).layout
    with pytest.raises(InputError, match=f"{clients} clients share one recording"):
        Problem(Layout(layout.groups, finite=True), models).coined()


@pytest.mark.parametrize(
    "lists",
    [[[0, 1, 1], [0, 1, 1, 0], [0, 1]], [[1] * 500, [1] * 500], [RARE, list(RARE)], [COINS, COINS[1:]]],
    ids=["short", "constant", "rare", "shifted"],
)
def test_recordings_that_may_be_equal_by_chance_are_accepted(lists):
    problem = Problem.from_rewards({"g": {"a": {**ONE, "values": lists}, "b": 0.5}}, clients=len(lists))
    assert [row[0].limit for row in problem.rewards] == [len(values) for values in lists]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[0, 1], [1]], r"values: 2 lists of values for 3 clients. Expected one list of values per client"),
        ([[0, 1], [1, 5], [0]], r'arm "a": client 2: values: reward 5 is outside \[0, 1\]'),
        ([[0, 1], [1, "x"], [0]], r"client 2: values\[1\]: 'x' is not a finite number"),
        ([[0, 1], 1, [0]], r"client 2: values: 1 is not a list of numbers"),
        ([[0, 1], [], [0]], r"client 2: values: \[\] is not a list of numbers"),
    ],
)
def test_lists_of_values_that_can_t_be_used_are_named(values, message):
    with pytest.raises(InputError, match=message):
        Problem.from_rewards({"g": {"a": {**ONE, "values": values}}}, clients=3)


def shifted(values, clients):
    """The same values for every client, each beginning with another one."""
    return [values[i:] + values[:i] for i in range(clients)]


def wrong_answers(runs, own):
    """The number of runs that name the arm with mean .48 instead of .52: 20 clients, 200 rewards each.

    With `own`, each client has its own rewards; otherwise all have the same ones, each from another row on:
    a copy in the same order would be refused.
    """
    wrong = 0
    for seed in range(runs):
        rng = np.random.default_rng([7, seed])
        arms = {}
        for arm, mean in (("a", 0.52), ("b", 0.48)):
            coins = (rng.random((20 if own else 1, 200)) < mean).astype(float).tolist()
            arms[arm] = {"kind": "recording", "values": coins if own else shifted(coins[0], 20)}
        problem = Problem.from_rewards({"g": arms}, clients=20)
        record = ba.identify(problem, "fisher", delta=0.05, byzantine=0, seed=seed)
        wrong += record.verdict.arm == "g/b"
    return wrong


@pytest.mark.slow
def test_with_one_recording_per_client_the_error_rate_is_at_most_delta():
    """Null: wrong more often than δ = 0.05. 150 runs; false alarm 1e-6 where the rate is exactly δ.

    Power: the rate of 0.26 that one recording for all clients gives is found with probability 0.999 (exact
    binomial).
    """
    assert not rate_exceeds(wrong_answers(150, own=True), 150, 0.05)


@pytest.mark.slow
def test_copies_of_one_recording_break_delta():
    """Shows that the test above can fail, and why sharing is refused. Same null, same seeds."""
    assert rate_exceeds(wrong_answers(150, own=False), 150, 0.05)


# --- files of a federation's clients ---

THREE = {"west": {"a": 0.99, "b": 0.01}, "east": {"c": 0.5}}
ARMS = {"west": ("a", "b"), "east": ("c",)}


def written(path, rows, seed=0, more=()):
    """A CSV file with the given number of rows, alternating between arms, and `more` after them."""
    rng = np.random.default_rng(seed)
    means = {"a": 0.9, "b": 0.1, "c": 0.5}
    lines = [f"{arm},{int(rng.random() < means[arm])}" for _ in range(rows) for arm in means]
    path.write_text("\n".join(["arm,reward", *lines, *more, ""]))
    return path


def puller(site, source):
    scale = site.place.setup.scale
    return Puller(site, source, scale, coins=False, end="budget", after=lambda: None)


def pulls(site, source, until):
    """Let a site pull until the condition is true or an error occurs."""

    async def main():
        working = asyncio.create_task(puller(site, source).run())
        async with asyncio.timeout(SECONDS):
            while not working.done() and not until(site):
                await asyncio.sleep(0.001)
        working.cancel()
        return (await asyncio.gather(working, return_exceptions=True))[0]

    return asyncio.run(main())


@pytest.fixture
def federation(tmp_path):
    """Makes a federation in process whose clients have reported which files they play."""
    made = []

    def make(method, told, **options):
        case = scenario(method, THREE, clients=3, byzantine=1, delta=0.1, **options)
        files.init(case, tmp_path / "fed", port=0)
        folds = Folds(tmp_path / "fed", Coins(case.problem))
        made.append(folds)
        for client, path in told.items():
            site = folds.sites[client]
            source = FromCsv(path, arms=site.group.arms, rows="once")
            pulls(site, source, lambda site: site.pulls)
            folds.desk.take(site.notes)
        return folds

    yield make
    for folds in made:
        folds.close()


def test_clients_that_play_the_same_file_withdraw_the_promise(federation, tmp_path, capsys):
    same = written(tmp_path / "same.csv", 20)
    copy = shutil.copy(same, tmp_path / "copy.csv")
    folds = federation("fisher", {"west-1": same, "west-3": copy}, n0=8, q=4.0)
    record = folds.go()
    text = f"west-1 and west-3 {SHARED}, so each of its rewards counts more than once"
    assert record.warnings == [{"group": "west", "round": 0, "text": text}]
    assert ba.verify(record).ok
    record.save(tmp_path / "fed" / files.RECORD)
    folds.close()
    found = verify(tmp_path / "fed")
    assert found.ok, found.failures
    assert found.record == record, "the journal leads to the same warning"
    cli.show(record)
    first = " ".join(capsys.readouterr().out.split("\n\n")[0].split())
    assert f'No safe answer: group "west": {text}.' in first
    assert "wrong with probability" not in first
    html = page.read(tmp_path / "fed")
    assert "Nothing is promised: " in html
    assert f"west&quot;: {text}" in html or f'west": {text}' in html


def test_the_page_of_an_unfinished_run_shows_a_shared_recording(federation, tmp_path):
    same = written(tmp_path / "same.csv", 20)
    folds = federation("fisher", {"west-1": same, "west-2": same}, n0=8, q=4.0)
    assert not folds.desk.done
    folds.close()
    assert SHARED in page.read(tmp_path / "fed")


@pytest.mark.parametrize(
    ("rows", "more"), [(100, ["a,1", "b,0"]), (100, ["a,1", "b,0"] * 500), (2000, ["a,1", "b,0"])]
)
def test_a_copy_with_rows_added_is_the_same_recording(federation, tmp_path, rows, more):
    first = written(tmp_path / "first.csv", rows)
    longer = written(tmp_path / "longer.csv", rows, more=more)
    folds = federation("fisher", {"west-2": first, "west-1": longer, "east-1": first}, n0=8, q=4.0)
    assert [warning["text"].split(", ")[0] for warning in folds.desk.warnings] == [
        f"west-2 and west-1 {SHARED}"
    ]


def test_files_whose_first_rows_may_be_equal_by_chance_are_not_the_same_recording(federation, tmp_path):
    told = {}
    for client, last in (("west-1", "a,1"), ("west-2", "a,0")):
        told[client] = tmp_path / f"{client}.csv"
        told[client].write_text("\n".join(["arm,reward", *["a,1", "b,0"] * 500, last, ""]))
    assert federation("fisher", told, n0=8, q=4.0).desk.warnings == []


def test_different_files_and_arms_of_different_groups_in_one_file_are_not_shared_recordings(
    federation, tmp_path
):
    told = {f"west-{k}": written(tmp_path / f"{k}.csv", 40, seed=k) for k in (1, 2, 3)}
    folds = federation("fisher", {**told, "east-1": told["west-1"], "east-2": told["west-2"]}, n0=8, q=4.0)
    assert len(folds.desk.notes) == 5
    assert folds.desk.warnings == []


def test_where_rewards_are_not_added_up_copies_of_a_file_break_no_promise(federation, tmp_path):
    """Robust Fed-SEL and peers take a union bound over clients, which needs no independence between them."""
    same = written(tmp_path / "same.csv", 20)
    folds = federation("robust-fed-sel", {"west-1": same, "west-2": same}, period=3000)
    text = f"west-1 and west-2 {SHARED}: one of them may have been given the other's file"
    assert folds.desk.warnings == [{"group": "west", "round": 0, "text": text}]
    record = folds.go()
    assert nothing_promised(record) == ""
    assert ba.verify(record).ok


SITES = {"Aachen": {"a": 0.95, "b": 0.1}, "Bonn": {"a": 0.6, "b": 0.1}, "Essen": {"a": 0.5, "b": 0.05}}
QUESTIONS = {
    "overall": ("bet", {"weights": {"Aachen": 3, "Bonn": 2, "Essen": 1}}, {}),
    "each": ("bet", {}, {}),
    "control": ("bet", {"control": "b"}, {}),
    "anywhere": ("bet", {}, {}),
    "fisher": ("fisher", {}, {}),
    "fed-sel": ("fed-sel", {}, {"period": 3000}),
}


@pytest.mark.parametrize("asked", QUESTIONS)
def test_a_site_with_the_file_of_another_site_withdraws_the_promise(tmp_path, capsys, asked):
    method, keys, options = QUESTIONS[asked]
    kind = asked if method == "bet" else "anywhere"
    problem = ba.Problem.from_rewards(SITES).asking(kind, **keys)
    case = ba.Scenario(problem, method, None, {"delta": 0.1, **options})
    files.init(case, tmp_path / "fed", port=0)
    folds = Folds(tmp_path / "fed", Coins(case.problem))
    try:
        told = {"Aachen-1": 1, "Bonn-1": 2, "Essen-1": 1}
        for client, seed in told.items():
            path = written(tmp_path / f"{client}.csv", 200, seed=seed)
            site = folds.sites[client]
            pulls(site, FromCsv(path, arms=site.group.arms, rows="once"), lambda site: site.pulls)
            folds.desk.take(site.notes)
        text = f"Aachen-1 and Essen-1 {FOREIGN}"
        assert folds.desk.warnings == [{"group": "Essen", "round": 0, "text": text}]
        record = folds.go()
        assert record.verdict.status == "identified"
        assert ba.verify(record).ok
        record.save(tmp_path / "fed" / files.RECORD)
    finally:
        folds.close()
    assert verify(tmp_path / "fed").ok
    cli.show(record)
    assert f'No safe answer: group "Essen": {text}.' in " ".join(capsys.readouterr().out.split())
    verify_federation(tmp_path / "fed", None, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(f'Nothing is promised: group "Essen": {text}.')
    assert "rows" not in said, "a note that only names the rows is not shown"
    html = page.read(tmp_path / "fed")
    assert "Nothing is promised: " in html
    assert "is played once" not in html


def test_sites_with_few_equal_rows_have_them_by_chance(tmp_path):
    files.init(scenario("bet", SITES, delta=0.1), tmp_path / "fed", port=0)
    folds = Folds(tmp_path / "fed", Coins(scenario("bet", SITES).problem))
    try:
        for client, site in folds.sites.items():
            path = written(tmp_path / f"{client}.csv", 8)
            pulls(site, FromCsv(path, arms=site.group.arms, rows="once"), lambda site: site.pulls)
            folds.desk.take(site.notes)
        assert len(folds.desk.notes) == 3
        assert folds.desk.warnings == []
    finally:
        folds.close()


def test_a_note_that_only_resembles_a_recording_s_is_an_ordinary_note(federation):
    folds = federation("fisher", {}, n0=8, q=4.0)
    for client in ("west-1", "west-2"):
        site = folds.sites[client]
        site.note(f"see {PLAYED}")
        folds.desk.take(site.notes)
    assert folds.desk.warnings == []
    assert not recordings(DROPPED)


def test_a_recording_s_note_is_not_truncated(tmp_path):
    marks = FromCsv(written(tmp_path / "rows.csv", 100), rows="once").marks
    assert len(marks) == 2
    largest = {10**12 + k: digest for k, digest in enumerate(marks.values())}
    note = PLAYED + ", ".join(f"{n} rows {d}" for n, d in largest.items())
    assert len(note) < NOTE_BYTES
    assert len(recordings(note)) == 2


# --- a source that is opened again ---


@pytest.fixture(params=["client", "peer"])
def place(request, tmp_path):
    """The folder of a federation's client, or of a mesh's peer."""
    if request.param == "client":
        files.init(scenario("fisher", THREE, delta=0.1, n0=64), tmp_path / "fed", port=0)
        return files.Place.load(tmp_path / "fed" / "clients" / "west-1")
    case = dataclasses.replace(scenario("p2p", THREE, delta=0.1), network=Network(complete(2)))
    mesh.init(*mesh.terms_of(case, {}), tmp_path / "mesh", port=0)
    return mesh.Place.load(tmp_path / "mesh" / "nodes" / "west-1")


def played(place, source, until):
    """The pulls of a process with this source, and the error that ended it if there was one."""
    site = (Site if isinstance(place, files.Place) else Node).open(place)
    try:
        end = pulls(site, source(site), lambda site: until(site.made))
        return dict(site.made), end
    finally:
        site.journal.close()


class Slow(FromCsv):
    """Lets a test inspect it between two batches."""

    async def _fetch(self, arm, times):
        await asyncio.sleep(0.01)
        return await super()._fetch(arm, times)


def once(path):
    return lambda site: Slow(path, arms=site.group.arms, start=site.made, rows="once")


def test_a_file_that_changed_where_it_was_played_is_refused_after_a_restart(place, tmp_path):
    path = written(tmp_path / "rows.csv", 1000)
    lines = path.read_text().split("\n")
    made, _ = played(place, once(path), lambda made: made["a"] >= 16)
    assert made["a"] >= 16
    changes = {
        "a row before": [lines[0], "a,0", "a,1", *lines[1:]],
        "another order": [lines[0], *sorted(lines[1:])],
        "fewer rows": lines[:10],
        "another file": written(tmp_path / "other.csv", 1000, seed=1).read_text().split("\n"),
    }
    for change, text in changes.items():
        path.write_text("\n".join(text))
        again, end = played(place, once(path), lambda made: False)
        assert isinstance(end, InputError), change
        assert 'rewards of arm "a" differ from those that were played' in str(end), change
        assert again == made, change
    path.write_text("\n".join([*lines[:-1], *["a,1", "b,0", "c,1"] * 40, ""]))
    again, _ = played(place, once(path), lambda now: now["a"] > made["a"])
    assert again["a"] > made["a"], "rows at the end are welcome"


def test_a_run_cannot_switch_between_drawing_with_replacement_and_playing_once(place, tmp_path):
    path = written(tmp_path / "rows.csv", 1000)

    def again(site):
        return Slow(path, arms=site.group.arms, start=site.made, rows="resample", seed=1)

    played(place, again, lambda made: made["a"] >= 16)
    _, end = played(place, once(path), lambda made: False)
    assert "rows were drawn with replacement earlier in this run" in str(end)
    (place.folder / files.JOURNAL).unlink()
    played(place, once(path), lambda made: made["a"] >= 16)
    _, end = played(place, again, lambda made: False)
    assert "rows were played once each earlier in this run" in str(end)


def test_another_kind_of_source_may_take_over(place, tmp_path):
    path = written(tmp_path / "rows.csv", 1000)
    played(place, once(path), lambda made: made["a"] >= 16)
    made, _ = played(place, lambda site: FromPython(lambda arm: 1), lambda made: made["a"] >= 20)
    assert made["a"] >= 20
    made, _ = played(place, once(path), lambda made: made["a"] > 30)
    assert made["a"] > 30


# --- a folder that was copied ---


@pytest.mark.parametrize("same", [True, False])
def test_a_copied_folder_that_runs_beside_the_first_counts_no_reward_twice(tmp_path, same):
    """Each look counts one message, from either process; two different messages are evidence."""
    case = scenario("fisher", THREE, clients=3, byzantine=1, delta=0.1, n0=8, q=4.0)
    files.init(case, tmp_path / "fed", port=0)
    coins = Coins(case.problem)
    folds = Folds(tmp_path / "fed", coins)
    shutil.copytree(folds.places["west-1"].folder, tmp_path / "copy")
    for journal in (tmp_path / "copy").glob("journal.db*"):
        journal.unlink()
    copy = Site.open(files.Place.load(tmp_path / "copy"))
    heard = 0
    for _ in range(100):
        folds.turn()
        if folds.over:
            break
        for data in folds.down[heard:]:
            copy.received(data)
        heard = len(folds.down)
        if copy.pull is not None:
            got = {}
            for a in copy.pull.arms:
                values = coins.rewards(0, a, copy.made[copy.group.arms[a]], copy.pull.times)
                got[a] = values if same else [1 - value for value in values]
            copy.rewards(got)
        folds.up += copy.ups
    copy.journal.close()
    record = folds.desk.record()
    said = [row[1] for row in record.verdict.certificate["server"]["events"] if row[0] == "received"]
    looks = len(record.verdict.certificate["server"]["rounds"])
    assert said.count("west-1") <= looks
    assert ("west-1" in folds.desk.suspects()) != same
    record.save(tmp_path / "fed" / files.RECORD)
    folds.close()
    assert verify(tmp_path / "fed").ok


# --- a cache between a client and its web address ---


def test_web_requests_bypass_caches():
    asked = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers["Cache-Control"])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"1")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        source = FromHttp(f"http://127.0.0.1:{server.server_port}/{{arm}}")
        assert asyncio.run(source.pull("a", 2)) == [1.0, 1.0]
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["no-cache", "no-cache"]
