"""Interfaces between packages are typed: no signature that another package uses has ``Any`` in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import rooms as house

from bestarm.protocol.machine import ClientMachine, PeerMachine, ServerMachine
from bestarm.protocol.registry import METHODS

# Types of JSON values and certificates.
PLAIN = ("dict[str, Any]", "Mapping[str, Any]")

# Fields that have ``Any`` in them, and why.
OWN_OPTIONS = "a function of the method's own options, a subclass of Common"
OWN_CLIENT = "a function of the method's own client, a class with the members of ClientMachine and more"
LOOSE = {
    **{
        f"protocol.registry.Method.{name}": OWN_OPTIONS
        for name in (
            "refuse",
            "goes_ahead",
            "pulls_of",
            "good_event",
            "kernel",
            "crowd",
            "next_step",
            "premise",
            "interval_promise",
            "exchange",
            "most_reports",
            "peer_bounds",
        )
    },
    "protocol.registry.Method.audit_client": "of the method's own server or, for peers, its own options",
    **{
        f"protocol.planning.PlanFacts.{name}": OWN_OPTIONS
        for name in ("variants", "advice", "too_long", "no_limit", "bounds")
    },
    "protocol.lies.Lies.claims": OWN_OPTIONS,
    **{
        f"protocol.lies.Lies.{name}": OWN_CLIENT
        for name in ("observed", "early", "forge", "tell", "least", "reals", "statistic")
    },
    "protocol.lies.Liar.machine": "the method's own client",
    "problem.rewards.Function.f": "the user's function, with or without a number of rewards",
    "simulate.setup.Scenario.family": "a function of the keys that a scenario file names",
    "study.trials.Trials.columns": "arrays of several types",
}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parsed() -> dict[str, ast.Module]:
    """Every module of the source by its name, such as ``protocol.machine``."""
    found = {}
    for path in sorted(house.SOURCE.rglob("*.py")):
        parts = path.relative_to(house.SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = ast.parse(
            path.read_text("utf-8")
        )
    return found


TREES = parsed()


def room_of(module: str) -> str:
    return module.split(".")[0]


def imported_names(module: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that a module imports from bestarm; a whole module has the name ``*``."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bestarm":
            source = (node.module or "").removeprefix("bestarm").removeprefix(".")
            for alias in node.names:
                whole = f"{source}.{alias.name}".removeprefix(".")
                yield (whole, "*") if whole in TREES else (source, alias.name)


def definition(module: str, name: str) -> tuple[str, Definition] | None:
    """Where a name is defined, following re-exports."""
    if module not in TREES:
        return None
    for node in TREES[module].body:
        if isinstance(node, Definition) and node.name == name:
            return module, node
    for node in TREES[module].body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bestarm."):
            names = [alias.asname or alias.name for alias in node.names]
            if name in names:
                return definition((node.module or "").removeprefix("bestarm."), name)
    return None


def signatures(node: Definition) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The function, or the constructor and the public methods of the class."""
    if not isinstance(node, ast.ClassDef):
        yield node
        return
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and (
            child.name == "__init__" or not child.name.startswith("_")
        ):
            yield child


def anys(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How often ``Any`` occurs in a signature, except as the plain value of a dict or a Mapping."""
    spec = function.args
    arguments = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    annotations = [argument.annotation for argument in arguments if argument is not None]
    return sum(map(loose, filter(None, [*annotations, function.returns])))


def fields(node: Definition) -> Iterator[ast.AnnAssign]:
    """The public annotated fields of a class."""
    for child in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(child, ast.AnnAssign) and not ast.unparse(child.target).startswith("_"):
            yield child


def loose(annotation: ast.AST) -> int:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation) in PLAIN:
        return 0
    if ast.unparse(annotation).startswith("Callable[..., "):
        return 1
    if isinstance(annotation, ast.Name):
        return int(annotation.id == "Any")
    return sum(map(loose, ast.iter_child_nodes(annotation)))


def crossing() -> Iterator[tuple[str, Definition]]:
    """(full name, definition) of every function and class that another package imports."""
    for user in TREES:
        for module, name in imported_names(user):
            if room_of(module) == room_of(user):
                continue
            everything = (
                [n.name for n in TREES[module].body if isinstance(n, Definition)] if name == "*" else []
            )
            for offered in everything or [name]:
                place = definition(module, offered)
                if place is not None and not offered.startswith("_") and room_of(place[0]) != room_of(user):
                    yield f"{place[0]}.{offered}", place[1]


def test_no_signature_that_another_package_uses_has_any_in_it():
    offered = dict(crossing())
    assert {"protocol.registry.Method", "deploy.process.until_stopped", "graphs.graph.Graph"} <= set(offered)
    counted = {name: sum(map(anys, signatures(node))) for name, node in offered.items()}
    assert not {name: count for name, count in counted.items() if count}


def test_no_field_of_a_class_that_another_package_uses_has_any_in_it_without_a_reason():
    found = {
        f"{name}.{ast.unparse(field.target)}"
        for name, node in crossing()
        for field in fields(node)
        if loose(field.annotation)
    }
    assert found == set(LOOSE)


@pytest.mark.parametrize(
    ("signature", "count"),
    [
        ("def f(x: Any, *y: list[Any], **z: Any) -> Any: ...", 4),
        ("async def f(x: Callable[[int], Any] | None = None): ...", 1),
        ("class A:\n    def __init__(self, x: Any): ...\n    def _private(self, x: Any): ...", 1),
        ("def f(x: dict[str, Any], y: list[Mapping[str, Any]]) -> object: ...", 0),
    ],
)
def test_every_any_except_the_values_of_json_is_counted(signature, count):
    (node,) = ast.parse(signature).body
    assert sum(map(anys, signatures(node))) == count


@pytest.mark.parametrize(
    ("field", "count"),
    [("x: Any = 1", 1), ("x: Callable[..., int]", 1), ("_x: Any", 0), ("x: tuple[dict[str, Any], ...]", 0)],
)
def test_every_any_in_a_public_field_is_counted(field, count):
    (node,) = ast.parse(f"class A:\n    {field}").body
    assert sum(loose(found.annotation) for found in fields(node)) == count


def members(protocol: type) -> set[str]:
    """The members of a protocol class, its bases' included."""
    found: set[str] = set()
    for cls in protocol.__mro__:
        if getattr(cls, "_is_protocol", False) and cls.__module__.startswith("bestarm"):
            found |= set(vars(cls).get("__annotations__", {})) | set(vars(cls))
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("room", ["simulate", "records", "deploy", "study"])
def test_drivers_never_ask_which_class_a_machine_has(room):
    """Drivers use the three protocols; only a method knows the class of its machine."""
    machines = {cls.__name__ for m in METHODS.values() for cls in (m.client, m.server) if cls is not None}
    machines |= {"GroupServer", "SoloServer", "RoundServer", "ServedClient", "LookClient"}
    for path in sorted((house.SOURCE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "isinstance"
            ):
                asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                asked |= {part.attr for part in ast.walk(node.args[1]) if isinstance(part, ast.Attribute)}
                assert not asked & (machines - {"Client", "Server"}), f"{path}:{node.lineno}"


def test_the_machines_of_every_method_have_all_members_of_their_protocol():
    from protocol.test_transitions import VARIANTS, Game

    for variant, method in VARIANTS.items():
        for machine in Game(variant).machines.values():
            kind = ServerMachine if isinstance(machine, method.server or ()) else ClientMachine
            kind = PeerMachine if method.peers else kind
            missing = [name for name in members(kind) if not hasattr(machine, name)]
            assert not missing, (variant, type(machine))
