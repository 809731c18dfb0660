"""A run's record on the terminal: the answer card, the options or groups, and what the run cost."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping

from bestarm.cli.render.card import (
    MOST_ROWS,
    say_long,
    show_alarms,
    show_curse,
    show_headline,
    show_lead,
    show_next,
    show_ranking,
    show_risk,
)
from bestarm.cli.render.progress import waiting
from bestarm.cli.render.questions import show_options
from bestarm.cli.render.tables import Column, print_table
from bestarm.cli.terminal import out, safe
from bestarm.problem.data import Data
from bestarm.problem.scale import Scale
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS
from bestarm.protocol.verdict import Verdict
from bestarm.records.answer import answer_card
from bestarm.records.card import AnswerCard, Outlook
from bestarm.records.describe import (
    aim,
    coins_said,
    dropped_groups,
    fate,
    label_of,
    leading,
    privacy_said,
    still_in,
    what_helps,
)
from bestarm.records.figures import gap_said, next_steps, rough
from bestarm.records.pulls import known_pulls
from bestarm.records.questions import option_table
from bestarm.records.record import Record
from bestarm.records.views import trace_of
from bestarm.util.text import counted, listed


def show(record: Record, drawn: bool = False, file: str | None = None) -> None:
    """Print a record for people.

    Parameters
    ----------
    record : Record
        The run.
    drawn : bool
        Whether its seed was drawn at random, so that the reader is told how to repeat the run.
    file : str, optional
        Where the record was saved.
    """
    card = answer_card(record)
    show_alarms(card)
    show_headline(card)
    show_lead(card)
    show_risk(card)
    if record.verdict.status == "undecided":
        _show_undecided(record, card)
    show_data(Data.from_dict(record.problem))
    if hidden := privacy_said(record.problem):
        say_long(hidden, "dim")
    by_site = option_table(record.problem, record.verdict, record.verdict.certificate, record.summaries)
    if by_site is not None:
        show_options(by_site, card)
    elif card.options and record.summaries and (record.rounds or record.peers is not None):
        show_ranking(record, card)
        if coins := coins_said(record.method, record.problem):
            say_long(coins, "dim")
    else:
        _show_groups(record, card)
        if card.best is None and not record.options.get("summaries", True):
            out.print(f"Numbers of the other options: {card.kept} (summaries = false).", style="dim")
    show_curse(card)
    _show_costs(record)
    show_next(next_steps(card, _outlook_of(record), what_helps(record)), _commands(record, card, file))
    seed = "" if record.seed is None else f", seed {record.seed}"  # a federation's rewards have none
    again = f" (drawn at random; --seed {record.seed} gives the same run)" if drawn and seed else ""
    labels = "".join(f", {label}" for label in (record.name, record.date) if label)
    say_long(f"method {record.method}{seed}{again}{labels}", "dim")


def _outlook_of(record: Record) -> Outlook | None:
    """What would have decided a run that is undecided."""
    if record.verdict.status == "identified" or record.interrupted:
        return None
    from bestarm.study.outlook import outlook

    with waiting("simulating runs like this one"):
        return outlook(record)


def _commands(record: Record, card: AnswerCard, file: str | None) -> list[str]:
    """The commands for the next step; without a file, how to get one."""
    if file is None:
        kept = record.seed is not None and record.verdict.status == "identified" and card.tone != "bad"
        return ["Add --out record.json to keep the record."] if kept else []
    replay = " --replay" if record.seed is not None and not record.interrupted else ""
    return [f"bestarm verify {shlex.quote(file)}{replay}", f"bestarm report {shlex.quote(file)}"]


def _show_undecided(record: Record, card: AnswerCard) -> None:
    verdict, best = record.verdict, aim(record.problem)
    for text in card.answers:
        say_long(text, "yellow")
    if card.answers:
        return
    if best:
        say_long(f"Best means {best}.")
    known = "" if verdict.certificate.get("local") else ", as far as the server knows"
    say_long(f"Still in the race{known}: {listed(list(still_in(record)), MOST_ROWS)}.")
    if verdict.gap is not None:
        apart = gap_said(verdict.gap, card.percent, card.unit)
        say_long(f"{leading(record) or 'The leading arm'} is at most {apart} from the best.")


def show_data(data: Data | None) -> None:
    """Print where the rewards came from, if they are recorded ones."""
    if data is not None:
        say_long(str(data), "yellow" if data.resample else "dim")


def _show_groups(record: Record, card: AnswerCard) -> None:
    """The groups by the means that the server heard last; its intervals are not those of the card."""
    seen = {
        line: line.views[-1]
        for line in trace_of(record).lines()
        if line.views and line.views[-1].round is not None  # that of a peer has none
    }
    if not seen:
        _show_arms(record, card)
        return
    scale, dropped = Scale(**record.problem["scale"]), dropped_groups(record.warnings)
    ranked = sorted(seen.items(), key=lambda found: -found[1].mean)
    names, means, became = [], [], []
    for line, view in ranked[:MOST_ROWS]:
        group = record.problem["groups"][line.group]["name"]
        wins = record.verdict.arm is not None and record.verdict.arm.startswith(f"{group}/")
        stated = record.verdict.mean if wins else None
        names.append(group)
        means.append(rough(scale.user(view.mean) if stated is None else stated, card.percent))
        became.append(fate(group, record.verdict.arm, line.out, line.withdrew, group in dropped))
    print_table("group", names, [Column(label_of(record.problem), means)], became)
    if len(ranked) > MOST_ROWS:
        out.print(f"… and {len(ranked) - MOST_ROWS} more groups", style="dim")
    if coins := coins_said(record.method, record.problem):
        say_long(coins, "dim")


def _show_arms(record: Record, card: AnswerCard) -> None:
    """Pulls and means of the arms of a run that ended before its first round."""
    from bestarm.report.facts import so_far

    arms = so_far(record)
    if not arms:
        return
    shown = arms[:MOST_ROWS]
    pulls = Column("pulls", [f"{pulls:,}" for _, pulls, _ in shown])
    means = Column(label_of(record.problem), [rough(mean, card.percent) for _, _, mean in shown])
    print_table("option", [name for name, _, _ in shown], [pulls, means], [""] * len(shown))
    if len(arms) > MOST_ROWS:
        out.print(f"… and {len(arms) - MOST_ROWS} more options", style="dim")


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
        say_long(premise, "yellow")
    if record.pulls is not None:
        p = record.pulls
        split = method.local_bests or p.phase1
        parts = f" ({p.phase1:,} in {first}, {p.phase2:,} in {second})" if split else ""
        say_long(f"{counted(p.total, 'pull')}{parts}, at most {p.max_per_client:,} by one client")
    elif made := known_pulls(record):  # as the clients reported them
        longest = max(made, key=made.__getitem__)
        say_long(
            f"{counted(sum(made.values()), 'pull')}, at most {made[longest]:,} by one client ({longest})"
        )
    if record.time is not None:
        out.print(f"{counted(record.time, 'time step')} (each client makes one pull per step)")
    if record.peers is None:
        after = f", {record.bits.after:,} bits after the verdict" if record.bits.after else ""
        out.print(f"{record.bits.up:,} bits up, {record.bits.down:,} bits down{after}")
    else:
        out.print(f"{record.bits.up:,} bits along all edges")


def _show_peers(verdicts: Mapping[str, Verdict]) -> None:
    found = Counter(verdict.arm or f"undecided ({verdict.reason})" for verdict in verdicts.values())
    for answer, times in found.most_common():
        out.print(safe(f"{times} of {len(verdicts)} honest peers: {answer}"))
