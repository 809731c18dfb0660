"""The tables of docs/compare.md, from an arena run and a comparison with libraries that are kept in
docs/data.

``python docs/compare.py`` writes them into the page, between the comments ``<!-- table: NAME -->`` and
``<!-- end -->``. ``tests/house/test_compare_page.py`` checks that the page is current. To renew the data:

    bestarm arena --methods … --delta 0.1 --trials 400 --out out/arena      (the page names the whole command)
    cp out/arena/arena.json docs/data
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from bestarm.stats.intervals import binomial_interval
from bestarm.study.arena.result import Arena, Entry, Score

ROOT = Path(__file__).resolve().parent.parent
PAGE, DATA = ROOT / "docs" / "compare.md", ROOT / "docs" / "data"
SHOWN = "paper-5"  # the instance that libraries are compared on, too


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
        solved = [score for score in scores if not score.undecided]
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
    head = "| method | δ is kept | pulls | × limit | rounds | bits up | wrong of " + f"{found.trials} |"
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
        f"{found.trials} runs of each pair that a method can run, {runs:,} in all. On `{SHOWN}` the limit is "
        f"{limit:,.0f} pulls.\n\n"
        "<!-- not run: takes a quarter of an hour -->\n\n"
        f"```sh\nbestarm arena --delta {found.delta:g} --trials {found.trials} --seed {found.seed} "
        f"--out out/arena --methods {names}\n```"
    )


def page(text: str) -> str:
    """The page with current tables."""
    found = Arena.load(DATA)
    tables = {
        "facts": facts(found),
        "overview": overview(found, headline=True),
        "memory": overview(found, headline=False),
        SHOWN: instance(found, SHOWN),
        "libraries": libraries(),
    }

    def put(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{tables[match[1]]}\n\n<!-- end -->"

    return re.sub(r"<!-- table: (\S+) -->\n.*?<!-- end -->", put, text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), encoding="utf-8")
    print(PAGE)
