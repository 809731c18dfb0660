"""Local differential privacy: the likelihood ratio, the scale, every method, and no reward in any file."""

from __future__ import annotations

import asyncio
import decimal
import functools
import json
import math
from fractions import Fraction

import numpy as np
import pytest

import bestarm as ba
from bestarm import InputError, Problem
from bestarm.deploy.federation import files
from bestarm.deploy.federation.alarms import words_of
from bestarm.deploy.federation.desk import NOTE
from bestarm.deploy.mesh import files as mesh_files
from bestarm.deploy.mesh.node import Node
from bestarm.deploy.pulling import Puller
from bestarm.deploy.sources import Exhausted, FromCommand, FromCsv, FromHttp, FromPython
from bestarm.deploy.sources.base import Source, SourceFailed
from bestarm.deploy.trial import Fresh, try_source
from bestarm.graphs.generators import complete
from bestarm.problem import privacy
from bestarm.problem.privacy import BITS, answer, ones, price, slope
from bestarm.problem.rewards import Bernoulli, Beta, Recording, Table
from bestarm.problem.scale import Scale
from bestarm.protocol.options import on_unit_scale
from bestarm.protocol.registry import METHODS
from bestarm.report import page, plots
from bestarm.scenario.load import load
from bestarm.simulate.identify import prepare
from bestarm.study.plan import plan
from command_line import bestarm
from federations import Coins, Folds
from marking import slow_but
from rates import rate_exceeds

EPSILONS = (0.01, 0.5, 1.0, 2.0, 4.0, 20.0)
RAW = 0.7251953125  # a reward that no sum of answers can look like


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_likelihood_ratio_of_an_answer_is_at_most_e_to_the_epsilon(epsilon):
    """By enumeration: exact probabilities of both answers, for many rewards."""
    decimal.getcontext().prec = 60
    most = Fraction(decimal.Decimal(epsilon).exp())
    shares = [0.0, 5e-324, 1e-9, 0.25, 1 / 3, 0.5, 0.75, 1 - 2**-53, 1.0, *np.linspace(0, 1, 101).tolist()]
    chances = [Fraction(ones(share, epsilon), 2**BITS) for share in shares]
    for answers in (chances, [1 - chance for chance in chances]):
        assert max(answers) <= most * min(answers)
    if epsilon < 20:  # and hardly less: what is promised is used up
        assert max(chances) * Fraction(1000001, 1000000) >= most * min(chances)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_mean_of_an_answer_is_affine_in_the_reward(epsilon):
    for share in (0.0, 0.2, 0.5, 0.9, 1.0):
        wanted = 0.5 + math.tanh(epsilon / 2) * (share - 0.5)
        assert ones(share, epsilon) / 2**BITS == pytest.approx(wanted, abs=1e-15)


def test_answers_come_from_the_operating_system(monkeypatch):
    """Each of 2^10 equally likely random numbers is tried: the shares of answers are the probabilities."""
    asked = []
    for share in (0.0, 0.3, 1.0):
        found = 0.0
        for k in range(1024):
            monkeypatch.setattr(privacy.secrets, "randbits", lambda bits, k=k: asked.append(bits) or k << 43)
            found += answer(share, 1.0)
        assert found / 1024 == pytest.approx(0.5 + slope(1.0) * (share - 0.5), abs=1e-3)
    assert set(asked) == {BITS}


@pytest.mark.parametrize("scale", [Scale(privacy=1.0), Scale(-2, 10, "max", 2.0), Scale(0, 200, "min", 0.5)])
def test_the_scale_maps_means_of_answers_back(scale):
    for x in np.linspace(scale.low, scale.high, 7).tolist():
        y = scale.inner(x)
        assert scale.user(y) == pytest.approx(x)
        assert y == pytest.approx(0.5 + slope(scale.privacy) * (scale.share(x) - 0.5))
    low, high = scale.user_interval(0.0, 1.0)
    assert (low, high) == (scale.low, scale.high)
    assert scale.low <= scale.user(0.999) <= scale.high
    assert scale.width == pytest.approx((scale.high - scale.low) / slope(scale.privacy))


