"""The structs of the answer card: frozen facts that the terminal, the pages and notebooks show.

All numbers are on the user's scale. ``records.answer`` computes them, ``records.figures`` words them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

KEPT = "kept at the site"  # what summaries = false says about an option's numbers

Tone = Literal["good", "amber", "bad", "going"]
Interval = tuple[float, float]


class OptionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An option, as far as it is known.

    Attributes
    ----------
    name : str
        The option; with its site, where each site has its own.
    mean : float or None
        Its mean, on the user's scale.
    interval : tuple of two float, or None
        An interval for the mean.
    pulls : int or None
        How often it was tried.
    best : bool
        Whether it was named.
    """

    name: str
    mean: float | None
    interval: Interval | None
    pulls: int | None
    best: bool = False


class LeadFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How far an option is ahead of another one; positive is better, whatever the goal.

    Attributes
    ----------
    option : str
        The option that is ahead.
    over : str
        The option that it is compared with.
    kind : {"runner-up", "control"}
        What the other one is.
    value : float
        The lead, on the user's scale.
    interval : tuple of two float, or None
        An interval for the lead; where there are several `others`, for the lead over all of them at once.
    relative : tuple or None
        The lift in per cent of the other one's mean, with its interval, where means are positive.
    others : int
        How many other options the interval is about.
    """

    option: str
    over: str
    kind: Literal["runner-up", "control"]
    value: float
    interval: Interval | None
    relative: tuple[float, Interval] | None = None
    others: int = 1


class ClaimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The mean that a client claims; `kept` is false if it was trimmed, `liar` is known in simulations."""

    client: str
    mean: float
    kept: bool
    liar: bool


class TrimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What trimming did to an option: the clients' claims, the plain mean beside the robust one."""

    option: str
    claims: tuple[ClaimFacts, ...]
    plain: float
    robust: float
    true: float | None = None


class CardCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What the run cost; None where it is unknown. Recorded data cost their `rows`, and nothing else.

    A live experiment has `visitors`, and `filled` of its `pulls` did not come by their deadline.
    """

    pulls: int | None
    rounds: int | None
    bits: int | None
    after: int
    time: int | None
    rows: int | None = None
    visitors: int | None = None
    filled: int = 0


class AnswerCard(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of the answer card.

    Parameters
    ----------
    tone : {"good", "amber", "bad", "going"}
        Green only if something is promised about a named option.
    headline : str
        One sentence that matches the promise.
    best : str or None
        The option that the run named.
    answers : tuple of str
        The answers to a question about several sites, one sentence each, without numbers.
    options : tuple of OptionFacts
        All options, the best mean first; empty if nothing is known about them.
    sites : tuple of OptionFacts
        The best option of each site, where that was asked; a name is `site/option`.
    site_leads : tuple of LeadFacts
        The lead at each site over its runner-up, where that was asked: of the best option, or of the one that
        leads if it is open.
    cells : tuple of OptionFacts
        Every option at every site, where the best option of each site was asked.
    lead : LeadFacts or None
        The lead over the runner-up.
    lifts : tuple of LeadFacts
        The leads over a control.
    risk : str
        What is promised, in one sentence.
    assumptions : tuple of str
        What that rests on.
    alpha : float or None
        The probability that an interval misses, all of them together; None if there are no intervals.
    alarms : tuple of str
        Liars, proven faults, withdrawn promises: what stands at the top.
    right : bool or None
        In a simulation, whether the answer is right.
    truth : str
        The same in words; empty if unknown.
    trims : tuple of TrimFacts
        What trimming did, where clients may lie.
    percent : bool
        Whether means are shares, to be written in per cent.
    mean : str
        What the means are of, such as "mean of late".
    curse : str
        A sentence on the winner's curse: how much too good the mean of the named option tends to be, or why
        there is no figure. Empty if the card has no means.
    unit : str
        What rewards are measured in, such as "ms".
    """

    tone: Tone
    headline: str
    best: str | None
    answers: tuple[str, ...]
    options: tuple[OptionFacts, ...]
    sites: tuple[OptionFacts, ...]
    lead: LeadFacts | None
    lifts: tuple[LeadFacts, ...]
    risk: str
    assumptions: tuple[str, ...]
    alpha: float | None
    alarms: tuple[str, ...]
    right: bool | None
    truth: str
    trims: tuple[TrimFacts, ...]
    percent: bool
    mean: str
    kept: str
    costs: CardCosts
    method: str
    delta: float
    seed: int | None
    site_leads: tuple[LeadFacts, ...] = ()
    cells: tuple[OptionFacts, ...] = ()
    curse: str = ""
    unit: str = ""
    name: str = ""
    date: str = ""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What simulated runs like this one tell: what would decide it, what would be cheaper.

    Parameters
    ----------
    trials : int
        The number of simulated runs behind each number.
    guessed : bool
        Whether the means are estimates from this run, because the true ones are unknown.
    enough : int or None
        The pulls with which 95 % of such runs decide, if nothing else ends them; all of them if they are few.
    saved : float or None
        The share of the pulls that `epsilon` would save.
    epsilon : float or None
        That ε, in units of the rewards.
    cheaper : str
        Another method that needs fewer pulls; empty if none was found.
    less : float or None
        The share of the pulls that it would save.
    why_not : str
        Why nothing was simulated.
    """

    trials: int = 0
    guessed: bool = False
    enough: int | None = None
    saved: float | None = None
    epsilon: float | None = None
    cheaper: str = ""
    less: float | None = None
    why_not: str = ""
