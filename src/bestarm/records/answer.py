"""The answer card of a run: which option is best, how far it is ahead, what the risk is, and what it cost.

``answer_card`` computes it from a record, without further runs; ``study.outlook`` measures what would have
helped. All numbers are on the user's scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.problem.question import Cells
from bestarm.problem.truth import truth
from bestarm.protocol.options import make, on_unit_scale
from bestarm.protocol.registry import METHODS, method_for
from bestarm.protocol.verdict import Answer
from bestarm.records.card import (
    KEPT,
    AnswerCard,
    CardCosts,
    ClaimFacts,
    Interval,
    LeadFacts,
    OptionFacts,
    Tone,
    TrimFacts,
)
from bestarm.records.describe import (
    aim,
    best_is_in,
    dropped_groups,
    mean_of,
    nothing_promised,
    still_in,
    why_undecided,
)
from bestarm.records.estimates import ArmEstimate, estimates, weighted
from bestarm.records.questions import Situation
from bestarm.records.questions import headline as answers_in_words
from bestarm.records.questions import promise as promises_in_words
from bestarm.records.record import Record

ALPHA = 0.05  # that an interval misses, where the method has no option for it
MOST_NAMED = 8  # clients in one alarm


def answer_card(record: Record) -> AnswerCard:
    """The answer card of a run that is over.

    Parameters
    ----------
    record : Record
        The run.

    Returns
    -------
    AnswerCard

    Examples
    --------
    >>> import bestarm as ba
    >>> card = answer_card(ba.identify(ba.Problem.bernoulli([[.9, .2], [.5]]), seed=1))
    >>> card.headline, card.lead.over, card.right
    ('g1/a1 is the best arm.', 'g2/a1', True)
    """
    try:
        return _Reading(record).card()
    except InputError as error:  # a forged record may name what does not exist
        return _unreadable(record, str(error).rstrip("."))


def _unreadable(record: Record, why: str) -> AnswerCard:
    """The card of a record that can't be read as a run."""
    named = f" It names {record.verdict.arm}." if record.verdict.arm else ""
    return AnswerCard(
        tone="bad",
        headline=f"No safe answer: this record can't be read as a run ({why}).{named}",
        best=record.verdict.arm,
        options=(),
        lead=None,
        lifts=(),
        risk="Nothing is promised: the record can't be read as a run.",
        assumptions=(),
        alpha=None,
        alarms=(),
        right=None,
        truth="",
        trims=(),
        percent=False,
        mean="mean",
        kept="",
        costs=_costs(record),
        method=record.method,
        delta=record.delta,
        seed=record.seed,
    )


