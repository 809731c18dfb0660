"""Describes a record in words, for both the terminal and the HTML pages.

Text that only one of them uses is in ``cli`` or ``report``; text that only one method uses is in that
method's folder, behind ``Method``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from bestarm.problem.counted_recording import rewards_in
from bestarm.problem.data import Data
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS
from bestarm.protocol.rounds import DROPPED
from bestarm.protocol.verdict import REASONS
from bestarm.records.build import FOREIGN, SHARED
from bestarm.records.record import Record
from bestarm.records.recordings import withdrawn
from bestarm.records.shortage import shortage
from bestarm.util.text import counted

ENDED_EARLY = ("budget", "rounds", "time", "interrupted")  # reasons that are not errors
STOPPED = (
    "The experiment was stopped before it had an answer. Do not repeat it until one names a winner: each "
    "start has its own δ, so that would break the promise. If you plan a new one, plan it for longer or "
    "for a larger delta."
)


def aim(problem: Mapping[str, Any]) -> str:
    """What "best" means, such as "the lowest mean of minutes late"; empty if it is the highest mean."""
    data, least = Data.from_dict(problem), problem["scale"]["goal"] == "min"
    if data is None and not least:
        return ""
    return f"the {'lowest' if least else 'highest'} {mean_of(problem) if data else 'mean'}"


def mean_of(problem: Mapping[str, Any]) -> str:
    """Either "mean reward", or "mean of" and the name of the column."""
    data = Data.from_dict(problem)
    return f"mean of {data.reward}" if data else "mean reward"


def label_of(problem: Mapping[str, Any]) -> str:
    """``mean_of`` for an axis or a column, with the unit if there is one, such as "mean of late (ms)"."""
    unit = unit_of(problem)
    return f"{mean_of(problem)} ({unit})" if unit else mean_of(problem)


def unit_of(problem: Mapping[str, Any]) -> str:
    """What rewards are measured in; empty if nobody said."""
    return str(problem["scale"].get("unit", ""))


def are_shares(problem: Mapping[str, Any]) -> bool:
    """Whether means are shares of successes, to be written in per cent: 0/1 rewards without a unit."""
    scale, binary = problem["scale"], all(group["binary"] for group in problem["groups"])
    return binary and (scale["low"], scale["high"]) == (0.0, 1.0) and not unit_of(problem)


def _has_real_numbers(problem: Mapping[str, Any]) -> bool:
    """Whether there are rewards other than 0/1 that do not come from a distribution in the record."""
    groups = problem["groups"]
    known = all(None not in row for group in groups for row in group.get("rewards", [[None]]))
    real = "data" in problem or problem["finite"] or not known
    return real and not all(group["binary"] for group in groups)


def coins_said(method: str, problem: Mapping[str, Any]) -> str:
    """A note that means are of coins, if the method turns real (not simulated) rewards into coins."""
    if not METHODS[method].coins or not _has_real_numbers(problem):
        return ""
    return (
        f"Means are of coins: {METHODS[method].title} turns each reward into its low or its high bound, with "
        "the same mean on average. So they differ slightly from the means of the data; tighter bounds "
        "reduce the difference."
    )


def privacy_said(problem: Mapping[str, Any]) -> str:
    """What is promised about each reward, if the problem is private; empty if it is not."""
    epsilon = problem["scale"].get("privacy")
    if epsilon is None:
        return ""
    return (
        f"Privacy: ε = {epsilon:g} per pull. Each reward was replaced at once by a random answer. "
        f"No answer is more than {math.exp(epsilon):.3g} times as likely for one reward as for another. "
        "A person who gives k rewards has k·ε. Means are estimated from the answers."
    )


def fate(group: str, arm: str | None, out: int | None, withdrew: int | None, dropped: bool = False) -> str:
    """What happened to a group in a run that ended with this arm, or with none."""
    if out is not None:
        return f"out in round {out}"
    if withdrew is not None:
        return DROPPED if dropped else f"withdrew in round {withdrew}"
    return "winner" if arm is not None and (arm == group or arm.startswith(f"{group}/")) else "not ruled out"


def dropped_groups(warnings: Iterable[Mapping[str, Any]]) -> set[str]:
    """Groups that the operator has dropped."""
    return {warning["group"] for warning in warnings if DROPPED in warning["text"]}


def nothing_promised(record: Record) -> str:
    """Why this run carries no guarantee; empty if it does.

    Possible reasons: nothing is proved about the method, there are more liars than the run or its network
    tolerates, clients play the same recording, or recorded rewards are not independent draws.
    """
    return METHODS[record.method].unproved or premise_broken(record)


def premise_broken(record: Record) -> str:
    """Why not even the intervals of the means hold, whatever the method; empty if they do."""
    liars = {client: a["attack"] for a in record.adversaries for client in a["clients"]}
    if METHODS[record.method].peers:
        broken = (record.network or {}).get("broken") or ""
    else:
        broken = too_many(record.problem, record.options, liars)
    return broken or broken_by_data(record.warnings)


def broken_by_data(warnings: Iterable[Mapping[str, Any]]) -> str:
    """Clients that play the same recording, or rewards that drift; empty if there are none."""
    warnings = list(warnings)
    found = (f'group "{w["group"]}": {w["text"]}' for w in warnings if _breaks(w["text"]))
    return next(found, "") or withdrawn(warnings)


def _breaks(text: str) -> bool:
    """Whether a warning is that rewards count twice, or count for a site that is not theirs."""
    return SHARED in text or FOREIGN in text


def too_many(problem: Mapping[str, Any], options: Mapping[str, Any], liars: Collection[str]) -> str:
    """The first group with more liars than the run tolerates, in words; empty if there is none."""
    groups, byzantine = {g["name"]: g["clients"] for g in problem["groups"]}, options.get("byzantine", 0)
    if "question" in problem:
        return too_many_sites(groups, byzantine, liars)
    return next(groups_with_too_many_liars(groups, byzantine, liars), "")


def too_many_sites(groups: Mapping[str, Collection[str]], byzantine: int, liars: Collection[str]) -> str:
    """Whether more sites lie than the run tolerates, in words; empty if not."""
    lying = [name for name, clients in groups.items() if any(client in liars for client in clients)]
    if len(lying) <= byzantine:
        return ""
    some = "1 site lies" if len(lying) == 1 else f"{len(lying)} sites lie"
    return f"{some}, but byzantine = {byzantine}"


def groups_with_too_many_liars(
    groups: Mapping[str, Collection[str]], byzantine: int, liars: Collection[str]
) -> Iterator[str]:
    """Each group with more liars than ``byzantine``, in words; `groups` are the clients by group."""
    for name, clients in groups.items():
        count = sum(client in liars for client in clients)
        if count > byzantine:
            some = "1 lying client" if count == 1 else f"{count} lying clients"
            yield f'group "{name}" has {some}, but byzantine = {byzantine}'


def still_in(record: Record) -> tuple[str, ...]:
    """The remaining candidates: without the arms that all honest clients of their group have dropped.

    Where the clients' part is missing, these are the candidates that the server knows.
    """
    local = record.verdict.certificate.get("local") or {}
    gone: set[str] = set()
    for group in record.problem["groups"]:
        parts = [local[c] for c in group["clients"] if c in local and "attack" not in local[c]]
        dropped = [set(part.get("exits", {}).get("arm", ())) for part in parts]
        if dropped:
            gone |= {f"{group['name']}/{group['arms'][a]}" for a in set.intersection(*dropped)}
    return tuple(name for name in record.verdict.candidates if name not in gone)


def leading(record: Record) -> str | None:
    """The arm that a verdict's `gap` refers to: the one with the largest lower bound in the last round."""
    server = record.verdict.certificate["server"]
    if record.verdict.gap is None or not server["rounds"]:
        return None
    row, left = server["rounds"][-1], {name.split("/")[0] for name in record.verdict.candidates}
    groups = record.problem["groups"]
    if len(set(row.get("coins", ()))) > 1:  # sums of different counts are not comparable
        return None
    lower = [
        low if groups[j]["name"] in left else -1.0 for j, low in zip(row["group"], row["lower"], strict=True)
    ]
    place = int(np.argmax(lower))
    j = row["group"][place]
    arm = row["arm"][place] if "arm" in row else server["arms"][j]
    return None if arm is None else f"{groups[j]['name']}/{groups[j]['arms'][arm]}"