def test_epsilon_is_scaled_by_the_same_slope():
    problem = Problem.from_rewards({"g": {"a": 60, "b": 50}}, bounds=(0, 100)).private(2.0)
    _, _, options = prepare(problem, "bet", {"epsilon": 5})
    assert options.epsilon == 5
    assert on_unit_scale(options, problem.scale).epsilon == pytest.approx(0.05 * slope(2.0))


@pytest.mark.parametrize("epsilon", [None, "2", True, 0, -1.0, 0.001, 21, math.nan, math.inf])
def test_an_epsilon_that_cannot_be_used_is_refused(epsilon):
    with pytest.raises(InputError, match=r"expected|Expected one number from 0\.01 to 20"):
        Problem.bernoulli([[0.9, 0.1]]).private(epsilon)


@pytest.mark.parametrize("ask", [ba.identify, functools.partial(ba.study, trials=2), ba.plan])
def test_privacy_as_an_option_is_refused_with_the_way_to_write_it(ask):
    with pytest.raises(InputError, match=r"Privacy belongs to the problem: problem\.private"):
        ask(Problem.bernoulli([[0.9], [0.1]]), privacy=2.0)


def test_there_is_one_epsilon_for_the_whole_problem(tmp_path):
    with pytest.raises(InputError, match="one ε for the whole problem"):
        Problem.bernoulli([[0.9, 0.1]]).private(2.0).private(1.0)
    path = tmp_path / "two.toml"
    path.write_text('[[group]]\nname = "north"\nprivacy = 1.0\narms = { a = 0.9, b = 0.1 }\n')
    with pytest.raises(InputError, match="one ε for the whole problem"):
        load(path)


def test_different_slopes_would_change_the_order():
    """Why: at ε = 4 and ε = 0.5 an arm that is worse by 0.025 looks better by 0.03."""
    better, worse = 0.5 + slope(0.5) * (0.625 - 0.5), 0.5 + slope(4.0) * (0.6 - 0.5)
    assert worse - better > 0.03


def test_pairs_are_refused_by_name(tmp_path):
    rows = "".join(f"{o},{i % 2},{i}\n" for i in range(6) for o in "AB")
    (tmp_path / "pairs.csv").write_text("option,reward,subject\n" + rows)
    path = tmp_path / "pairs.toml"
    data = '[data]\ncsv = "pairs.csv"\narm = "option"\nreward = "reward"\npair = "subject"\nbounds = [0, 1]\n'
    path.write_text('question = "overall"\n' + data)
    problem = load(path).problem
    assert problem.layout.paired
    path.write_text('privacy = 1.0\nquestion = "overall"\n' + data)
    (tmp_path / "pairs.csv").write_text("option,reward,subject\nA,1,Ann\n" + rows)  # Ann has no B
    with pytest.raises(InputError, match="privacy is not supported with pairs"):  # and is not named
        load(path)
    with pytest.raises(InputError, match="privacy is not supported with pairs"):
        problem.private(1.0)


def test_a_scenario_says_privacy(tmp_path):
    path = tmp_path / "hidden.toml"
    path.write_text(
        'privacy = 2\n[[group]]\nname = "north"\narms = { a = 0.9, b = { kind = "beta", a = 2, b = 5 } }\n'
    )
    problem = load(path).problem
    assert problem.scale.privacy == 2.0
    assert all(group.binary for group in problem.layout.groups)
    assert problem.scale.user(problem.means[0][0]) == pytest.approx(0.9)
    path.write_text('privacy = 2\nfamily = "paper"\nsigma = 3\n')
    loaded = load(path)
    assert loaded.problem.scale.privacy == loaded.family(sigma=5).scale.privacy == 2.0


KEYS = {
    "fed-sel": {"period": 3000},
    "robust-fed-sel": {"period": 3000},
    "p2p": {"exchange": "intervals", "network": ba.Network(complete(2))},
}


@pytest.mark.parametrize("method", slow_but(["bet", "fisher"], METHODS))
def test_every_method_runs_on_answers_and_its_record_replays(method):
    groups = {"g": {"a": 19, "b": 2}, "h": {"c": {"kind": "table", "values": [0, 20]}}}
    if METHODS[method].rival:  # all sites have the same options
        del groups["h"]
    problem = Problem.from_rewards(groups, bounds=(0, 20))
    record = ba.identify(problem.private(2.0), method, seed=2, delta=0.1, **KEYS.get(method, {}))
    assert record.verdict.arm == "g/a"
    assert record.problem["scale"]["privacy"] == 2.0
    assert record.verdict.mean is None or 15 < record.verdict.mean <= 20
    if record.verdict.interval:
        low, high = record.verdict.interval
        assert 0 <= low <= record.verdict.mean <= high <= 20
    assert ba.verify(record, replay=True).failures == ()


def test_questions_about_several_sites_are_answered_from_answers():
    """The value of the best option, the lead over a control and the margin are on the user's scale."""
    regions = {"US": {"A": 20, "B": 60}, "EU": {"A": 30, "B": 80}}
    problem = Problem.from_rewards(regions, bounds=(0, 100)).private(2.0)
    best = ba.identify(problem.asking("overall"), seed=1, delta=0.1)
    assert best.verdict.arm == "B"
    control = problem.asking("control", control="A")
    _, _, options = prepare(control, "bet", {"margin": 5})
    assert on_unit_scale(options, control.scale).margin == pytest.approx(0.05 * slope(2.0))
    (found,) = ba.identify(control, seed=1, delta=0.1, n1=400).verdict.answers
    assert found.interval[0] < 45 < found.interval[1]
    assert -100 <= found.interval[0] <= found.value <= found.interval[1] <= 100
    assert abs(found.value - 45) < 20


def test_a_study_of_answers_has_the_law_of_the_machines():
    problem = Problem.from_rewards({"g": {"a": 0.9, "b": 0.2}, "h": {"c": {"kind": "beta", "a": 1, "b": 2}}})
    trials = ba.study(problem.private(2.0), "bet", trials=200, seed=3, delta=0.1)
    assert not rate_exceeds(int((trials["correct"] != True).sum()), 200, 0.1)  # noqa: E712
    assert ba.verify(trials.record(7)).failures == ()


def test_the_price_is_that_of_the_variance():
    assert price([Bernoulli(0.5), Bernoulli(0.5)], 2.0) == pytest.approx(1 / slope(2.0) ** 2)
    for model in (Table((0.0, 0.5, 1.0), (1, 2, 3)), Beta(2, 5), Bernoulli(0.8)):
        draws = np.array([float(model.sums(np.random.default_rng(k), 1)) for k in range(4000)])
        assert privacy.variance(model) == pytest.approx(draws.var(), rel=0.1)
    assert price([Recording((0.1, 0.2))], 2.0) is None


def test_a_plan_prices_privacy():
    problem = Problem.bernoulli([[0.9, 0.2], [0.5]]).private(2.0)
    found = plan(problem, trials=4, seed=1, methods=["bet"], workers=1)
    assert any("privacy = 2 takes about" in text for text in found.advice)
    cells = Problem.bernoulli({"a": {"x": 0.95, "y": 0.5}, "b": {"x": 0.9, "y": 0.5}}).asking("overall")
    found = plan(cells.private(2.0), trials=4, seed=1, methods=["bet"], workers=1)
    wanted = price([model for row in cells.rewards for model in row], 2.0)
    assert any(f"takes about {wanted:.3g} times" in text for text in found.advice)


