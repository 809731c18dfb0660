"""The live page follows a run through all its states, and admits only authorised readers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing

import msgspec
import numpy as np
import pytest
from test_mesh import Folds as MeshFolds
from test_mesh import make, small
from test_report import HOSTILE, Page, safe

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.deploy.federation.desk import Desk
from bestarm.errors import InputError
from bestarm.report import facts as collect
from bestarm.report import follow, live, page
from bestarm.report.experiment import sections_of
from bestarm.report.frames import frame_of
from bestarm.util.journal import Journal
from federations import CASES, Coins, Folds
from lives import SECONDS, Stream, ask, serving
from marking import slow_but


@pytest.fixture
def folds(tmp_path):
    """A small federation that advances when the test says so."""
    files.init(CASES["fisher"], tmp_path / "f", port=0)
    made = Folds(tmp_path / "f", Coins(CASES["fisher"].problem))
    yield made
    made.close()


def finished(folder, name, batch=10**9):
    """The folder of a federation that has ended."""
    files.init(CASES[name], folder, port=0)
    made = Folds(folder, Coins(CASES[name].problem), batch=batch)
    made.go()
    made.close()
    return folder


@pytest.mark.parametrize("name", slow_but(["fisher"], CASES))
def test_a_followed_journal_shows_at_each_event_what_a_fold_of_its_events_shows(tmp_path, name, monkeypatch):
    monkeypatch.setattr(follow, "FIRST_MARK", 2)
    monkeypatch.setattr(follow, "MARKS", 3)
    folder = finished(tmp_path / "f", name, batch=2000)
    for place in (folder, folder / "clients" / "west-1"):
        source = follow.Journalled(place)
        steps = []
        while source.catch_up(0.0):  # an event at a time
            assert source.trouble == ""
            steps.append((source.count, page.sections(source.facts())))
        assert len(steps) == source.count == source.known > 5
        assert (0 < len(source._marks) <= 3) == (place == folder)
        for n, sections in reversed(steps):
            assert page.sections(source.at(n)) == sections
            safe(Page("".join(body for _, _, body in sections)))
        source.close()
    whole = Page(page.read(folder))
    assert "west/a is the best arm" in whole.text
    assert "What one client sees: west-1" in Page(page.read(folder / "clients" / "west-1")).text


def test_the_bits_counted_live_equal_those_of_the_record(tmp_path):
    with Journal.open(finished(tmp_path / "f", "pooled") / files.JOURNAL, write=False) as journal:
        desk = Desk(journal)
    counted = {row.name: row.bits_up for row in collect.of_record(desk.record()).clients}
    assert counted == dict(desk.bits)


def test_a_client_shows_its_arms_with_their_sums(tmp_path):
    folder = finished(tmp_path / "f", "fed-sel", batch=500)
    source = follow.Journalled(folder / "clients" / "west-1")
    source.catch_up()
    shown = source.facts()
    site = source.fold.state
    assert {arm.name: arm.pulls for arm in shown.arms} == dict(site.made)
    assert shown.costs.pulls == site.pulls
    best, other = shown.arms
    assert best.mean == pytest.approx(site.machine.sum / site.machine.count)
    assert (best.fate, other.fate) == ("in", "out")
    assert [line.arm for line in shown.traces] == ["a", "b"]
    assert shown.verdict.arm == "west/a"
    source.close()


def test_sums_of_a_long_run_are_thinned_and_end_with_the_last_one():
    fold = object.__new__(follow.Fold)
    fold.sums = {}
    for _ in range(10_001):
        fold._add(3, 2, 1.0)
    assert len(fold.sums[3]) <= follow.MOST_SUMS
    assert next(reversed(fold.sums[3].items())) == (20_002, 10_001.0)


@pytest.mark.parametrize("exchange", ["means", "intervals"])
def test_a_mesh_node_shows_what_it_knows_about_the_others(tmp_path, exchange):
    case = small(exchange)
    make(case, tmp_path / "m")
    mesh = MeshFolds(tmp_path / "m", case)
    mesh.open()
    place = mesh.places[0].folder
    with serving(place) as url:
        stream = Stream(url)
        first = stream.until(lambda event: event["state"] == "going")
        assert "compares its own arms" in stream.sections["top"]
        mesh.go()
        last = stream.until(
            lambda event: event["state"] == "over" and event["n"] == len(mesh.nodes[0].journal)
        )
        stream.close()
    mesh.close()
    assert last["n"] > first["n"]
    assert "north/a" in Page(stream.sections["top"]).text
    view = Page(stream.sections["view"]).text
    assert "not known yet" not in view
    assert ("beaten" in view) == (exchange == "intervals")
    assert "is consistent" in stream.sections["trust"]
    whole = Page(page.read(place))
    safe(whole)
    assert "What one node sees: north-1" in whole.text
    ends = re.compile(r"[\d.]+ to [\d.]+ %")
    if exchange == "intervals":  # an option has one interval on a page
        promised = set(ends.findall(Page(stream.sections["leaderboard"]).text))
        assert set(ends.findall(Page(stream.sections["arms"]).text)) <= promised
        assert set(ends.findall(view)) <= promised


def test_the_page_starts_before_the_journal_exists_and_follows_to_the_verdict(tmp_path):
    files.init(CASES["fisher"], tmp_path / "f", port=0)
    with serving(tmp_path / "f") as url:
        stream = Stream(url)
        assert stream.next()["state"] == "waiting"
        made = Folds(tmp_path / "f", Coins(CASES["fisher"].problem))
        stream.until(lambda event: event["state"] == "going")
        assert "Not decided yet" in stream.sections["top"]
        assert ask(url, "/record.json")[0] == 404
        made.go()
        made.close()
        over = stream.until(lambda event: event["state"] == "over")
        assert over["title"] == "bestarm: west/a"
        assert "is the best arm" in stream.sections["top"]
        status, _, body = ask(url, "/record.json")
        assert status == 200
        assert ba.verify(msgspec.json.decode(body.encode(), type=ba.Record))
        stream.close()


def test_only_changes_are_sent_and_a_reconnect_continues_where_it_stopped(folds):
    with serving(folds.folder) as url:
        stream = Stream(url)
        first = stream.until(lambda event: event["state"] == "going")
        assert set(first["sections"]) == {key for key, _ in first["order"]}
        for name in ("west-1", "west-1", "server"):  # it pulls, sends, and is received
            folds.step(name)
        second = stream.until(lambda event: event["n"] > first["n"] and event.get("sections"))
        assert "top" in second["sections"]
        assert "reproduce" not in second["sections"]
        seen = stream.id
        stream.close()
        again = Stream(url, last=seen)
        assert again.next()["sections"] == {}
        again.close()
        folds.go()
        later = Stream(url, last=seen)
        late = later.until(lambda event: event["state"] == "over" and event["n"] == len(folds.desk.journal))
        assert late["n"] == len(folds.desk.journal)
        assert "west/a" in later.sections["top"]
        later.close()


def test_the_page_never_waits_for_a_forecast_and_sends_it_once_it_is_there(folds, monkeypatch):
    may, asked = threading.Event(), threading.Event()

    def slow(facts, stop):
        asked.set()
        assert may.wait(SECONDS)
        return collect.PlanFacts(40, {"rounds": collect.RangeFacts(9.0, 8.0, 10.0)}, {})

    monkeypatch.setattr(collect, "as_it_looks", slow)
    while folds.desk.machine.rounds < 1:
        folds.turn()
    with serving(folds.folder) as url:
        stream = Stream(url)
        try:
            event = stream.until(lambda event: event["n"] == len(folds.desk.journal))
            assert "Similar runs are being simulated" in stream.sections["top"]
            assert asked.wait(SECONDS)
            early, before = stream.id, len(folds.desk.journal)
            assert "No forecast was made" in json.loads(ask(url, f"/at/{event['n']}")[2])["sections"]["top"]
            while len(folds.desk.journal) == before:  # the run goes on, and so does the page
                folds.turn()
            stream.until(lambda event: event["n"] > before)
        finally:
            may.set()
        stream.until(lambda event: "after 8 to 10 rounds" in stream.sections["top"])
        stream.close()
        late = Stream(url, last=early)  # a page from before the forecast
        late.next()
        assert "after 8 to 10 rounds" in late.sections["top"]
        late.close()


def test_the_server_of_a_page_ends_while_a_forecast_is_made(folds, monkeypatch):
    may, asked = threading.Event(), threading.Event()

    def slow(facts, stop):
        asked.set()
        may.wait(SECONDS)

    monkeypatch.setattr(collect, "as_it_looks", slow)
    while folds.desk.machine.rounds < 1:
        folds.turn()
    with serving(folds.folder) as url:
        stream = Stream(url)
        stream.until(lambda event: event["n"] == len(folds.desk.journal))
        assert asked.wait(SECONDS)
        stream.close()
    assert not may.is_set()
    may.set()


def test_a_removed_journal_stays_shown_until_another_replaces_it(folds, tmp_path):
    path = folds.folder / files.JOURNAL
    files.init(CASES["fisher"], tmp_path / "g", port=0)
    another = Folds(tmp_path / "g", Coins(CASES["fisher"].problem, seed=1))
    with serving(path) as url:
        stream = Stream(url)
        stream.until(lambda event: event["state"] == "going")
        folds.go()
        done = stream.until(lambda event: event["state"] == "over")
        folds.close()
        for suffix in ("", "-wal", "-shm", "-lock"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        assert json.loads(ask(url, "/healthz")[2])["state"] == "over"
        another.close()
        (tmp_path / "g" / files.JOURNAL).rename(path)
        anew = stream.until(lambda event: event["state"] == "going")
        assert anew["epoch"] > done["epoch"]
        assert "Not decided yet" in stream.sections["top"]
        stream.close()


def test_a_damaged_or_foreign_journal_is_reported_until_it_is_fixed(folds):
    path = folds.folder / files.JOURNAL
    folds.go()
    folds.close()
    good = path.read_bytes()
    with serving(folds.folder) as url:
        stream = Stream(url)
        stream.until(lambda event: event["state"] == "over")
        for bad in (b"nonsense " * 1000, good[:5000]):
            scratch = path.with_name("new")
            scratch.write_bytes(bad)
            scratch.replace(path)
            stream.until(lambda event: event["state"] == "trouble" and event["note"])
            assert "west/a" in stream.sections["top"]  # the known state stays
            scratch.write_bytes(good)
            scratch.replace(path)
            stream.until(lambda event: event["state"] == "over")
        stream.close()


def test_following_ends_at_an_event_that_no_server_writes(folds):
    folds.turn()
    folds.desk.journal.append("patience", b"soon")
    with serving(folds.folder) as url:
        stream = Stream(url)
        said = stream.until(lambda event: event["state"] == "trouble")
        stream.close()
        assert "can't be read as a run" in said["note"]
        assert "Not decided yet" in stream.sections["top"]
    with pytest.raises(InputError, match="can't be read as a run"):
        page.read(folds.folder)


def test_a_record_is_read_again_when_it_is_written(tmp_path):
    problem = ba.Problem.bernoulli({"x": {"a": 0.9, "b": 0.1}, "y": {"c": 0.5}})
    with serving(tmp_path / "r.json") as url:
        stream = Stream(url)
        assert stream.next()["state"] == "waiting"
        (tmp_path / "r.json").write_text("{")
        stream.until(lambda event: event["state"] == "trouble")
        record = ba.identify(problem, "fisher", seed=1)
        record.save(tmp_path / "r.json")
        stream.until(lambda event: event["state"] == "over")
        assert record.digest in stream.sections["reproduce"]
        again = ba.identify(problem, "fisher", seed=2)
        again.save(tmp_path / "r.json")
        stream.until(lambda event: again.digest in event.get("sections", {}).get("reproduce", ""))
        stream.close()
        assert 'id="replay" hidden' in ask(url)[2]


def test_an_earlier_moment_is_shown_unchanged_and_out_of_range_gives_the_nearest(folds):
    folds.go()
    folds.close()
    with serving(folds.folder) as url:
        n = json.loads(ask(url, "/healthz")[2])["n"]
        stream = Stream(url)
        n = stream.until(lambda event: event["state"] == "over")["n"]
        stream.close()
        moments = [json.loads(ask(url, f"/at/{k}")[2]) for k in (0, n // 2, 3, n, 10**9)]
        assert [moment["at"] for moment in moments] == [0, n // 2, 3, n, n]
        assert "Not decided yet" in moments[0]["sections"]["top"]
        assert moments[3] == moments[4]
        assert moments[3]["sections"] == stream.sections
        assert ask(url, "/at/-1")[0] == ask(url, "/at/x")[0] == 404


def test_the_page_is_read_only_and_every_response_has_strict_headers(folds):
    with serving(folds.folder) as url:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
            assert ask(url, "/", method)[0] == 405
        for path in (
            "/",
            "/page.js",
            "/live.js",
            "/live.css",
            "/healthz",
            "/at/0",
            "/record.json",
            "/nothing",
        ):
            status, headers, _ = ask(url, path)
            assert status == (404 if path in ("/record.json", "/nothing") else 200)
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert not {"server", "access-control-allow-origin"} & set(headers)
        parsed = Page(ask(url)[2])
        assert [attrs["src"] for kind, attrs in parsed.elements if kind == "script"] == [
            "page.js",
            "live.js",
        ]
        assert not any(
            key.startswith("on") or key == "style" for _, attrs in parsed.elements for key in attrs
        )


def test_a_local_page_answers_only_to_local_host_names(folds):
    with serving(folds.folder) as url:
        port = url.rstrip("/").rpartition(":")[2]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"[::1]:{port}"):
            assert ask(url, "/healthz", Host=host)[0] == 200, host
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "localhost.evil.example",
            "127.0.0.1.evil",
            "[",
            "",
        ):
            assert ask(url, "/healthz", Host=host)[0] in (400, 403), host


def test_a_page_on_the_network_needs_the_token(folds):
    with serving(folds.folder, host="0.0.0.0") as printed:
        token = printed.partition("?token=")[2]
        assert len(token) >= 32
        url = f"http://127.0.0.1:{printed.partition('?')[0].rstrip('/').rpartition(':')[2]}/"
        for path in ("/", "/events", "/at/0", "/record.json", "/healthz", "/live.js", "/nothing"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "bestarm_watch_1=x"}):
                assert ask(url, path, **headers)[0] == 401
        assert ask(url, f"/?token={token[:-1]}")[0] == ask(url, "/?token=%C3%A9")[0] == 401
        status, headers, _ = ask(url, f"/?token={token}")
        assert status == 303
        assert token not in headers["location"]
        assert "HttpOnly" in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert ask(url, "/", Cookie=cookie)[0] == 200
        assert ask(url, "/healthz", Authorization=f"Bearer {token}")[0] == 200
        assert ask(url, "/", "POST", Cookie=cookie)[0] == 405
        stream = Stream(url, Cookie=cookie)
        assert stream.until(lambda event: event["state"] == "going")
        stream.close()


def test_too_many_streams_are_refused(folds, monkeypatch):
    monkeypatch.setattr(live, "STREAMS", 2)
    with serving(folds.folder) as url:
        streams = [Stream(url) for _ in range(2)]
        for stream in streams:
            stream.next()
        assert ask(url, "/events")[0] == 503
        assert ask(url, "/")[0] == 200
        for stream in streams:
            stream.close()


def test_hostile_names_are_text(tmp_path):
    groups = {name: {HOSTILE[-1 - k]: 0.9 - 0.2 * (k > 0), "b": 0.1} for k, name in enumerate(HOSTILE[:3])}
    case = ba.Scenario(ba.Problem.from_rewards(groups), "fisher", None, {"delta": 0.1})
    files.init(case, tmp_path / "f", port=0)
    made = Folds(tmp_path / "f", Coins(case.problem))
    first = made.names[0]
    made.sites[first].note("</div><script>alert(1)</script>\u202e")
    made.desk.take(made.sites[first].notes)
    made.go()
    made.close()
    for place in (tmp_path / "f", made.places[first].folder):
        with serving(place) as url:
            stream = Stream(url)
            stream.until(lambda event: event["state"] == "over")
            stream.close()
            for html in (
                re.sub('<script src="(page|live).js" defer></script>', "", ask(url)[2]),
                *stream.sections.values(),
            ):
                parsed = Page(html)
                assert not {"img", "script", "b", "iframe"} & {kind for kind, _ in parsed.elements}
                assert "\u202e" not in html
            assert HOSTILE[0] in Page(ask(url)[2]).text
    with Journal.open(tmp_path / "f" / files.JOURNAL, write=False) as journal:
        told = page.sections(collect.of_desk(Desk(journal)))
    assert "</div><script>alert(1)" in Page({key: body for key, _, body in told}["notes"]).text


def test_a_live_experiment_shows_what_its_own_page_shows_until_its_verdict(tmp_path):
    path, now, chance = tmp_path / "visits.db", 0.0, {"A": 0.4, "B": 0.6}
    visitors = np.random.default_rng(4)
    experiment = ba.Experiment(
        ["A", "B"], ["us", "eu"], binary=True, seed=1, delta=0.1, journal=path, clock=lambda: now
    )
    frames = []
    with closing(follow.source(path)) as source:
        source.catch_up(SECONDS)
        assert "0 assignments" in Page(frame_of(source.facts(), 1, 0).sections[0][2]).text
        while experiment.verdict is None:
            now += 60.0
            for site in ("us", "eu"):
                for given in experiment.ask_many(site, 100):
                    experiment.tell(given.token, visitors.random() < chance[given.option])
            if experiment.verdict is None:
                source.catch_up(SECONDS)
                frames.append(frame_of(source.facts(), 1, source.count))
                own = sections_of(experiment.status, experiment.alarms, experiment.settings)
        assert frames
        assert frames[-1].sections == tuple(own)
        assert all(not frame.over for frame in frames)
        assert frames[-1].title == "bestarm: The experiment is running"
        assert "200 assignments" in Page(frames[0].sections[0][2]).text
        source.catch_up(SECONDS)
        assert frame_of(source.facts(), 1, source.count).over


def test_a_path_that_is_not_a_run_is_an_input_error(tmp_path, folds):
    (tmp_path / "empty").mkdir()
    (tmp_path / "mesh.json").write_text("{}")
    for path in (
        tmp_path / "empty",
        tmp_path,
        tmp_path / "x.toml",
        tmp_path / "nowhere",
        tmp_path / "no" / "j.db",
    ):
        with pytest.raises(InputError):
            follow.source(path)
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(folds.places["west-1"].folder / files.JOURNAL, alone / "j.db")
    with pytest.raises(InputError, match=r"client\.json"):  # a client's journal says too little by itself
        live.watch(alone / "j.db")


def test_a_port_in_use_is_an_input_error(folds):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(InputError, match="can't listen"),
            serving(folds.folder, port=taken.getsockname()[1]),
        ):
            pass


def test_the_command_prints_its_address_and_stops_on_request(folds):
    command = [sys.executable, "-m", "bestarm.cli", "watch", str(folds.folder), "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        said = json.loads(process.stdout.readline())
        stream = Stream(said["url"])
        stream.until(lambda event: event["state"] == "going")
        process.send_signal(signal.SIGINT)  # with a page open
        out, error = process.communicate(timeout=SECONDS)
        stream.close()
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, error) == (130, "", "")
    bad = subprocess.run([*command[:-2], "/nowhere/at/all"], capture_output=True, text=True)
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr
