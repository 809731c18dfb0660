"""Whole trials at once: the methods over arrays of (trials, clients, arms).

A kernel makes every decision through ``protocol.decide``, as the machines do, and draws the very batches
that the machines would ask for; ``script`` holds those of one trial, so that the machines can be run on
them (``Trials.record``) and must come to the same record.

A kernel is ``kernel(problem, options, rng, trials, trace) -> (columns, script)``. It has a row in
``KERNELS``; options that it can't do make ``study`` run the machines trial by trial.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm.adversary import Adversary, check_adversaries, target
from bestarm.confidence import MAX_COUNT, Radius, radius
from bestarm.problem import Layout, Problem
from bestarm.protocol import decide, fedsel, method_for
from bestarm.protocol import fisher as fisher_machine
from bestarm.protocol.codec import width_of
from bestarm.protocol.elimination import end_by_epsilon, least_count
from bestarm.protocol.messages import look_report_bits, refinement_bits, report_bits
from bestarm.protocol.pooled import Pool
from bestarm.protocol.pooled import Server as PoolServer
from bestarm.rewards import Bernoulli, Coined, RewardModel

Columns = dict[str, NDArray[Any]]
Script = dict[int, list[tuple[tuple[int, ...], int, tuple[float, ...]]]]

CHUNK = 1 << 14  # (client, arm) pairs that are worked on at a time: they stay in the processor's cache
LONGEST = 500_000_000  # epochs in a batch: NumPy's hypergeometric draws take no more than 10⁹
REASONS = {decide.CONTRADICTION: "contradiction", decide.BUDGET: "budget", decide.ROUNDS: "rounds"}


class Arms:
    """The reward models of all clients as arrays, drawn from in one call where they are Bernoulli."""

    def __init__(self, problem: Problem) -> None:
        counts = [len(models) for models in problem.rewards]
        shape = (len(counts), max(counts))
        self.valid = np.arange(shape[1]) < np.asarray(counts)[:, None]
        self.p = np.zeros(shape)
        self.mean = np.zeros(shape)
        self.known = True
        self.other: dict[int, tuple[RewardModel, NDArray[np.bool_]]] = {}
        by_group = problem.means
        for i, (client, models) in enumerate(zip(problem.layout.clients, problem.rewards, strict=True)):
            for a, (model, mean) in enumerate(
                zip(models, by_group[problem.layout.group_of[client]], strict=True)
            ):
                self.known &= mean is not None
                self.mean[i, a] = np.nan if mean is None else mean
                if isinstance(model, Bernoulli | Coined) and model.p is not None:
                    self.p[i, a] = model.p
                else:
                    where = self.other.setdefault(id(model), (model, np.zeros(shape, dtype=bool)))[1]
                    where[i, a] = True

    def sums(self, rng: np.random.Generator, clients: decide.Ints, times: decide.Ints) -> decide.Floats:
        """For each row (a client) and arm the sum of `times` draws; 0 times costs next to nothing."""
        found = rng.binomial(times, self.p[clients]).astype(np.float64)
        for model, where in self.other.values():
            mask = where[clients] & (times > 0)
            if mask.any():
                found[mask] = model.sums(rng, times[mask])
        return found

    def sums_of(
        self, rng: np.random.Generator, clients: decide.Ints, arm: decide.Ints, times: int
    ) -> decide.Floats:
        """For each row (a client and one of its arms) the sum of `times` draws."""
        found = rng.binomial(times, self.p[clients, arm]).astype(np.float64)
        for model, where in self.other.values():
            mask = where[clients, arm]
            if mask.any():
                found[mask] = model.sums(rng, np.full(int(mask.sum()), times))
        return found


@dataclass
class Phase1:
    """What Phase I left behind, by (trial, client)."""

    arm: decide.Ints
    epoch: decide.Ints
    sum: decide.Floats
    pulls: decide.Ints
    finished: decide.Mask
    good: decide.Mask
    remaining: decide.Mask


def phase1(
    arms: Arms,
    r: Radius,
    options: Any,
    rng: np.random.Generator,
    trials: int,
    trace: int | None,
    script: Script,
) -> Phase1:
    """Algorithm 1 in every client of every trial. Rows are independent, and worked on in chunks."""
    clients, width = arms.valid.shape
    rows = trials * clients
    left = Phase1(
        arm=np.zeros(rows, dtype=np.int64),
        epoch=np.zeros(rows, dtype=np.int64),
        sum=np.zeros(rows),
        pulls=np.zeros(rows, dtype=np.int64),
        finished=np.zeros(rows, dtype=bool),
        good=np.zeros(rows, dtype=bool),
        remaining=np.zeros((rows, width), dtype=bool),
    )
    radii = [Radius(r.name, k, r.s) for k in r.k]
    cache = {
        float(one.k): (least_count(one, options.c, options.epsilon), end_by_epsilon(one, options.epsilon))
        for one in radii
    }
    ends = np.array([cache[float(one.k)] for one in radii])
    size = max(1, CHUNK // width)
    for start in range(0, rows, size):
        _chunk(arms, r, ends, options, rng, np.arange(start, min(start + size, rows)), left, trace, script)
    return left


def _chunk(
    arms: Arms,
    r: Radius,
    ends: NDArray[np.float64],
    options: Any,
    rng: np.random.Generator,
    row: decide.Ints,
    left: Phase1,
    trace: int | None,
    script: Script,
) -> None:
    clients = arms.valid.shape[0]
    client = row % clients
    own = Radius(r.name, r.k[client], r.s)
    least, over = ends[client].T
    sums = np.zeros((len(row), arms.valid.shape[1]))
    active = arms.valid[client]
    epoch = np.zeros(len(row), dtype=np.int64)
    pulls = np.zeros(len(row), dtype=np.int64)
    good = np.ones(len(row), dtype=bool)
    sums, active = np.asfortranarray(sums), np.asfortranarray(active)  # reductions run over short rows
    p = arms.p[client]
    ahead = Ahead(*sums.shape)
    boundary = own.boundary(epoch, options.c)
    while True:
        safe = decide.skip(sums, active, boundary)
        limits = {
            "least": least,
            "last": np.minimum(over, MAX_COUNT),
            "left": None if options.budget is None else options.budget - pulls,
        }
        times = np.minimum(decide.batch(safe, active, epoch, **limits), LONGEST)
        done = decide.finished(active, epoch, least=least, over=over)
        stop = done | (times == 0)
        if stop.any():
            at = row[stop]
            left.arm[at] = decide.best_arm(sums[stop], active[stop])
            left.sum[at] = np.take_along_axis(sums[stop], left.arm[at, None], axis=1)[:, 0]
            left.epoch[at], left.pulls[at], left.good[at] = epoch[stop], pulls[stop], good[stop]
            left.finished[at], left.remaining[at] = done[stop], active[stop]
            go = np.flatnonzero(~stop)
            if not len(go):
                return
            row, client, epoch, pulls, good, least, over = (
                x[go] for x in (row, client, epoch, pulls, good, least, over)
            )
            sums, active, p = (np.asfortranarray(x[go]) for x in (sums, active, p))
            own, boundary = Radius(r.name, own.k[go], r.s), boundary[go]
            ahead.keep(go)
            continue
        if arms.other:
            drawn = arms.sums(rng, client, times[:, None] * active)
        else:
            far = decide.batch(_reach(p, sums, active, boundary), active, epoch, **limits)
            far = np.minimum(far, LONGEST)
            times, drawn = ahead.draw(rng, p, sums, active, boundary, times, far)
        if trace is not None:
            for at in np.flatnonzero(row // clients == trace):
                which = np.flatnonzero(active[at])
                batch = tuple(which.tolist()), int(times[at]), tuple(drawn[at, which].tolist())
                script.setdefault(int(client[at]), []).append(batch)
        sums = sums + drawn
        epoch = epoch + times
        pulls = pulls + times * active.sum(axis=1)
        boundary = own.boundary(epoch, options.c)
        stay = decide.eliminate(sums, active, boundary)
        fell = np.flatnonzero((stay != active).any(axis=1))
        if len(fell):
            # A decision rests on the arms that left and on the best one: were they within their radius?
            top = decide.best_arm(sums[fell], active[fell])
            rests = active[fell] & ~stay[fell]
            rests[np.arange(len(fell)), top] = True
            alpha = Radius(r.name, own.k[fell], r.s).alpha(epoch[fell])
            off = np.abs(sums[fell] / epoch[fell, None] - arms.mean[client[fell]]) > alpha[:, None]
            good[fell] &= ~(off & rests).any(axis=1)
        active = stay


def _reach(
    p: decide.Floats, sums: decide.Floats, active: decide.Mask, boundary: decide.Floats
) -> decide.Floats:
    """About how many epochs ``decide.quiet`` will vouch for: a guess that costs speed alone where it errs."""
    top = np.max(np.where(active, sums, -np.inf), axis=1)
    slope = np.minimum(np.max(np.where(active, p, 0.0), axis=1)[:, None], 1.0 - p)
    room = boundary[:, None] - top[:, None] + sums
    far = np.maximum(room, 0.0) / np.maximum(slope, 1e-3)
    spread = np.sqrt(far * p * (1.0 - p)) / np.maximum(slope, 1e-3)
    return np.asarray(np.clip(np.min(np.where(active, far - spread, 1e8), axis=1), 1.0, 1e8))


class Ahead:
    """0/1 rewards drawn further ahead than is safe, and handed out in parts that miss no decision.

    A long batch is drawn as its sums alone. If ``decide.quiet`` vouches for it, it is handed out whole. If
    not, its first, safe part is drawn from what is known (given the sum of the whole, that of a part is
    hypergeometric) and the rest is owed: it must come next, since what is known of it has been used.
    """

    def __init__(self, rows: int, arms: int) -> None:
        self.times = np.zeros(rows, dtype=np.int64)
        self.ones = np.zeros((rows, arms), dtype=np.int64, order="F")

    def keep(self, rows: decide.Ints) -> None:
        """Go on with these rows; of the others nothing is asked any more."""
        self.times, self.ones = self.times[rows], np.asfortranarray(self.ones[rows])

    def draw(
        self,
        rng: np.random.Generator,
        p: decide.Floats,
        sums: decide.Floats,
        active: decide.Mask,
        boundary: decide.Floats,
        safe: decide.Ints,
        far: decide.Ints,
    ) -> tuple[decide.Ints, decide.Floats]:
        """For each row a number of epochs, and the sums of its active arms in them."""
        new = self.times == 0
        self.times = np.where(new, np.maximum(safe, far), self.times)
        self.ones += rng.binomial(np.where(new, self.times, 0)[:, None] * active, p)
        times, drawn = self.times.copy(), self.ones * active
        part = np.flatnonzero(
            (times > safe) & ~decide.quiet(sums, active, boundary, times, drawn.astype(np.float64))
        )
        if len(part):
            mine = active[part]
            zeros = mine * times[part, None] - drawn[part]
            drawn[part] = rng.hypergeometric(drawn[part], zeros, mine * safe[part, None])
            times[part] = safe[part]
        self.times = self.times - times
        self.ones = np.asfortranarray((self.ones - drawn) * (active & (self.times > 0)[:, None]))
        return times, drawn.astype(np.float64)


def fed_sel(
    problem: Problem, options: fedsel.Options, rng: np.random.Generator, trials: int, trace: int | None = None
) -> tuple[Columns, Script]:
    """Fed-SEL in `trials` trials; one client a group."""
    layout = problem.layout
    arms = Arms(problem)
    groups = len(layout.groups)
    r = radius(options.radius, groups, layout.arm_counts, options.delta)
    wire = fedsel.wire_of(layout, options)
    script: Script = {}
    found = phase1(arms, r, options, rng, trials, trace, script)
    shape = (trials, groups)
    arm, count, sums = (
        found.arm.reshape(shape),
        found.epoch.reshape(shape).copy(),
        found.sum.reshape(shape).copy(),
    )
    pulls1 = found.pulls.reshape(shape)
    finished = found.finished.reshape(shape)
    remaining = found.remaining.reshape(*shape, -1)
    resolved = finished | (remaining.sum(axis=2) == 1)
    mean_of = np.take_along_axis(np.broadcast_to(arms.mean, remaining.shape), arm[..., None], axis=2)[..., 0]

    live = np.arange(trials)  # trials that go on
    pulls2 = np.zeros(shape, dtype=np.int64)
    good = np.asarray(found.good.reshape(shape).all(axis=1))
    bits_up = np.zeros(trials, dtype=np.int64)
    bits_down = np.zeros(trials, dtype=np.int64)
    rounds = np.zeros(trials, dtype=np.int64)
    outcome = np.zeros(trials, dtype=np.int64)
    winner = np.zeros(trials, dtype=np.int64)
    active = np.ones(shape, dtype=bool)
    spent = ~finished
    lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
    mean = sums / np.maximum(count, 1)
    k = 0
    while len(live):
        own = active[live]
        alpha = r.alpha(np.maximum(count[live], 1))
        mute = np.zeros(len(live), dtype=bool)  # somebody is out of pulls in a run that has no word for that
        if k == 0:
            fresh = own if wire.stoppable else own & finished
            bits_up += (report_bits(wire, count, ~finished) * fresh).sum(axis=1)
            mute = np.asarray(~fresh.all(axis=1))
        else:
            fresh = own & ~spent[live]
            period = decide.period(k, options.period, options.period_growth)
            paid = pulls1[live] + pulls2[live]
            poor = fresh & (count[live] + period > MAX_COUNT)
            if options.budget is not None:
                poor |= fresh & (paid + period > options.budget)
            bits_up[live] += poor.sum(axis=1) * wire.stoppable
            mute = np.asarray(poor.any(axis=1) & (not wire.stoppable))
            spent[live] |= poor
            fresh = fresh & ~poor
            trial, group = np.nonzero(fresh)
            at = live[trial], group
            drawn = arms.sums_of(rng, group, arm[at], period)
            if trace is not None:
                for place in np.flatnonzero(at[0] == trace):
                    batch = (int(arm[at][place]),), period, (float(drawn[place]),)
                    script.setdefault(int(group[place]), []).append(batch)
            sums[at] += drawn
            count[at] += period
            pulls2[at] += period
            alpha = r.alpha(np.maximum(count[live], 1))
            exact = sums[live] / np.maximum(count[live], 1)
            precision = decide.precision(alpha)
            size = refinement_bits(wire, count[live], precision, options.quantiser)
            bits_up[live] += (size * fresh).sum(axis=1)
            if options.quantiser:
                exact = decide.bin_centre(decide.bin_index(exact, precision), precision)
            mean[live] = np.where(fresh, exact, mean[live])
        off = np.abs(sums[live] / np.maximum(count[live], 1) - mean_of[live]) > alpha
        good[live] &= ~(off & fresh).any(axis=1)
        low, high = decide.interval(mean[live], alpha)
        if options.intersect:
            low, high = np.maximum(low, lower[live]), np.minimum(high, upper[live])
        lower[live], upper[live] = np.where(own, low, lower[live]), np.where(own, high, upper[live])
        last = options.max_rounds is not None and k + 1 >= options.max_rounds
        stay, code, first = decide.close_round(
            lower[live],
            upper[live],
            own,
            resolved[live],
            spent[live],
            epsilon=options.epsilon,
            last_round=last,
        )
        k += 1
        code = np.where(mute, decide.BUDGET, code)
        rounds[live] = np.where(mute, k - 1, k)
        active[live] = stay
        outcome[live], winner[live] = code, first
        over = code != decide.GO_ON
        onward = 1 + int(options.early_stop) + groups
        ends = live[over]
        won = outcome[ends] == decide.IDENTIFIED
        names = np.array([width_of(groups) + width_of(n) for n in layout.arm_counts])
        bits_down[ends] += 2 + won * names[winner[ends]]
        live = live[~over]
        bits_down[live] += onward
    picked = arm[np.arange(trials), winner]
    events = good.astype(object) if arms.known else np.full(trials, None, dtype=object)
    return _columns(
        layout, outcome, winner, picked, events, rounds, pulls1, pulls2, bits_up, bits_down
    ), script


def _columns(
    layout: Layout,
    outcome: decide.Ints,
    winner: decide.Ints,
    picked: decide.Ints,
    good: NDArray[Any],
    rounds: decide.Ints,
    pulls1: decide.Ints,
    pulls2: decide.Ints,
    bits_up: decide.Ints,
    bits_down: decide.Ints,
) -> Columns:
    """A study's columns; pulls are by (trial, client)."""
    identified = outcome == decide.IDENTIFIED
    arm_names = [
        layout.arm(int(j), int(a)) if ok else None
        for ok, j, a in zip(identified, winner, picked, strict=True)
    ]
    per_client = pulls1 + pulls2
    return {
        "status": np.where(identified, "identified", "undecided"),
        "arm": np.array(arm_names, dtype=object),
        "good_event": good,
        "rounds": rounds,
        "pulls_total": per_client.sum(axis=1),
        "pulls_phase1": pulls1.sum(axis=1),
        "pulls_phase2": pulls2.sum(axis=1),
        "pulls_max": per_client.max(axis=1, initial=0),
        "bits_up": bits_up,
        "bits_down": bits_down,
        "reason": np.array([REASONS.get(int(code)) for code in outcome], dtype=object),
    }