# What is written


def files_with(folder, text):
    """The files below a folder that contain this text, also inside SQLite databases."""
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_a_record_of_recorded_rewards_shows_none_of_them(tmp_path):
    rewards = {"kind": "recording", "values": [RAW, 0.2, RAW, 0.9] * 40}
    problem = Problem.from_rewards({"g": {"a": rewards}, "h": {"b": 0.1}})
    plain = ba.identify(problem, "bet", seed=1)
    assert str(RAW) in json.dumps(plain.to_dict())  # otherwise the test below could not fail
    hidden = problem.private(1.0)
    record = ba.identify(hidden, "bet", seed=1, journal=tmp_path / "run.db")
    record.save(tmp_path / "record.json")
    (tmp_path / "report.html").write_text(page.of_record(record, quick=True), "utf-8")
    for draw in (plots.race, plots.intervals):
        plots.save(draw(record), tmp_path / f"{draw.__name__}.svg")
    written = {path.name for path in tmp_path.iterdir()}
    assert written > {"run.db", "record.json", "report.html", "race.svg", "intervals.svg"}
    assert files_with(tmp_path, str(RAW)) == []
    assert hidden.means[0][0] is None
    assert record.problem["groups"][0]["rewards"] == [[None]]


def test_a_record_of_private_real_rewards_has_no_seed(tmp_path):
    """With the seed, the random numbers behind the answers are known, and answers tell more than ε allows."""
    recorded = {"kind": "recording", "values": [0.0, 0.9, 1.0, 0.9] * 40}
    for reward in (recorded, lambda rng: 0.75):
        problem = Problem.from_rewards({"g": {"a": reward}, "h": {"b": 0.1}})
        assert ba.identify(problem, "bet", seed=1).seed == 1
        record = ba.identify(problem.private(2.0), "bet", seed=1)
        assert record.seed is None
        assert ba.verify(record).failures == ()
    assert ba.identify(Problem.bernoulli([[0.9], [0.1]]).private(2.0), "bet", seed=1).seed == 1
    record.save(tmp_path / "record.json")
    done = bestarm("verify", tmp_path / "record.json", "--replay")
    assert done.returncode == 2
    assert "no seed in its record" in done.stderr


def test_a_plan_of_hidden_rewards_asks_for_guessed_means():
    problem = Problem.from_rewards({"g": {"a": {"kind": "recording", "values": [0.5, RAW]}, "b": 0.1}})
    with pytest.raises(InputError, match="privacy hides the means"):
        plan(problem.private(2.0), trials=4, seed=1, workers=1)


@pytest.mark.parametrize("bad", [f"{RAW + 7}", f"x{RAW}"])
@pytest.mark.parametrize("hidden", [True, False])
def test_errors_about_a_scenario_s_data_do_not_show_rewards(tmp_path, bad, hidden):
    first = "privacy = 2.0\n" if hidden else ""
    keys = 'group = "site"\narm = "arm"\nreward = "reward"\nbounds = [0, 1]\n'
    (tmp_path / "d.csv").write_text(f"site,arm,reward\nx,a,0.5\nx,b,0.5\nx,a,{bad}\n")
    (tmp_path / "data.toml").write_text(f'{first}[data]\ncsv = "d.csv"\n{keys}')
    quoted = bad if bad[0] != "x" else f'"{bad}"'
    values = f"values = [0.5, {quoted}]"
    (tmp_path / "arm.toml").write_text(
        f'{first}[[group]]\nname = "g"\narms = {{ a = {{ kind = "recording", {values} }}, b = 0.1 }}\n'
    )
    for name in ("data.toml", "arm.toml"):
        with pytest.raises(InputError) as caught:
            load(tmp_path / name)
        assert (bad[:5] in str(caught.value)) != hidden
        assert ("not shown, for privacy" in str(caught.value)) == hidden


