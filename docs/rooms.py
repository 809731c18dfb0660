"""The rooms of the house, from the real imports: in which order they stand, and a picture of them.

``python docs/rooms.py`` draws docs/images/rooms.svg. A room is a module of ``bestarm`` or a folder of them.
``tests/house/test_imports.py`` checks that every import at the head of a file goes to a room above, and that
the picture is current.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "bestarm"
PICTURE = ROOT / "docs" / "images" / "rooms.svg"

# The order in which data flows. A room may import the rooms above it in this list, and none below.
ROOMS: dict[str, str] = {
    "errors": "the one error that bad input causes",
    "version": "the version",
    "util": "files, seeds, text, an append-only journal",
    "problem": "what is asked",
    "stats": "pure mathematics",
    "graphs": "networks",
    "protocol": "what every method shares",
    "methods": "one folder per method",
    "records": "what a run leaves behind",
    "simulate": "drivers in one process",
    "scenario": "scenario files",
    "study": "many runs, plans",
    "evidence": "what recorded data show",
    "deploy": "federation, mesh, live experiments",
    "report": "pages and pictures",
    "cli": "the command line",
    "__init__": "the public names",
}

# Imports of a room further down: conveniences of objects, made when they are called and not before.
LATE_AND_DOWN = {
    ("problem", "report"): "Problem.plot_heterogeneity",
    ("graphs", "report"): "Graph.plot",
    ("records", "report"): "Record.plot",
    ("records", "simulate"): "verify replays a run",
    ("study", "report"): "Trials.plot",
    ("evidence", "report"): "Evidence.report",
}

PLACE = {room: place for place, room in enumerate(ROOMS)}


def rooms() -> list[str]:
    """The rooms that there are."""
    found = [path.stem for path in SOURCE.glob("*.py")]
    return sorted(found + [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()])


def imports() -> Iterator[tuple[str, str, bool, Path]]:
    """(room, room that it imports, whether late, file). Late: inside a function, or for types alone."""
    known = set(rooms())
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for name, late in _imports(ast.parse(path.read_text("utf-8")), late=False):
            target = name.split(".")[0]
            if target in known and target != room:
                yield room, target, late, path


def _imports(node: ast.AST, late: bool) -> Iterator[tuple[str, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        inside = inside or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom) and child.module == "bestarm":
            names = [f"bestarm.{alias.name}" for alias in child.names]
        elif isinstance(child, ast.ImportFrom) and not child.level:
            names = [child.module or ""]
        else:
            names = []
        yield from ((name.removeprefix("bestarm."), late) for name in names if name.startswith("bestarm."))
        yield from _imports(child, inside)


def arrows() -> list[tuple[str, str]]:
    """Imports at the head of a file, without those that others imply."""
    direct: dict[str, set[str]] = {}
    for room, target, late, _ in imports():
        if not late and room != "__init__":
            direct.setdefault(room, set()).add(target)

    def reach(room: str) -> set[str]:
        return {room}.union(*(reach(target) for target in direct.get(room, ())))

    return sorted(
        (room, target)
        for room, targets in direct.items()
        for target in targets
        if not any(target in reach(other) for other in targets - {target})
    )


def draw() -> str:
    """The picture, as SVG: the rooms in their order, and an arc for each import."""
    shown = [room for room in ROOMS if room in set(rooms()) - {"__init__"}]
    step, box, tall, left, width = 46, 120, 30, 300, 900
    at = {room: 30 + step * row for row, room in enumerate(shown)}
    high = 30 + step * (len(shown) - 1) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {high}" font-family="sans-serif">',
        f'<rect width="{width}" height="{high}" fill="white"/>',
    ]
    edge = left + box
    for room, target in arrows():
        y1, y2 = at[room], at[target]
        bend = edge + 16 + 0.62 * abs(y1 - y2)
        lines.append(
            f'<path d="M{edge} {y1} C{bend:.1f} {y1} {bend:.1f} {y2} {edge} {y2}" '
            'fill="none" stroke="#9ab" stroke-width="1.2"/>'
        )
    for room in shown:
        y, fill = at[room], "#fff3d6" if room in ("protocol", "methods") else "white"
        lines.append(
            f'<text x="{left - 14}" y="{y + 4}" font-size="13" fill="#667" text-anchor="end">'
            f"{escape(ROOMS[room])}</text>"
        )
        lines.append(
            f'<rect x="{left}" y="{y - tall // 2}" width="{box}" height="{tall}" rx="7" '
            f'fill="{fill}" stroke="#357"/>'
        )
        lines.append(
            f'<text x="{left + box // 2}" y="{y + 5}" font-size="14" text-anchor="middle" fill="#123">'
            f"{room}</text>"
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)
