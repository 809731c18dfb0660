"""Before a run: what it will cost, and which schedule fits a communication budget.

``plan`` runs quick exact studies of each method on known (or guessed) means and puts beside them what the
theorems promise and what no method can beat. ``schedule`` looks for the schedule that most probably ends
within so many rounds or bits. Both are forecasts for the means that they were given; δ holds whatever the
means are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError, nearest, shorten
from bestarm.kernels import kernel_for
from bestarm.problem import Problem
from bestarm.protocol import METHODS
from bestarm.protocol.fisher import PREFERENCES, looks_of
from bestarm.rewards import Recording, tabulate
from bestarm.scenario import Scenario
from bestarm.simulate import as_pulled, check_network, check_seed, on_unit_scale, options_for, prepare
from bestarm.study import LIMIT_ARMS, StudyProgress, Trials, binomial_interval, study
from bestarm.theory import Bounds, Heterogeneity, Limit, bounds, heterogeneity, limit, one_round

SURE = 0.95  # the share of runs that a sufficient budget lets decide
MOST_WORK = 20_000_000  # rounds times trials of a study: about half a minute
MOST_PULLS = 2e10  # of a client in Fed-SEL: likewise
MOST_STEPS = 2_000_000  # rounds times clients times trials through the machines: some minutes
SEARCH_TRIALS = 200
MACHINE_TRIALS = 50  # of a method whose runs go through the machines one by one
ASSUMPTION = "The gaps are guesses: 0/1 rewards were assumed, with {best:g} as the mean of the best arm."
RECORDED = (
    "The recorded rewards' own means were taken, and runs draw from them with replacement: none runs out."
)
HEURISTIC = (
    "A heuristic: the best of {tried} schedules that were tried on simulated runs with these means; another "
    "may be better, and other means may want another. A schedule is fixed before the data, so the verdict is "
    "wrong with probability at most delta whatever the means are."
)


@dataclass(frozen=True)
class Range:
    """A cost over runs: mean, median, and the smallest closed range that holds 90 % of new runs.

    `share` is the part of new runs to expect inside. It is 0.9 for a cost with many values; rounds, bits and
    the pulls of a few large looks have few, and where no range of them holds 90 %, the next larger share is
    stated instead.
    """

    mean: float
    median: float
    low: float
    high: float
    share: float

    @staticmethod
    def of(values: NDArray[Any]) -> Range:
        """The range of a study's column."""
        ordered, runs = np.sort(values), len(values)
        before = np.searchsorted(ordered, ordered, "left")  # how many are smaller
        after = runs - np.searchsorted(ordered, ordered, "right")
        # Of n runs, a range from the r-th to the s-th holds a new one with probability (s − r)/(n + 1).
        wanted = min(runs, int(np.ceil(0.9 * (runs + 1))) + 1)
        ends = np.minimum(before + wanted, runs) - 1  # for each low end the first high end that is far enough
        inside = runs - before - after[ends]
        balance = np.abs(before - after[ends])
        first = int(np.lexsort((balance, np.where(inside >= wanted, inside, runs + 1)))[0])
        low, high = float(ordered[first]), float(ordered[ends[first]])
        share = float(inside[first] - 1) / (runs + 1)
        return Range(float(np.mean(values)), float(np.median(values)), low, high, share)


@dataclass(frozen=True)
class Cost:
    """What runs cost: pulls of all clients and of the longest one, rounds, bits up and down.

    `decided` is the share of the runs that ended with an identified arm.
    """

    pulls: Range
    longest: Range
    rounds: Range
    bits_up: Range
    bits_down: Range
    decided: float

    @staticmethod
    def of(trials: Trials) -> Cost:
        """The costs of a study's runs."""
        pulls, longest, rounds, up, down = (
            Range.of(trials[name]) for name in ("pulls_total", "pulls_max", "rounds", "bits_up", "bits_down")
        )
        return Cost(pulls, longest, rounds, up, down, _decided(trials))