@pytest.mark.parametrize("reward", [7 + RAW, f"x{7 + RAW}"])
def test_an_error_about_a_private_function_s_reward_does_not_show_it(reward):
    problem = Problem.from_rewards({"g": {"a": lambda rng: reward, "b": 0.1}})
    with pytest.raises(InputError, match=str(7 + RAW)):
        ba.identify(problem, "bet", seed=1)
    with pytest.raises(InputError, match="not shown, for privacy") as caught:
        ba.identify(problem.private(2.0), "bet", seed=1)
    assert str(RAW)[1:] not in str(caught.value)


@pytest.mark.parametrize("kind", [Exhausted, SourceFailed])
def test_what_a_source_says_at_its_end_is_not_shown(kind):
    """A client signs such words and sends them to the server."""

    class Ends(Source):
        async def _fetch(self, arm, times):
            raise kind(f"the last reward was {RAW}")

    for hidden in (None, Scale(privacy=1.0)):
        with pytest.raises(kind) as caught:
            asyncio.run(Ends("x", private=hidden).pull("a", 1))
        assert (str(RAW) in str(caught.value)) == (hidden is None)


TABLES = {
    "no header": f"a,{RAW}\nb,0.5\n",
    "a column twice": f"{RAW},{RAW}\na,b\n",
    "Latin-1": f"arm,reward\ncafé,{RAW}\n",
    "a word for a number": f"arm,reward\na,x{RAW}\n",
}