def best_is_in(record: Record) -> bool:
    """Whether the best arm is among the candidates of an undecided run, except with probability at most δ."""
    peers = METHODS[record.method].peers
    return record.verdict.reason in ENDED_EARLY and not peers and not nothing_promised(record)


def why_undecided(record: Record) -> str:
    """Why a run named no arm, as precisely as its record allows."""
    reason, budget, finite = (
        str(record.verdict.reason),
        record.options.get("budget"),
        record.problem["finite"],
    )
    if reason != "budget":
        return REASONS[reason]
    if found := shortage(record):
        return found
    if finite and budget is None:
        return "the data are used up"
    if budget is None:
        return REASONS[reason]
    limit = f"the budget of pulls per client ({budget:,})"
    if finite or record.verdict.certificate["local"] is None:  # it may have been the data
        return f"{limit}, or what a site has, is too small for the next step"
    return f"{limit} is too small for the next step"


def what_helps(record: Record) -> str:
    """Which arm ran out of rewards, and what would help; empty if something else ended the run."""
    if record.verdict.reason == "interrupted" and record.visitors is not None:
        return STOPPED
    if record.verdict.reason != "budget":
        return ""
    finite, budget = record.problem["finite"], record.options.get("budget")
    text = _ran_out(record) if finite else ""
    cures = ["more data"] * finite + ["a larger budget"] * (budget is not None)
    asked = "question" in record.problem  # then ε is not supported
    cures += ["epsilon (an arm that is close enough)"] * (METHODS[record.method].epsilon and not asked)
    cures += ["a larger delta"] + ["tighter bounds"] * _has_real_numbers(record.problem)
    return f"{text}What helps: {', '.join(cures)}.{_all_rows(record)}"


