"""The tables of docs/compare.md and of other pages, from measurements that are kept in docs/data.

``python docs/compare.py`` writes them into the pages, between the comments ``<!-- table: NAME -->`` and
``<!-- end -->``. ``tests/house/test_compare_page.py`` checks that the pages are current. To renew the data:

    python -m benchmarks privacy lying_sites skip_ahead arena
    cp out/privacy.json out/lying_sites.json out/skip_ahead.json out/arena/arena.json docs/data
    cp out/arena.json docs/data/baselines.json
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from bestarm.stats.intervals import binomial_interval
from bestarm.study.arena.result import Arena, Entry, Score

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data"
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("compare", "privacy", "questions", "rivals"))
SHOWN = "paper-5"  # the instance that libraries are compared on, too
AVERAGED = "site-effects-20"  # an instance for the question about averages over sites


def _round(x: float | None) -> str:
    """Three digits, or a dash."""
    if x is None:
        return "–"
    return f"{float(f'{x:.3g}'):,.3f}".rstrip("0").rstrip(".")


def _geometric(values: list[float]) -> float | None:
    return float(np.exp(np.mean(np.log(values)))) if values else None


def _proof(entry: Entry) -> str:
    return "proved" if entry.proof else "heuristic"


def overview(found: Arena, headline: bool) -> str:
    """One row per entrant: geometric means over the instances that it solved."""
    rows = []
    for entry in found.entries:
        scores = [score for score in found.scores if score.method == entry.label]
        solved = [score for score in scores if score.solved]
        if entry.headline != headline or not scores:
            continue
        over = _geometric([score.over_limit for score in solved if score.over_limit])
        errors, runs = sum(score.errors for score in scores), sum(score.trials for score in scores)
        rows.append(
            (
                over is None,
                over or _geometric([score.pulls.mean for score in solved]) or 0.0,
                f"| {entry.title} | {_proof(entry)} | {len(solved)} of {len(scores)} | {_round(over)} "
                f"| {_round(_geometric([s.rounds.mean for s in solved]))} "
                f"| {_round(_geometric([s.bits_up.mean for s in solved]))} "
                f"| {errors} of {runs:,} (≤ {binomial_interval(errors, runs)[1]:.2g}) "
                f"| {sum(s.keeps == 'yes' for s in scores)} of {len(scores)} |",
            )
        )
    head = "| method | δ is kept | instances solved | pulls / limit | rounds | bits up | wrong "
    head += "| shown to keep δ |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *(row for _, _, row in sorted(rows))])


def instance(found: Arena, name: str) -> str:
    """One row per entrant on one instance."""
    entries = {entry.label: entry for entry in found.entries}
    rows = [_line(score, entries[score.method]) for score in found.on(name) if entries[score.method].headline]
    head = "| method | δ is kept | pulls | × limit | rounds | bits up | wrong of " + f"{found.trials:,} |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def _line(score: Score, entry: Entry) -> str:
    half = f"{float(f'{score.pulls.half:.2g}'):,.0f}"
    return (
        f"| {entry.title} | {_proof(entry)} | {_round(score.pulls.mean)} ± {half} "
        f"| {_round(score.over_limit)} | {_round(score.rounds.mean)} | {_round(score.bits_up.mean)} "
        f"| {score.errors} |"
    )


def libraries() -> str:
    """The rows of other libraries."""
    rows = json.loads((DATA / "libraries.json").read_text("utf-8"))["rows"]
    lines = [
        f"| {row['way']} | {row['promise']} | {row['trials']:,} | {row['pulls']:,.0f} ± {row['±']:,.0f} "
        f"| {_round(row['× limit']) if row['promise'] == 'proved' else '–'} | {row['wrong']} |"
        for row in rows
    ]
    return "\n".join(
        ["| rule | δ is kept | trials | pulls | × limit | wrong |", "|---|---|---|---|---|---|", *lines]
    )


def facts(found: Arena) -> str:
    """The sentences with numbers, and the command."""
    runs = sum(score.trials for score in found.scores)
    limit = next(ground.limit for ground in found.grounds if ground.name == SHOWN)
    names = ",".join(entry.label for entry in found.entries)
    return (
        f"{len(found.entries)} methods on {len(found.grounds)} instances, δ = {found.delta:g}, "
        f"{found.trials:,} runs of each pair that a method can run, {runs:,} in all. "
        f"On `{SHOWN}` the limit is {limit:,.0f} pulls. {_time()}\n\n"
        "This command makes these data again, number for number:\n\n"
        "<!-- not run: takes minutes -->\n\n"
        f"```sh\nbestarm arena --delta {found.delta:g} --trials {found.trials} --seed {found.seed} "
        f"--out out/arena --methods {names}\n```"
    )


def _time() -> str:
    """How long the table takes, as measured."""
    row = next(row for row in kept("baselines") if "table" in row)
    return f"They take {row['cpu minutes']:.0f} minutes of processor time."


def kept(name: str) -> list[dict[str, Any]]:
    """The rows that a benchmark measured."""
    rows: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return rows


def privacy() -> str:
    """What privacy costs: one row per problem."""
    rows = kept("privacy")
    epsilons = sorted({row["ε"] for row in rows})
    lines = [f"| ε | {' | '.join(f'{e:g}' for e in epsilons)} |", "|---" * (1 + len(epsilons)) + "|"]
    for case in dict.fromkeys(row["case"] for row in rows):
        own = {row["ε"]: row for row in rows if row["case"] == case}
        cells = [f"{_round(own[e]['predicted'])} / {_round(own[e]['measured'])}" for e in epsilons]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def lying_sites() -> str:
    """One row per attack of lying sites, and what came of an exact tie."""
    rows = kept("lying_sites")
    attacks = [row for row in rows if "attack" in row]
    run = [row for row in attacks if row["trials"] and row["attack"] != "nobody lies"]
    faults = (1, 2, 3)
    alike: dict[str, list[str]] = {}
    for row in (row for row in attacks if row["trials"]):
        cells = [
            (row[f"wrong, f = {f}"], row[f"undecided, f = {f}"], row[f"pulls of a site, f = {f}"])
            for f in faults
        ]
        shown = [
            f"{pulls:,.0f}" + (f" ({wrong} wrong, {undecided} undecided)" if wrong or undecided else "")
            for wrong, undecided, pulls in cells
        ]
        alike.setdefault(" | ".join(shown), []).append(row["attack"])
    lines = [f"| {', '.join(names)} | {cells} |" for cells, names in alike.items()]
    wrong = sum(row[f"wrong, f = {f}"] for row in run for f in faults)
    undecided = sum(row[f"undecided, f = {f}"] for row in run for f in faults)
    trials = sum(len(faults) * row["trials"] for row in run)
    left_out = [f"`{row['attack']}`" for row in attacks if not row["trials"]]
    tied = [row for row in rows if "tied, f" in row]
    shares = ", ".join(f"{100 * row['lost'] / row['trials']:.1f} %" for row in tied)
    most = max(row["at most"] for row in tied)
    head = "| attack | " + " | ".join(f"pulls, f = {f}" for f in faults) + " |"
    return (
        f"Of {trials:,} attacked runs {wrong} were wrong and {undecided} undecided.\n"
        f"The messages cannot express {', '.join(left_out)}.\n"
        "With the honest sites exactly tied on average and f = 1, 2, 3 extreme liars, the option that\n"
        f"they bury was ruled out in {shares} of {tied[0]['trials']:,} runs each; exact bounds on these\n"
        f"shares, each wrong with probability 0.001, are at most {100 * most:.1f} %.\n\n"
        + "\n".join([head, "|---" * (1 + len(faults)) + "|", *lines])
    )


def baselines() -> str:
    """Whether each baseline with a proof keeps δ on an instance of its own."""
    rows = [row for row in kept("baselines") if "baseline" in row]
    head = "| baseline (instance) | wrong | undecided | error rate at most | keeps δ = 0.1 |"
    alike: dict[str, list[str]] = {}
    for row in rows:
        cells = f"{row['wrong']} | {row['undecided']} | {row['most']:.2g} | {row['keeps δ']}"
        alike.setdefault(cells, []).append(f"{row['baseline']} ({row['instance']})")
    lines = [f"| {', '.join(names)} | {cells} |" for cells, names in alike.items()]
    trials = sorted({row["trials"] for row in rows})
    said = " or ".join(f"{number:,}" for number in trials)
    return f"Each with {said} trials:\n\n" + "\n".join([head, "|---|---|---|---|---|", *lines])


def uplinks() -> str:
    """Pulls, numbers that clients send, and FedElim's cost for three prices of one number."""
    prices = (1, 10, 100)
    lines = [
        f"| `{row['rival']}` | `{row['instance']}` | {_round(row['pulls'])} | {_round(row['uplinks'])} | "
        + " | ".join(_round(row["pulls"] + price * row["uplinks"]) for price in prices)
        + " |"
        for row in kept("baselines")
        if "rival" in row
    ]
    head = "| method | instance | pulls | numbers sent | " + " | ".join(f"C = {c}" for c in prices) + " |"
    return "\n".join([head, "|---" * (4 + len(prices)) + "|", *lines])


