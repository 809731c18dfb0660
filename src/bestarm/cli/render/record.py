"""A run's record on the terminal: the verdict, warnings, the groups' intervals, what the run cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.table import Table

from bestarm.cli.render.numbers import bar, listed
from bestarm.cli.render.questions import show_answers, show_options
from bestarm.cli.terminal import out, safe
from bestarm.problem.data import Data
from bestarm.problem.scale import Scale
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS
from bestarm.protocol.verdict import Verdict
from bestarm.records.describe import (
    aim,
    best_is_in,
    coins_said,
    dropped_groups,
    fate,
    leading,
    mean_of,
    nothing_promised,
    privacy_said,
    still_in,
    what_helps,
    why_undecided,
)
from bestarm.records.questions import option_table
from bestarm.records.record import Record
from bestarm.records.views import trace_of
from bestarm.util.text import counted

MOST_ROWS = 20  # of a table


def show(record: Record, drawn: bool = False) -> None:
    """Print a record for people.

    Parameters
    ----------
    record : Record
        The run.
    drawn : bool
        Whether its seed was drawn at random, so that the reader is told how to repeat the run.
    """
    options = option_table(record.problem, record.verdict, record.verdict.certificate)
    if options is not None:
        show_answers(record)
    elif record.verdict.status == "identified":
        _show_identified(record)
    else:
        _show_undecided(record)
    show_data(Data.from_dict(record.problem))
    if hidden := privacy_said(record.problem):
        out.print(hidden, style="dim", soft_wrap=True)
    _show_trouble(record)
    if options is not None:
        show_options(options)
    else:
        _show_groups(record)
    _show_costs(record)
    seed = "" if record.seed is None else f", seed {record.seed}"  # a federation's rewards have none
    again = f" (drawn at random; --seed {record.seed} gives the same run)" if drawn else ""
    out.print(f"method {record.method}{seed}{again}", style="dim", soft_wrap=True)


def _show_identified(record: Record) -> None:
    verdict, data, best = record.verdict, Data.from_dict(record.problem), aim(record.problem)
    epsilon = record.options.get("epsilon") or 0.0
    close = f", or at most {epsilon:g} worse" if epsilon else ""
    what = f": {safe(best)}" if best else ""
    out.print(f"[bold green]{safe(verdict.arm or '')}[/] is the best arm{close}{what}.", soft_wrap=True)
    if verdict.mean is not None:
        between = ", between {:.4g} and {:.4g}".format(*verdict.interval) if verdict.interval else ""
        out.print(f"Its mean is about {verdict.mean:.4g}{between}.")
    if why := nothing_promised(record):
        out.print(f"Nothing is promised: {safe(why.rstrip('.'))}.", style="yellow")
    else:
        about = " about the file" if data and data.replace else ""
        out.print(f"This is wrong{about} with probability at most {record.delta:g}.")
        method = METHODS[record.method]
        options = make(method.options, {**record.options, "delta": record.delta})
        if verdict.interval and (promise := method.interval_promise(options)):
            out.print(promise, style="dim", soft_wrap=True)


def _show_undecided(record: Record) -> None:
    verdict, best = record.verdict, aim(record.problem)
    out.print(f"[bold yellow]Undecided[/]: {why_undecided(record)}.")
    if helps := what_helps(record):
        out.print(safe(helps), soft_wrap=True)
    if best:
        out.print(f"Best means {safe(best)}.", soft_wrap=True)
    known = "" if verdict.certificate.get("local") else ", as far as the server knows"
    names = [safe(name) for name in still_in(record)]
    out.print(f"Still in the race{known}: {listed(names, MOST_ROWS)}.", soft_wrap=True)
    if best_is_in(record):
        out.print(f"The best arm is among them, except with probability at most {record.delta:g}.")
    if verdict.gap is not None:
        first = safe(leading(record) or "The leading arm")
        out.print(f"{first} is at most {verdict.gap:.4g} from the best.")


def show_data(data: Data | None) -> None:
    """Print where the rewards came from, if they are recorded ones."""
    if data is not None:
        out.print(safe(str(data)), style="yellow" if data.replace else "dim", soft_wrap=True)


def _show_trouble(record: Record) -> None:
    """Proven faults, warnings, and the liars of a simulation that were not caught."""
    for text in dict.fromkeys(_fault(fault) for fault in record.proven_faulty):
        out.print(safe(text), style="red")
    for warning in record.warnings:
        text = f"Group {warning['group']}, round {warning['round']}: {warning['text']}."
        out.print(safe(text), style="yellow")
    caught = {fault["client"] for fault in record.proven_faulty}
    for adversary in record.adversaries:
        uncaught = [name for name in adversary["clients"] if name not in caught]
        if uncaught:
            text = f"Lied and not caught: {', '.join(uncaught)} ({adversary['attack']})."
            out.print(safe(text), style="dim")


def _fault(fault: Mapping[str, object]) -> str:
    # In a network each neighbour finds it out for itself, in a round of its own.
    when = "" if "by" in fault else f" in round {fault['round']}"
    return f"Proven faulty: {fault['client']}{when}: {fault['reason']}."


def _show_groups(record: Record) -> None:
    seen = {
        line: line.views[-1]
        for line in trace_of(record).lines()
        if line.views and line.views[-1].round is not None  # that of a peer has none
    }
    if not seen:
        _show_arms(record)
        return
    scale, dropped = Scale(**record.problem["scale"]), dropped_groups(record.warnings)
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("group")
    table.add_column("mean", justify="right")
    table.add_column("interval")
    table.add_column("")
    ranked = sorted(seen.items(), key=lambda found: -found[1].mean)
    for line, view in ranked[:MOST_ROWS]:
        group = record.problem["groups"][line.group]["name"]
        became = fate(group, record.verdict.arm, line.out, line.withdrew, group in dropped)
        drawn = bar(view.mean, view.lower, view.upper, flip=scale.goal == "min")
        wins = record.verdict.arm is not None and record.verdict.arm.startswith(f"{group}/")
        said = record.verdict.mean if wins else None
        mean = scale.user(view.mean) if said is None else said
        table.add_row(safe(group), f"{mean:.4g}", drawn, became)
    out.print(table)
    if len(ranked) > MOST_ROWS:
        out.print(f"… and {len(ranked) - MOST_ROWS} more groups", style="dim")
    if coins := coins_said(record.method, record.problem):
        out.print(coins, style="dim", soft_wrap=True)


def _show_arms(record: Record) -> None:
    """Pulls and means of the arms of a run that ended before its first round."""
    from bestarm.report.facts import so_far

    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("arm", "pulls", mean_of(record.problem)):
        table.add_column(safe(title), justify="left" if title == "arm" else "right")
    arms = so_far(record)
    for name, pulls, mean in arms[:MOST_ROWS]:
        table.add_row(safe(name), f"{pulls:,}", f"{mean:.4g}")
    if arms:
        out.print(table)
    if len(arms) > MOST_ROWS:
        out.print(f"… and {len(arms) - MOST_ROWS} more arms", style="dim")


def _show_costs(record: Record) -> None:
    """Rounds or the peers' verdicts, pulls, time, bits."""
    method = METHODS[record.method]
    first, second = method.phases
    if record.peers is not None:
        _show_peers(record.peers)
    elif method.local_bests:
        later = max(record.rounds - 1, 0)
        out.print(f"{counted(record.rounds, 'round')} (the {first} reports, then {later} in {second})")
    else:
        out.print(counted(record.rounds, "round"))
    premise = method.premise(make(method.options, {**record.options, "delta": record.delta}))
    if premise and record.verdict.status == "identified":
        out.print(premise, style="yellow")
    if record.pulls is not None:
        p = record.pulls
        split = method.local_bests or p.phase1
        parts = f" ({p.phase1:,} in {first}, {p.phase2:,} in {second})" if split else ""
        out.print(f"{p.total:,} pulls{parts}, at most {p.max_per_client:,} by one client")
    if record.time is not None:
        out.print(f"{counted(record.time, 'time step')} (each client makes one pull per step)")
    if record.peers is None:
        out.print(f"{record.bits.up:,} bits up, {record.bits.down:,} bits down")
    else:
        out.print(f"{record.bits.up:,} bits along all edges")


def _show_peers(verdicts: Mapping[str, Verdict]) -> None:
    found = Counter(verdict.arm or f"undecided ({verdict.reason})" for verdict in verdicts.values())
    for answer, times in found.most_common():
        out.print(safe(f"{times} of {len(verdicts)} honest peers: {answer}"))