class _Reading:
    """A record with its layout, scale and method, while its card is put together."""

    def __init__(self, record: Record) -> None:
        self.record, self.verdict = record, record.verdict
        self.layout, self.scale = Problem.layout_from_dict(record.problem)
        base = METHODS[record.method]
        self.options = make(base.options, {**record.options, "delta": record.delta})
        self.method = method_for(record.method, self.layout, self.options)
        self.broken = nothing_promised(record).rstrip(".")
        self.named = self.verdict.summary if self.verdict.status == "identified" else None
        self.asked = self.layout.question.kind != "anywhere"

    def card(self) -> AnswerCard:
        record, verdict = self.record, self.verdict
        arms, alpha = self._arms()
        options = self._options(arms)
        right, said = self._truth()
        lead = self._lead(options)
        lifts = tuple(self._lifts(options))
        has_intervals = any(row.interval for row in options) or any(lift.interval for lift in lifts)
        return AnswerCard(
            tone=self._tone(right),
            headline=self._headline(),
            best=verdict.arm if verdict.status == "identified" else None,
            options=options,
            lead=lead,
            lifts=lifts,
            risk=self._risk(alpha if has_intervals else None),
            assumptions=tuple(self._assumptions(bool(options))),
            alpha=alpha if has_intervals else None,
            alarms=tuple(self._alarms()),
            right=right,
            truth=said,
            trims=tuple(self._trims(arms)),
            percent=self._percent(),
            mean=mean_of(record.problem),
            kept=KEPT if record.summaries is None else "",
            costs=_costs(record),
            method=record.method,
            delta=record.delta,
            seed=record.seed,
            name=record.name,
            date=record.date,
        )

    # Numbers

    def _arms(self) -> tuple[list[ArmEstimate], float | None]:
        """The estimate of each arm of each group, and the probability that an interval misses."""
        alpha = float(self.record.options.get("alpha") or ALPHA)
        if not self.record.summaries:
            return [], alpha if self.method.interval_promise(self.options) or self.asked else None
        winner = None
        settled = not self.options.epsilon and not dropped_groups(self.record.warnings)  # a* is fixed
        if self.verdict.arm and not self.asked and settled:
            winner = _place(self.layout, self.verdict.arm)
        liars = 0 if self.asked else self.options.byzantine
        found = estimates(
            self.layout, self.record.summaries, alpha, winner=winner, liars=liars, pooled=self.method.pools
        )
        if self.broken or (self.asked and self.options.byzantine):
            found = [msgspec.structs.replace(row, interval=None) for row in found]
        stated = any(answer.interval for answer in self.verdict.answers)  # with a share of their own
        return found, None if self.broken else 2 * alpha if stated else alpha

    def _options(self, arms: list[ArmEstimate]) -> tuple[OptionFacts, ...]:
        """All options, the best mean first."""
        if self.layout.question.kind == "each":
            return ()
        if not arms:
            return self._stated()
        rows = list(self._by_option(arms) if self.asked else self._by_arm(arms))
        sign = -1.0 if self.scale.goal == "max" else 1.0
        return tuple(
            sorted(rows, key=lambda row: (not row.best, np.inf if row.mean is None else sign * row.mean))
        )

    def _stated(self) -> tuple[OptionFacts, ...]:
        """The named option alone, as the method states it, where no summaries are known."""
        verdict = self.verdict
        if verdict.arm is None or verdict.mean is None:
            return ()
        ends = None if self.broken or not self.method.claims_intervals(self.options) else verdict.interval
        return (OptionFacts(name=verdict.arm, mean=verdict.mean, interval=ends, pulls=None, best=True),)

    def _by_arm(self, arms: list[ArmEstimate]) -> Iterator[OptionFacts]:
        for row in arms:
            name = self.layout.arm(row.group, row.arm)
            ends = row.interval and self.scale.user_interval(*row.interval)
            mean = None if row.mean is None else self.scale.user(row.mean)
            yield OptionFacts(
                name=name, mean=mean, interval=ends, pulls=row.pulls, best=name == self.verdict.arm
            )

    def _by_option(self, arms: list[ArmEstimate]) -> Iterator[OptionFacts]:
        """The value of each option over all sites: of the answers as the method states it."""
        cells = Cells.of(self.layout)
        known = {answer.option: answer for answer in self.verdict.answers if answer.site is None}
        first = {j: self.layout.clients.index(g.clients[0]) for j, g in enumerate(self.layout.groups)}
        sites = np.asarray(self.layout.question.weights or (1.0,) * len(self.layout.groups))
        for k, option in enumerate(cells.options):
            rows = [(float(sites[r.group]), r) for r in arms if cells.place[first[r.group]][r.arm] == k]
            total = sum(w for w, _ in rows) or 1.0
            pulls = sum(r.pulls for _, r in rows)
            found = weighted([(w / total, r) for w, r in rows]) if rows else None
            answer = known.get(option)
            if answer is not None and answer.answer == "best" and answer.value is not None:
                yield OptionFacts(
                    name=option, mean=answer.value, interval=answer.interval, pulls=pulls, best=True
                )
                continue
            best = answer is not None and answer.answer == "best"
            mean = None if found is None else self.scale.user(found[0])
            ends = None if found is None else self.scale.user_interval(*found[1])
            yield OptionFacts(name=option, mean=mean, interval=ends, pulls=pulls, best=best)

    def _lead(self, options: tuple[OptionFacts, ...]) -> LeadFacts | None:
        """The lead of the first option over the next one; over all others at once, as its interval says."""
        others = [row for row in options[1:] if row.mean is not None]
        if not options or options[0].mean is None or not others or self.layout.question.control:
            return None
        first, rival, sign = options[0], others[0], -1.0 if self.scale.goal == "min" else 1.0
        assert first.mean is not None
        assert rival.mean is not None
        ends = None
        if first.interval and all(row.interval for row in others) and len(others) == len(options) - 1:
            low, high = _signed(first.interval, sign)
            rest = [_signed(row.interval, sign) for row in others if row.interval]
            ends = (low - max(r[1] for r in rest), high - max(r[0] for r in rest))
            if self.named and not self.broken:  # the answer is right, or this misses: δ counts for that
                ends = (max(ends[0], -self.options.epsilon), ends[1])
        value = sign * (first.mean - rival.mean)
        value = value if ends is None else max(value, ends[0])
        return LeadFacts(
            option=first.name,
            over=rival.name,
            kind="runner-up",
            value=value,
            interval=ends,
            relative=_relative(ends, value, rival),
        )

    def _lifts(self, options: tuple[OptionFacts, ...]) -> Iterator[LeadFacts]:
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
                relative=None if rival is None else _relative(ends, value, rival),
            )

    def _trims(self, arms: list[ArmEstimate]) -> Iterator[TrimFacts]:
        """The named option, and the one that plain means would have named."""
        known = [row for row in arms if row.mean is not None and row.plain is not None and row.claims]
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
        binary = all(group.binary for group in self.layout.groups)
        return binary and (self.scale.low, self.scale.high) == (0.0, 1.0)

    # Words

    def _headline(self) -> str:
        verdict = self.verdict
        if self.broken:
            named = f" The run named {self.named}." if self.named else ""
            return f"No safe answer: {self.broken}.{named}"
        if verdict.status == "undecided":
            if self.asked:
                return "Undecided: not every answer was found."
            why = why_undecided(self.record)
            return f"Undecided: {why}." if best_is_in(self.record) else f"No safe answer: {why}."
        if self.asked:
            return " ".join(answers_in_words(self._situation()))
        epsilon = self.record.options.get("epsilon") or 0.0
        close = f", or at most {epsilon:g} worse than the best" if epsilon else ""
        best = aim(self.record.problem)
        return f"{verdict.arm} is the best arm{close}{f': {best}' if best else ''}."

    def _situation(self) -> Situation:
        """What words about the answers depend on, without numbers, which the card shows itself."""
        found = Situation.of(self.record)
        answers = [msgspec.structs.replace(a, value=None, interval=None) for a in found.verdict.answers]
        verdict = msgspec.structs.replace(found.verdict, answers=tuple(answers))
        return msgspec.structs.replace(found, verdict=verdict, alpha=0.0)

    def _tone(self, right: bool | None) -> Tone:
        if self.broken or right is False:
            return "bad"
        return "good" if self.verdict.status == "identified" else "amber"

    def _risk(self, alpha: float | None) -> str:
        if self.broken:
            return f"Nothing is promised: {self.broken}."
        if self.asked:
            text = " ".join(promises_in_words(self._situation()))
            if alpha is None:
                return text
            most = min(1.0, self.record.delta + alpha)
            return f"{text} That an answer is wrong or any interval here misses: at most {most:g}."
        delta, data = self.record.delta, Data.from_dict(self.record.problem)
        about = " about the file" if data and data.resample else ""
        if self.verdict.status == "undecided":
            if not best_is_in(self.record):
                return "Nothing is promised about the options that are left."
            text = f"The best arm is among those left, except with probability at most {delta:g}."
            if alpha is None:
                return text
            return f"{text} An interval here misses with probability at most {alpha:g}, all together."
        text = f"This is wrong{about} with probability at most {delta:g}."
        if alpha is None:
            return text
        return f"{text} That it is wrong or any interval here misses: at most {min(1.0, delta + alpha):g}."

    def _assumptions(self, numbers: bool) -> Iterator[str]:
        if self.broken:
            return
        yield "The means do not change during the run, and each reward is drawn independently."
        f = self.options.byzantine
        if f:
            who = "sites" if self.asked else "clients of each group"
            yield f"At most {f} of the {who} lie, and the others do not differ in their means."
        else:
            yield "No client lies."
        if premise := self.method.premise(self.options):
            yield premise
        if numbers:
            yield (
                "A winner's mean tends to be too high, because the highest mean was chosen (winner's curse). "
                "Its interval holds nevertheless."
            )

    def _alarms(self) -> Iterator[str]:
        """What a reader must know before the answer."""
        record = self.record
        if record.simulation:
            yield f"{record.simulation}."
        seen: set[str] = set()
        for fault in record.proven_faulty:
            when = "" if "by" in fault else f" in round {fault['round']}"
            text = f"Proven faulty: {fault['client']}{when}: {fault['reason']}."
            if text not in seen:
                seen.add(text)
                yield text
        for warning in record.warnings:
            yield f"Group {warning['group']}, round {warning['round']}: {warning['text']}."
        caught = {fault["client"] for fault in record.proven_faulty}
        for adversary in record.adversaries:
            if uncaught := [name for name in adversary["clients"] if name not in caught]:
                yield f"Lied and not caught: {_few(uncaught)} ({adversary['attack']})."
        if record.refused_summaries:
            who = sorted({row.client for row in record.refused_summaries})
            yield f"Summaries refused: {_few(who)} ({record.refused_summaries[0].reason})."

    def _truth(self) -> tuple[bool | None, str]:
        """In a simulation, whether the answer is right, and the same in words."""
        problem = simulated(self.record)
        if problem is None:
            return None, ""
        if self.asked:
            margin = on_unit_scale(self.options, self.scale)
            found = truth(problem, getattr(margin, "margin", 0.0))
            if found is None or self.named is None:
                return None, f"Simulation: the right answer is {found}." if found else ""
            right = found == self.named
            return right, f"Simulation: the answer is {'right' if right else f'wrong: it is {found}'}."
        means = problem.means
        best = max(mean for row in means for mean in row if mean is not None)
        j, a = next((j, a) for j, row in enumerate(means) for a, mean in enumerate(row) if mean == best)
        name, said = self.layout.arm(j, a), f"{self.scale.user(best):.4g}"
        if self.verdict.arm is None:
            inside = "is" if name in still_in(self.record) else "is not"
            return None, f"Simulation: the best option is {name} (true mean {said}); it {inside} still in."
        group, arm = _place(self.layout, self.verdict.arm)
        own = means[group][arm]
        epsilon = on_unit_scale(self.options, self.scale).epsilon
        right = own is not None and own >= best - epsilon
        if right:
            true = self.scale.user(own if own is not None else best)
            return True, f"Simulation: the answer is right (true mean {true:.4g})."
        return False, f"Simulation: the answer is wrong. The best option is {name} (true mean {said})."