@pytest.mark.parametrize("text", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("hidden", [True, False])
def test_errors_about_a_file_of_rewards_do_not_show_its_cells(tmp_path, text, hidden):
    """A client sends such words to the server, and a file without a header starts with data."""
    path = tmp_path / "rewards.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        FromCsv(path, private=Scale(privacy=1.0) if hidden else None)
    assert (str(RAW)[:5] in str(caught.value)) != hidden
    scenario = tmp_path / "data.toml"
    first = "privacy = 1.0\n" if hidden else ""
    scenario.write_text(f'{first}[data]\ncsv = "rewards.csv"\narm = "arm"\nreward = "reward"\n')
    with pytest.raises(InputError) as caught:
        load(scenario)
    assert (str(RAW)[:5] in str(caught.value)) != hidden


@pytest.mark.parametrize(
    "rest",
    [
        f'[[group]]\nname = "g"\narmz = {{ a = {{ kind = "recording", values = [{RAW}] }} }}\n',
        f"[[groups]]\narms = {{ a = [{RAW}] }}\n",
        f'[[group]]\nname = "g"\narms = {{ a = [{RAW}], b = 0.5 }}\n',
        f'[data]\ncsv = "rewards.csv"\nreward = "{RAW + 1}"\n',
    ],
)
@pytest.mark.parametrize("hidden", [True, False])
def test_errors_about_a_misspelt_scenario_do_not_show_rewards(tmp_path, rest, hidden):
    (tmp_path / "rewards.csv").write_text(TABLES["no header"])
    path = tmp_path / "data.toml"
    path.write_text(f"{'privacy = 1.0' if hidden else ''}\n{rest}")
    with pytest.raises(InputError) as caught:
        load(path)
    assert (str(RAW) in str(caught.value)) != hidden


@pytest.mark.parametrize("name", ["import_fails:f", "class_fails:Rewards", "resume_fails:Rewards"])
@pytest.mark.parametrize("hidden", [True, False])
def test_errors_of_a_source_that_cannot_start_do_not_show_rewards(tmp_path, monkeypatch, name, hidden):
    monkeypatch.syspath_prepend(str(tmp_path))
    fails = f"raise ValueError('the first row is {RAW}')\n"
    (tmp_path / "import_fails.py").write_text(fails)
    (tmp_path / "class_fails.py").write_text(f"class Rewards:\n    def __init__(self):\n        {fails}")
    (tmp_path / "resume_fails.py").write_text(
        "class Rewards:\n    def pull(self, arm):\n        return 1\n"
        f"    def resume(self, made):\n        {fails}"
    )
    with pytest.raises(InputError, match="ValueError") as caught:
        FromPython(name, private=Scale(privacy=1.0) if hidden else None)
    assert (str(RAW) in str(caught.value)) != hidden
    assert hidden == (caught.value.__cause__ is None)


def test_an_alarm_about_an_unexpected_error_shows_no_reward():
    assert str(RAW) not in words_of(ValueError(f"not {RAW}"))
    assert words_of(InputError("this is checked where it is raised")).startswith("this is checked")


@pytest.mark.parametrize("hidden", [True, False])
def test_a_recording_that_does_not_know_of_privacy_is_not_named_to_the_server(tmp_path, hidden):
    """Clients that pool their rewards tell a digest of their file, which can be compared with a guess."""
    problem = Problem.from_rewards({"west": {"a": 0.5, "b": 0.5}}, clients=2)
    files.init(ba.Scenario(problem.private(1.0) if hidden else problem, "bet"), tmp_path / "fed", port=0)
    folds = Folds(tmp_path / "fed", Coins(Problem.bernoulli([[0.5, 0.5]], clients=2)))
    site = folds.sites["west-1"]
    data = tmp_path / "rewards.csv"
    data.write_text("arm,reward\n" + "a,1\nb,0\na,0\nb,1\n" * 100)
    asyncio.run(pull_some(site, FromCsv(data)))
    notes = [event for event in site.journal.events() if event.kind == NOTE]
    folds.close()
    assert bool(notes) != hidden


async def pull_some(site, source):
    """Let a client or a peer make some pulls."""
    setup = site.place.setup
    puller = Puller(site, source, setup.scale, coins=setup.room.coins, end="budget", after=lambda: None)
    working = asyncio.create_task(puller.run())
    while not working.done() and site.pulls < 40:
        await asyncio.sleep(0.001)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    await source.close()


def csv_of(path):
    path.write_text("arm,reward\n" + f"a,{RAW}\nb,{RAW}\n" * 400)
    return path


KINDS = ("python", "command", "http", "csv once", "csv with replacement")


def source_of(kind, folder, monkeypatch, private):
    """A source of rewards that are all RAW. Those of an address come without a network."""
    monkeypatch.setattr(FromHttp, "_get", lambda self, url: json.dumps([RAW] * int(url.partition("=")[2])))
    data = csv_of(folder / "outside.csv")
    monkeypatch.syspath_prepend(str(folder))
    (folder / "constant_rewards.py").write_text(
        f"class Constant:\n    def pull(self, arm, times):\n        return [{RAW}] * times\n"
    )
    return {
        "python": lambda: FromPython("constant_rewards:Constant"),
        "http": lambda: FromHttp("http://rewards.example/{arm}?n={times}"),
        "command": lambda: FromCommand(f"sh -c 'while read arm; do echo {RAW}; done'"),
        "csv once": lambda: FromCsv(data, private=private),
        "csv with replacement": lambda: FromCsv(data, rows="resample", seed=1),
    }[kind]()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [True, False])
