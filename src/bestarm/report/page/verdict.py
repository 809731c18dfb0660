"""The verdict in one sentence, and its guarantee in plain words."""

from __future__ import annotations

from collections.abc import Iterator

from bestarm.protocol.rounds import DROPPED
from bestarm.protocol.verdict import REASONS, Verdict
from bestarm.records.describe import ENDED_EARLY
from bestarm.records.figures import gap_said
from bestarm.report.facts import RunFacts
from bestarm.report.markup import Html, clean, join, name, tag
from bestarm.report.page.parts import names
from bestarm.report.svg import number


def sentence(facts: RunFacts) -> Html:
    """The verdict in one sentence."""
    verdict = facts.verdict
    if verdict is None and facts.peers is not None:
        done, honest = sum(facts.peers.values()), len(facts.clients) - len(facts.liars)
        return join(f"Not decided yet: {done:,} of {honest:,} honest clients have a verdict.")
    if verdict is None:
        return join("Not decided yet: the run is in round ", number(facts.rounds), ".")
    if facts.headline:
        return join(clean(facts.headline, 600))
    if verdict.status == "identified":
        epsilon = facts.options.get("epsilon") or 0.0
        close = f", or at most {epsilon:g} worse than the best" if epsilon else ""
        what = f": {facts.aim}" if facts.aim else ""
        return join(tag("strong", name(verdict.arm)), " is the best arm", close, clean(what), ".")
    reason = str(verdict.reason)
    why = facts.undecided.why if facts.undecided else REASONS.get(reason, reason)
    return join("Undecided: ", why, ".")


def guarantee(facts: RunFacts) -> Iterator[Html]:
    """The guarantee, as paragraphs."""
    verdict = facts.verdict
    if verdict is None:
        yield from _waiting(facts)
        return
    if facts.headline:
        yield from _answers(facts)
        return
    if verdict.mean is not None:
        between = verdict.interval
        span = f", and it lies between {number(between[0])} and {number(between[1])}" if between else ""
        yield tag("p", f"Its {clean(facts.mean)} is about {number(verdict.mean)}{span}.")
        if between and facts.method.interval_promise and not facts.broken:
            yield tag("p", facts.method.interval_promise)
    if facts.data:
        yield tag("p", clean(facts.data.said, 400), class_="bad" if facts.data.resample else None)
    if verdict.status != "identified":
        yield from _undecided(facts, verdict)
    elif facts.broken:
        yield tag("p", "Nothing is promised: ", facts.broken, ".", class_="bad")
    else:
        yield from _promise(facts)


def _answers(facts: RunFacts) -> Iterator[Html]:
    """What a promise about the answers to a question about several sites rests on."""
    if facts.data:
        yield tag("p", clean(facts.data.said, 400), class_="bad" if facts.data.resample else None)
    if facts.undecided and facts.undecided.helps:
        yield tag("p", clean(facts.undecided.helps, 400))
    for warning in facts.warnings:
        if DROPPED in warning.text:
            yield tag("p", "Site ", name(warning.group, 60), f": {warning.text}.", class_="bad")
    if facts.broken:
        yield tag("p", "Nothing is promised: ", facts.broken, ".", class_="bad")
        return
    yield tag(
        "p",
        "The promise holds as long as the rewards of a block are independent, with means that the past "
        "fixes, and stay within their bounds. Slow drift that is common to the options of a site is covered.",
    )


def _waiting(facts: RunFacts) -> Iterator[Html]:
    if facts.waiting:
        yield tag("p", "Waiting for ", names(facts.waiting, 8, 60), ".")
        drop = tag("code", "bestarm federation drop FOLDER CLIENT")
        hint = "A client that has stopped resumes when it is started again. To continue without it: "
        yield tag("p", hint, drop, class_="note")


def _undecided(facts: RunFacts, verdict: Verdict) -> Iterator[Html]:
    found = facts.undecided
    if found and found.helps:
        yield tag("p", clean(found.helps, 400))
    if facts.aim:
        yield tag("p", f"Best would be {clean(facts.aim)}.")
    left = found.left if found else verdict.candidates
    known = ", as far as the server knows" if facts.private is False else ""
    yield tag("p", f"Still in the race{known}: ", names(left, 20, 80) or "no arm", ".")
    if verdict.gap is not None:
        first = name((found and found.first) or "The leading one", 80)
        apart = gap_said(verdict.gap, facts.percent, facts.scale.unit)
        yield tag("p", first, f" is at most {apart} from the best.")
    if verdict.reason in ENDED_EARLY and not facts.method.peers and not facts.broken:
        text = "No arm is named, but the best arm is among those left"
        yield tag("p", f"{text}, except with probability at most δ = {facts.delta:g}.")


def _promise(facts: RunFacts) -> Iterator[Html]:
    for warning in facts.warnings:
        if DROPPED in warning.text:
            yield tag("p", "Group ", name(warning.group, 60), f": {warning.text}.", class_="bad")
    about = ""
    where = (
        ", as long as each arm's rewards are drawn independently, with a mean that does not change, and stay "
        "within their bounds"
    )
    if facts.data and facts.data.resample:
        about, where = ", about the file", " in the file, and only there"
    yield tag(
        "p",
        f"How sure is that{about}? A run like this names a wrong arm with probability at most "
        f"δ = {facts.delta:g}: in at most {100 * facts.delta:g} of 100 such runs, on average{_lies(facts)}. "
        f"That holds whatever the arms' means are{where}.",
    )
    if facts.method.premise:
        yield tag("p", facts.method.premise)


def _lies(facts: RunFacts) -> str:
    """How many liars the guarantee tolerates."""
    liars = facts.options.get("byzantine") or 0
    if not liars:
        return ""
    do = "lies, colludes or falls silent" if liars == 1 else "lie, collude or fall silent"
    if facts.method.peers:
        return f", even if up to {liars} of the clients that each client hears {do}"
    return f", even if up to {liars} client{'s' * (liars > 1)} of each group {do}"
