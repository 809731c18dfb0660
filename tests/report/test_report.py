"""The report's content for every method, for partial runs and studies, and with hostile names."""

from __future__ import annotations

import base64
import functools
import gzip
import html.parser
import json
import os
import re
import subprocess
import sys

import msgspec
import pytest

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.errors import InputError
from bestarm.protocol.trace import Apart, FarBehind, LostTest
from bestarm.report import facts as collect
from bestarm.report import page
from bestarm.stats.limit import limited
from command_line import bestarm
from federations import CASES, Coins, Folds

PAPER = ba.Problem.paper_instance(5)
TWINS = ba.Problem.bernoulli([[0.9, 0.3], [0.6, 0.2]], clients=4)
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)<∕script>",
    "\"'><svg onload=alert(1)>",
    "x" * 190,
    "שלום עולם",
    "[bold red]rich[/bold red]".replace("/", "∕"),
    "${alert(1)} {{ 7*7 }} $x^2$",
]


class Page(html.parser.HTMLParser):
    """Elements, attributes and text of a page; an unclosed element is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "link", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] not in (["style"], ["script"]):
            self.words.append(data)
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)

    def ids(self) -> list[str]:
        return [attrs["id"] for _, attrs in self.elements if "id" in attrs]


def safe(parsed: Page) -> None:
    """Check that a page runs no script but its own, and fetches nothing."""
    assert set(parsed.scripts) <= {page.script()}
    for tag, attrs in parsed.elements:
        assert tag != "script" or attrs == {}
        assert tag not in ("img", "iframe", "object", "link", "base", "form"), tag
        assert not any(key.startswith("on") or key == "style" for key in attrs), attrs
        for key in ("href", "src"):
            assert attrs.get(key, "#").startswith(("#", "data:application/")), attrs


RUNS = {
    "fed-sel": lambda: ba.identify(PAPER, "fed-sel", delta=0.1, seed=7, period=20_000),
    "fisher": lambda: ba.identify(PAPER, "fisher", delta=0.1, seed=7),
    "robust": lambda: ba.identify(
        TWINS, "robust-fed-sel", seed=7, byzantine=1, adversaries=[ba.Adversary("g2", "not-a-number", 1)]
    ),
    "pooled": lambda: ba.identify(
        TWINS, "fisher", seed=7, byzantine=1, adversaries=[ba.Adversary("g2", "promote", 1)]
    ),
    "p2p": lambda: ba.identify(ba.load("examples/robots.toml")),
    "undecided": lambda: ba.identify(PAPER, "fisher", seed=7, budget=500),
    "min": lambda: ba.identify(
        ba.Problem.from_rewards(
            {"a": {"x": 10, "y": 30}, "b": {"z": 20}}, bounds=(0, 50), goal="min"
        ),
        "fisher", seed=1,
    ),
    "one arm": lambda: ba.identify(ba.Problem.bernoulli([[0.5]]), seed=1),
    "public": lambda: ba.identify(PAPER, "fisher", delta=0.1, seed=7).public(),
}  # fmt: skip


@functools.cache
def made(kind):
    return RUNS[kind]()


@functools.cache
def facts_of(kind, quick=True):
    return collect.of_record(made(kind), quick=quick)


@pytest.fixture(params=RUNS)
def run(request):
    return request.param, made(request.param)


def test_every_method_has_a_complete_page_that_runs_only_its_own_script(run):
    kind, record = run
    parsed = Page(page.page(facts_of(kind, quick=False)))
    safe(parsed)
    assert len(parsed.ids()) == len(set(parsed.ids()))
    assert {"top", "intervals", "arms", "costs", "trust", "reproduce"} <= set(parsed.ids())
    assert ("network" in parsed.ids()) == (kind == "p2p")
    assert "record is sound" in parsed.text
    if record.verdict.arm:
        assert f"{record.verdict.arm} is the best arm" in parsed.text
        assert f"This is wrong with probability at most {record.delta:g}." in parsed.text
    else:
        assert "Undecided: the budget of pulls per client" in parsed.text
        assert "The best arm is among those left" in parsed.text
    if kind not in ("one arm",):
        assert parsed.count("svg") >= 2
    assert all(c in parsed.text for g in record.problem["groups"] for c in g["clients"])
    if record.pulls:
        assert f"{record.pulls.total:,}" in parsed.text
    assert f"{record.bits.up:,}" in parsed.text


def test_the_embedded_record_equals_the_record(run):
    _, record = run
    links = [a for tag, a in Page(page.of_record(record, quick=True)).elements if "download" in a]
    assert [link["download"] for link in links] == ["record.json"]
    kind, _, content = links[0]["href"].partition(",")
    assert kind == "data:application/json;base64"
    assert msgspec.json.decode(base64.b64decode(content)) == record.to_dict()


def test_bits_by_client_add_up_to_the_records():
    for kind in ("fed-sel", "fisher", "robust", "pooled"):
        record = made(kind)
        facts = facts_of(kind)
        assert sum(row.bits_up for row in facts.clients) == record.bits.up


def test_the_page_says_why_every_other_arm_was_eliminated():
    for kind in ("fed-sel", "fisher", "robust", "pooled"):
        record = made(kind)
        facts = facts_of(kind)
        arms = {f"{g['name']}/{a}" for g in record.problem["groups"] for a in g["arms"]}
        left = {e.name for e in facts.exits}
        whole = {f"{g['name']} (the whole group)" for g in record.problem["groups"]}
        # the last arm of a beaten group is eliminated with its group
        gone = {n for n in arms if n not in left and f"{n.split('/')[0]} (the whole group)" not in left}
        assert gone == {record.verdict.arm}, kind
        assert left <= arms | whole
        for exit_ in facts.exits:
            match exit_.why:
                case LostTest(p, level):
                    assert p <= level
                case FarBehind(bound):
                    assert exit_.rival_mean - exit_.mean >= bound - 1e-9
                case Apart(end, best):
                    assert end <= best + 1e-9
                case _:
                    pytest.fail("it does not say why")


def test_traces_come_from_the_same_run_and_shrink():
    for kind in ("fed-sel", "fisher", "pooled", "p2p"):
        told, traced = facts_of(kind), facts_of(kind, quick=False)
        ends = {(t.group, t.arm): (t.pulls[-1], t.mean[-1]) for t in told.traces}
        again = {(t.group, t.arm): (t.pulls, t.mean) for t in traced.traces}
        assert set(ends) <= set(again)
        for key, (pulls, mean) in ends.items():
            if pulls in again[key][0]:
                assert again[key][1][again[key][0].index(pulls)] == pytest.approx(mean)
        for trace in traced.traces:
            width = [high - low for low, high in zip(trace.lower, trace.upper, strict=True)]
            assert width[-1] <= width[0]
            inside = zip(trace.lower, trace.mean, trace.upper, strict=True)
            assert all(low - 1e-9 <= mean <= high + 1e-9 for low, mean, high in inside)


def test_plan_and_limit_are_shown_beside_the_costs():
    facts = collect.of_record(RUNS["fed-sel"]())
    assert set(facts.plan.proved) == {"pulls", "longest", "rounds"}
    assert facts.costs.pulls <= facts.plan.proved["pulls"]
    assert facts.limit.pulls < facts.plan.ranges["pulls"].mean
    text = page.page(facts)
    parsed = Page(text)
    assert "plan: 90 % of runs" in parsed.text
    assert "limit, on average" in parsed.text
    assert f"the fewest pulls, on average and with these means, of {limited()}" in parsed.text
    assert 'class="limit"' in text  # the dashed line
    assert "No limit" not in parsed.text


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("fisher", {"budget": 500}),
        ("fisher", {"max_rounds": 2}),
        ("fisher", {"max_rounds": 1000}),
        ("fed-sel", {"budget": 10**7, "period": 20_000}),
        ("fed-sel", {"period": 20_000, "epsilon": 0.05}),
    ],
)
def test_a_run_that_may_end_undecided_has_no_limit_on_its_page(method, keys):
    facts = collect.of_record(ba.identify(PAPER, method, delta=0.1, seed=7, **keys))
    assert facts.limit is None
    assert facts.plan.proved == {}
    text = page.page(facts)
    assert f"No limit on pulls is shown: {facts.no_limit}." in Page(text).text
    assert "limit, on average" not in Page(text).text
    assert 'class="limit"' not in text
    assert "proved: at most" not in text


def test_a_liar_that_was_proven_faulty_is_named_with_the_proof():
    record = made("robust")
    assert record.proven_faulty
    parsed = Page(page.of_record(record, quick=True))
    assert record.proven_faulty[0]["client"] in parsed.text
    assert record.proven_faulty[0]["reason"] in parsed.text


def test_more_liars_than_tolerated_withdraw_the_guarantee():
    liars = [ba.Adversary("g2", "promote", 2)]
    record = ba.identify(TWINS, "fisher", seed=7, byzantine=1, adversaries=liars)
    parsed = Page(page.of_record(record, quick=True))
    assert "No safe answer: " in parsed.text
    assert "Nothing is promised" in parsed.text
    assert "wrong with probability" not in parsed.text


def test_an_altered_record_is_reported_as_unsound():
    record = msgspec.structs.replace(made("fisher"), rounds=3)
    parsed = Page(page.of_record(record, quick=True))
    assert "the digest does not match" in parsed.text
    assert "record is sound" not in parsed.text


def test_hostile_names_are_text(tmp_path):
    groups = {name: {HOSTILE[-1 - k]: 0.9 - 0.2 * (k > 0), "b": 0.1} for k, name in enumerate(HOSTILE)}
    record = ba.identify(ba.Problem.from_rewards(groups), "fisher", seed=1)
    parsed = Page(page.of_record(record))
    safe(parsed)
    for name in HOSTILE[:3] + HOSTILE[4:]:
        assert name in parsed.text, name
    assert "x" * 79 + "…" in parsed.text
    for fragment in (record._repr_html_(), ba.Problem.from_rewards(groups)._repr_html_()):
        safe(Page(fragment))


def test_hidden_characters_in_a_forged_record_are_made_visible():
    record = made("fisher")
    plain = record.to_dict()
    plain["problem"]["groups"][0]["name"] = "a\u202eb\u0000\u2028"
    plain["proven_faulty"] = [{"client": "c\x1b[2J", "round": 0, "reason": "</style><script>"}]
    parsed = Page(page.of_record(msgspec.convert(plain, ba.Record), quick=True))
    safe(parsed)
    assert "a\\u202eb\\x00\\u2028" in parsed.text
    assert "c\\x1b[2J" in parsed.text
    assert not set("\u202e\u0000\u2028\x1b") & set(parsed.text)


def test_a_forged_record_that_is_not_a_run_is_an_input_error():
    record = msgspec.structs.replace(made("fisher"), problem={"groups": 3})
    with pytest.raises(ba.InputError, match="can't be read as a run"):
        page.of_record(record)


@pytest.mark.parametrize("turns", [0, 1, 10_000])
def test_a_federations_folder_gives_a_page_at_any_moment(tmp_path, turns):
    problem = CASES["fisher"].problem
    files.init(CASES["fisher"], tmp_path / "f", port=0)
    folds = Folds(tmp_path / "f", Coins(problem))
    for _ in range(turns):
        folds.turn()
        if folds.desk.done:
            break
    done, waiting = folds.desk.done, folds.desk.waiting_for()
    assert done == (turns == 10_000)
    folds.close()
    parsed = Page(page.read(tmp_path / "f"))
    safe(parsed)
    if done:
        assert "west/a is the best arm" in parsed.text
        assert any("download" in attrs for _, attrs in parsed.elements)
    else:
        assert "Not decided yet" in parsed.text
        assert f"Waiting for {waiting[0]}" in parsed.text
        assert "resumes when it is started again" in parsed.text
        assert "bestarm federation drop FOLDER CLIENT" in parsed.text
    assert "Only the clients know their pulls" in parsed.text


@pytest.fixture(scope="module")
def trials():
    return ba.study(
        ba.Problem.paper_instance, trials=12, seed=1, delta=0.1, workers=1,
        vary={"sigma": [1, 5], "method": ["fisher"]},
    )  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_a_saved_study_loads_unchanged_and_gives_a_comparison(trials, tmp_path, ending):
    path = trials.save(tmp_path / f"s.{ending}")
    assert ba.Trials.load(path).summary(limits=False) == trials.summary(limits=False)
    parsed = Page(page.read(path))
    safe(parsed)
    assert parsed.count("svg") == 10
    assert "A study of 24 runs" in parsed.text
    assert "sigma = 5" in parsed.text
    link = next(attrs for _, attrs in parsed.elements if "download" in attrs)
    rows = base64.b64decode(link["href"].partition(",")[2]).splitlines()
    assert len(rows) == 24


def test_a_study_that_was_saved_before_studies_had_a_time_is_shown_without_it(trials, tmp_path):
    path = tmp_path / "old.jsonl"
    rows = [{k: v for k, v in row.items() if k != "time"} for row in trials.rows()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    old, new = ba.Trials.load(path).summary(limits=False), trials.summary(limits=False)
    assert [row | {"time": told["time"]} for row, told in zip(old, new, strict=True)] == new
    parsed = Page(page.read(path))
    assert parsed.count("svg") == 8
    assert "time step" not in parsed.text
    with pytest.raises(InputError, match="time"):
        ba.Trials.load(path).plot(y="time")


def test_a_study_compares_methods_on_one_problem_at_a_time(tmp_path):
    vary = {"sigma": [1, 5], "method": ["bet", "fisher"]}
    found = ba.study(ba.Problem.paper_instance, trials=3, delta=0.1, seed=1, workers=1, vary=vary)
    text = Page(page.read(found.save(tmp_path / "s.csv"))).text
    for sigma in (1, 5):
        assert f"Fewest pulls on average for sigma = {sigma}: bet, " in " ".join(text.split())
    assert "their intervals overlap, so this may be chance" in text  # of three runs each


def test_a_study_of_one_cell_is_read_too(tmp_path):
    found = ba.study(PAPER, trials=3, seed=1, workers=1)
    path = found.save(tmp_path / "s.csv")
    assert "A study of 3 runs" in Page(page.read(path)).text


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "trial\n1\n", "\x00\xff", "trial,status\n"])
def test_a_file_that_is_not_a_study_is_an_input_error(tmp_path, content):
    path = tmp_path / "s.csv"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ba.InputError, match=r"not the file of a study"):
        page.read(path)


def test_a_long_record_is_compressed_and_one_that_is_too_long_is_omitted():
    facts = facts_of("one arm")
    rng = os.urandom(2_000_000)
    packed = Page(page.page(facts, b"x" * 5_000_000))
    link = next(attrs for _, attrs in packed.elements if "download" in attrs)
    assert link["download"] == "record.json.gz"
    assert gzip.decompress(base64.b64decode(link["href"].partition(",")[2])) == b"x" * 5_000_000
    too_long = Page(page.page(facts, rng))
    assert "too many for this page" in too_long.text


def test_the_page_of_a_thousand_clients_stays_small():
    problem = ba.Problem.bernoulli([[0.9, 0.5], [0.6, 0.3]], clients=500)
    text = page.of_record(ba.identify(problem, "fisher", seed=1, byzantine=3))
    assert len(text.encode()) < 1_000_000
    assert Page(text).text.count("g1-500") == 1


def test_the_same_record_gives_the_same_page():
    assert page.of_record(made("fisher")) == page.of_record(made("fisher"))


def test_the_commands(tmp_path, root):
    scenario = root / "examples/target-detection.toml"
    made = bestarm(
        "run", scenario, "--method", "fisher", "--seed", 7, "--out", tmp_path / "r.json",
        "--report", tmp_path / "run.html",
    )  # fmt: skip
    assert made.returncode == 0
    assert "report: " in made.stdout
    first = Page((tmp_path / "run.html").read_text("utf-8"))
    assert "bestarm run" in first.text
    assert "--report" in first.text
    done = bestarm("report", tmp_path / "r.json", "--json")
    facts = json.loads(done.stdout)
    assert facts["file"] == str(tmp_path / "r.html")
    assert facts["bytes"] == (tmp_path / "r.html").stat().st_size
    for bad in (scenario, tmp_path / "nowhere.json", tmp_path):
        failed = bestarm("report", bad)
        assert failed.returncode == 2, bad
        assert "Traceback" not in failed.stderr


def test_control_and_bidirectional_characters_are_visible_in_the_terminal(tmp_path):
    record = made("fisher")
    plain = record.to_dict()
    plain["verdict"]["arm"] = "x\x1b[31m\u202e[bold]y"
    code = (
        "import sys, msgspec, bestarm as ba; from bestarm.cli import show;"
        "show(msgspec.convert(msgspec.json.decode(sys.stdin.buffer.read()), ba.Record))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(plain), capture_output=True, text=True, check=True
    )
    assert "No safe answer: " in done.stdout
    assert "It names x\\x1b[31m\\u202e[bold]y." in done.stdout
    assert not re.search("[\x1b\u202e]", done.stdout)


def test_plots_give_axes(trials):
    graph = ba.Graph.from_edges(3, [(0, 1), (1, 2), (2, 0)])
    for ax in (
        made("fisher").plot(),
        trials.plot(x="sigma", y="rounds"),
        trials.plot(),
        PAPER.plot_heterogeneity(),
        graph.plot(),
        graph.plot({"a": {0, 1}, "b": {2}}),
    ):
        assert ax.figure is not None
        ax.figure.canvas.draw()
    for keys in ({"x": "rounds"}, {"y": "status"}):
        with pytest.raises(ba.InputError):
            trials.plot(**keys)
    with pytest.raises(ba.InputError, match="nothing was varied"):
        ba.study(PAPER, trials=2, seed=1, workers=1).plot()


def test_notebooks_show_records_studies_problems_and_graphs(trials):
    graph = ba.Graph.from_edges(3, [(0, 1), (1, 2), (2, 0)])
    for thing, word in (
        (made("fisher"), "is the best arm"),
        (trials, "sigma"),
        (PAPER, "0.65"),
        (graph, "3 nodes"),
    ):
        parsed = Page(thing._repr_html_())
        safe(parsed)
        assert word in parsed.text


def test_the_animation_in_the_readme_is_made_from_a_run(tmp_path, root):
    target = tmp_path / "race.svg"
    script, scenario = root / "examples/animate.py", root / "examples/target-detection.toml"
    subprocess.run([sys.executable, script, scenario, target], check=True)
    parsed = Page(target.read_text("utf-8"))
    assert parsed.count("animate") > 9 * 4
    assert parsed.count("script") == 0
    assert "west/s1 is the best arm" in parsed.text
    shipped = root / "docs/images/race.svg"
    assert shipped.stat().st_size < 30_000
    assert Page(shipped.read_text("utf-8")).text == parsed.text


def late(tmp_path, **keys):
    """Minutes late of three couriers in Rome and one in Oslo; less is better."""
    couriers = {"Rome,Gio": 10, "Rome,Leo": 14, "Rome,Dino": 40, "Oslo,Ida": 20}
    rows = [f"{name},{mean + 6 * (k % 3 - 1)}" for k in range(50) for name, mean in couriers.items()]
    path = tmp_path / "late.csv"
    path.write_text("\n".join(["city,courier,<b>minutes", *rows]) + "\n", encoding="utf-8")
    columns = {"group": "city", "arm": "courier", "reward": "<b>minutes", "bounds": [0, 60]}
    return ba.Problem.from_csv(str(path), **columns, goal="min", **keys)


def test_a_page_names_its_data_and_their_unit(tmp_path):
    record = ba.identify(late(tmp_path, rows="resample"), "fisher", seed=1)
    whole = Page(page.of_record(record))
    safe(whole)
    assert f"{record.simulation}.Rome/Gio is the best arm" in whole.text  # before the verdict
    assert "draws from 200 rows of late.csv" in record.simulation
    assert "Rome/Gio is the best arm: the lowest mean of <b>minutes." in whole.text
    assert "from the 200 rows of late.csv with replacement: a verdict is about the file" in whole.text
    assert "This is wrong about the file with probability at most 0.05." in whole.text
    assert "Means are of coins" in whole.text
    assert "mean reward" not in whole.text
    assert "a verdict is about the file" in Page(record._repr_html_()).text
    assert ba.verify(record, replay=True)
    forged = msgspec.structs.replace(record, problem={**record.problem, "data": {"rows": "many"}}).sealed()
    assert not ba.verify(forged)
    with pytest.raises(ba.InputError):
        page.of_record(forged)
    study = ba.study(late(tmp_path, rows="resample"), trials=2, seed=1, workers=1)
    assert "a verdict is about the file" in Page(page.of_trials(study)).text


def test_an_undecided_page_does_not_contradict_itself(tmp_path):
    record = ba.identify(late(tmp_path), "fisher", seed=1)
    facts = collect.of_record(record)
    dropped = {exit_.name for exit_ in facts.exits}
    assert dropped & set(record.verdict.candidates) == {"Rome/Dino"}
    text = Page(page.page(facts)).text
    assert "Still in the race: Rome/Gio, Rome/Leo, Oslo/Ida." in text
    assert "Undecided: the data are used up." in text
    assert "has 50 rewards, and the next look takes 72" in text
    assert "200 rows, each played once" in text
    assert facts.traces[0].pulls[-1] == 50  # recorded rewards can be traced as well
    public = Page(page.of_record(record.public())).text
    assert "Still in the race, as far as the server knows: Rome/Gio, Rome/Leo, Rome/Dino, Oslo/Ida." in public
    keys = {"seed": 1, "n0": 60}
    early = Page(page.of_record(ba.identify(late(tmp_path), "fisher", **keys))).text
    assert "means of the rewards themselves" not in early
    assert "1Rome/Leo12" in early  # the means of coins, as on the card
    kept = Page(page.of_record(ba.identify(late(tmp_path), "fisher", summaries=False, **keys))).text
    assert "means of the rewards themselves; pictures below are of coins" in kept
    assert "1Rome/Gio9.88" in kept


def test_a_page_names_the_record_s_own_file_and_one_mean_per_arm(tmp_path):
    path = made("fisher").save(tmp_path / "my run.json")
    parsed = Page(page.read(path, quick=True))
    assert "bestarm verify 'my run.json' --replay" in parsed.text
    assert [a["download"] for _, a in parsed.elements if "download" in a] == ["my run.json"]
    verdict = made("fisher").verdict
    ends = {line.name: line.mean[-1] for line in facts_of("fisher").lines}
    assert ends[verdict.arm] == verdict.mean


def test_the_page_names_what_beat_each_arm():
    facts = facts_of("fisher")
    rivals = {e.name: e.rival for e in facts.exits if not e.by_server}
    assert rivals["g1/a3"] == "g1/a1"
    arms = {f"{g.name}/{a}" for g in facts.groups for a in g.arms}
    assert set(rivals.values()) <= arms
