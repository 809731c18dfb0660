"""The rooms of the house, from the real imports: in which order they stand, and a picture of them.

``python docs/rooms.py`` draws docs/images/rooms.svg. A room is a module of ``bestarm`` or a folder of them.
``tests/test_imports.py`` checks that every import at the head of a file goes to a lower layer, and that the
picture is current.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "bestarm"
PICTURE = ROOT / "docs" / "images" / "rooms.svg"

# From the ground up. A room may import rooms of lower layers, and none of its own.
LAYERS: list[tuple[str, tuple[str, ...]]] = [
    ("ground", ("errors", "version")),
    ("numbers and files", ("rewards", "confidence", "exact", "topology", "sources", "journal")),
    ("who may pull what", ("problem",)),
    ("the algorithms, without I/O", ("protocol",)),
    ("around the algorithms", ("theory", "adversary", "record", "table")),
    ("more around them", ("kernels", "network", "words")),
    ("files in", ("scenario",)),
    ("one run", ("simulate",)),
    ("runs and checks", ("study", "peers", "audit")),
    ("a run that is kept", ("kept",)),
    ("for a real machine", ("deploy", "pulling")),
    ("who says what", ("identity",)),
    ("for users", ("plan", "mesh", "federation")),
    ("to look at", ("report",)),
    ("doors", ("cli", "__init__")),
]

# Conveniences of objects that are made below: imported when they are called, and not before.
LATE_AND_UP = {
    ("problem", "table"): "Problem.from_csv",
    ("problem", "report"): "Problem.plot_heterogeneity",
    ("record", "report"): "Record.plot",
    ("study", "report"): "Trials.plot",
    ("topology", "report"): "Graph.plot",
    ("simulate", "peers"): "a run of a network",
    ("simulate", "kept"): "a run that writes a journal",
}

LAYER = {room: height for height, (_, rooms) in enumerate(LAYERS) for room in rooms}


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
    """The picture, as SVG."""
    here = set(rooms()) - {"__init__"}
    layers = [(name, [room for room in layer if room != "__init__"]) for name, layer in reversed(LAYERS)]
    width, step, box, tall, left = 900, 74, 104, 32, 190
    at: dict[str, tuple[float, float]] = {}
    for row, (_, layer) in enumerate(layers):
        free = (width - left) / len(layer)
        for column, room in enumerate(layer):  # a room that is not there yet leaves its place free
            at[room] = left + free * (column + 0.5), 36 + step * row
    high = 36 + step * (len(layers) - 1) + 40
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {high}" font-family="sans-serif">',
        f'<rect width="{width}" height="{high}" fill="white"/>',
    ]
    for row, (name, _) in enumerate(layers):
        y = 36 + step * row
        if row % 2 == 0:
            lines.append(f'<rect x="0" y="{y - step / 2:g}" width="{width}" height="{step}" fill="#f4f6f8"/>')
        lines.append(f'<text x="12" y="{y + 4}" font-size="13" fill="#667">{escape(name)}</text>')
    for room, target in arrows():
        (x1, y1), (x2, y2) = at[room], at[target]
        y1, y2 = y1 + tall / 2, y2 - tall / 2
        bend = (y2 - y1) / 2
        lines.append(
            f'<path d="M{x1:.1f} {y1:g} C{x1:.1f} {y1 + bend:g} {x2:.1f} {y2 - bend:g} {x2:.1f} {y2:g}" '
            'fill="none" stroke="#9ab" stroke-width="1.2"/>'
        )
    for room, (x, y) in ((room, at[room]) for room in at if room in here):
        fill = "#fff3d6" if room == "protocol" else "white"
        lines.append(
            f'<rect x="{x - box / 2:.1f}" y="{y - tall / 2:g}" width="{box}" height="{tall}" rx="7" '
            f'fill="{fill}" stroke="#357"/>'
        )
        lines.append(
            f'<text x="{x:.1f}" y="{y + 5:g}" font-size="14" text-anchor="middle" fill="#123">{room}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
    print(PICTURE)
