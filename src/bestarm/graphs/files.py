"""Reads networks from files."""

from __future__ import annotations

import csv
from pathlib import Path

from bestarm.errors import InputError
from bestarm.graphs.graph import Graph, _numbered
from bestarm.util.text import counted, shorten


def _read_graphml(path: Path) -> Graph:
    try:
        import networkx as nx
    except ImportError:
        raise InputError(
            "GraphML needs networkx, which is not installed",
            fix='Install it with: pip install "bestarm[network]"',
        ) from None
    try:
        return Graph.from_networkx(nx.read_graphml(path))
    except (nx.NetworkXException, SyntaxError, KeyError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"this is not GraphML: {error}") from None


def _read_text(path: Path) -> Graph:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(
            "this is not a text file", expected="UTF-8, or a file that ends in .graphml"
        ) from None
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(lines, start=1):
        text = line.split("#")[0].strip()
        if text:
            try:
                cells = next(csv.reader([text])) if "," in text else text.split()
            except csv.Error as error:
                raise InputError(f"this can't be read: {error}", where=f"line {number}") from None
            rows.append((number, [cell.strip() for cell in cells]))
    if not rows:
        raise InputError("the file holds no edges", expected="lines from,to or a matrix of 0 and 1")
    return _edge_list(rows) if max(len(cells) for _, cells in rows[:2]) <= 2 else _matrix(rows)


def _edge_list(rows: list[tuple[int, list[str]]]) -> Graph:
    if [cell.lower() for cell in rows[0][1]] == ["from", "to"]:
        rows = rows[1:]
    if not rows:
        raise InputError("the file holds no edges", expected="lines from,to")
    for number, cells in rows:
        if len(cells) > 2 or not all(cells):
            raise InputError(
                f"{shorten(','.join(cells))} is not an edge", where=f"line {number}", expected="from,to"
            )
    index, names = _numbered([cell for _, cells in rows for cell in cells])
    edges = [(index[cells[0]], index[cells[1]]) for _, cells in rows if len(cells) == 2]
    return Graph.from_edges(len(index), edges, names=names)


def _matrix(rows: list[tuple[int, list[str]]]) -> Graph:
    width = len(rows[0][1])
    index, names = {str(i): i for i in range(width)}, None
    header = list(index)
    if not set(rows[0][1]) <= {"0", "1"}:
        header = rows[0][1]
        if len(set(header)) < width or not all(header):
            raise InputError(
                "a name is missing or used twice", where=f"line {rows[0][0]}", expected="each once"
            )
        index, names = _numbered(header)
        rows = rows[1:]
    if len(rows) != width:
        raise InputError(
            f"{counted(len(rows), 'row')} and {counted(width, 'column')}",
            expected="a square matrix of 0 and 1, below an optional line of names",
        )
    edges = []
    for source, (number, cells) in zip(header, rows, strict=True):
        if len(cells) != width or not set(cells) <= {"0", "1"}:
            raise InputError(
                f"{shorten(','.join(cells))} is not a row of the matrix",
                where=f"line {number}",
                expected=f"{width} cells, each 0 or 1",
            )
        edges += [(index[source], index[target]) for target, c in zip(header, cells, strict=True) if c == "1"]
    return Graph.from_edges(width, edges, names=names)