def _all_rows(record: Record) -> str:
    """That evidence uses all rows, where a table was played row by row; empty otherwise."""
    data = Data.from_dict(record.problem)
    if data is None or data.resample or not record.problem["finite"]:
        return ""
    return (
        " A run plays rows in order until an option has none left; bestarm evidence on the same table uses "
        "all rows, and may decide."
    )


def _ran_out(record: Record) -> str:
    """Text about the first arm whose recording was played to the end; empty if the record shows none."""
    found: dict[str, int] = {}
    left = set(still_in(record))
    for group in record.problem["groups"]:
        for i, client in enumerate(group["clients"]):
            part = (record.verdict.certificate.get("local") or {}).get(client, {})
            made = max(part.get("count", 0), part.get("epoch", 0))
            rewards = group.get("rewards") or [[]]
            for arm, spec in zip(group["arms"], rewards[i if len(rewards) > 1 else 0], strict=False):
                name = f"{group['name']}/{arm}"
                if rewards_in(spec) == made and name in left:
                    found.setdefault(name, made)
    if not found:
        return ""
    name, made = next(iter(found.items()))
    text = f"{name} has {counted(made, 'reward')}"
    if len(found) > 1:
        text = f"{len(found):,} arms have run out. {text}"
    method = METHODS[record.method]
    options = make(method.options, {**record.options, "delta": record.delta})
    return f"{text}{method.next_step(options, made)}. "