def can_fed_sel(problem: Problem, options: fedsel.Options) -> bool:
    """Early stop and recordings tie clients to a clock or to an order: those runs go through the machines."""
    return not options.early_stop and not problem.layout.finite and problem.layout.arm_counts != (1,)


def fisher(
    problem: Problem,
    options: fisher_machine.Options,
    rng: np.random.Generator,
    trials: int,
    trace: int | None = None,
) -> tuple[Columns, Script]:
    """Fed-Fisher in `trials` trials; one client a group."""
    layout, arms = problem.layout, Arms(problem.coined())
    looks, wire = fisher_machine.looks_of(layout, options), fisher_machine.wire_of(layout, options)
    groups, width = arms.valid.shape
    shape = (trials, groups)
    sums = np.zeros((*shape, width), dtype=np.int64)
    race = np.broadcast_to(arms.valid, sums.shape).copy()  # arms that are still in it
    active = np.ones(shape, dtype=bool)
    halted = np.zeros(shape, dtype=bool)
    pulls, quiet_pulls = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    tops, index = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    bits_up, bits_down, rounds, outcome, winner = np.zeros((5, trials), dtype=np.int64)
    dropped = np.zeros(shape, dtype=bool)  # by the server
    names = np.array([width_of(groups) + width_of(n) for n in layout.arm_counts])
    script: Script = {}
    live, look, last_bits = np.arange(trials), 0, 0
    while len(live):
        n, step = looks.size(look), looks.size(look) - looks.size(look - 1)
        mine = race[live] & active[live][..., None]
        cost = step * mine.sum(axis=2)
        poor = np.full(cost.shape, n > fisher_machine.MAX_LOOK) & active[live]
        if options.budget is not None:
            poor |= active[live] & (pulls[live] + cost > options.budget)
        halted[live] |= poor
        busy = active[live] & ~halted[live]
        mine &= busy[..., None]
        drawn = arms.sums(rng, np.tile(np.arange(groups), len(live)), (step * mine).reshape(-1, width))
        new = drawn.reshape(mine.shape).astype(np.int64)
        if trace is not None and trace in live:
            at = int(np.flatnonzero(live == trace)[0])
            for j in np.flatnonzero(busy[at]):
                which = np.flatnonzero(mine[at, j])
                batch = tuple(which.tolist()), step, tuple(new[at, j, which].astype(float).tolist())
                script.setdefault(int(j), []).append(batch)
        sums[live] += new
        pulls[live] += np.where(busy, cost, 0)
        if look < looks.quiet:
            quiet_pulls[live] += np.where(busy, cost, 0)
        level = looks.level(look)
        top = decide.best_arm(sums[live].astype(np.float64), race[live])
        best = np.take_along_axis(sums[live], top[..., None], axis=2)
        lost = mine & decide.loses(np.where(mine, sums[live], best), best, n, level)
        np.put_along_axis(lost, top[..., None], False, axis=2)
        race[live] &= ~lost
        if look < looks.quiet:
            look += 1
            continue
        bits = looks.bits(look)
        found = decide.look_bin(best[..., 0], n, bits)
        first_time = look == looks.quiet
        size = look_report_bits(
            wire, found, bits, top != tops[live], None if first_time else index[live], last_bits
        )
        stopped = active[live] & halted[live]
        bits_up[live] += np.where(busy, size, np.where(stopped, 2 * wire.stoppable, 0)).sum(axis=1)
        tops[live], index[live], last_bits = top, found, bits
        stuck = np.asarray(stopped.any(axis=1))
        lower, upper = decide.bin_edges(found, n, bits)
        stay, leader = decide.close_look(lower, upper, active[live], n, level)
        single = race[live].sum(axis=2) == 1
        won = (stay.sum(axis=1) == 1) & np.take_along_axis(single, leader[:, None], axis=1)[:, 0]
        if options.epsilon > 0:
            short = decide.look_shortfall(lower, upper, stay, single, leader, n, looks.interval_level(look))
            won |= short <= options.epsilon
        rounds[live] += ~stuck
        over = options.max_rounds is not None and int(rounds[live].max()) >= options.max_rounds
        code = np.select(
            [stuck, won, np.full(len(live), over)],
            [decide.BUDGET, decide.IDENTIFIED, decide.ROUNDS],
            decide.GO_ON,
        )
        stay = np.where(stuck[:, None], active[live], stay)
        dropped[live] |= active[live] & ~stay
        active[live] = stay
        outcome[live], winner[live] = code, leader
        ends = live[code != decide.GO_ON]
        bits_down[ends] += 2 + (outcome[ends] == decide.IDENTIFIED) * names[winner[ends]]
        go = code == decide.GO_ON
        live, lower, leader, stay = live[go], lower[go], leader[go], stay[go]
        bits_down[live] += 1 + groups + bits
        rival = np.take_along_axis(lower, leader[:, None], axis=1)[..., None]
        mine = race[live] & stay[..., None]
        race[live] &= ~(mine & decide.loses(np.where(mine, sums[live], rival), rival, n, level))
        gone = stay & ~race[live].any(axis=2)
        bits_up[live] += gone.sum(axis=1) * (1 + int(wire.stoppable))
        active[live] = stay & ~gone
        look += 1
    picked = tops[np.arange(trials), winner]
    good = np.full(trials, None, dtype=object)
    if arms.known and problem.best is not None:
        best_at = [
            (j, a)
            for j, n in enumerate(layout.arm_counts)
            for a in range(n)
            if layout.arm(j, a) == problem.best
        ]
        ((own, a),) = best_at
        good = (race[:, own, a] & ~dropped[:, own]).astype(object)
    return _columns(
        layout, outcome, winner, picked, good, rounds, quiet_pulls, pulls - quiet_pulls, bits_up, bits_down
    ), script