def test_no_file_of_a_client_or_server_holds_a_raw_reward(tmp_path, monkeypatch, caplog, kind, hidden):
    """The client has made the first block and sent its sums, which the server has stored."""
    rewards = {"west": {"a": {"kind": "beta", "a": 2, "b": 2}, "b": 0.5}, "east": {"c": 0.5}}
    problem = Problem.from_rewards(rewards)
    problem = problem.private(1.0) if hidden else problem
    case = ba.Scenario(problem, "bet", None, {"delta": 0.1, "n1": 20})
    files.init(case, tmp_path / "fed", port=0)
    folds = Folds(tmp_path / "fed", Coins(Problem.bernoulli([[0.5, 0.5], [0.5]])))
    site = folds.sites["west-1"]
    source = source_of(kind, tmp_path, monkeypatch, site.place.setup.scale if hidden else None)
    asyncio.run(pull_some(site, source))
    sums = [event for event in site.journal.events() if event.kind == "rewards"]
    folds.desk.take(site.ups)
    assert "up" in {event.kind for event in folds.desk.journal.events()}
    folds.close()
    found = files_with(tmp_path / "fed", str(RAW)) + ([] if str(RAW) not in caplog.text else ["log"])
    assert sums
    if hidden:
        assert found == []
        body = json.loads(sums[0].body)
        assert all(total == int(total) for total in body["sums"])
        assert not any(digest for _, digest in body.get("played", {}).values())
    else:
        assert found  # otherwise the test could not fail


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", [True, False])
def test_no_file_of_a_peer_holds_a_raw_reward(tmp_path, monkeypatch, caplog, kind, hidden):
    rewards = {"west": {"a": {"kind": "beta", "a": 2, "b": 2}, "b": 0.5}, "east": {"c": 0.5}}
    problem = Problem.from_rewards(rewards)
    problem = problem.private(1.0) if hidden else problem
    case = ba.Scenario(problem, "p2p", None, {"exchange": "intervals"}, network=ba.Network(complete(2)))
    mesh_files.init(*mesh_files.terms_of(case, {}), tmp_path / "mesh", port=0)
    place = mesh_files.Place.load(mesh_files.place_of(tmp_path / "mesh", problem.layout, "west-1"))
    node = Node.open(place)
    source = source_of(kind, tmp_path, monkeypatch, place.setup.scale if hidden else None)
    asyncio.run(pull_some(node, source))
    bodies = [json.loads(event.body) for event in node.journal.events() if event.kind == "rewards"]
    node.journal.close()
    assert node.pulls >= 40
    whole = all(total == int(total) for body in bodies for total in body["sums"])
    assert whole == hidden  # sums of answers are whole numbers; if not hidden, the test can fail
    assert not hidden or not any(digest for body in bodies for _, digest in body.get("played", {}).values())
    assert not hidden or files_with(tmp_path / "mesh", str(RAW)) == []
    assert str(RAW) not in caplog.text


def test_an_experiment_refuses_privacy():
    """It stores rewards as they are told, so it could not keep the promise."""
    with pytest.raises(InputError, match="an experiment stores rewards"):
        ba.Experiment(["A", "B"], privacy=1.0)


@pytest.mark.parametrize("reward", [7.25, "seven", [1, 2]])
def test_errors_about_rewards_do_not_show_them(reward):
    class Bad(Source):
        async def _fetch(self, arm, times):
            return [reward]

    class Worse(Source):
        async def _fetch(self, arm, times):
            raise ValueError(f"the reward was {reward}")

    scale = Scale(privacy=1.0)
    for source, error in ((Bad("x", private=scale), InputError), (Worse("x", private=scale), SourceFailed)):
        source.retry = type(source.retry)(attempts=1)
        with pytest.raises(error) as caught:
            asyncio.run(source.pull("a", 1))
        assert "not shown, for privacy" in str(caught.value)
        assert str(reward) not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_trial_of_a_source_shows_no_reward(tmp_path):
    problem = Problem.from_rewards({"west": {"a": 0.5, "b": 0.5}, "east": {"c": 0.5}})
    case = ba.Scenario(problem.private(1.0), "bet")
    files.init(case, tmp_path / "fed", port=0)
    place = files.Place.load(tmp_path / "fed" / "clients" / "west-1")
    site = Fresh(place, problem.layout.groups[0])
    made = FromCsv(csv_of(tmp_path / "x.csv"), private=place.setup.scale)
    found = asyncio.run(try_source(lambda site: made, site))
    assert all(str(RAW)[:5] not in finding.what for finding in found)
    assert any("random answer" in finding.what for finding in found)
