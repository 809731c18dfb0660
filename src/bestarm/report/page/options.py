"""The table of options by site: means, the value over all sites, and which sites disagree."""

from __future__ import annotations

from typing import Any

from bestarm.records.questions import OptionTable
from bestarm.report.markup import Html, join, name, table, tag
from bestarm.report.page.parts import MOST_ROWS
from bestarm.report.svg import number


def options_by_site(found: OptionTable) -> Html:
    """Options as rows, sites as columns. The best mean of a site is set in bold."""
    head: list[Any] = [
        "option",
        *(["value"] if found.weighted else []),
        *map(name, found.sites),
        "pulls",
        "result",
    ]
    rows = []
    for row in found.rows[:MOST_ROWS]:
        value = [_number(row.value)] if found.weighted else []
        means = [
            tag("strong", _number(mean)) if best == row.name else _number(mean)
            for mean, best in zip(row.means, found.bests, strict=True)
        ]
        rows.append([name(row.name, 80), *value, *means, number(row.pulls), row.result])
    if found.weighted and len(set(found.weights)) > 1:
        weights = [number(weight, 3) for weight in found.weights]
        rows.append([tag("em", "weight of the site"), "", *weights, "", ""])
    shown = table(head, rows, numbers=set(range(1, len(head) - 1)))
    return join(tag("p", _caption(found)), shown, _dissent(found))


def _caption(found: OptionTable) -> str:
    if not found.weighted:
        return "The mean of each option at each site; the best mean of a site is in bold."
    average = "average" if len(set(found.weights)) <= 1 else "weighted average"
    return (
        f"The value of an option is its {average} over all sites. Beside it, its mean at each site; the best "
        "mean of a site is in bold. A mean alone proves nothing about a single site."
    )


def _dissent(found: OptionTable) -> Html | None:
    if not found.weighted or not found.dissenters:
        return None
    parts = [
        [", " if k else None, name(site, 60), f" ({best})"] for k, (site, best) in enumerate(found.dissenters)
    ]
    return tag("p", "Another option has the best mean at ", *parts, ".")


def _number(value: float | None) -> str:
    return "–" if value is None else number(value)