def speed() -> str:
    """Pulls that are simulated in a second, by ``benchmarks/skip_ahead.py``."""
    names = {
        "study": "a study of Fed-SEL",
        "compiled loop (Numba)": "the same pull by pull, compiled with Numba",
        "best-arm LUCB1": "best-arm's LUCB1, which makes its own choice of arms",
    }
    lines = [
        f"| {names[row['way']]} | {_round(row['pulls/s'])} | {_round(row['study is × as fast'])} |"
        for row in kept("skip_ahead")
    ]
    head = ["| way | pulls a second | a study is … times as fast |", "|---|---|---|"]
    return "\n".join([*head, *lines])


def page(text: str) -> str:
    """A page with current tables."""
    found = Arena.load(DATA)
    tables = {
        "facts": lambda: facts(found),
        "overview": lambda: overview(found, headline=True),
        "variants": lambda: overview(found, headline=False),
        SHOWN: lambda: instance(found, SHOWN),
        AVERAGED: lambda: instance(found, AVERAGED),
        "libraries": libraries,
        "privacy": privacy,
        "lying-sites": lying_sites,
        "speed": speed,
        "baselines": baselines,
        "uplinks": uplinks,
    }

    def put(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{tables[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\S+) -->\n.*?<!-- end -->", put, text, flags=re.DOTALL)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path.read_text("utf-8")), encoding="utf-8")
        print(path)
