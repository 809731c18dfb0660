"""A plan on the terminal: what each method costs, the limit, advice, and a schedule within a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table

from bestarm.cli.render.numbers import count
from bestarm.cli.terminal import out, safe
from bestarm.protocol.registry import METHODS

if TYPE_CHECKING:
    from bestarm.protocol.planning import RunBounds
    from bestarm.study.forecast import Chance, Cost, MethodPlan
    from bestarm.study.plan import Plan
    from bestarm.study.schedule import Schedule

COSTS = {
    "pulls": "pulls", "longest": "longest client", "rounds": "rounds", "time": "time",
    "bits_up": "bits up", "bits_down": "bits down",
}  # fmt: skip

TIME = "time: in steps; each client makes one pull per step."


def show_plan(found: Plan) -> None:
    """Print a forecast for each method, the limit and the advice."""
    for name, why in found.left_out.items():
        out.print(f"{name} is left out: {safe(why)}", style="dim", soft_wrap=True)
    for row in found.methods:
        _show_method(row)
    if found.limit is not None:
        out.print(
            f"Limit: {found.limit.holds_for} needs on average at least {count(found.limit.total)} pulls, "
            f"and {count(found.limit.longest)} by its busiest client (proved).",
            soft_wrap=True,
        )
    elif found.no_limit:
        out.print(f"No limit is shown: {safe(found.no_limit)}.", soft_wrap=True)
    for line in (*found.advice, *([found.assumption] if found.assumption else [])):
        out.print(f"- {safe(line)}", soft_wrap=True)
    theorem = f"proved: Theorem 1 as corrected, with probability at least {1 - found.delta:g}. "
    proved = theorem if any(row.bounds is not None for row in found.methods) else ""
    out.print(
        f"Means and ranges: measured on {_runs(found)} simulated runs with these means. {proved}{TIME} "
        f"delta = {found.delta:g}, seed {found.seed}.",
        style="dim",
    )


def _show_method(row: MethodPlan) -> None:
    out.print(f"[bold]{safe(row.name)}[/]")
    if why := METHODS[row.method].unproved:
        out.print(f"  nothing is promised: {safe(why)}", style="yellow", soft_wrap=True)
    if row.cost is None:
        out.print(f"  not simulated: {safe(row.why_not)}", soft_wrap=True)
    if row.cost is not None or row.bounds is not None:
        out.print(_cost_table(row.cost, row.bounds))
    if row.enough is not None:
        text = f"  95 % decide with {row.enough.budget:,} pulls per client: {_chance(row.enough)}"
        out.print(text, soft_wrap=True)
    if row.at_budget is not None:
        text = f"  with your {row.at_budget.budget:,} pulls per client: {_chance(row.at_budget)}"
        out.print(text, soft_wrap=True)
    if row.cost is not None and row.cost.decided < 1.0:
        out.print(f"  {100 * row.cost.decided:.3g} % of the runs decided")
    out.print()


def _runs(found: Plan) -> str:
    """How many runs are behind the numbers; per method, where a method has fewer."""
    fewer = [f"{row.name}: {row.trials}" for row in found.methods if row.trials < found.trials]
    return f"{found.trials:,}" + (f" ({', '.join(fewer)})" if fewer else "")


def _cost_table(cost: Cost | None, bounds: RunBounds | None) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=True)
    for title in ("", "mean", "range", "of the runs", *(["proved"] if bounds is not None else [])):
        table.add_column(title, justify="left" if not title else "right")
    proved = {}
    if bounds is not None:
        proved = {
            "pulls": f"{count(bounds.pulls_least)} to {count(bounds.pulls_most)}",
            "longest": f"at most {count(bounds.longest_most)}",
            "rounds": f"at most {count(bounds.rounds)}",
        }
    for key, title in COSTS.items():
        cells = [proved.get(key, "")] if bounds is not None else []
        if cost is not None:
            spread = getattr(cost, key)
            mean = f"{spread.mean:,.3g}" if spread.mean < 100 else count(spread.mean)
            span = f"{count(spread.low)} to {count(spread.high)}"
            table.add_row(title, mean, span, f"{100 * spread.share:.0f} %", *cells)
        elif key in proved:
            table.add_row(title, "–", "–", "–", *cells)
    return table


def _chance(chance: Chance) -> str:
    low, high = (100 * x for x in chance.interval)
    return f"{100 * chance.decided:.3g} % of fresh runs (95 % interval {low:.3g} to {high:.3g})"


def show_schedule(best: Schedule, limits: Mapping[str, int | None]) -> None:
    """Print the schedule that most probably ends within the limits on rounds and bits."""
    within = " and ".join(f"{n:,} {key[4:-1] if n == 1 else key[4:]}" for key, n in limits.items() if n)
    keys = " ".join(f"--{key.replace('_', '-')} {value:g}" for key, value in best.options.items())
    low, high = (100 * x for x in best.interval)
    out.print(f"[bold]Within {within}[/]: --method {best.method} {keys}", soft_wrap=True)
    out.print(
        f"  ends there with a verdict in {100 * best.probability:.3g} % of fresh runs "
        f"(95 % interval {low:.3g} to {high:.3g})"
    )
    out.print(_cost_table(best.cost, None))
    out.print(safe(best.note), style="dim")