def can_fisher(problem: Problem, options: fisher_machine.Options) -> bool:
    """Recordings are played in their order, which a kernel does not keep."""
    return not problem.layout.finite and problem.layout.arm_counts != (1,)


def pooled(
    problem: Problem,
    options: fisher_machine.Options,
    rng: np.random.Generator,
    trials: int,
    trace: int | None = None,
    liars: tuple[int, ...] = (),
) -> tuple[Columns, Script]:
    """Pooled Fed-Fisher in `trials` trials; the `liars` (clients) say that the best arm never pays and all
    others always do.
    """
    layout, arms = problem.layout, Arms(problem.coined())
    looks, wire = fisher_machine.looks_of(layout, options), fisher_machine.wire_of(layout, options)
    pool = Pool(layout, options, looks)
    clients, width = arms.valid.shape
    group = np.array([layout.group_of[name] for name in layout.clients])
    starts = np.cumsum([0, *layout.arm_counts])
    members = [np.flatnonzero(group == j) for j in range(len(layout.groups))]
    owned = [slice(int(a), int(b)) for a, b in itertools.pairwise(starts)]
    home, buried = target(problem)
    best = int(starts[home]) + buried  # what the liars bury, and the proof is about
    honest = [
        [i for i in mine if i not in liars][: len(mine) - options.byzantine] for mine in members
    ]  # of the proof
    sums = np.zeros((trials, clients, width), dtype=np.int64)
    race = np.ones((trials, pool.arms), dtype=bool)
    pulls, quiet_pulls = np.zeros((2, trials, clients), dtype=np.int64)
    bits_up, bits_down, rounds, outcome, winner = np.zeros((5, trials), dtype=np.int64)
    good, everyone = np.ones(trials, dtype=bool), np.ones(1, dtype=bool)
    names = np.array([width_of(len(layout.groups)) + width_of(n) for n in layout.arm_counts])
    script: Script = {}
    live, look = np.arange(trials), looks.quiet
    while len(live):
        n, step = looks.size(look), looks.size(look) - (looks.size(look - 1) if look > looks.quiet else 0)
        if n > fisher_machine.MAX_LOOK:
            outcome[live] = decide.BUDGET
            bits_down[live] += 2
            break
        mine = np.zeros((len(live), clients, width), dtype=bool)
        for j, own in enumerate(owned):
            mine[:, members[j], : own.stop - own.start] = race[live, None, own]
        rows = np.tile(np.arange(clients), len(live))
        new = arms.sums(rng, rows, (step * mine).reshape(-1, width)).reshape(mine.shape).astype(np.int64)
        if trace is not None and trace in live:
            at = int(np.flatnonzero(live == trace)[0])
            for i in range(clients):
                which = np.flatnonzero(mine[at, i])
                if len(which):
                    batch = tuple(which.tolist()), step, tuple(new[at, i, which].astype(float).tolist())
                    script.setdefault(i, []).append(batch)
        sums[live] += new
        asked = mine.sum(axis=2)
        pulls[live] += step * asked
        if look == looks.quiet:
            quiet_pulls[live] += looks.size(look - 1) * asked
        width_of_sums = asked * width_of(n + 1) + 2 * (look - looks.quiet + 1).bit_length() - 1
        bits_up[live] += np.where(asked > 0, width_of_sums + int(wire.stoppable), 0).sum(axis=1)
        said = sums[live]
        for i in liars:
            said[:, i] = n
            if group[i] == home:
                said[:, i, buried] = 0
        coins, level = pool.coins(look), pool.level(look)
        low = np.zeros((len(live), pool.arms), dtype=np.int64)
        small, large = low.copy(), low.copy()  # least and largest sums of h honest clients
        for j, own in enumerate(owned):
            k = own.stop - own.start
            low[:, own], _ = decide.pool(said[:, members[j], :k], everyone, n, options.byzantine)
            ranked = np.sort(sums[live][:, honest[j], :k], axis=1)
            small[:, own] = ranked[:, : pool.kept[j]].sum(axis=1)
            large[:, own] = ranked[:, ::-1][:, : pool.kept[j]].sum(axis=1)
        rivals = race[live].copy()
        rivals[:, best] = False
        bad = decide.loses(
            small[:, best, None], large, coins[home], level[home, pool.group], coins[pool.group]
        )
        good[live] &= ~(race[live, best] & (bad & rivals).any(axis=1))
        race[live] &= ~decide.pooled_losers(low, low, race[live], pool.group, coins, level)
        rounds[live] += 1
        left = race[live].sum(axis=1)
        last = options.max_rounds is not None and look - looks.quiet + 1 >= options.max_rounds
        code = np.select(
            [left == 1, np.full(len(live), last)], [decide.IDENTIFIED, decide.ROUNDS], decide.GO_ON
        )
        winner[live] = np.argmax(race[live], axis=1)
        outcome[live] = code
        over = live[code != decide.GO_ON]
        bits_down[over] += 2 + (outcome[over] == decide.IDENTIFIED) * names[pool.group[winner[over]]]
        live = live[code == decide.GO_ON]
        bits_down[live] += 1 + pool.arms
        look += 1
    enough = all(len(mine) >= size - options.byzantine for mine, size in zip(honest, pool.sizes, strict=True))
    known = arms.known and problem.best is not None and enough
    events = good.astype(object) if known else np.full(trials, None, dtype=object)
    picked = winner - starts[pool.group[winner]]
    truthful = np.array([i for i in range(clients) if i not in liars], dtype=np.int64)
    first = np.minimum(quiet_pulls, pulls)[:, truthful]
    columns = (pool.group[winner], picked, events, rounds, first, pulls[:, truthful] - first)
    return _columns(layout, outcome, *columns, bits_up, bits_down), script