def _signed(ends: Interval, sign: float) -> Interval:
    return ends if sign > 0 else (-ends[1], -ends[0])


def _ends_of(answer: Answer, sign: float) -> Interval | None:
    return None if answer.interval is None else _signed(answer.interval, sign)


def _relative(lead: Interval | None, value: float, rival: OptionFacts) -> tuple[float, Interval] | None:
    """The lead in per cent of the rival's mean, and its interval; None if that mean may be 0 or less."""
    if lead is None or rival.mean is None or rival.interval is None or rival.interval[0] <= 0:
        return None
    small, large = rival.interval
    low = lead[0] / (large if lead[0] >= 0 else small)
    high = lead[1] / (small if lead[1] >= 0 else large)
    return 100 * value / rival.mean, (100 * low, 100 * high)


def _place(layout: Layout, name: str) -> tuple[int, int]:
    """The group and the arm with this full name."""
    for j, group in enumerate(layout.groups):
        if name.startswith(f"{group.name}/") and name[len(group.name) + 1 :] in group.arms:
            return j, group.arms.index(name[len(group.name) + 1 :])
    raise InputError(f'there is no arm "{name}"')


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


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


def _costs(record: Record) -> CardCosts:
    return CardCosts(
        pulls=None if record.pulls is None else record.pulls.total,
        rounds=None if record.peers is not None else record.rounds,
        bits=record.bits.up + record.bits.down,
        after=record.bits.after,
        time=record.time,
    )
