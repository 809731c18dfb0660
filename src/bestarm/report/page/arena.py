"""The page of an arena: an overview, performance profiles, Pareto fronts, all numbers, and commands."""

from __future__ import annotations

from functools import partial
from shlex import quote
from typing import Any

from bestarm.report.markup import Html, clean, join, name, table, tag
from bestarm.report.numbers import number
from bestarm.report.page.parts import Section, code, command, figure, filled, fold
from bestarm.report.svg.arena import front, numbered, profile
from bestarm.stats.intervals import binomial_interval
from bestarm.study.arena.overview import Row, overview
from bestarm.study.arena.result import Arena, Ground, Mean
from bestarm.util.text import counted, listed

PROFILES = {"pulls": "pulls", "rounds": "rounds", "bits_up": "bits up"}
KINDS = {False: "Every site has its own options", True: "All clients have the same options"}


def arena_sections(found: Arena, attached: list[Html]) -> list[Section]:
    """The parts of the page; `attached` are links to the files."""
    return filled(
        [
            ("top", "", _top(found)),
            ("overview", "All instances", _overview(found)),
            ("profiles", "Performance profiles", _profiles(found)),
            ("fronts", "Pulls against rounds", _fronts(found)),
            ("numbers", "The numbers", join(*[_instance(found, ground) for ground in found.grounds])),
            ("methods", "The methods", _methods(found)),
            ("left-out", "Not run", _left_out(found)),
            ("reproduce", "Run it again", _reproduce(found, attached)),
        ]
    )


def _top(found: Arena) -> Html:
    runs = sum(score.trials for score in found.scores)
    proved = {entry.label for entry in found.entries if entry.proof and entry.headline} - found.refuted
    wins: dict[str, int] = {}
    for ground in found.grounds:
        ranked = [s for s in found.on(ground.name) if s.method in proved and s.solved]
        if ranked:
            wins[ranked[0].method] = wins.get(ranked[0].method, 0) + 1
    lead = ", ".join(f"{label} on {count}" for label, count in sorted(wins.items(), key=lambda w: -w[1]))
    broken = sorted(found.refuted)
    parts = [
        tag(
            "h1",
            f"{counted(len(found.entries), 'method')} on {counted(len(found.grounds), 'instance')}",
            id="verdict",
        ),
        tag(
            "p",
            f"δ = {found.delta:g}, {counted(found.trials, 'run')} of each pair, {runs:,} in all. "
            f"Seed {found.seed}.",
        ),
    ]
    if wins:
        text = "Fewest pulls among the methods with a proof, by number of instances: "
        parts.append(tag("p", text, tag("strong", lead), "."))
    if broken:
        parts.append(
            tag("p", "Wrong more often than δ: ", tag("strong", ", ".join(broken)), ".", class_="bad")
        )
    else:
        parts.append(tag("p", "No method was shown to be wrong more often than δ on any instance."))
    return tag("div", *parts, class_="verdict yes")


def _overview(found: Arena) -> Html:
    order = numbered(found)
    head = [
        "",
        "method",
        "proof",
        "pulls / limit",
        "rounds",
        "time",
        "bits up",
        "wrong",
        "rate, 95 %",
        "keeps δ",
        "instances",
    ]
    main, rest = (
        [_line(found, order[row.entry.label], row) for row in overview(found, headline)]
        for headline in (True, False)
    )
    note = (
        "Pulls / limit, rounds, time (in steps of one pull per client) and bits are geometric means over "
        "the instances that a method solved: every run gave an answer, and the error rate was not shown to "
        "be above δ. To compare methods on the same instances, see below. The limit applies to methods "
        "that keep δ on every problem with 0/1 rewards; there is none for the others, nor for averages "
        "over sites. Wrong: wrong answers of all runs, with the exact 95 % interval of their rate. Keeps "
        "δ: on how many instances the exact interval shows that the rate is at most δ; ✗ where it shows that "
        f"it is not. Showing it takes at least {found.runs_needed:,} runs. Claimed: the author states a "
        "proof, which bestarm did not check."
    )
    numbers = {0, *range(3, len(head))}
    parts = [
        table(head, main, numbers=numbers, caption="Methods over all instances"),
        tag("p", note, class_="note"),
    ]
    if rest:
        parts += [
            tag("h3", "Not quite as in their papers"),
            tag(
                "p",
                "These are variants of ours, or a formula is from memory, so they are not in the table.",
                class_="note",
            ),
            table(head, rest, numbers=numbers, caption="Methods that are not quite as in their papers"),
        ]
    return join(*parts)


def _kept(found: Arena, row: Row) -> str:
    """On how many instances a method keeps δ; "open" where the runs are too few to show it."""
    if row.refuted:
        return f"✗ on {row.refuted} of {len(row.scores)}"
    if found.trials < found.runs_needed:
        return f"open: needs ≥ {found.runs_needed:,} runs"
    return f"{row.kept} of {len(row.scores)}"


def _line(found: Arena, place: int, row: Row) -> list[Any]:
    low, high = binomial_interval(row.errors, row.trials)
    ran, solved = len(row.scores), len(row.solved)
    return [
        str(place),
        name(row.entry.title, 60),
        row.entry.proved,
        number(row.over_limit, 3),
        number(row.mean("rounds"), 3),
        number(row.mean("time"), 3),
        number(row.mean("bits_up"), 3),
        f"{row.errors:,}",
        f"{low:.2g} to {high:.2g}",
        _kept(found, row),
        f"{ran}" if solved == ran else f"{ran}, {solved} solved",
    ]


