"""Machines compare no statistics themselves: decisions functions do, for one run and for many."""

from __future__ import annotations

import ast

import pytest
from docs import rooms as house

MACHINES = sorted(
    path
    for name in ("client", "server", "peer", "elimination")
    for path in (house.SOURCE / "methods").rglob(f"{name}.py")
) + [house.SOURCE / "protocol" / f"{name}.py" for name in ("rounds", "solo_server", "group_server")]

STATISTICS = {
    *(
        "sum",
        "sums",
        "total",
        "mean",
        "means",
        "said_mean",
        "rise",
        "short",
        "gap",
        "width",
        "alpha",
        "log_p",
    ),
    *("lower", "upper", "low", "high", "bound", "boundary", "threshold", "said_lower", "said_upper"),
    *("told_lower", "told_upper", "client_lower", "client_upper"),
}


def names(node: ast.AST) -> set[str]:
    """The variables in an operand. Calls are ignored, because the sum of a mask is a count."""
    if isinstance(node, ast.Call):
        return set()
    own = (
        {node.id} if isinstance(node, ast.Name) else {node.attr} if isinstance(node, ast.Attribute) else set()
    )
    return own.union(*(names(child) for child in ast.iter_child_nodes(node)))


def compared(tree: ast.AST) -> list[int]:
    """The lines that compare a statistic or take a maximum or minimum of statistics."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops
        ):
            used = set().union(*(names(side) for side in (node.left, *node.comparators)))
            # Missing sums are -1: testing for a missing sum is not a comparison of its value.
            there = len(node.comparators) == 1 and ast.unparse(node.comparators[0]) == "0"
            if used & STATISTICS and not there:
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr in ("argmax", "argmin"):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_machine_compares_no_statistic_itself(path):
    assert compared(ast.parse(path.read_text("utf-8"))) == []


def test_a_comparison_is_detected():
    for line in ("if self.lower[j] > bound: pass", "x = means <= y", "a = np.argmax(self.means)"):
        assert compared(ast.parse(line)) == [1]
    for line in ("rounds >= most", "votes.sum() > f", "known = sums >= 0"):
        assert compared(ast.parse(line)) == []
