"""Which limit ended a run: the next block asks for more rows of an option, or more pulls, than are left.

The server's certificate names the clients that could not play the next block of a question about several
sites, the pulls that they had made, and those that they would have had to make.
"""

from __future__ import annotations

from bestarm.problem.counted_recording import rewards_in
from bestarm.problem.problem import Problem
from bestarm.problem.question import Cells
from bestarm.records.record import Record
from bestarm.util.text import counted, listed

MOST_NEEDS = 4  # options of a client that are listed


def shortage(record: Record) -> str:
    """What the first client that could not play the next block lacks; empty if the record names none."""
    stops = record.verdict.certificate["server"].get("stopped")
    if not stops:
        return ""
    stop, budget = stops[0], record.options.get("budget")
    client, needs, made = stop["client"], stop["needs"], stop["made"]
    for option, left in _rows_left(record, client).items():
        if needs.get(option, 0) > left:
            rows = counted(needs[option], "row")
            return f"the next block needs {rows} of {option} at {client}, and {left:,} are left"
    pulls = sum(needs.values())
    if budget is not None and made + pulls > budget:
        return (
            f"the next block needs {counted(pulls, 'pull')} at {client}, and {budget - made:,} of its budget "
            f"of {budget:,} are left"
        )
    wants = [f"{n:,} of {option}" for option, n in needs.items()]
    return f"the next block needs more than {client} has: {listed(wants, MOST_NEEDS)}"


def _rows_left(record: Record, client: str) -> dict[str, int]:
    """The recorded rewards of a client that were not played, by option; empty if the record has none."""
    server = record.verdict.certificate["server"]
    layout, _ = Problem.layout_from_dict(record.problem)
    j, i = layout.group_of[client], layout.clients.index(client)
    specs = record.problem["groups"][j].get("rewards") or [[]]
    own = specs[layout.groups[j].clients.index(client) if len(specs) > 1 else 0]
    cells, found = Cells.of(layout), dict[str, int]()
    for k, spec in zip(cells.place[i], own, strict=False):
        rows = rewards_in(spec)
        if rows is not None:
            found[cells.options[k]] = rows - server["cells"]["count"][i][k]
    return found
