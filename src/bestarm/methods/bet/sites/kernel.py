"""Many trials of a question about several sites at once.

Like the server, the kernel lets a ``Ledger`` decide; it draws the rewards of all trials and counts the
messages. All trials play block k at the same time, since the schedule of blocks is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bestarm.methods.bet.blocks import MAX_PULLS
from bestarm.methods.bet.options import Bet
from bestarm.methods.bet.sites.answers import CLAIMS
from bestarm.methods.bet.sites.audit import may_leave, right_claims, true_values
from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import OPEN, BestRace, Block, ControlRace, Stand
from bestarm.methods.bet.sites.ledger import Ledger
from bestarm.methods.bet.sites.messages import (
    Wire,
    end_bits,
    gamma_bits,
    part_bits,
    plan_bits,
    precision,
    told,
)
from bestarm.problem.moments import of_ones
from bestarm.problem.problem import Problem
from bestarm.protocol import decisions
from bestarm.protocol.decisions import Floats, Ints, Mask
from bestarm.protocol.kernel import Arms, Columns, Kernel, Script, remember
from bestarm.stats.sums import Sums

MOST_CELLS = 1 << 18  # trials × clients × arms that are simulated at a time


class _Trials:
    """The blocks of some trials."""

    def __init__(self, problem: Problem, options: Bet, trials: int) -> None:
        self.course = Course(problem.layout, options)
        self.options, self.wire, self.arms = options, Wire(self.course), Arms(problem)
        course, width = self.course, self.arms.valid.shape[1]
        self.ledger = Ledger(course, np.ones(course.clients, dtype=bool), trials)
        place = np.zeros((course.clients, width), dtype=np.int64)  # the option of each arm
        for i, row in enumerate(course.cells.place):
            place[i, : len(row)] = row
        self.client, self.arm = np.nonzero(self.arms.valid)
        self.option = place[self.client, self.arm]
        binary = [problem.layout.groups[j].binary for j in course.cells.site]
        self.binary: Mask = np.array(binary)[:, None]
        self.pulls, self.first = np.zeros((2, trials, course.clients), dtype=np.int64)
        self.rounds, self.time, self.bits_up, self.bits_down, self.outcome = np.zeros(
            (5, trials), dtype=np.int64
        )
        self.good = np.ones(trials, dtype=bool)

    def run(self, rng: np.random.Generator, trace: int | None, script: Script) -> None:
        """Play the first pulls, then block after block until every trial has ended."""
        trials = len(self.rounds)
        live = np.ones(trials, dtype=bool)
        pulls = np.broadcast_to(self.course.first(), (trials, *self.course.first().shape)) * 1
        stands, step, n = list[Stand](), self.course.n1, 0
        self._settle(live & self.ledger.over, decisions.IDENTIFIED)
        live &= ~self.ledger.over
        while live.any():
            pulls[~live] = 0
            self.ledger.close(self._play(rng, pulls, n, trace, script), stands, step)
            n += step
            self.rounds += live
            step = self.course.blocks.step(n)
            most = self.options.max_rounds
            for ended, code in (
                (self.ledger.over, decisions.IDENTIFIED),
                (np.full(trials, most is not None) & (self.rounds >= (most or 0)), decisions.ROUNDS),
                (np.full(trials, n + step > MAX_PULLS), decisions.BUDGET),
            ):
                self._settle(live & ended, code)
                live &= ~ended
            stands, pulls = self._plan(step, live)

    def _plan(self, step: int, live: Mask) -> tuple[list[Stand], Ints]:
        """The next block of the trials that are live."""
        stands, ledger, course = self.ledger.stands(), self.ledger, self.course
        neyman = self.options.allocation == "neyman"  # else nobody has measured the clients' pace
        scale = (course.neyman(ledger.sums) if neyman else course.weights) if self.wire.tells_steps else None
        steps = course.steps(step, scale)
        size = np.ones(len(live), dtype=np.int64)
        for race, stand, bits in zip(ledger.races, stands, plan_bits(course), strict=True):
            stand.inside = stand.inside & ~race.over[:, None]
            size += 1 + np.where(race.over, 0, bits)
        if scale is not None:
            size += gamma_bits(steps).sum(axis=-1)
        self.bits_down += np.where(live, size, 0)
        return stands, course.pulls(stands, step, steps)

    def _play(
        self, rng: np.random.Generator, pulls: Ints, n: int, trace: int | None, script: Script
    ) -> Block:
        """Draw the rewards of a block, and count what it costs."""
        trials, clients = pulls.shape[:2]
        times = np.zeros((trials, *self.arms.valid.shape), dtype=np.int64)
        times[:, self.client, self.arm] = pulls[:, self.client, self.option]
        drawn = self._draw(rng, times)
        if trace is not None:
            self._trace(trace, times, drawn, script)
        made = times.sum(axis=2)
        self.pulls += made
        self.first += made * (n == 0)
        self.time += made.max(axis=1)
        self.bits_up += part_bits(self.wire, pulls, n, self.binary)
        if self.wire.stoppable:
            self.bits_up += (made > 0).sum(axis=1)
        fresh = Sums.none(pulls.shape)
        for part, values in zip(fresh.parts, (times, *np.moveaxis(drawn, -1, 0)), strict=True):
            part[:, self.client, self.option] = values[:, self.client, self.arm]
        return Block(pulls, *told(fresh, precision(n, clients), self.binary), self.course.coins)

    def _draw(self, rng: np.random.Generator, times: Ints) -> Floats:
        """The sum, squares, smallest and largest of these numbers of draws, on the last axis."""
        found = of_ones(rng.binomial(times, self.arms.p), times)
        for model, where in self.arms.other.values():
            client, arm = np.nonzero(where)
            own, made = found[:, client, arm], times[:, client, arm]
            own[made > 0] = model.moments(rng, made[made > 0])
            found[:, client, arm] = own
        return found

    def _trace(self, trial: int, times: Ints, drawn: Floats, script: Script) -> None:
        """Add the batches of one trial to its script."""
        for i in range(times.shape[1]):
            missing = times[trial, i].copy()
            which = np.flatnonzero(missing)
            if len(which):
                made, moments = missing[which], drawn[trial, i, which]
                least = made.min()
                shares = made // least if made.max() > least else ()
                binary = bool(self.binary[i, 0])
                remember(
                    script, i, which, least, moments[:, 0], shares=shares, moments=None if binary else moments
                )  # fmt: skip

    def _settle(self, ended: Mask, code: int) -> None:
        """End some trials."""
        won = [
            race.winner >= 0 if isinstance(race, BestRace) else ended & False for race in self.ledger.races
        ]
        self.outcome[ended] = code
        self.bits_down += np.where(ended, end_bits(self.course, won), 0)

    def summaries(self) -> list[str | None]:
        """The answers of the trials that were decided, as ``Verdict.summary`` words them."""
        names, found = self.course.cells.options, list[str | None]()
        for t in range(len(self.rounds)):
            if self.outcome[t] != decisions.IDENTIFIED:
                found.append(None)
                continue
            parts = []
            for race in self.ledger.races:
                if isinstance(race, ControlRace):
                    claims = enumerate(race.claim[t].tolist())
                    parts += [f"{names[k]}: {CLAIMS[c]}" for k, c in claims if k != race.control]
                elif isinstance(race, BestRace):
                    site = "" if race.site is None else f"{self.course.layout.groups[race.site].name}: "
                    parts.append(f"{site}{names[race.winner[t]]}")
            found.append(", ".join(parts))
        return found

    def goods(self, problem: Problem) -> NDArray[np.object_]:
        """The good event of each trial; None where ties leave nothing that could go wrong."""
        good, tied = np.ones(len(self.rounds), dtype=bool), True
        means = [[float(mean) for mean in row if mean is not None] for row in problem.means]
        fresh = Ledger(self.course, self.ledger.present).races
        for race, new in zip(self.ledger.races, fresh, strict=True):
            values = true_values(self.course, means, new)
            if isinstance(race, ControlRace):
                tied = False
                good &= ((race.claim == OPEN) | (race.claim == right_claims(race, values)))[
                    :, race.offered
                ].all(axis=1)
            else:
                allowed = may_leave(new, values)
                tied &= bool(allowed.all())
                good &= (race.inside | allowed).all(axis=1)
        return np.full(len(good), None, dtype=object) if tied else good.astype(object)


def kernel(
    problem: Problem, options: Bet, rng: np.random.Generator, trials: int, trace: int | None = None
) -> tuple[Columns, Script]:
    """Run `trials` trials of a question about several sites."""
    script: Script = {}
    cells = len(problem.layout.clients) * max(len(row) for row in problem.rewards)
    size, parts = max(1, MOST_CELLS // cells), list[Columns]()
    for start in range(0, trials, size):
        found = _Trials(problem, options, min(size, trials - start))
        inside = trace is not None and start <= trace < start + size
        found.run(rng, trace - start if inside and trace is not None else None, script)
        parts.append(_columns(problem, found))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, script


def _columns(problem: Problem, found: _Trials) -> Columns:
    identified = found.outcome == decisions.IDENTIFIED
    unknown = np.full(len(identified), None, dtype=object)
    return {
        "status": np.where(identified, "identified", "undecided"),
        "arm": np.array(found.summaries(), dtype=object),
        "good_event": found.goods(problem) if found.arms.known else unknown,
        "rounds": found.rounds,
        "time": found.time,
        "pulls_total": found.pulls.sum(axis=1),
        "pulls_phase1": found.first.sum(axis=1),
        "pulls_phase2": (found.pulls - found.first).sum(axis=1),
        "pulls_max": found.pulls.max(axis=1),
        "bits_up": found.bits_up,
        "bits_down": found.bits_down,
        "reason": np.array([decisions.REASON_OF.get(int(code)) for code in found.outcome], dtype=object),
    }


def kernel_for(problem: Problem, options: Bet, liars: Mapping[str, str]) -> Kernel | None:
    """The kernel, or None for budgets, recordings and several open blocks, which only machines can follow."""
    simple = options.budget is None and options.open_blocks == 1
    return kernel if simple and not liars and not problem.layout.finite else None
