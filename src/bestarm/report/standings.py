"""Every option of a run, ranked: its one mean and interval, its pulls, its lead, and when it left and why.

Pages, pictures and the live page take the mean and the interval of an option from here, so that an option
never has two of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from bestarm.protocol.rounds import DROPPED
from bestarm.protocol.trace import Apart, FarBehind, LostTest, Wealth
from bestarm.protocol.verdict import Answer
from bestarm.report.facts import ExitFacts, RunFacts
from bestarm.report.numbers import number

State = Literal["won", "in", "out"]

Span = tuple[float | None, float | None]


@dataclass(frozen=True)
class Standing:
    """An option. `place` fixes its colour; `lead` is how far it is ahead of the next one in the ranking."""

    name: str
    place: int
    state: State
    became: str
    mean: float | None = None
    lower: float | None = None
    upper: float | None = None
    pulls: int | None = None
    lead: float | None = None
    left: str = ""
    why: str = ""


def standings(facts: RunFacts) -> list[Standing]:
    """Every option: the winner first, then by mean, then those whose mean is not known."""
    known = _Known(facts)
    found = [known.standing(name, place) for place, name in enumerate(facts.roster)]
    return _ranked(facts, found)


def _ranked(facts: RunFacts, found: list[Standing]) -> list[Standing]:
    """Options by rank, each with its lead over the next one; before the first round there may be none."""
    sign = 1.0 if facts.scale.goal == "min" else -1.0
    ranked = sorted(
        found, key=lambda s: (s.state != "won", s.mean is None, 0.0 if s.mean is None else sign * s.mean)
    )
    leads: list[float | None] = [
        None if one.mean is None or other.mean is None else sign * (other.mean - one.mean) + 0.0
        for one, other in pairwise(ranked)
    ]
    return [replace(one, lead=lead) for one, lead in zip(ranked, [*leads, None], strict=False)]


def site_standings(facts: RunFacts) -> list[list[Standing]]:
    """For each site with an answer of its own: the options there, the best one first."""
    table = facts.options_by_site
    if table is None:
        return []
    answers = {answer.site: answer for answer in facts.verdict.answers} if facts.verdict else {}
    told = {option.name: option for option in facts.card.cells} if facts.card else {}
    place = {name: k for k, name in enumerate(facts.roster)}
    found = []
    for j, site in enumerate(table.sites):
        rows = []
        for row in table.rows:
            if row.means[j] is None and not row.at[j]:
                continue  # it is not offered there, or was not played
            name = f"{site}/{row.name}"
            cell, left = told.get(name), row.left[j]
            bets = row.why[j] if row.why else None
            state, became = _state_at(facts, row.name, answers.get(site), left is not None)
            ends = cell.interval if cell is not None and cell.interval else (None, None)
            rows.append(
                Standing(
                    name=name,
                    place=place.get(row.name, 0),
                    state=state,
                    became=became,
                    mean=row.means[j] if cell is None or cell.mean is None else cell.mean,
                    lower=ends[0],
                    upper=ends[1],
                    pulls=row.at[j],
                    left="" if left is None else f"round {left}",
                    why="" if bets is None else bets_said(bets),
                )
            )
        found.append(_ranked(facts, rows))
    return found


def _state_at(facts: RunFacts, option: str, answer: Answer | None, left: bool) -> tuple[State, str]:
    """The state of an option at a site with this answer, and what became of it there."""
    best = answer.option if answer is not None and answer.answer == "best" else None
    if option == best:
        return "won", named(facts)
    if left or best is not None or (answer is not None and option not in answer.candidates):
        return "out", "ruled out"
    return "in", "in the race" if facts.verdict is None else "not ruled out"


def states(facts: RunFacts) -> dict[str, State]:
    """The state of every option, by name."""
    known = _Known(facts)
    return {name: known.state(name)[0] for name in facts.roster}


def winners(facts: RunFacts) -> frozenset[str]:
    """The options that the run named as the best; none before the verdict."""
    verdict = facts.verdict
    if verdict is None or verdict.status != "identified":
        return frozenset()
    if not verdict.answers:
        return frozenset({verdict.arm} if verdict.arm else ())
    return frozenset(a.option for a in verdict.answers if a.option and a.site is None and a.answer == "best")


def named(facts: RunFacts) -> str:
    """What the option that a run named is called: the winner, unless nothing is promised about it."""
    return "named, unsafe" if facts.broken else "winner"


class _Known:
    """What the facts say about options, by name."""

    def __init__(self, facts: RunFacts) -> None:
        self.facts, self.won = facts, winners(facts)
        options = facts.card.options if facts.card else ()
        self.told = {option.name: option for option in options}
        self.lines = {line.name: line for line in facts.lines}
        self.traces = {f"{facts.groups[t.group].name}/{t.arm}": t for t in facts.traces}
        self.exits = {exit_.name: exit_ for exit_ in reversed(facts.exits)}
        self.rows = {row.name: row for row in facts.options_by_site.rows} if facts.options_by_site else {}
        self.early = {arm.name: arm for arm in facts.so_far}
        self.dropped = {warning.group for warning in facts.warnings if DROPPED in warning.text}
        undecided = facts.undecided.left if facts.undecided else ()
        self.left = set(undecided or (facts.verdict.candidates if facts.verdict else ()))

    def standing(self, name: str, place: int) -> Standing:
        """An option, without its lead."""
        span, pulls, mean = self._numbers(name)
        exit_, (state, became) = self._exit(name), self.state(name)
        if mean is None and state == "in" and self.lines and self.facts.verdict is None:
            became = "not told to the server"
        return Standing(
            name=name,
            place=place,
            state=state,
            became=became,
            mean=mean,
            lower=span[0],
            upper=span[1],
            pulls=pulls,
            left="" if exit_ is None else when(exit_),
            why="" if exit_ is None else why_out(self.facts, exit_),
        )

    def _numbers(self, name: str) -> tuple[Span, int | None, float | None]:
        """The interval, the pulls and the mean of an option: those of the card, once there is one.

        Before, they are from the source that saw most of it.
        """
        row = self.rows.get(name)
        if told := self.told.get(name):
            pulls = row.pulls if told.pulls is None and row else told.pulls
            return told.interval or (None, None), pulls, told.mean
        if arm := self.early.get(name):  # before the first round, means of the rewards themselves
            return (None, None), arm.pulls, arm.mean
        if self.facts.card is not None:  # a server that asks about several sites knows all means
            return (None, None), row.pulls if row else None, row.value if row else None
        line, trace, exit_ = self.lines.get(name), self.traces.get(name), self.exits.get(name)
        span: Span = (line.lower[-1], line.upper[-1]) if line else (None, None)
        if row is not None:
            return span, row.pulls, row.value
        if line:  # as the race shows it
            return span, line.pulls[-1], line.mean[-1]
        found: list[tuple[Span, int, float]] = []
        if trace:
            found.append(((trace.lower[-1], trace.upper[-1]), trace.pulls[-1], trace.mean[-1]))
        if exit_:
            found.append(((exit_.lower, exit_.upper), exit_.pulls_last, exit_.mean))
        return max(found, key=lambda source: source[1], default=((None, None), None, None))

    def _exit(self, name: str) -> ExitFacts | None:
        """The exit of an option, or of the whole group that it was the last option of."""
        own = self.exits.get(name)
        if own is not None or self.rows:
            return own
        return self.exits.get(f"{name.partition('/')[0]} (the whole group)")

    def state(self, name: str) -> tuple[State, str]:
        """The state of an option, and what became of it."""
        if name in self.won:
            return "won", named(self.facts)
        if self.rows:
            result = self.rows[name].result if name in self.rows else ""
            return ("out" if result == "ruled out" else "in"), result or "see the sites"
        exit_ = self._exit(name)
        if exit_ is not None:
            return "out", "out with its site" if exit_.name != name else "out"
        if name.partition("/")[0] in self.dropped:
            return "out", DROPPED
        line = self.lines.get(name)
        if line and line.fate != "in":
            words = "out" if line.fate == "out" else "withdrew"
            return "out", words if line.when is None else f"{words} in round {line.when}"
        if self.facts.verdict is None:
            return "in", "in the race"
        if self.facts.verdict.status == "identified":
            behind = "not named" if self.facts.broken else "behind the winner"
            return "out", behind if line or not self.facts.exits else "out at its site"
        return ("in", "not ruled out") if name in self.left else ("out", "out at its site")


def when(exit_: ExitFacts) -> str:
    """When an option was dropped: in which round, or after how many pulls of a client."""
    if exit_.round is not None:
        return f"round {exit_.round}"
    many = exit_.pulls_last != exit_.pulls
    pulls = f"{number(exit_.pulls)} to {number(exit_.pulls_last)}" if many else number(exit_.pulls)
    return f"{pulls} pulls{' per client' * ((exit_.of or 1) > 1)}"


def why_out(facts: RunFacts, exit_: ExitFacts) -> str:
    """Why an option left; one that is compared with a control has an answer instead."""
    rows = facts.options_by_site.rows if facts.options_by_site else ()
    result = next((row.result for row in rows if row.name == exit_.name), "still in")
    said = because(exit_, percent=facts.percent)
    answered = result not in ("ruled out", "still in")
    return said.replace("the bets against it", "the bets on this answer") if answered else said


def because(exit_: ExitFacts, *, percent: bool = False) -> str:
    """Why an option was dropped, with the numbers that decided it."""

    def shown(value: float, unit: str = " %") -> str:
        return f"{number(100 * value)}{unit}" if percent else number(value)

    match exit_.why:
        case LostTest(p, level):
            told = "below 1e-300" if p == 0.0 else f"{p:.2g}"
            return f"exact test: p = {told}, at most the level {level:.2g}"
        case FarBehind(bound):
            apart = abs((exit_.rival_mean or 0.0) - exit_.mean)
            return f"{shown(apart, ' points')} behind the best, at least c·α = {shown(bound, '')}"
        case Apart(end, best):
            side = "below" if end <= best else "above"  # where less is better
            return f"its interval lay {side} that of {exit_.rival or 'the best one'}"
        case Wealth():
            return bets_said(exit_.why)
        case _:
            return "–"


def bets_said(won: Wealth) -> str:
    """How much the bets against an option won, and how much they had to."""
    reached, level = wealth_said(won.log_wealth), number(math.exp(won.limit), 3)
    return f"the bets against it reached {reached} times their start, at least the level {level}"


def wealth_said(log_wealth: float) -> str:
    """A wealth from its logarithm, with three digits; a very large one has no exact number."""
    if log_wealth > math.log(1e9):
        return "more than a billion"
    return number(float(f"{math.exp(log_wealth):.3g}"))
