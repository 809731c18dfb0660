"""Many trials of Fed-SEL at once.

``phase1`` runs Algorithm 1 for every client of every trial, and ``_Rounds`` runs the rounds with the server.
Like the machines, the kernel takes its decisions from ``decisions`` and message sizes from ``messages``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bestarm.methods.fed_sel import decisions as fed_sel_decisions
from bestarm.methods.fed_sel.elimination import end_by_epsilon, least_count
from bestarm.methods.fed_sel.messages import exhausted_bits, refinement_bits, report_bits
from bestarm.methods.fed_sel.options import FedSel, wire_of
from bestarm.problem.problem import Problem
from bestarm.protocol import decisions
from bestarm.protocol.kernel import CHUNK, Arms, Columns, Kernel, Script, columns_of, remember
from bestarm.protocol.messages import final_bits, onward_bits
from bestarm.protocol.rounds import one_arm
from bestarm.stats.radii import MAX_COUNT, Radius, radius

LONGEST = 500_000_000  # epochs in a batch: NumPy's hypergeometric sampler accepts at most 10⁹


@dataclass
class Phase1:
    """The results of Phase I, by (trial, client)."""

    arm: decisions.Ints
    epoch: decisions.Ints
    sum: decisions.Floats
    pulls: decisions.Ints
    finished: decisions.Mask
    good: decisions.Mask
    remaining: decisions.Mask


def phase1(
    arms: Arms,
    r: Radius,
    options: FedSel,
    rng: np.random.Generator,
    trials: int,
    trace: int | None,
    script: Script,
) -> Phase1:
    """Run Algorithm 1 for every client of every trial. Rows are independent and processed in chunks."""
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
        chunk = _Chunk(arms, r, ends, options, np.arange(start, min(start + size, rows)))
        while len(chunk.row):
            chunk.step(rng, left, trace, script)
    return left


class _Chunk:
    """Rows in Phase I, one per client and trial; a row is removed when its Phase I is over."""

    def __init__(
        self, arms: Arms, r: Radius, ends: decisions.Floats, options: FedSel, row: decisions.Ints
    ) -> None:
        self.arms, self.r, self.options, self.row = arms, r, options, row
        self.clients = arms.valid.shape[0]
        self.client = row % self.clients
        self.least, self.over = ends[self.client].T
        # This memory order makes reductions over short rows fast.
        self.sums = np.zeros((len(row), arms.valid.shape[1]), order="F")
        self.active = np.asfortranarray(arms.valid[self.client])
        self.epoch = np.zeros(len(row), dtype=np.int64)
        self.pulls = np.zeros(len(row), dtype=np.int64)
        self.good = np.ones(len(row), dtype=bool)
        self.p = arms.p[self.client]
        self.ahead = Ahead(*self.sums.shape)
        self.own = Radius(r.name, r.k[self.client], r.s)
        self.boundary = self.own.boundary(self.epoch, options.c)

    def step(self, rng: np.random.Generator, left: Phase1, trace: int | None, script: Script) -> None:
        """Remove the rows whose Phase I is over; if there are none, draw a batch in each row."""
        times = self._batch(fed_sel_decisions.skip(self.sums, self.active, self.boundary))
        done = fed_sel_decisions.finished(self.active, self.epoch, least=self.least, over=self.over)
        stop = done | (times == 0)
        if stop.any():
            self._leave(stop, done, left)
            return
        if self.arms.other:
            drawn = self.arms.sums(rng, self.client, times[:, None] * self.active)
        else:
            far = self._batch(_reach(self.p, self.sums, self.active, self.boundary))
            times, drawn = self.ahead.draw(rng, self.p, self.sums, self.active, self.boundary, times, far)
        if trace is not None:
            for at in np.flatnonzero(self.row // self.clients == trace):
                which = np.flatnonzero(self.active[at])
                remember(script, self.client[at], which, times[at], drawn[at, which])
        self._absorb(times, drawn)

    def _batch(self, epochs: ArrayLike) -> decisions.Ints:
        """How many of these epochs may be drawn now."""
        budget = self.options.budget
        times = fed_sel_decisions.batch(
            epochs,
            self.active,
            self.epoch,
            least=self.least,
            last=np.minimum(self.over, MAX_COUNT),
            left=None if budget is None else budget - self.pulls,
        )
        return np.minimum(times, LONGEST)

    def _leave(self, stop: decisions.Mask, done: decisions.Mask, left: Phase1) -> None:
        """Store the results of the rows that stop, and keep the others."""
        at = self.row[stop]
        left.arm[at] = decisions.best_arm(self.sums[stop], self.active[stop])
        left.sum[at] = np.take_along_axis(self.sums[stop], left.arm[at, None], axis=1)[:, 0]
        left.epoch[at], left.pulls[at], left.good[at] = self.epoch[stop], self.pulls[stop], self.good[stop]
        left.finished[at], left.remaining[at] = done[stop], self.active[stop]
        go = np.flatnonzero(~stop)
        for name in ("row", "client", "epoch", "pulls", "good", "least", "over", "boundary"):
            setattr(self, name, getattr(self, name)[go])
        for name in ("sums", "active", "p"):
            setattr(self, name, np.asfortranarray(getattr(self, name)[go]))
        self.own = Radius(self.r.name, self.own.k[go], self.r.s)
        self.ahead.keep(go)

    def _absorb(self, times: decisions.Ints, drawn: decisions.Floats) -> None:
        """Add a batch, and drop the arms that are too far behind."""
        self.sums = self.sums + drawn
        self.epoch = self.epoch + times
        self.pulls = self.pulls + times * self.active.sum(axis=1)
        self.boundary = self.own.boundary(self.epoch, self.options.c)
        stay = fed_sel_decisions.eliminate(self.sums, self.active, self.boundary)
        fell = np.flatnonzero((stay != self.active).any(axis=1))
        if len(fell):
            self._check_radii(fell, stay)
        self.active = stay

    def _check_radii(self, fell: decisions.Ints, stay: decisions.Mask) -> None:
        """Check whether the eliminated arms and the best arm were within their radius."""
        top = decisions.best_arm(self.sums[fell], self.active[fell])
        rests = self.active[fell] & ~stay[fell]
        rests[np.arange(len(fell)), top] = True
        alpha = Radius(self.r.name, self.own.k[fell], self.r.s).alpha(self.epoch[fell])
        mean = self.sums[fell] / self.epoch[fell, None]
        off = np.abs(mean - self.arms.mean[self.client[fell]]) > alpha[:, None]
        self.good[fell] &= ~(off & rests).any(axis=1)


def _reach(
    p: decisions.Floats, sums: decisions.Floats, active: decisions.Mask, boundary: decisions.Floats
) -> decisions.Floats:
    """An estimate of the epochs that ``decisions.quiet`` will accept; a wrong guess only costs speed."""
    top = np.max(np.where(active, sums, -np.inf), axis=1)
    slope = np.minimum(np.max(np.where(active, p, 0.0), axis=1)[:, None], 1.0 - p)
    room = boundary[:, None] - top[:, None] + sums
    far = np.maximum(room, 0.0) / np.maximum(slope, 1e-3)
    spread = np.sqrt(far * p * (1.0 - p)) / np.maximum(slope, 1e-3)
    return np.asarray(np.clip(np.min(np.where(active, far - spread, 1e8), axis=1), 1.0, 1e8))


class Ahead:
    """0/1 rewards, drawn further ahead than is safe and returned in parts that miss no decision.

    Only the sums of a long batch are drawn. If ``decisions.quiet`` accepts the batch, it is returned whole.
    If not, its first, safe part is drawn conditionally (given the sum of the whole, the sum of a part is
    hypergeometric). The rest must then be returned next, because its sum is already fixed.
    """

    def __init__(self, rows: int, arms: int) -> None:
        self.times = np.zeros(rows, dtype=np.int64)
        self.ones = np.zeros((rows, arms), dtype=np.int64, order="F")

    def keep(self, rows: decisions.Ints) -> None:
        """Keep only these rows."""
        self.times, self.ones = self.times[rows], np.asfortranarray(self.ones[rows])

    def draw(
        self,
        rng: np.random.Generator,
        p: decisions.Floats,
        sums: decisions.Floats,
        active: decisions.Mask,
        boundary: decisions.Floats,
        safe: decisions.Ints,
        far: decisions.Ints,
    ) -> tuple[decisions.Ints, decisions.Floats]:
        """For each row, a number of epochs and the sums of its active arms over them."""
        new = self.times == 0
        self.times = np.where(new, np.maximum(safe, far), self.times)
        self.ones += rng.binomial(np.where(new, self.times, 0)[:, None] * active, p)
        times, drawn = self.times.copy(), self.ones * active
        part = np.flatnonzero(
            (times > safe) & ~fed_sel_decisions.quiet(sums, active, boundary, times, drawn.astype(np.float64))
        )
        if len(part):
            mine = active[part]
            zeros = mine * times[part, None] - drawn[part]
            drawn[part] = rng.hypergeometric(drawn[part], zeros, mine * safe[part, None])
            times[part] = safe[part]
        self.times = self.times - times
        self.ones = np.asfortranarray((self.ones - drawn) * (active & (self.times > 0)[:, None]))
        return times, drawn.astype(np.float64)


class _Rounds:
    """The rounds of Fed-SEL in many trials, from the Phase I reports on; arrays are (trials, groups)."""

    def __init__(
        self, problem: Problem, arms: Arms, r: Radius, options: FedSel, found: Phase1, trials: int
    ) -> None:
        self.arms, self.r, self.options = arms, r, options
        self.wire = wire_of(problem.layout, options)
        shape = (trials, len(problem.layout.groups))
        self.arm, self.pulls1 = found.arm.reshape(shape), found.pulls.reshape(shape)
        self.count, self.sums = found.epoch.reshape(shape).copy(), found.sum.reshape(shape).copy()
        self.finished = found.finished.reshape(shape)
        remaining = found.remaining.reshape(*shape, -1)
        self.resolved = self.finished | (remaining.sum(axis=2) == 1)
        true = np.broadcast_to(arms.mean, remaining.shape)
        self.mean_of = np.take_along_axis(true, self.arm[..., None], axis=2)[..., 0]
        self.good = np.asarray(found.good.reshape(shape).all(axis=1))
        self.pulls2 = np.zeros(shape, dtype=np.int64)
        self.time = self.pulls1.max(axis=1)  # the server waits for the last report
        self.bits_up, self.bits_down, self.rounds, self.outcome, self.winner = np.zeros(
            (5, trials), dtype=np.int64
        )
        self.live = np.arange(trials)  # trials that are still running
        self.active = np.ones(shape, dtype=bool)
        self.spent = ~self.finished
        self.lower, self.upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        self.mean = self.sums / np.maximum(self.count, 1)
        self.final, self.onward = final_bits(self.wire), onward_bits(self.wire)

    def run(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Run all rounds of all trials."""
        k = 0
        while len(self.live):
            fresh, mute = self._report() if k == 0 else self._refine(k, rng, trace, script)
            self._close(k, fresh, mute)
            k += 1

    def _alpha(self) -> decisions.Floats:
        return self.r.alpha(np.maximum(self.count[self.live], 1))

    def _report(self) -> tuple[decisions.Mask, decisions.Mask]:
        """Round 0: which clients report, and the trials in which a client stopped but cannot say so."""
        fresh = self.active if self.wire.stoppable else self.active & self.finished
        self.bits_up += (report_bits(self.wire, self.count, ~self.finished) * fresh).sum(axis=1)
        return fresh, np.asarray(~fresh.all(axis=1))

    def _refine(
        self, k: int, rng: np.random.Generator, trace: int | None, script: Script
    ) -> tuple[decisions.Mask, decisions.Mask]:
        """Round k ≥ 1: active clients pull and send their means, unless they have run out of pulls."""
        live, options = self.live, self.options
        fresh = self.active[live] & ~self.spent[live]
        period = fed_sel_decisions.period(k, options.period, options.period_growth)
        paid = self.pulls1[live] + self.pulls2[live]
        poor = fresh & (period > fed_sel_decisions.pulls_left(self.count[live], paid, options.budget))
        self.bits_up[live] += poor.sum(axis=1) * exhausted_bits(self.wire)
        self.spent[live] |= poor
        fresh = fresh & ~poor
        self._pull(fresh, period, rng, trace, script)
        exact = self.sums[live] / np.maximum(self.count[live], 1)
        precision = fed_sel_decisions.precision(self._alpha())
        size = refinement_bits(self.wire, self.count[live], precision, options.quantiser)
        self.bits_up[live] += (size * fresh).sum(axis=1)
        if options.quantiser:
            exact = decisions.bin_centre(fed_sel_decisions.bin_index(exact, precision), precision)
        self.mean[live] = np.where(fresh, exact, self.mean[live])
        return fresh, np.asarray(poor.any(axis=1) & (not self.wire.stoppable))

    def _pull(
        self,
        fresh: decisions.Mask,
        period: int,
        rng: np.random.Generator,
        trace: int | None,
        script: Script,
    ) -> None:
        trial, group = np.nonzero(fresh)
        at = self.live[trial], group
        drawn = self.arms.sums_of(rng, group, self.arm[at], period)
        if trace is not None:
            for place in np.flatnonzero(at[0] == trace):
                remember(script, group[place], self.arm[at][[place]], period, drawn[[place]])
        self.sums[at] += drawn
        self.count[at] += period
        self.pulls2[at] += period
        self.time[self.live] += period * fresh.any(axis=1)

    def _close(self, k: int, fresh: decisions.Mask, mute: decisions.Mask) -> None:
        """Close round k at the server; a trial with a mute client has run out of pulls."""
        live, options, own = self.live, self.options, self.active[self.live]
        alpha = self._alpha()
        off = np.abs(self.sums[live] / np.maximum(self.count[live], 1) - self.mean_of[live]) > alpha
        self.good[live] &= ~(off & fresh).any(axis=1)
        low, high = fed_sel_decisions.interval(self.mean[live], alpha)
        if options.intersect:
            low, high = np.maximum(low, self.lower[live]), np.minimum(high, self.upper[live])
        self.lower[live] = np.where(own, low, self.lower[live])
        self.upper[live] = np.where(own, high, self.upper[live])
        stay, code, first = fed_sel_decisions.close_round(
            self.lower[live],
            self.upper[live],
            own,
            self.resolved[live],
            self.spent[live],
            epsilon=options.epsilon,
            last_round=options.max_rounds is not None and k + 1 >= options.max_rounds,
        )
        code = np.where(mute, decisions.BUDGET, code)
        self.rounds[live] = np.where(mute, k, k + 1)
        self.active[live], self.outcome[live], self.winner[live] = stay, code, first
        won, go = code == decisions.IDENTIFIED, code == decisions.GO_ON
        self.bits_down[live] += np.where(go, self.onward, self.final[np.where(won, first, -1)])
        self.live = live[go]


