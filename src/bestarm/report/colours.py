"""One colour per option for life: the same in every picture of a run, on paper, on a page, live or not.

An option's look follows from its place in the problem alone, never from its rank. The first eight options
differ in colour; after that the dashes of their lines differ as well. The style sheet has the same colours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bestarm.problem.problem import Problem
from bestarm.problem.question import Cells

# After Okabe and Ito: colour-blind readers can tell them apart. At least 3 : 1 on white.
COLOURS = ("#0067a5", "#c8500a", "#008a64", "#b0488a", "#9a6700", "#2b8ac6", "#5b4bb5", "#3d4148")

DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 2", "12 4")


def colour(place: int) -> int:
    """The number of an option's colour; neighbouring blocks of eight are shifted.

    >>> [colour(place) for place in (0, 7, 8, 15, 16)]
    [0, 7, 1, 0, 2]
    """
    return (place + place // len(COLOURS)) % len(COLOURS)


def dash(place: int) -> str:
    """The dashes of an option's line, as SVG writes them; empty for a solid line."""
    return DASHES[place // len(COLOURS) % len(DASHES)]


def roster(problem: Mapping[str, Any]) -> tuple[str, ...]:
    """Every option of a record's problem in a fixed order: its full name, or its name at all sites.

    >>> roster({"groups": [{"name": "west", "arms": ["a", "b"]}]})
    ('west/a', 'west/b')
    """
    if (problem.get("question") or {}).get("question", "anywhere") != "anywhere":
        return Cells.of(Problem.layout_from_dict(problem)[0]).options
    # A record may be forged: names are not checked here, and may occur twice.
    return tuple(dict.fromkeys(f"{g['name']}/{a}" for g in problem["groups"] for a in g["arms"]))


def places(names: tuple[str, ...]) -> dict[str, int]:
    """The place of each option, and of each group (that of its first option), by name."""
    found = {name: place for place, name in enumerate(names)}
    for name, place in list(found.items()):
        found.setdefault(name.partition("/")[0], place)
    return found
