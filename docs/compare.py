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

from bestarm.stats.intervals import binomial_interval
from bestarm.study.arena.overview import overview as rows_of
from bestarm.study.arena.result import Arena, Entry

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "docs" / "data"
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("compare", "privacy", "questions", "rivals"))


def _round(x: float | None) -> str:
    """Three digits, or a dash."""
    if x is None:
        return "–"
    return f"{float(f'{x:.3g}'):,.3f}".rstrip("0").rstrip(".")


def _proof(entry: Entry) -> str:
    return "proved" if entry.proof else "heuristic"


def overview(found: Arena) -> str:
    """One row per entrant: geometric means over the instances that it solved."""
    lines = [
        f"| {row.entry.title} | {_proof(row.entry)} | {len(row.solved)} of {len(row.scores)} "
        f"| {_round(row.over_limit)} | {_round(row.mean('rounds'))} | {_round(row.mean('time'))} "
        f"| {_round(row.mean('bits_up'))} "
        f"| {row.errors} of {row.trials:,} (≤ {binomial_interval(row.errors, row.trials)[1]:.2g}) "
        f"| {row.kept} of {len(row.scores)} |"
        for row in rows_of(found, headline=True)
    ]
    head = "| method | δ is kept | instances solved | pulls / limit | rounds | time | bits up | wrong "
    head += "| shown to keep δ |"
    return "\n".join([head, "|---" * 9 + "|", *lines])


OURS = {  # the arena's name for the same rule
    'best-arm, Track-and-Stop, threshold "practice"': "track-and-stop-practice",
    "best-arm, Track-and-Stop, threshold ln(2t(K−1)/δ)": "track-and-stop",
    "best-arm, LUCB1, ε = 0": "lucb",
    "banditpylib, lil'UCB heuristic": "lil-ucb-heuristic",
}


def libraries(found: Arena) -> str:
    """One row per rule of another library, beside the pulls of our baseline."""
    rows = json.loads((DATA / "libraries.json").read_text("utf-8"))["rows"]
    ours = {way: _round(found.score(label, "paper-5").pulls.mean) for way, label in OURS.items()}
    lines = [
        f"| {row['way']} | {row['pulls']:,.0f} ± {row['±']:,.0f} | {ours.get(row['way'], '–')} |"
        for row in rows
    ]
    return "\n".join(["| rule | pulls | ours |", "|---|---|---|", *lines])


def facts(found: Arena) -> str:
    """The sentences with numbers, and the command."""
    runs = sum(score.trials for score in found.scores)
    names = ",".join(entry.label for entry in found.entries)
    return (
        f"{len(found.entries)} methods on {len(found.grounds)} instances, δ = {found.delta:g}, "
        f"{found.trials:,} runs of each pair that a method can run, {runs:,} in all. "
        f"{_time()}\n\n"
        "This command makes these data again, number for number:\n\n"
        "<!-- not run: takes minutes -->\n\n"
        f"```sh\nbestarm arena --delta {found.delta:g} --trials {found.trials} --seed {found.seed} "
        f"--out out/arena --methods {names}\n```"
    )


def _time() -> str:
    """How long the table takes, as measured."""
    row = next(row for row in kept("baselines") if "table" in row)
    return f"The runs take {row['cpu minutes']:.0f} minutes of processor time."


def kept(name: str) -> list[dict[str, Any]]:
    """The rows that a benchmark measured."""
    rows: list[dict[str, Any]] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return rows


def privacy() -> str:
    """What privacy costs: one row per problem."""
    rows = [row for row in kept("privacy") if "adjusted" not in row["case"]]
    epsilons = sorted({row["ε"] for row in rows})
    lines = [f"| ε | {' | '.join(f'{e:g}' for e in epsilons)} |", "|---" * (1 + len(epsilons)) + "|"]
    for case in dict.fromkeys(row["case"] for row in rows):
        own = {row["ε"]: row for row in rows if row["case"] == case}
        cells = [f"{_round(own[e]['predicted'])} / {_round(own[e]['measured'])}" for e in epsilons]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def lying_sites() -> str:
    """What lying sites cost at most, and what came of an exact tie."""
    rows = kept("lying_sites")
    attacks = [row for row in rows if "attack" in row]
    run = [row for row in attacks if row["trials"] and row["attack"] != "nobody lies"]
    faults = (1, 2, 3)
    pulls = {
        row["attack"]: [row[f"pulls of a site, f = {f}"] for f in faults] for row in attacks if row["trials"]
    }
    costliest = max((row["attack"] for row in run), key=lambda attack: sum(pulls[attack]))
    shown = {"nobody lies": "nobody lies", costliest: f"the costliest attack, `{costliest}`"}
    lines = [
        f"| {title} | " + " | ".join(f"{mean:,.0f}" for mean in pulls[attack]) + " |"
        for attack, title in shown.items()
    ]
    wrong = sum(row[f"wrong, f = {f}"] for row in run for f in faults)
    undecided = sum(row[f"undecided, f = {f}"] for row in run for f in faults)
    trials = sum(len(faults) * row["trials"] for row in run)
    left_out = [f"`{row['attack']}`" for row in attacks if not row["trials"]]
    tied = [row for row in rows if "tied, f" in row]
    shares = ", ".join(f"{100 * row['lost'] / row['trials']:.1f} %" for row in tied)
    most = max(row["at most"] for row in tied)
    head = "| attack | " + " | ".join(f"pulls, f = {f}" for f in faults) + " |"
    return (
        f"{_counted(wrong, undecided, trials, 'attacked runs')}\n"
        f"The messages cannot express {', '.join(left_out)}.\n"
        "With the honest sites exactly tied on average and f = 1, 2, 3 extreme liars, the option that\n"
        f"they bury was ruled out in {shares} of {tied[0]['trials']:,} runs each; exact bounds on these\n"
        f"shares, each wrong with probability 0.001, are at most {100 * most:.1f} %.\n\n"
        + "\n".join([head, "|---" * (1 + len(faults)) + "|", *lines])
    )


def _counted(wrong: int, undecided: int, trials: int, runs: str) -> str:
    if wrong or undecided:
        return f"Of {trials:,} {runs} {wrong} were wrong and {undecided} undecided."
    return f"None of {trials:,} {runs} was wrong or undecided."


def baselines() -> str:
    """Whether each baseline with a proof keeps δ on instances of its own, in a sentence."""
    rows = [row for row in kept("baselines") if "baseline" in row]
    places: dict[str, list[str]] = {}
    for row in rows:
        places.setdefault(row["baseline"], []).append(row["instance"])
    names = ", ".join(f"{name} ({', '.join(instances)})" for name, instances in places.items())
    trials = " or ".join(f"{number:,}" for number in sorted({row["trials"] for row in rows}))
    wrong, undecided = (sum(row[key] for row in rows) for key in ("wrong", "undecided"))
    runs, most = sum(row["trials"] for row in rows), max(row["most"] for row in rows)
    return (
        f"{names}: {trials} trials on each instance. {_counted(wrong, undecided, runs, 'runs')} "
        f"The exact 95 % interval of each error rate ends at {most:.2g} or below."
    )


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
    study, loop = (_round(row["pulls/s"]) for row in kept("skip_ahead")[:2])
    return (
        f"On one core a study of Fed-SEL simulates {study} pulls per second; the same pull by pull, compiled "
        f"with Numba, {loop}."
    )


def page(text: str) -> str:
    """A page with current tables."""
    found = Arena.load(DATA)
    tables = {
        "facts": lambda: facts(found),
        "overview": lambda: overview(found),
        "libraries": lambda: libraries(found),
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
