"""The numbers of the answer card: options by rank, the lead, the lifts over a control, and what trimming did.

All of them are on the user's scale. ``records.answer`` adds the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
import numpy as np

from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.problem.question import Cells
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS, method_for
from bestarm.protocol.rounds import OTHER_SITES
from bestarm.protocol.verdict import Answer
from bestarm.records.card import ClaimFacts, Interval, LeadFacts, OptionFacts, TrimFacts
from bestarm.records.describe import are_shares, dropped_groups, nothing_promised, premise_broken
from bestarm.records.estimates import ArmEstimate, estimates, shares, weighted
from bestarm.records.record import Record

ALPHA = 0.05  # that an interval misses, where the method has no option for it
MOST_TIMES = 5.0  # the rival's mean: a lead whose interval reaches further is not stated as a share of it


class Ranking:
    """A record with its layout, scale and method, and the numbers that follow."""

    def __init__(self, record: Record) -> None:
        self.record, self.verdict = record, record.verdict
        self.layout, self.scale = Problem.layout_from_dict(record.problem)
        base = METHODS[record.method]
        self.options = make(base.options, {**record.options, "delta": record.delta})
        self.method = method_for(record.method, self.layout, self.options)
        self.broken = nothing_promised(record).rstrip(".")
        self.blind = bool(premise_broken(record))  # not even intervals of single means hold
        self.named = self.verdict.summary if self.verdict.status == "identified" else None
        self.asked = self.layout.question.kind != "anywhere"

    @property
    def alpha(self) -> float:
        """The probability that an interval misses."""
        return float(self.record.options.get("alpha") or ALPHA)

    @property
    def stated(self) -> bool:
        """Whether the method states intervals for what it names, and they are proved."""
        if self.broken:
            return False
        return self.asked or bool(self.method.interval_promise(self.options))

    @cached_property
    def claimed(self) -> list[ArmEstimate]:
        """The estimate of each arm of each group from the summaries; empty if there are none."""
        if not self.record.summaries:
            return []
        # As long as the answer is right, the named arm is a*, which is fixed.
        fixed = not (
            self.broken or self.asked or self.options.epsilon or dropped_groups(self.record.warnings)
        )
        level, named = shares(self.alpha, sum(self.layout.arm_counts), fixed=fixed, stated=self.stated)
        winner = place_of(self.layout, self.verdict.arm) if self.verdict.arm and not self.asked else None
        liars = 0 if self.asked else self.options.byzantine
        return estimates(
            self.layout,
            self.record.summaries,
            level,
            winner=winner,
            named=named,
            liars=liars,
            pooled=self.method.pools,
        )

    def arms(self) -> tuple[list[ArmEstimate], float | None]:
        """The estimates as the card shows them, and the probability that an interval misses."""
        found = self.claimed
        if not found:
            return [], self.alpha if self.stated else None
        local = self.method.peers and self.options.byzantine  # f liars around each peer, not in each group
        if local and not self.broken:
            return self._as_seen(found), 0.0
        if self.blind or local:
            return [msgspec.structs.replace(row, interval=None) for row in found], None
        return found, self.alpha

    def _as_seen(self, arms: list[ArmEstimate]) -> list[ArmEstimate]:
        """The arms with the bounds of an honest peer that names the answer.

        Its bounds decided, so they cost nothing beyond δ. The mean of an arm with a lower bound is the middle
        of its bounds, like that of the named arm; others have only their summaries, which may be lies.
        """
        local = self.record.verdict.certificate.get("local") or {}
        bounds: Sequence[Sequence[Interval]] = ()
        for name, verdict in (self.record.peers or {}).items():
            if self.named and verdict.arm == self.named and verdict.interval == self.verdict.interval:
                bounds = self.method.peer_bounds(local.get(name, {}), self.layout, self.options, name)
                break
        if not bounds:
            return [msgspec.structs.replace(row, interval=None) for row in arms]
        found = []
        for row in arms:
            low, high = bounds[row.group][row.arm]
            mean = (low + high) / 2 if low > 0.0 or row.mean is None else min(max(row.mean, low), high)
            found.append(msgspec.structs.replace(row, mean=mean, interval=(low, high)))
        return found

    def ranked(self, arms: list[ArmEstimate]) -> tuple[OptionFacts, ...]:
        """All options, the best mean first."""
        if self.layout.question.kind == "each":
            return ()
        if not arms:
            return self._stated()
        return self._sorted(list(self._by_option(arms) if self.asked else self._by_arm(arms)))

    def _sorted(self, rows: list[OptionFacts]) -> tuple[OptionFacts, ...]:
        sign = -1.0 if self.scale.goal == "max" else 1.0
        return tuple(
            sorted(rows, key=lambda row: (not row.best, np.inf if row.mean is None else sign * row.mean))
        )

    def _stated(self) -> tuple[OptionFacts, ...]:
        """The named option alone, as the method states it, where no summaries are known."""
        verdict = self.verdict
        if verdict.arm is None or verdict.mean is None:
            return ()
        ends = None if self.broken else verdict.interval
        return (OptionFacts(name=verdict.arm, mean=verdict.mean, interval=ends, pulls=None, best=True),)

    def by_site(self) -> Iterator[OptionFacts]:
        """The best option of each site, as the method states it."""
        for answer in self.verdict.answers:
            if answer.site is not None and answer.answer == "best":
                ends = None if self.broken else answer.interval
                name = f"{answer.site}/{answer.option}"
                yield OptionFacts(name=name, mean=answer.value, interval=ends, pulls=None, best=True)

    def cells(self, arms: list[ArmEstimate]) -> Iterator[OptionFacts]:
        """Every option at every site, where each site has its own answer; those as the method states them."""
        stated = {row.name: row for row in self.by_site()}
        for row in self._by_arm(arms) if self.layout.question.by_site else ():
            own = stated.get(row.name)
            yield row if own is None else msgspec.structs.replace(own, pulls=row.pulls)

    def site_leads(self, arms: list[ArmEstimate]) -> Iterator[LeadFacts]:
        """The lead at each site: of its best option as the method states it, or of the one that leads."""
        groups = {group.name: j for j, group in enumerate(self.layout.groups)}
        for answer in self.verdict.answers:
            if answer.site is None:
                continue
            if answer.answer == "best":
                found = self._stated_lead(answer)
            else:
                rows = list(self._by_arm([row for row in arms if row.group == groups[answer.site]]))
                found = self._lead_of(self._sorted(rows))
            if found is not None:
                yield msgspec.structs.replace(found, over=found.over.removeprefix(f"{answer.site}/"))

    def _by_arm(self, arms: list[ArmEstimate]) -> Iterator[OptionFacts]:
        stated = {row.name: row for row in self._stated() if row.interval}
        for row in arms:
            name = self.layout.arm(row.group, row.arm)
            ends = row.interval and self.scale.user_interval(*row.interval)
            mean = None if row.mean is None else self.scale.user(row.mean)
            if name in stated:  # an option has one interval
                mean, ends = stated[name].mean, stated[name].interval
            yield OptionFacts(
                name=name, mean=mean, interval=ends, pulls=row.pulls, best=name == self.verdict.arm
            )

    def _by_option(self, arms: list[ArmEstimate]) -> Iterator[OptionFacts]:
        """The value of each option over all sites: of the answers as the method states it."""
        cells = Cells.of(self.layout)
        known = {answer.option: answer for answer in self.verdict.answers if answer.site is None}
        first = {j: self.layout.clients.index(g.clients[0]) for j, g in enumerate(self.layout.groups)}
        sites = np.asarray(self.layout.question.weights or (1.0,) * len(self.layout.groups))
        gone = {w["group"] for w in self.record.warnings if OTHER_SITES in w["text"]}
        arms = [row for row in arms if self.layout.groups[row.group].name not in gone]
        for k, option in enumerate(cells.options):
            rows = [(float(sites[r.group]), r) for r in arms if cells.place[first[r.group]][r.arm] == k]
            total = sum(w for w, _ in rows) or 1.0
            pulls = sum(r.pulls for _, r in rows)
            found = weighted([(w / total, r) for w, r in rows], self.options.byzantine) if rows else None
            answer = known.get(option)
            best = answer is not None and answer.answer == "best"
            if best and answer is not None and answer.value is not None and not (self.broken and found):
                ends = None if self.broken else answer.interval
                yield OptionFacts(name=option, mean=answer.value, interval=ends, pulls=pulls, best=True)
                continue
            mean, ends = None, None
            if found is not None:
                mean = self.scale.user(found[0])
                ends = None if found[1] is None or self.blind else self.scale.user_interval(*found[1])
            yield OptionFacts(name=option, mean=mean, interval=ends, pulls=pulls, best=best)

    def lead(self, options: tuple[OptionFacts, ...]) -> LeadFacts | None:
        """The lead of the first option over the next one, with an interval of its lead over all others."""
        if self.layout.question.control:
            return None
        for answer in () if self.broken else self.verdict.answers:
            if answer.site is None and answer.answer == "best":
                return self._stated_lead(answer, next((o for o in options if o.name == answer.over), None))
        return self._lead_of(options)

    def _stated_lead(self, answer: Answer, rival: OptionFacts | None = None) -> LeadFacts | None:
        """The lead of an answer, as the method states it."""
        if answer.lead is None or answer.over is None:
            return None
        ends = None if self.broken else answer.lead_interval
        return LeadFacts(
            option=str(answer.option) if answer.site is None else f"{answer.site}/{answer.option}",
            over=answer.over,
            kind="runner-up",
            value=answer.lead,
            interval=ends,
            relative=None if rival is None else relative_lead(ends, answer.lead, rival),
            others=self._options_at(answer.site) - 1,
        )

    def _options_at(self, site: str | None) -> int:
        """How many options there are at a site, or in all."""
        if site is None:
            return len(Cells.of(self.layout).options)
        return next(len(group.arms) for group in self.layout.groups if group.name == site)

    def _lead_of(self, options: tuple[OptionFacts, ...]) -> LeadFacts | None:
        """The lead that follows from the intervals of the options."""
        others = [row for row in options[1:] if row.mean is not None]
        if not options or options[0].mean is None or not others:
            return None
        first, rival, sign = options[0], others[0], -1.0 if self.scale.goal == "min" else 1.0
        assert first.mean is not None
        assert rival.mean is not None
        ends = None
        if first.interval and all(row.interval for row in others) and len(others) == len(options) - 1:
            low, high = _signed(first.interval, sign)
            rest = [_signed(row.interval, sign) for row in others if row.interval]
            ends = (low - max(r[1] for r in rest), high - max(r[0] for r in rest))
            least = 0.0 - self.options.epsilon
            if first.best and not self.broken and ends[1] >= least:
                ends = (
                    max(ends[0], least),
                    ends[1],
                )  # the answer is right, or this misses: δ counts for that
        value = sign * (first.mean - rival.mean)
        value = value if ends is None else max(value, ends[0])
        return LeadFacts(
            option=first.name,
            over=rival.name,
            kind="runner-up",
            value=value,
            interval=ends,
            relative=relative_lead(ends, value, rival) if first.best else None,
            others=len(others),
        )

    def contradiction(self, lead: LeadFacts | None, options: tuple[OptionFacts, ...]) -> str:
        """How the means contradict the option that was named, as a sentence; empty if they do not.

        Where a proof says that it is the best, means alone are no contradiction, but intervals are.
        """
        if lead is None or not options[0].best or lead.value >= 0.0:
            return ""
        if not self.broken and (lead.interval is None or lead.interval[1] >= -self.options.epsilon):
            return ""
        return (
            f"The numbers of this run contradict its answer: the mean of {lead.over} is better than that of "
            f"{lead.option}."
        )

    def lifts(self, options: tuple[OptionFacts, ...]) -> Iterator[LeadFacts]:
        """The leads over a control, as the method states them."""
        control = self.layout.question.control
        sign = -1.0 if self.scale.goal == "min" else 1.0
        rows = {row.name: row for row in options}
        for answer in self.verdict.answers if control else ():
            if answer.option is None or answer.value is None or answer.answer == "best":
                continue
            value, ends = sign * answer.value, None if self.broken else _ends_of(answer, sign)
            rival = rows.get(str(control))
            yield LeadFacts(
                option=answer.option,
                over=str(control),
                kind="control",
                value=value,
                interval=ends,
                relative=None if rival is None else relative_lead(ends, value, rival),
            )

    def trims(self) -> Iterator[TrimFacts]:
        """The named option, and the one that plain means would have named."""
        known = [row for row in self.claimed if row.mean is not None and row.plain is not None and row.claims]
        if not self.options.byzantine or self.asked or not known:
            return
        robust = max(known, key=lambda row: row.mean or 0.0)
        plain = max(known, key=lambda row: row.plain or 0.0)
        named = [row for row in known if self.layout.arm(row.group, row.arm) == self.verdict.arm]
        liars = {name for a in self.record.adversaries for name in a["clients"]}
        known_problem = simulated(self.record)
        means = None if known_problem is None else known_problem.means
        for row in dict.fromkeys((*named, robust, plain)):
            true = None if means is None else means[row.group][row.arm]
            yield TrimFacts(
                option=self.layout.arm(row.group, row.arm),
                claims=tuple(
                    ClaimFacts(
                        client=c.client, mean=self.scale.user(c.mean), kept=c.kept, liar=c.client in liars
                    )
                    for c in row.claims
                ),
                plain=self.scale.user(row.plain or 0.0),
                robust=self.scale.user(row.mean or 0.0),
                true=None if true is None else self.scale.user(true),
            )

    def _percent(self) -> bool:
        """Whether means are shares of successes."""
        return are_shares(self.record.problem)


def _signed(ends: Interval, sign: float) -> Interval:
    return ends if sign > 0 else (-ends[1], -ends[0])


def _ends_of(answer: Answer, sign: float) -> Interval | None:
    return None if answer.interval is None else _signed(answer.interval, sign)


def relative_lead(lead: Interval | None, value: float, rival: OptionFacts) -> tuple[float, Interval] | None:
    """The lead in per cent of the rival's mean, and its interval.

    None if that mean may be 0 or less, or so small that the interval says nothing.
    """
    if lead is None or rival.mean is None or rival.interval is None or rival.interval[0] <= 0:
        return None
    small, large = rival.interval
    low = lead[0] / (large if lead[0] >= 0 else small)
    high = lead[1] / (small if lead[1] >= 0 else large)
    if max(-low, high) > MOST_TIMES:
        return None
    return 100 * value / rival.mean, (100 * low, 100 * high)


def place_of(layout: Layout, name: str) -> tuple[int, int]:
    """The group and the arm with this full name."""
    for j, group in enumerate(layout.groups):
        if name.startswith(f"{group.name}/") and name[len(group.name) + 1 :] in group.arms:
            return j, group.arms.index(name[len(group.name) + 1 :])
    raise InputError(f'there is no arm "{name}"')


def simulated(record: Record) -> Problem | None:
    """The problem of a simulation, whose true means are known; None for recorded rewards."""
    data = Data.from_dict(record.problem)
    if data is not None and not data.resample:
        return None
    try:
        problem = Problem.from_dict(record.problem)
    except (InputError, KeyError):
        return None
    models = [model for row in problem.rewards for model in row]
    recorded = any(model.limit is not None or model.mean is None for model in models)
    return None if recorded else problem