def kernel(
    problem: Problem, options: FedSel, rng: np.random.Generator, trials: int, trace: int | None = None
) -> tuple[Columns, Script]:
    """Run `trials` trials of Fed-SEL, with one client per group."""
    layout, arms = problem.layout, Arms(problem)
    r = radius(options.radius, len(layout.groups), layout.arm_counts, options.delta)
    script: Script = {}
    found = phase1(arms, r, options, rng, trials, trace, script)
    server = _Rounds(problem, arms, r, options, found, trials)
    server.run(rng, trace, script)
    columns = columns_of(
        layout,
        outcome=server.outcome,
        winner=server.winner,
        picked=server.arm[np.arange(trials), server.winner],
        good=server.good.astype(object) if arms.known else np.full(trials, None, dtype=object),
        rounds=server.rounds,
        time=server.time,
        pulls1=server.pulls1,
        pulls2=server.pulls2,
        bits_up=server.bits_up,
        bits_down=server.bits_down,
    )
    return columns, script


def kernel_for(problem: Problem, options: FedSel, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None if only the machines can simulate these runs.

    With early stop and with recordings, the timing or the order of pulls matters; liars alter the messages of
    machines.
    """
    nothing_to_do = one_arm(problem.layout)
    return None if liars or options.early_stop or problem.layout.finite or nothing_to_do else kernel