@dataclass(frozen=True)
class Chance:
    """How many runs decide with this budget (pulls a client), with an exact 95 % interval."""

    budget: int
    decided: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class MethodPlan:
    """One method's forecast. `cost` is None where runs can't be simulated to their end; `why_not` says why.

    `enough` is the smallest budget found that lets 95 % of the runs decide, checked on fresh runs;
    `at_budget` how many decide at the user's own; `trials` the runs behind each number.
    """

    name: str
    method: str
    options: dict[str, Any]
    cost: Cost | None
    bounds: Bounds | None
    enough: Chance | None
    at_budget: Chance | None
    trials: int
    why_not: str = ""


@dataclass(frozen=True)
class PlanProgress:
    """The number of the study that is running, its method, and its trials: done and in all."""

    study: int
    method: str
    done: int
    total: int


Watch = Callable[[PlanProgress], None]


@dataclass(frozen=True)
class Plan:
    """A forecast for each method, the limit, and advice from measured alternatives.

    `left_out` has the methods that can't serve the problem, and why.
    """

    delta: float
    trials: int
    seed: int
    budget: int | None
    heterogeneity: Heterogeneity
    limit: Limit | None
    methods: tuple[MethodPlan, ...]
    advice: tuple[str, ...]
    left_out: dict[str, str]
    assumption: str = ""

    def __getitem__(self, name: str) -> MethodPlan:
        for row in self.methods:
            if row.name == name:
                return row
        raise InputError(f'"{name}" is not in the plan', fix=nearest(name, [m.name for m in self.methods]))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what is unbounded or unknown is null."""
        h, least = self.heterogeneity, self.limit
        rows = [
            {
                "name": row.name,
                "method": row.method,
                "options": row.options,
                "cost": dataclasses.asdict(row.cost) if row.cost else None,
                "bounds": _bounds_to_dict(row.bounds) if row.bounds else None,
                "enough": dataclasses.asdict(row.enough) if row.enough else None,
                "at_budget": dataclasses.asdict(row.at_budget) if row.at_budget else None,
                "trials": row.trials,
                "why_not": row.why_not,
            }
            for row in self.methods
        ]
        plain = {
            "delta": self.delta,
            "trials": self.trials,
            "seed": self.seed,
            "budget": self.budget,
            "heterogeneity": {
                "groups": list(h.groups),
                "sigma": h.matrix.tolist(),
                "local_gaps": h.local_gaps.tolist(),
                "global_gaps": h.global_gaps.tolist(),
            },
            "limit": least and {k: getattr(least, k) for k in ("total", "longest", "coins")},
            "methods": rows,
            "advice": list(self.advice),
            "left_out": self.left_out,
            "assumption": self.assumption,
        }
        result: dict[str, Any] = _finite(plain)
        return result


def plan(
    problem: Problem | Scenario | Mapping[str, Sequence[float]],
    *,
    delta: float | None = None,
    trials: int = 1000,
    seed: int | None = None,
    budget: int | None = None,
    methods: Sequence[str] | None = None,
    quick: bool = False,
    workers: int | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Plan:
    """What each method will cost on a problem whose means are known, or whose gaps are guessed.

    `problem` may be a mapping of guessed gaps, as ``problem_from_gaps`` takes it. `budget` is pulls a
    client; `options` are those of the methods, and a scenario's are the defaults. Without `methods`, all are
    planned for that can serve the problem, Fed-Fisher once for each `prefer`. At most 50 runs go through the
    machines one by one where a method has nothing quicker. With `quick`, no budget is searched for and no
    alternative is measured.

    >>> import bestarm as ba
    >>> found = ba.plan(ba.Problem.bernoulli([[.9, .3], [.5, .2]]), delta=0.1, trials=200, seed=1, quick=True)
    >>> [row.name for row in found.methods]
    ['fed-sel', 'fisher (pulls)', 'fisher (rounds)', 'fisher (bits)']
    >>> found["fed-sel"].cost.rounds.high <= found["fed-sel"].bounds.rounds
    True
    """
    assumption = ""
    if isinstance(problem, Mapping):
        problem, assumption = problem_from_gaps(problem), ASSUMPTION.format(best=0.5)
    keys = {**options, **({} if delta is None else {"delta": delta})}
    left_out: dict[str, str] = {}
    if methods is None:
        methods, left_out = _plannable(problem if isinstance(problem, Scenario) else Scenario(problem), keys)
    scenario = _scenario(problem, keys, methods)
    if _recorded(problem.problem if isinstance(problem, Scenario) else problem):
        assumption = RECORDED
    seed = check_seed(scenario.seed if seed is None else seed)
    own = scenario.options.pop("budget", None)
    budget = own if budget is None else budget
    if budget is not None:
        for method in methods:
            prepare(scenario, method, {"budget": budget})  # checks it
    h = heterogeneity(scenario.problem)
    variants = list(_variants(scenario, methods))
    bench = _Bench(scenario, trials, seed, workers, watch)
    rows = tuple(_forecast(bench, name, method, chosen, budget, quick) for name, method, chosen in variants)
    level = prepare(scenario, methods[0], {})[2].delta
    best = _limit(scenario.problem, level, methods)
    advice = () if quick else tuple(_advice(bench, h, best, rows, budget))
    return Plan(level, trials, seed, budget, h, best, rows, advice, left_out, assumption)


def expected(
    problem: Problem, method: str, *, trials: int = 200, seed: int | None = None, **options: Any
) -> MethodPlan:
    """What runs of one method with these very options cost: a plan's row, without budgets or advice.

    >>> import bestarm as ba
    >>> row = expected(ba.Problem.bernoulli([[.9, .3], [.5, .2]]), "fisher", trials=50, seed=1, delta=0.1)
    >>> row.cost.decided
    1.0
    """
    bench = _Bench(_scenario(problem, options, [method]), trials, check_seed(seed), 1, None)
    return _forecast(bench, method, method, {}, None, quick=True)


def _recorded(problem: Problem) -> bool:
    return any(isinstance(model, Recording) for row in problem.rewards for model in row)


def _redrawn(problem: Problem) -> Problem:
    """The problem with recordings that don't end: their own means are known, and draws are made from them."""
    if not _recorded(problem):
        return problem
    rewards = tuple(
        tuple(tabulate(model.values) if isinstance(model, Recording) else model for model in row)
        for row in problem.rewards
    )
    layout = dataclasses.replace(problem.layout, finite=False)
    return dataclasses.replace(problem, layout=layout, rewards=rewards)