def _profiles(found: Arena) -> Html:
    parts: list[Any] = []
    for shared, title in KINDS.items():
        names = [ground.name for ground in found.grounds if ground.shared == shared]
        if len(names) < 2:
            continue
        parts.append(tag("h3", f"{title}: {counted(len(names), 'instance')}"))
        for cost, words in PROFILES.items():
            draw = partial(profile, found, cost=cost, title=words, instances=names)
            caption = (
                f"The share of instances on which a method's {words} are at most τ times the fewest of all."
            )
            parts.append(figure(draw, caption))
    if parts:
        note = "Higher and further left is better. An instance that a method can't run counts as unsolved."
        parts.append(tag("p", note, class_="note"))
    return join(*parts)


def _fronts(found: Arena) -> Html:
    pictures = [
        figure(partial(_half, found, ground.name), f"{ground.name}: {ground.about}.")
        for ground in found.grounds
    ]
    order = ", ".join(f"{place} {label}" for label, place in numbered(found).items())
    note = (
        "The line joins the methods that no other beats in both pulls and rounds. Whiskers are 95 % "
        "intervals of the means. Filled circles: with a "
        "proof; open squares: without. The limit is for 0/1 rewards; where there are others, it is for coins "
        f"with the same means. {order}."
    )
    return join(tag("div", *pictures, class_="panels"), tag("p", note, class_="note"))


def _half(found: Arena, instance: str, width: int) -> Html | None:
    return front(found, min(width, 430), instance=instance)


def _instance(found: Arena, ground: Ground) -> Html:
    head = [
        "method",
        "pulls",
        "median",
        "/ limit",
        "busiest client",
        "rounds",
        "time",
        "bits up",
        "bits down",
        "wrong",
    ]
    head += ["rate, 95 %", "keeps δ", "undecided"]
    rows = []
    for score in found.on(ground.name):
        low, high = score.error
        keeps = "✗ no" if score.keeps == "no" else score.keeps
        least = "≥ " if score.undecided else ""
        rows.append(
            [
                name(score.method, 40),
                f"{least}{_shown(score.pulls)}",
                number(round(score.pulls.median)),
                number(score.over_limit, 3),
                number(round(score.longest.mean)),
                number(score.rounds.mean, 3),
                number(round(score.time.mean)),
                number(round(score.bits_up.mean)),
                number(round(score.bits_down.mean)),
                str(score.errors),
                f"{low:.2g} to {high:.2g}",
                keeps,
                str(score.undecided),
            ]
        )
    limit = f", limit {number(round(ground.limit))} pulls" if ground.limit else ""
    sizes = {"option": ground.options, "site": ground.sites, "client": ground.clients}
    facts = ", ".join([*(counted(n, noun) for noun, n in sizes.items()), f"gap {ground.gap:.3g}"])
    facts += limit
    source = f" From: {ground.source}." if ground.source else ""
    return join(
        tag("h3", ground.name, id=f"i-{clean(ground.name)}"),
        tag(
            "p", f"{ground.about[0].upper()}{ground.about[1:]}. Question: {ground.question}. {facts}.{source}"
        ),
        table(
            head, rows, numbers=set(range(1, len(head))), caption=join("Methods on ", name(ground.name, 60))
        ),
    )


def _shown(cost: Mean) -> str:
    half = "" if cost.half is None else f" ± {number(float(f'{cost.half:.2g}'))}"
    return f"{number(round(cost.mean))}{half}"


def _methods(found: Arena) -> Html:
    order = numbered(found)
    rows = [
        [str(order[e.label]), name(e.label, 40), name(e.title, 60), e.proof or "none stated", clean(e.source)]
        for e in found.entries
    ]
    return table(
        ["number", "name", "method", "what is proved about δ", "source"],
        rows,
        numbers={0},
        caption="The methods",
    )


def _left_out(found: Arena) -> Html | None:
    if not found.left_out:
        return None
    rows = [[name(one.method, 40), name(one.instance, 40), clean(one.why)] for one in found.left_out]
    return fold(
        counted(len(rows), "pair"),
        table(["method", "instance", "why"], rows, caption="Pairs that were not run"),
    )


def _reproduce(found: Arena, attached: list[Html]) -> Html:
    rows = [[score.method, score.instance, code(score.command)] for score in found.scores if score.command]
    parts: list[Html] = []
    if len(rows) == len(found.scores):
        labels = quote(",".join(entry.label for entry in found.entries))
        names = quote(",".join(ground.name for ground in found.grounds))
        whole = (
            f"bestarm arena --methods {labels} --instances {names} --delta {found.delta!r} "
            f"--trials {found.trials} --seed {found.seed} --most {found.most} --out DIR"
        )
        parts.append(tag("p", "This command gives the same numbers, with any number of processes:"))
        parts.append(command(whole))
    else:
        parts.append(
            tag("p", "Some methods or instances were given in Python, so no command repeats all of it.")
        )
    own = [ground.name for ground in found.grounds if ground.problem is not None]
    if own:
        text = (
            f"arena.json holds the problem of {listed(own, 4)}. Such an instance runs without its file with: "
        )
        again = f"ba.arena([…], {{{own[0]!r}: ba.Arena.load('arena.json').problem({own[0]!r})}}, …)"
        parts.append(tag("p", clean(text), code(again)))
    if rows:
        commands = table(["method", "instance", "command"], rows, caption="The command of each pair")
        parts.append(fold("One pair at a time", commands))
    limit = f"A baseline's run ends undecided after {found.most:,} pulls. Made by bestarm {found.version}."
    return join(*parts, tag("p", limit), *attached)
