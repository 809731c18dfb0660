"""Only a method's own folder uses its name: every other package asks ``Method``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from docs import rooms as house

from bestarm.protocol.registry import METHODS

OTHER_ROOMS = [room for room in house.rooms() if room != "methods"]


def files_of(room: str) -> list[Path]:
    path = house.SOURCE / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def is_name(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in METHODS


def names_in(node: ast.AST) -> list[ast.AST]:
    """The methods' names in an operand: itself, or the items of a tuple, list or set."""
    items = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [item for item in items if is_name(item)]


def uses_of_names(tree: ast.AST) -> list[int]:
    """The lines in which a method's name is compared, matched, looked up, or kept in a list of names."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others):
                found += [name for operand in (left, *others) for name in names_in(operand)]
            case ast.MatchValue(value=value) if is_name(value):
                found.append(value)
            case ast.Subscript(slice=key) if is_name(key):
                found.append(key)
            case ast.Dict(keys=keys):
                found += [key for key in keys if is_name(key)]
            case ast.Tuple() | ast.List() | ast.Set():
                found += names_in(node)
            case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault" | "count"), args=[key, *_]):
                found += names_in(key)
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=[part, *_]):
                found += names_in(part)
    return sorted({getattr(node, "lineno", 0) for node in found})


@pytest.mark.parametrize("room", OTHER_ROOMS)
def test_no_room_but_methods_compares_the_name_of_a_method(room):
    found = {}
    for path in files_of(room):
        if lines := uses_of_names(ast.parse(path.read_text(encoding="utf-8"))):
            found[path.relative_to(house.SOURCE).as_posix()] = lines
    assert not found, "ask the method (protocol/registry.py) instead"


@pytest.mark.parametrize(
    "code",
    [
        'method == "fisher"',
        '"fisher" != record.method',
        'method in ("fisher", "p2p")',
        'method not in ["fed-sel"]',
        'KERNELS = {"fed-sel": 1}',
        'METHODS["fisher"].options',
        'ROUNDS = ("fed-sel", "robust-fed-sel")',
        'KERNELS.get("p2p")',
        "match method:\n    case 'fisher':\n        pass",
        "match method:\n    case 'fed-sel' | 'p2p':\n        pass",
    ],
)
def test_a_comparison_with_a_name_is_detected(code):
    assert uses_of_names(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        'DEFAULT_METHOD = "fisher"',
        'def identify(problem, method="fisher"): pass',
        'identify(problem, "fed-sel")',
        'def f():\n    """>>> method == "fisher"\n    True"""',
        "method == chosen",
        'SCENARIO = {"method": "p2p"}',
    ],
)
def test_a_default_an_argument_and_a_doctest_are_not_comparisons(code):
    assert not uses_of_names(ast.parse(code))