def problem_from_gaps(groups: Mapping[str, Sequence[float]], best: float = 0.5) -> Problem:
    """A problem from guessed gaps: for each group how far each of its arms lies below the best arm of all.

    Exactly one gap is 0. Rewards are assumed to be 0/1 with `best` as the best arm's mean; at 0.5 chance is
    widest, so a plan made from it rather asks for too many pulls than for too few.

    >>> problem_from_gaps({"north": [0, 0.1], "south": [0.05]}).means
    ((0.5, 0.4), (0.45,))
    """
    if not isinstance(groups, Mapping) or not groups:
        raise InputError(f"{shorten(groups)} describes no gaps", expected="{group: [gap of each arm]}")
    if isinstance(best, bool) or not isinstance(best, int | float) or not 0.0 < best <= 1.0:
        raise InputError(f"best = {shorten(best)} can't be used", expected="a mean in (0, 1]")
    means: dict[str, dict[str, float]] = {}
    zeros = 0
    for name, gaps in groups.items():
        if isinstance(gaps, str) or not isinstance(gaps, Sequence):
            raise InputError(f"{shorten(gaps)} is no list of gaps", where=f'group "{name}"')
        for gap in gaps:
            if isinstance(gap, bool) or not isinstance(gap, int | float) or not 0.0 <= gap <= best:
                raise InputError(
                    f"the gap {shorten(gap)} can't be used",
                    where=f'group "{name}"',
                    expected=f"a number from 0 to {best:g}, the mean assumed for the best arm",
                )
            zeros += gap == 0
        means[name] = {f"a{i}": round(best - gap, 12) for i, gap in enumerate(gaps, start=1)}
    if zeros != 1:
        raise InputError(f"{zeros} of the gaps are 0", expected="exactly one: that of the best arm")
    return Problem.from_rewards(means)


