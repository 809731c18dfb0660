"""The answer card of a run: which option is best, how far it is ahead, what the risk is, and what it cost.

``answer_card`` computes it from a record, without further runs; ``study.outlook`` measures what would have
helped. All numbers are on the user's scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from bestarm.errors import InputError
from bestarm.problem.data import Data
from bestarm.problem.truth import truth
from bestarm.protocol.options import on_unit_scale
from bestarm.protocol.registry import METHODS
from bestarm.records.build import FILLED
from bestarm.records.card import KEPT, AnswerCard, CardCosts, OptionFacts, Tone
from bestarm.records.describe import aim, best_is_in, mean_of, still_in, why_undecided
from bestarm.records.figures import gap_said, said
from bestarm.records.pulls import known_pulls
from bestarm.records.questions import Situation, title
from bestarm.records.questions import headline as answers_in_words
from bestarm.records.questions import promise as promises_in_words
from bestarm.records.ranking import Ranking, place_of, simulated
from bestarm.records.record import Record
from bestarm.records.recordings import is_withdrawal

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
        answers=(),
        options=(),
        sites=(),
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


class _Reading(Ranking):
    """The words of the card, beside its numbers."""

    def card(self) -> AnswerCard:
        record, verdict = self.record, self.verdict
        arms, alpha = self.arms()
        options = self.ranked(arms)
        right, told = self._truth()
        lead = self.lead(options)
        lifts = tuple(self.lifts(options))
        sites, site_leads = tuple(self.by_site()), tuple(self.site_leads(arms))
        leads = (*lifts, *site_leads, *([lead] if lead else []))
        cells = tuple(self.cells(arms))
        shown = (*options, *sites, *cells)
        has_intervals = any(row.interval for row in shown) or any(row.interval for row in leads)
        return AnswerCard(
            tone=self._tone(right),
            headline=self._headline(),
            best=verdict.arm if verdict.status == "identified" else None,
            answers=tuple(self._answers()),
            options=options,
            sites=sites,
            site_leads=site_leads,
            cells=cells,
            lead=lead,
            lifts=lifts,
            risk=self._risk(alpha if has_intervals else None),
            assumptions=tuple(self._assumptions(alpha if has_intervals else None)),
            alpha=alpha if has_intervals else None,
            alarms=tuple(text for text in (self.contradiction(lead, options), *self._alarms()) if text),
            right=right,
            truth=told,
            trims=tuple(self.trims()),
            percent=self._percent(),
            mean=mean_of(record.problem),
            kept=KEPT if record.summaries is None else "",
            costs=_costs(record),
            method=record.method,
            delta=record.delta,
            seed=record.seed,
            curse=self._curse((*options, *sites), bool(site_leads)),
            unit=self.scale.unit,
            name=record.name,
            date=record.date,
        )

    def _headline(self) -> str:
        verdict = self.verdict
        if self.broken:
            named = f" The run named {self.named}." if self.named else ""
            return f"No safe answer: {self.broken}.{named}"
        if verdict.status == "undecided":
            if self.asked:
                return title(self._situation())
            why = why_undecided(self.record)
            return f"Undecided: {why}." if best_is_in(self.record) else f"No safe answer: {why}."
        if self.asked:
            return title(self._situation())
        epsilon = self.record.options.get("epsilon") or 0.0
        close = f", or at most {epsilon:g} worse than the best" if epsilon else ""
        best = aim(self.record.problem)
        return f"{verdict.arm} is the best arm{close}{f': {best}' if best else ''}."

    def _answers(self) -> Iterator[str]:
        """The answers as sentences without numbers, which the card shows itself."""
        return answers_in_words(self._situation())

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
            text = f"Nothing is promised: {self.broken}."
            if alpha is None:
                return text
            return (
                f"{text} The intervals do not depend on the method: the probability that any of them misses "
                f"is at most {alpha:g}."
            )
        if self.asked:
            text = " ".join(promises_in_words(self._situation()))
            if alpha is None:
                return text
            if self._one_by_one():
                return (
                    f"{text} The probability that any interval of a right or open answer misses is at most "
                    f"{alpha:g}."
                )
            most = min(1.0, self.record.delta + alpha)
            return (
                f"{text} The probability that an answer is wrong or any interval here misses is at most "
                f"{most:g}."
            )
        delta, data = self.record.delta, Data.from_dict(self.record.problem)
        about = " about the file" if data and data.resample else ""
        if self.verdict.status == "undecided":
            if not best_is_in(self.record):
                return "Nothing is promised about the options that are left."
            text = f"The best arm is among those left, except with probability at most {delta:g}."
            if alpha is None:
                return text
            return f"{text} The probability that any interval here misses is at most {alpha:g}."
        text = f"This is wrong{about} with probability at most {delta:g}."
        if alpha is None:
            return text
        most = min(1.0, delta + alpha)
        return f"{text} The probability that it is wrong or any interval here misses is at most {most:g}."

    def _one_by_one(self) -> bool:
        """Whether δ is promised about each of several answers, and not about all together."""
        question = self.layout.question
        return question.by_site and not question.simultaneous and len(self.verdict.answers) > 1

    def _assumptions(self, alpha: float | None) -> Iterator[str]:
        if self.blind or (self.broken and alpha is None):
            return
        yield "The means do not change during the run, and each reward is drawn independently."
        f = self.options.byzantine
        if f and self.asked:
            yield (
                f"At most {f} of the sites lie, and which ones is fixed before the run. Values, leads and "
                "intervals are about the average over the other sites, which may differ."
            )
        elif f:
            who = "clients of each group"
            yield f"At most {f} of the {who} lie, and the others do not differ in their means."
        elif self.record.visitors is None:
            yield "No client lies."
        if premise := self.method.premise(self.options):
            yield premise
        if not self.broken and not (method := METHODS[self.record.method]).included:
            yield f"The author of the method {method.title} is right about its proof: {method.proof}."

    def _curse(self, rows: Sequence[OptionFacts], leads: bool) -> str:
        """How much too good the mean of the named option tends to be, as far as that was measured."""
        if self.broken or not (leads or any(row.mean is not None for row in rows)):
            return ""
        named, share = [row for row in rows if row.best], self.method.curse
        if not named:
            return "The mean of the option that leads tends to be a little too good."
        text = "The mean of an option that wins tends to be a little too good"
        if share is None:
            return f"{text}. By how much was not measured for {self.method.title}."
        if any(row.interval is None for row in named):
            return f"{text}. By how much is known only where it has an interval."
        sizes = [share * (row.interval[1] - row.interval[0]) / 2 for row in named if row.interval]
        here = f" (here {gap_said(sizes[0], self._percent(), self.scale.unit)})" if len(sizes) == 1 else ""
        return (
            f"{text}: in measured runs of {self.method.title}, on average by at most {100 * share:.2g} % of "
            f"the ± of its interval{here}. The interval holds nevertheless."
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
            if is_withdrawal(warning):
                continue  # the headline says it
            if FILLED in warning["text"]:
                yield f"Site {warning['group']}: {warning['text']}."
                continue
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
        percent = self._percent()
        name, mean = self.layout.arm(j, a), said(self.scale.user(best), None, percent, self.scale.unit)
        if self.verdict.arm is None:
            inside = "is" if name in still_in(self.record) else "is not"
            return None, f"Simulation: the best option is {name} (true mean {mean}); it {inside} still in."
        group, arm = place_of(self.layout, self.verdict.arm)
        own = means[group][arm]
        epsilon = on_unit_scale(self.options, self.scale).epsilon
        right = own is not None and own >= best - epsilon
        if right:
            true = self.scale.user(own if own is not None else best)
            return (
                True,
                f"Simulation: the answer is right (true mean {said(true, None, percent, self.scale.unit)}).",
            )
        return False, f"Simulation: the answer is wrong. The best option is {name} (true mean {mean})."


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _costs(record: Record) -> CardCosts:
    made = known_pulls(record)
    return CardCosts(
        pulls=sum(made.values()) if made else None,
        rounds=None if record.peers is not None else record.rounds,
        bits=record.bits.up + record.bits.down,
        after=record.bits.after,
        time=record.time,
        visitors=None if record.visitors is None else record.visitors.assigned,
        filled=0 if record.visitors is None else record.visitors.filled,
    )
