"""What a record means, in words that the terminal and the pages share."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from bestarm.problem import Data
from bestarm.protocol import METHODS
from bestarm.protocol.fisher import Looks
from bestarm.protocol.options import make
from bestarm.protocol.verdict import REASONS
from bestarm.record import Record


def aim(problem: Mapping[str, Any]) -> str:
    """What "best" means, where that isn't plain: "the lowest mean of minutes late"."""
    data, least = Data.from_dict(problem), problem["scale"]["goal"] == "min"
    if data is None and not least:
        return ""
    return f"the {'lowest' if least else 'highest'} {mean_of(problem) if data else 'mean'}"


def mean_of(problem: Mapping[str, Any]) -> str:
    """What the means are of: "mean reward", or of which column."""
    data = Data.from_dict(problem)
    return f"mean of {data.reward}" if data else "mean reward"


def _has_real_numbers(problem: Mapping[str, Any]) -> bool:
    """Whether there are rewards other than 0/1 that are not drawn from a law that the record names."""
    groups = problem["groups"]
    known = all(None not in row for group in groups for row in group.get("rewards", [[None]]))
    real = "data" in problem or problem["finite"] or not known
    return real and not all(group["binary"] for group in groups)


def coins_said(method: str, problem: Mapping[str, Any]) -> str:
    """That means are of coins, where a method turns somebody's rewards, not simulated ones, into such."""
    if not METHODS[method].coins or not _has_real_numbers(problem):
        return ""
    return (
        "Means are of coins: Fed-Fisher turns each reward into its low or its high bound, with the same mean "
        "on average. So they are not quite the data's own; tight bounds bring them closer."
    )


def nothing_promised(record: Record) -> str:
    """Why this run promises nothing: more lie than it is made for, or its network can't bear them."""
    liars = {client: a["attack"] for a in record.adversaries for client in a["clients"]}
    if record.method == "p2p":
        return (record.network or {}).get("broken") or ""
    return too_many(record.problem, record.options, liars)


def too_many(problem: Mapping[str, Any], options: Mapping[str, Any], liars: Collection[str]) -> str:
    """The group with more liars than a run bears; empty if there is none."""
    borne = options.get("byzantine", 0)
    for group in problem["groups"]:
        count = sum(client in liars for client in group["clients"])
        if count > borne:
            return f'group "{group["name"]}" has {count} lying clients, but byzantine = {borne}'
    return ""


def still_in(record: Record) -> tuple[str, ...]:
    """The candidates that are left: without the arms that all honest clients of their group have dropped.

    Where the clients' part is missing, these are the candidates as far as the server knows.
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
    """The arm that a verdict's `gap` is about: it had the largest lower bound in the last round."""
    server = record.verdict.certificate["server"]
    if record.verdict.gap is None or not server["rounds"]:
        return None
    row, left = server["rounds"][-1], {name.split("/")[0] for name in record.verdict.candidates}
    groups = record.problem["groups"]
    if len(set(row.get("coins", ()))) > 1:  # sums of different counts don't say who leads
        return None
    lower = [
        low if groups[j]["name"] in left else -1.0 for j, low in zip(row["group"], row["lower"], strict=True)
    ]
    place = int(np.argmax(lower))
    j = row["group"][place]
    arm = row["arm"][place] if "arm" in row else server["arms"][j]
    return None if arm is None else f"{groups[j]['name']}/{groups[j]['arms'][arm]}"


def why_undecided(record: Record) -> str:
    """Why a run named no arm, as exactly as its record shows it."""
    reason, budget, finite = (
        str(record.verdict.reason),
        record.options.get("budget"),
        record.problem["finite"],
    )
    if reason == "budget" and budget is not None and not finite:
        return f"the pulls that one client may make (budget = {budget:,}) don't reach its next step"
    if reason == "budget" and budget is None and finite:
        return "the data are used up"
    return REASONS[reason]


def what_helps(record: Record) -> str:
    """Which arm ran out of rewards, and what would help; empty if something else ended the run."""
    if record.verdict.reason != "budget":
        return ""
    finite, budget = record.problem["finite"], record.options.get("budget")
    text = _ran_out(record) if finite else ""
    cures = ["more data"] * finite + ["a larger budget"] * (budget is not None)
    cures += ["epsilon (an arm that is close enough)"] * (record.method in ("fisher", "fed-sel"))
    cures += ["a larger delta"] + ["tighter bounds"] * _has_real_numbers(record.problem)
    return f"{text}What helps: {', '.join(cures)}."


def _ran_out(record: Record) -> str:
    """The first arm whose recording was played to its end, if the record shows one."""
    found: dict[str, int] = {}
    left = set(still_in(record))
    for group in record.problem["groups"]:
        for i, client in enumerate(group["clients"]):
            part = (record.verdict.certificate.get("local") or {}).get(client, {})
            made = max(part.get("count", 0), part.get("epoch", 0))
            rewards = group.get("rewards") or [[]]
            for arm, spec in zip(group["arms"], rewards[i if len(rewards) > 1 else 0], strict=False):
                name = f"{group['name']}/{arm}"
                if spec and spec["kind"] == "recording" and len(spec["values"]) == made and name in left:
                    found.setdefault(name, made)
    if not found:
        return ""
    name, made = next(iter(found.items()))
    text = f"{name} has {made:,} rewards"
    if len(found) > 1:
        text = f"{len(found)} arms have run out. {text}"
    if record.method == "fisher":
        options = make(METHODS["fisher"].options, {**record.options, "delta": record.delta})
        sizes = map(Looks(options, 2).size, itertools.count())
        text += f", and the next look takes {next(size for size in sizes if size > made):,}"
    return f"{text}. "