class _Bench:
    """Runs the studies of one plan; each number of a study has a seed of its own.

    Runs with rounds of a fixed length are given up after so many that the study would take too long, and
    count as undecided.
    """

    def __init__(
        self, scenario: Scenario, trials: int, seed: int, workers: int | None, watch: Watch | None
    ) -> None:
        if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
            raise InputError(f"trials = {trials!r} can't be used", expected="a whole number of at least 1")
        self.scenario, self.trials, self.seed, self.workers = scenario, trials, seed, workers
        self.watch, self.studies = watch, 0

    def run(self, method: str, keys: Mapping[str, Any], number: int, trials: int | None = None) -> Trials:
        words = np.random.SeedSequence(self.seed, spawn_key=(number,)).generate_state(2, np.uint32)
        seed = int(words[0]) << 21 | int(words[1]) >> 11
        trials = self.trials_of(method, keys) if trials is None else trials
        if method in ROUNDS:
            own = keys.get("max_rounds") or self.scenario.options.get("max_rounds") or MOST_WORK
            most = MOST_WORK
            if not self.quick(method, keys):
                most = MOST_STEPS // len(self.scenario.problem.layout.clients)
            keys = {**keys, "max_rounds": min(own, max(1, most // trials))}
        self.studies += 1

        def told(progress: StudyProgress) -> None:
            if self.watch is not None:
                self.watch(PlanProgress(self.studies, method, progress.done, progress.total))

        return study(
            self.scenario, method, trials=trials, seed=seed, workers=self.workers, watch=told, **keys
        )

    def quick(self, method: str, keys: Mapping[str, Any]) -> bool:
        """Whether a kernel runs these, and not the machines one by one."""
        problem, _, chosen = prepare(self.scenario, method, keys)
        unit, liars = on_unit_scale(chosen, problem.scale), self.scenario.adversaries
        return kernel_for(method, as_pulled(problem, method), unit, liars) is not None

    def trials_of(self, method: str, keys: Mapping[str, Any]) -> int:
        """The runs behind a number."""
        return self.trials if self.quick(method, keys) else min(self.trials, MACHINE_TRIALS)

    def chance(
        self, method: str, keys: Mapping[str, Any], budget: int, number: int, trials: int | None = None
    ) -> Chance:
        """How many fresh runs decide with this budget."""
        found = self.run(method, {**keys, "budget": budget}, number, trials)
        decided = int((found["status"] == "identified").sum())
        return Chance(budget, decided / len(found), binomial_interval(decided, len(found)))


FIRST, SEARCH, CHECK, OWN, INSTEAD = range(5)  # numbers of studies
ROUNDS = ("fed-sel", "robust-fed-sel")  # methods with rounds of a fixed length
LOCAL = (*ROUNDS, "p2p")  # methods in which each client finds its own best arm first


def _forecast(
    bench: _Bench, name: str, method: str, keys: dict[str, Any], budget: int | None, quick: bool
) -> MethodPlan:
    problem, _, chosen = prepare(bench.scenario, method, keys)
    promised = _promise(problem, method, chosen)
    why_not = _endless(problem, method, chosen, promised, bench.trials)
    cost = enough = None
    if not why_not:
        found = bench.run(method, keys, FIRST)
        cost = Cost.of(found)
        enough = None if quick else _enough(bench, method, keys, found)
    at_budget = None if budget is None else bench.chance(method, keys, budget, OWN)
    trials = bench.trials_of(method, keys)
    return MethodPlan(name, method, keys, cost, promised, enough, at_budget, trials, why_not)


def _promise(problem: Problem, method: str, options: Any) -> Bounds | None:
    """The corrected Theorem 1, where it speaks of these options."""
    spoken_of = (
        method == "fed-sel"
        and options.c > 2.0
        and options.epsilon == 0.0
        and options.period_growth == 1.0
        and not options.early_stop
    )
    return bounds(problem, options.delta, options.c, options.period, options.radius) if spoken_of else None


def _endless(problem: Problem, method: str, options: Any, promised: Bounds | None, trials: int) -> str:
    """Why runs can't be simulated to their end; empty if they can."""
    if problem.layout.finite or options.epsilon > 0.0:
        return ""
    if ties := problem.ties(local=method in LOCAL):
        return f"{ties[0]}; without epsilon or a budget it never ends"
    if promised is None:
        return ""
    rounds = min(promised.rounds, options.max_rounds or np.inf)
    if rounds * trials > MOST_WORK:
        return f"up to {rounds:,.0f} rounds, too many to simulate here; a longer period makes it fewer"
    if (pulls := promised.phase1_most.max()) > MOST_PULLS:
        return f"up to {pulls:.1g} pulls of one client, too many to simulate here; epsilon makes it fewer"
    return ""


def _enough(bench: _Bench, method: str, keys: Mapping[str, Any], found: Trials) -> Chance | None:
    """The smallest budget that lets 95 % decide: from a quantile, down by bisection, and up by a check.

    In Fed-Fisher a run decides exactly if no client needs more than the budget. Elsewhere fewer pulls may
    do, often far fewer: a client that is out of them keeps its interval, and may be beaten all the same.
    """
    if _decided(found) < SURE:
        return None
    few = min(bench.trials, SEARCH_TRIALS if bench.quick(method, keys) else MACHINE_TRIALS // 2)
    budget = int(np.quantile(found["pulls_max"], SURE, method="higher"))
    if method in ROUNDS:
        # A run that a short budget drags on for far more rounds than any other counts as undecided here.
        own = bench.scenario.options.get("max_rounds") or MOST_WORK
        keys = {**keys, "max_rounds": min(own, 5 * int(found["rounds"].max()) + 10)}
    if method in LOCAL:
        low, high = max(bench.scenario.problem.layout.arm_counts) - 1, budget
        while high - low > max(1.0, 0.02 * high):
            middle = max(low + 1, int(np.sqrt(float(max(low, 1)) * high)))
            if bench.chance(method, keys, middle, SEARCH, few).decided >= SURE:
                high = middle
            else:
                low = middle
        budget = high
    for _ in range(50):
        checked = bench.chance(method, keys, budget, CHECK)
        if checked.decided >= SURE:
            return checked
        budget += max(1, budget // 100)
    return None


def _advice(
    bench: _Bench, h: Heterogeneity, best: Limit | None, rows: Sequence[MethodPlan], budget: int | None
) -> Iterator[str]:
    """Sentences, each from a study of the alternative that it names."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.why_not:
            reasons.setdefault(row.why_not, []).append(row.name)
    for why_not, names in reasons.items():
        yield f"{'; '.join(names)}: {why_not}."
    measured = [(row, row.cost) for row in rows if row.cost is not None]
    for row, cost in measured:
        if row.method == "fed-sel":
            yield from _fed_sel_advice(bench, h, row, cost)
    if measured:
        first, least = min(measured, key=lambda pair: pair[1].pulls.mean)
        for row, cost in measured:
            if row is not first:
                yield (
                    f"Against {first.name}, {row.name} takes "
                    f"{_change(cost.pulls.mean, least.pulls.mean, 'pulls')} and "
                    f"{_change(cost.rounds.mean, least.rounds.mean, 'rounds')} "
                    f"({cost.rounds.mean:.1f} instead of {least.rounds.mean:.1f})."
                )
        found = [_epsilon_advice(bench, first, least.pulls.mean)]
    else:
        found = [_epsilon_advice(bench, row, np.inf) for row in rows]
    if known := [pair for pair in found if pair is not None]:
        yield min(known)[1]
    if budget is not None:
        yield _budget_advice(rows, best, budget)


def _fed_sel_advice(bench: _Bench, h: Heterogeneity, row: MethodPlan, cost: Cost) -> Iterator[str]:
    chosen = prepare(bench.scenario, row.method, row.options)[2]
    if chosen.c == 8.0 and one_round(bench.scenario.problem):
        yield "sigma_i1 + sigma_1i is at most 2 for every group: on the good event fed-sel needs one round."
    elif cost.rounds.mean > 1.5:
        period = 2 * chosen.period
        other = Cost.of(bench.run(row.method, {**row.options, "period": period}, INSTEAD))
        yield (
            f"sigma = {h.largest:.2g}: with the period doubled to {period:,}, fed-sel takes "
            f"{other.rounds.mean:.1f} rounds instead of {cost.rounds.mean:.1f}, "
            f"for {_change(other.pulls.mean, cost.pulls.mean, 'pulls')}."
        )
    if chosen.radius == "paper":
        other = Cost.of(bench.run(row.method, {**row.options, "radius": "sharp"}, INSTEAD))
        yield (
            f'radius = "sharp" would take fed-sel {_change(other.pulls.mean, cost.pulls.mean, "pulls")}, '
            "with the same delta."
        )


def _epsilon_advice(bench: _Bench, row: MethodPlan, pulls: float) -> tuple[float, str] | None:
    """The smallest of some ε that saves a tenth of the pulls (or lets the run end): its pulls, and words."""
    problem, _, chosen = prepare(bench.scenario, row.method, row.options)
    if chosen.epsilon > 0.0:
        return None
    width = problem.scale.high - problem.scale.low
    for epsilon in (0.01 * width, 0.02 * width, 0.05 * width, 0.1 * width):
        few = min(row.trials, SEARCH_TRIALS)
        other = Cost.of(bench.run(row.method, {**row.options, "epsilon": epsilon}, INSTEAD, few))
        if other.decided < SURE or other.pulls.mean > 0.9 * pulls:
            continue
        saved = (
            f"save {_percent(1.0 - other.pulls.mean / pulls)} of the pulls"
            if np.isfinite(pulls)
            else f"let it end after {other.pulls.mean:,.0f} pulls on average"
        )
        return other.pulls.mean, (
            f"epsilon = {epsilon:g} would {saved} ({row.name}); "
            "the answer may then be that far from the best."
        )
    return None


def _budget_advice(rows: Sequence[MethodPlan], best: Limit | None, budget: int) -> str:
    chances = [(row, row.at_budget) for row in rows if row.at_budget is not None]
    row, chance = max(chances, key=lambda pair: pair[1].decided)
    text = (
        f"At your budget of {budget:,} pulls a client "
        f"{row.name} decides in {_percent(chance.decided)} of the runs"
    )
    if chance.decided >= SURE:
        return f"{text}: it is enough."
    word = "not decidable" if chance.decided < 0.5 else "often not decidable"
    needs = [(r.enough.budget, r.name) for r in rows if r.enough is not None]
    least = f"; {min(needs)[1]} needs {min(needs)[0]:,} for {_percent(SURE)}" if needs else ""
    ideal = f" Even an ideal method needs {best.longest:,.0f} on average to decide always." if best else ""
    return f"{text}, so this is {word}{least}.{ideal}"


@dataclass(frozen=True)
class Schedule:
    """A schedule for a communication budget, and what it does on fresh runs.

    `probability` is that of an identified verdict within the budget, with an exact 95 % `interval`.
    """

    method: str
    options: dict[str, Any]
    probability: float
    interval: tuple[float, float]
    cost: Cost
    tried: int
    note: str


def schedule(
    problem: Problem | Scenario,
    *,
    max_rounds: int | None = None,
    max_bits: int | None = None,
    delta: float | None = None,
    trials: int = 1000,
    seed: int | None = None,
    budget: int | None = None,
    methods: Sequence[str] | None = None,
    workers: int | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Schedule:
    """The schedule that most probably ends with a verdict within so many rounds, or bits up and down.

    It is a heuristic: a fixed list of schedules (Fed-SEL: `period` and `period_growth`; Fed-Fisher: `n0`,
    `q` and `quiet`) is tried by study. Of those that are within a hundredth of the best probability, the
    one with the fewest pulls is taken, and measured once more on fresh runs. A schedule is fixed before the
    data, so δ holds for each of them. More pulls can stand in for rounds; `budget` limits them (a client).
    Without `methods`, Fed-SEL and Fed-Fisher are tried where they can serve the problem.

    >>> import bestarm as ba
    >>> found = ba.schedule(ba.Problem.paper_instance(5), max_rounds=2, delta=0.1, trials=200, seed=1)
    >>> found.method, found.probability > 0.9, found.cost.rounds.high <= 2
    ('fisher', True, True)
    """
    if max_rounds is None and max_bits is None:
        raise InputError("there is no communication budget", expected="max_rounds, max_bits or both")
    if max_bits is not None and (isinstance(max_bits, bool) or not isinstance(max_bits, int) or max_bits < 1):
        raise InputError(f"max_bits = {max_bits!r} can't be used", expected="a whole number of at least 1")
    keys = {
        key: value
        for key, value in {"delta": delta, "max_rounds": max_rounds, "budget": budget}.items()
        if value is not None
    }
    if methods is None:
        base = problem if isinstance(problem, Scenario) else Scenario(problem)
        methods = [m for m in _plannable(base, {**options, **keys})[0] if m in ("fed-sel", "fisher")]
    scenario = _scenario(problem, {**options, **keys}, methods)
    seed = check_seed(scenario.seed if seed is None else seed)
    if max_bits is not None:
        # A round has a broadcast with a bit for each group (the last one has less): no more can fit.
        most = 2 + max_bits // max(1, len(scenario.problem.layout.groups))
        scenario.options["max_rounds"] = min(most, scenario.options.get("max_rounds", most))
    bench = _Bench(scenario, trials, seed, workers, watch)

    def within(found: Trials) -> int:
        """Runs that decide within the communication budget."""
        bits = found["bits_up"] + found["bits_down"]
        fits = bits <= (np.inf if max_bits is None else max_bits)
        return int(((found["status"] == "identified") & fits).sum())

    tried = []
    for method, own in _candidates(scenario, methods):
        few = min(bench.trials_of(method, own), SEARCH_TRIALS)
        found = bench.run(method, own, SEARCH, few)
        tried.append((within(found) / few, float(found["pulls_total"].mean()), method, own))
    if not tried:
        raise InputError(
            "no method can be tried: runs that never end can't be simulated",
            fix="Set epsilon, or a budget of pulls",
        )
    top = max(row[0] for row in tried)
    _, _, method, own = min((row for row in tried if row[0] >= top - 0.01), key=lambda row: row[1])
    found = bench.run(method, own, CHECK)
    hits = within(found)
    return Schedule(
        method,
        own,
        hits / len(found),
        binomial_interval(hits, len(found)),
        Cost.of(found),
        len(tried),
        HEURISTIC.format(tried=len(tried)),
    )


def _candidates(scenario: Scenario, methods: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Schedules worth a try: from few pulls to many, with early looks apart or in one."""
    for method in methods:
        problem, _, chosen = prepare(scenario, method, {})
        ties = problem.ties(local=method in LOCAL)
        if ties and chosen.epsilon == 0.0 and chosen.budget is None and not problem.layout.finite:
            continue
        if method in ROUNDS:
            for period in (100, 1_000, 10_000, 100_000, 1_000_000):
                for growth in (1.0, 2.0, 4.0):
                    yield method, {"period": period, "period_growth": growth}
        elif method == "fisher":
            for q in (1.5, 2.0, 3.0, 4.0, 8.0):
                # The first look that is sent has 32 to some 100,000 pulls an arm.
                for quiet in range(int(np.ceil(np.log(4096.0) / np.log(q))) + 1):
                    yield method, {"n0": 32, "q": q, "quiet": quiet}


def _variants(scenario: Scenario, methods: Sequence[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The methods to plan for: Fed-Fisher once for each `prefer` that makes a difference."""
    for method in methods:
        if method != "fisher":
            yield method, method, {}
            continue
        seen = set()
        for prefer in PREFERENCES:
            problem, _, chosen = prepare(scenario, method, {"prefer": prefer})
            looks = looks_of(problem.layout, on_unit_scale(chosen, problem.scale))
            if (looks.n0, looks.q, looks.quiet) not in seen:
                seen.add((looks.n0, looks.q, looks.quiet))
                yield f"fisher ({prefer})", method, {"prefer": prefer}


def _plannable(scenario: Scenario, keys: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The methods that can serve the problem, and why the others can't; InputError if none can."""
    methods, refused = [], {}
    for name in METHODS:
        try:
            problem, _, chosen = prepare(scenario, name, options_for(name, keys))
            check_network(problem, name, chosen, scenario.network, adversaries=scenario.adversaries)
        except InputError as error:
            refused[name] = error
            continue
        if name == "robust-fed-sel" and len(problem.layout.clients) == len(problem.layout.groups):
            refused[name] = InputError("with one client a group it is fed-sel")
        else:
            methods.append(name)
    if not methods:
        raise next(iter(refused.values()))
    return methods, {name: str(error) for name, error in refused.items()}


def _scenario(problem: Problem | Scenario, keys: Mapping[str, Any], methods: Sequence[str]) -> Scenario:
    """The problem as a scenario with these keys set, all of them known to one of the methods."""
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise InputError(f"methods = {shorten(methods)} can't be used", expected="a list of methods")
    known: set[str] = set()
    for method in methods:
        if method not in METHODS:
            raise InputError(f"method {shorten(method)} is unknown", fix=nearest(str(method), METHODS))
        known |= set(METHODS[method].options.__dataclass_fields__)
    for key in keys:
        if key not in known:
            raise InputError(f'key "{key}" is unknown', fix=nearest(key, known))
    base = problem if isinstance(problem, Scenario) else Scenario(problem)
    base.problem.demand_rewards()
    scenario = dataclasses.replace(base, options={**base.options, **keys})
    for method in methods:
        prepare(scenario, method, options_for(method, keys))
    scenario = dataclasses.replace(scenario, problem=_redrawn(scenario.problem))
    heterogeneity(scenario.problem)  # the means must be known
    return scenario


def _limit(problem: Problem, delta: float, methods: Sequence[str]) -> Limit | None:
    """The limit, where there is one for all these methods (it is for 0/1 rewards) and it is quickly found."""
    binary = all(group.binary for group in problem.layout.groups)
    if not binary and not all(METHODS[method].coins for method in methods):
        return None
    if sum(problem.layout.arm_counts) > LIMIT_ARMS or problem.best is None:
        return None
    return limit(problem, delta)


def _decided(trials: Trials) -> float:
    return float((trials["status"] == "identified").mean())


def _change(new: float, old: float, what: str) -> str:
    """How much more or less `new` is than `old`, in words.

    >>> [_change(new, 100, "pulls") for new in (102, 53, 100.01, 700)]
    ['2 % more pulls', '47 % fewer pulls', 'about as many pulls', '7.0 times as many pulls']
    """
    ratio = new / old if old else np.inf
    if abs(ratio - 1.0) < 0.005:
        return f"about as many {what}"
    if ratio >= 2.0:
        return f"{ratio:,.{0 if ratio >= 10.0 else 1}f} times as many {what}"
    return f"{_percent(abs(ratio - 1.0))} {'more' if ratio > 1.0 else 'fewer'} {what}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"


def _bounds_to_dict(found: Bounds) -> dict[str, Any]:
    return {
        "rounds": found.rounds,
        "one_round": found.one_round,
        "pulls_least": found.pulls_least,
        "pulls_most": found.pulls_most,
        "longest_most": found.longest_most,
        "by_group": found.rows(),
    }


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