def can_pooled(problem: Problem, options: fisher_machine.Options) -> bool:
    """Budgets, ε and recordings go through the machines."""
    nothing_to_do = problem.layout.arm_counts == (1,)
    return not (problem.layout.finite or nothing_to_do or options.budget is not None or options.epsilon)


Kernel = Callable[..., tuple[Columns, Script]]

# method -> (kernel, whether it can do this problem with these options)
KERNELS: dict[str, tuple[Kernel, Callable[[Problem, Any], bool]]] = {
    "fed-sel": (fed_sel, can_fed_sel),
    "fisher": (fisher, can_fisher),
}


def kernel_for(
    method: str, problem: Problem, options: Any, adversaries: Sequence[Adversary] = ()
) -> Kernel | None:
    """The kernel that does this, if there is one; of liars only the extreme ones of pooled Fed-Fisher."""
    if method_for(method, problem.layout).server is PoolServer:
        if not can_pooled(problem, options) or any(a.attack != "extreme" for a in adversaries):
            return None
        names = check_adversaries(problem.layout, adversaries)
        liars = tuple(i for i, name in enumerate(problem.layout.clients) if name in names)
        return functools.partial(pooled, liars=liars)
    kernel, can = KERNELS.get(method, (None, lambda *_: False))
    return kernel if not adversaries and can(problem, options) else None
