"""An arena on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bestarm.cli.render.numbers import short, times
from bestarm.cli.terminal import out, safe
from bestarm.problem.instances import Instance
from bestarm.study.arena.entrants import Entrant
from bestarm.study.arena.result import Arena, Mean
from bestarm.util.text import counted, listed

TITLES = (
    "instance", "method", "proof", "pulls", "×limit", "rounds", "time", "bits up", "wrong", "keeps δ",
    "undecided",
)  # fmt: skip


def show_arena(found: Arena) -> None:
    """Print one row per method and instance, fewest pulls first."""
    table = Table(box=None, header_style="dim", pad_edge=False, collapse_padding=True)
    for title in TITLES:
        left = title in ("instance", "method", "proof")
        table.add_column(title, justify="left" if left else "right", overflow="fold")
    proofs = {entry.label: entry.proved for entry in found.entries}
    for ground in found.grounds:
        for k, score in enumerate(found.on(ground.name)):
            table.add_row(
                safe(ground.name) if k == 0 else "",
                safe(score.method),
                proofs[score.method],
                _plus_minus(score.pulls),
                times(score.over_limit) if score.over_limit else "–",
                short(float(f"{score.rounds.mean:.3g}")),
                short(float(f"{score.time.mean:.4g}")),
                short(float(f"{score.bits_up.mean:.4g}")),
                f"{score.errors} ≤{score.error[1]:.2g}",
                score.keeps,
                str(score.undecided) if score.undecided else "",
            )
        table.add_section()
    _whole().print(table)
    out.print(
        f"Means of {counted(found.trials, 'run')} ± 95 %, δ = {found.delta:g}. ×limit: pulls divided by the "
        "information limit, for methods with a proof. wrong: wrong answers, and the upper end of the exact "
        "95 % interval of their rate; keeps δ: whether that interval shows a rate of at most δ. "
        f"{open_said(found)}{claims_said(found)}Seed {found.seed}.",
        style="dim",
    )
    for line in not_run(found):
        out.print(safe(line), style="dim", soft_wrap=True)


def open_said(found: Arena) -> str:
    """That these are too few runs to show that δ is kept; empty if they are enough."""
    if found.trials >= found.runs_needed:
        return ""
    return f"{counted(found.trials, 'run')} cannot show that: it takes at least {found.runs_needed:,}. "


def claims_said(found: Arena) -> str:
    """What a claimed proof is; empty if there is none."""
    if all(entry.proved != "claimed" for entry in found.entries):
        return ""
    return "claimed: its author states a proof, which bestarm did not check. "


def not_run(found: Arena) -> list[str]:
    """What was left out and why: methods that share the reason and the instances share a line."""
    places: dict[tuple[str, str], list[str]] = {}
    for one in found.left_out:
        places.setdefault((one.method, one.why), []).append(one.instance)
    methods: dict[tuple[str, ...], list[str]] = {}
    for (method, why), those in places.items():
        methods.setdefault((why, *those), []).append(method)
    return [
        f"not run: {listed(names, 4)} on {listed(list(those), 4)}: {why}"
        for (why, *those), names in methods.items()
    ]


def show_choices(
    entrants: Sequence[Entrant], instances: Mapping[str, Instance], usual: Sequence[str]
) -> None:
    """Print the methods, baselines and instances that there are, and which instances are run by default."""
    for title, rows in (
        ("method", [(one.label, one.proof or "nothing proved", one.source) for one in entrants]),
        ("instance", [(one.name, one.question, one.about) for one in instances.values()]),
    ):
        table = Table(box=None, header_style="dim", pad_edge=False)
        for name in (title, "proof" if title == "method" else "question", "about"):
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(safe(cell) for cell in row))
        _whole().print(table)
        out.print()
    out.print(f"By default all methods run on {', '.join(usual)}.", style="dim")


def _whole() -> Console:
    """The terminal; for a pipe, one that is wide enough for whole rows."""
    return out if out.is_terminal else Console(width=200, highlight=False, emoji=False)


def _plus_minus(cost: Mean) -> str:
    if cost.half is None:
        return short(cost.mean)
    return f"{short(float(f'{cost.mean:.4g}'))} ±{short(float(f'{cost.half:.2g}'))}"
