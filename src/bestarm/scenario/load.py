"""Loads scenario files: TOML, with rewards given in the file or read from a CSV file.

Errors name the file, table, key and value. The result is a ``Scenario``: a problem, and the settings of a
run.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from bestarm.errors import InputError, RewardError
from bestarm.graphs.generators import circulant, clique_tree, complete, geometric, preferential
from bestarm.graphs.graph import Graph
from bestarm.problem.csv_data import data_problem
from bestarm.problem.instances import ANYWHERE, instance
from bestarm.problem.problem import Problem
from bestarm.problem.question import KEYS as QUESTION_KEYS
from bestarm.problem.rewards import Unknown
from bestarm.problem.scale import Scale
from bestarm.problem.tables.sources import KINDS
from bestarm.protocol.options import make
from bestarm.protocol.registry import METHODS, options_for
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.identify import default_method
from bestarm.simulate.lying_client import ATTACKS
from bestarm.simulate.network import Network
from bestarm.simulate.setup import Scenario
from bestarm.util.text import nearest, shorten

# Problems that a name and its parameters describe.
FAMILIES: dict[str, Callable[..., Problem]] = {"paper": Problem.paper_instance}
RUN_KEYS = ("method", "goal", "unit", "seed", "family", "sigma", "privacy")
TABLES = ("group", "data", "adversary", "network", "problem")
NETWORK_KEYS = ("delay", "loss", "start", "crashes", "placement", "attack")

GENERATORS: dict[str, Callable[..., Graph]] = {
    "complete": complete,
    "circulant": circulant,
    "geometric": geometric,
    "preferential": preferential,
    "clique_tree": clique_tree,
}

ADVERSARY_KEYS = ("group", "clients", "attack", "options")
GROUP_KEYS = ("name", "clients", "arms", "bounds", "binary")


def load(path: str | Path, question: Mapping[str, Any] | None = None) -> Scenario:
    """Read and check a scenario file.

    Parameters
    ----------
    path : str or Path
        A TOML file; paths in it are relative to its folder.
    question : mapping, optional
        Keys that replace those of the file: `weights`, `also`, …, or with `question` a whole question.

    Returns
    -------
    Scenario
        ``identify``, ``study`` and ``plan`` accept it in place of a problem.

    Raises
    ------
    InputError
        If the file is invalid; the message names the file, the table, the key and the value.

    Examples
    --------
    >>> load("examples/target-detection.toml").problem.best
    'west/s1'
    """
    path = Path(path)
    try:
        keys = _parse(path)
        if question:
            keys = {k: v for k, v in keys.items() if "question" not in question or k not in QUESTION_KEYS}
        found = scenario_from_dict({**keys, **(question or {})}, path.parent)
        return replace(found, name=path.stem)
    except InputError as error:
        raise error.at(str(path)) from None


def _parse(path: Path) -> dict[str, Any]:
    if path.suffix.lower() in KINDS and path.is_file():
        raise InputError("this is data, not a scenario", fix=f"bestarm new {path} writes a scenario for it")
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", fix="Check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"this is not a text file (byte {error.start})", expected="a TOML file in UTF-8"
        ) from None
    except ValueError as error:  # not only TOMLDecodeError: a number may have too many digits
        raise InputError(
            f"this is not TOML: {error}", fix='"bestarm new" writes a scenario to start from'
        ) from None


def scenario_from_dict(keys: Mapping[str, Any], folder: Path) -> Scenario:
    """The scenario of parsed TOML; relative paths start at `folder`."""
    by_method = {name: {f.name for f in fields(method.options)} for name, method in METHODS.items()}
    known = set().union(*by_method.values())
    for key in keys:
        if key not in known and key not in (*RUN_KEYS, *QUESTION_KEYS, *TABLES):
            hint = nearest(key, [*known, *RUN_KEYS, *QUESTION_KEYS, *TABLES])
            shown = "" if "privacy" in keys else f" = {shorten(keys[key])}"  # it may hold rewards
            raise InputError(f'key "{key}"{shown} is unknown', fix=hint)
    method = keys.get("method")
    if method is not None and (not isinstance(method, str) or method not in METHODS):
        raise InputError(f"method = {shorten(method)} is unknown", fix=nearest(str(method), METHODS))
    seed = keys.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise InputError(f"seed = {shorten(seed)}", expected="a whole number of at least 0")
    options = {key: value for key, value in keys.items() if key in known}
    for name in METHODS:
        make(METHODS[name].options, options_for(name, options))
    family = keys.get("family")
    if family is not None and (not isinstance(family, str) or family not in FAMILIES):
        raise InputError(f"family = {shorten(family)} is unknown", fix=nearest(str(family), FAMILIES))
    if "sigma" in keys and family is None:
        raise InputError(f"sigma = {shorten(keys['sigma'])} belongs to a family", fix='Add family = "paper"')
    made = FAMILIES[family] if family else None
    try:
        problem = _problem(keys, folder)
    except RewardError as error:
        raise (error.unshown() if "privacy" in keys else error) from None
    if "privacy" in keys:
        problem = problem.private(keys["privacy"])
        made = functools.partial(_hidden, made, keys["privacy"]) if made else None
    asked = _asked(keys)
    problem = problem.asking(**asked) if asked else problem
    chosen = method or default_method(options, problem.layout, "adversary" in keys)
    make(METHODS[chosen].options, {key: value for key, value in options.items() if key in by_method[chosen]})
    adversaries = tuple(_adversaries(keys.get("adversary", []), problem))
    network = _network(keys["network"], problem, folder) if "network" in keys else None
    said = "question" in keys or "problem" in keys
    return Scenario(problem, method, seed, options, adversaries, network, made, said)


def _asked(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the question; a named instance has one of its own, which the file can replace."""
    asked = {key: keys[key] for key in QUESTION_KEYS if key in keys}
    if "problem" in keys and "question" not in keys:
        own = instance(keys["problem"]["instance"]).question
        return asked if own == ANYWHERE else {"question": own, **asked}
    return asked


def _hidden(family: Callable[..., Problem], privacy: float, **parameters: Any) -> Problem:
    """A problem of a family, with privacy."""
    return family(**parameters).private(privacy)


def _network(table: Any, problem: Problem, folder: Path) -> Network:
    """The [network] table: a file, a list of edges, or a generator with its options."""
    where = "[network]"
    if not isinstance(table, Mapping):
        raise InputError(f"network = {shorten(table)} is not a table", expected="[network] with its keys")
    given = [key for key in ("file", "edges", "generator") if key in table]
    if len(given) != 1:
        raise InputError(
            "the network is not clear", where=where, expected="exactly one of: file, edges, generator"
        )
    own = {"generator": _generator_keys(table, where)}.get(given[0], ())
    known = (*given, *own, *NETWORK_KEYS, *(["undirected"] if given == ["edges"] else []))
    for key in table:
        if key not in known:
            raise InputError(
                f'key "{key}" = {shorten(table[key])} is unknown', where=where, fix=nearest(key, known)
            )
    try:
        if "file" in table:
            graph = Graph.read(folder / str(table["file"]))
        elif "generator" in table:
            graph = GENERATORS[table["generator"]](**{key: table[key] for key in own if key in table})
        else:
            graph = _edges(table, problem)
        network = Network(graph, **{key: table[key] for key in NETWORK_KEYS if key in table})
        network.nodes(problem.layout)
        if network.attack not in ATTACKS:
            raise InputError(
                f"attack = {shorten(network.attack)} is unknown", fix=nearest(str(network.attack), ATTACKS)
            )
    except InputError as error:
        raise error.at(where) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"these values can't be used: {error}", where=where) from None
    return network


def _generator_keys(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    name = table.get("generator")
    if name is None:
        return ()
    if not isinstance(name, str) or name not in GENERATORS:
        raise InputError(
            f"generator = {shorten(name)} is unknown", where=where, fix=nearest(str(name), GENERATORS)
        )
    return tuple(inspect.signature(GENERATORS[name]).parameters)


def _edges(table: Mapping[str, Any], problem: Problem) -> Graph:
    """Edges between clients, by name."""
    clients = problem.layout.clients
    place = {name: k for k, name in enumerate(clients)}
    pairs = []
    for edge in table["edges"] if isinstance(table["edges"], list) else [table["edges"]]:
        if not isinstance(edge, list) or len(edge) != 2 or not all(end in place for end in edge):
            raise InputError(f"edge {shorten(edge)}", expected='["from", "to"], two names of clients')
        pairs.append((place[edge[0]], place[edge[1]]))
    return Graph.from_edges(
        len(clients), pairs, names=clients, undirected=bool(table.get("undirected", False))
    )


def _adversaries(tables: Any, problem: Problem) -> Iterator[Adversary]:
    for number, table in enumerate(_tables(tables, "[[adversary]]"), start=1):
        where = f"[[adversary]] number {number}"
        for key in table:
            if key not in ADVERSARY_KEYS:
                raise InputError(
                    f'key "{key}" = {shorten(table[key])} is unknown',
                    where=where,
                    fix=nearest(key, ADVERSARY_KEYS),
                )
        for key in ("group", "attack"):
            if key not in table:
                raise InputError(f'key "{key}" is missing', where=where)
        adversary = Adversary(**table)
        try:
            adversary.names(problem.layout)
        except InputError as error:
            raise error.at(where) from None
        yield adversary


def _problem(keys: Mapping[str, Any], folder: Path) -> Problem:
    unit = keys.get("unit", "")
    if str(keys.get("goal")).startswith("CHECK"):
        raise InputError(
            f"goal = {shorten(keys['goal'])} is not decided",
            expected='"max": the highest mean is best; or "min": the lowest',
        )
    Scale(goal=keys.get("goal", "max"), unit=unit)  # raises if one of them is invalid
    found = _described(keys, folder)
    return replace(found, scale=replace(found.scale, unit=unit)) if unit else found


def _described(keys: Mapping[str, Any], folder: Path) -> Problem:
    """The problem of a scenario, without its unit."""
    goal = keys.get("goal", "max")
    if "problem" in keys:
        return _named(keys, goal)
    if "family" in keys:
        if "group" in keys or "data" in keys:
            raise InputError("family, [[group]] and [data] each describe a problem", expected="one of them")
        if goal != "max":
            raise InputError(f"goal = {shorten(goal)}", expected='"max" for a family')
        return FAMILIES[keys["family"]](*[keys["sigma"]] if "sigma" in keys else [])
    groups = _tables(keys.get("group", []), "[[group]]")
    seen: set[str] = set()
    for number, table in enumerate(groups, start=1):
        _check_group(table, number, seen)
    if "data" in keys:
        data = keys["data"]
        if not isinstance(data, Mapping):
            raise InputError(
                f"data = {shorten(data)} is not a table", expected="[data] with keys such as csv"
            )
        for table in groups:
            if "arms" in table or "bounds" in table:
                raise InputError(
                    f'group "{table["name"]}" has arms or bounds of its own, and [data] gives them too',
                    where="[[group]]",
                    fix="With [data], a [[group]] may only set clients",
                )
        counts = {table["name"]: table.get("clients", 1) for table in groups}
        return data_problem(data, folder, goal, counts)
    if not groups:
        raise InputError("there are no groups", expected="at least one [[group]], or [data] with a CSV file")
    for table in groups:
        if "arms" not in table:
            raise InputError(
                'key "arms" is missing', where=f'[[group]] "{table["name"]}"', fix="arms = { name = mean }"
            )
    return Problem.from_rewards(
        {table["name"]: _arms(table) for table in groups},
        clients={table["name"]: table.get("clients", 1) for table in groups},
        bounds={table["name"]: table.get("bounds", (0.0, 1.0)) for table in groups},
        goal=goal,
    )


def _named(keys: Mapping[str, Any], goal: object) -> Problem:
    """The problem of [problem] instance = "…"."""
    table, where = keys["problem"], "[problem]"
    if not isinstance(table, Mapping) or set(table) != {"instance"}:
        raise InputError(f"problem = {shorten(table)}", expected='[problem] with the key instance = "…"')
    if others := [key for key in ("family", "group", "data") if key in keys]:
        raise InputError(f"[problem] and {others[0]} each describe a problem", expected="one of them")
    if goal != "max":
        raise InputError(f"goal = {shorten(goal)}", expected='"max" for an instance')
    try:
        return instance(table["instance"]).problem
    except InputError as error:
        raise error.at(where) from None


def _arms(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """A group's arms with their rewards; the rewards of arms given only by name come from their sites."""
    if isinstance(table["arms"], Mapping):
        return table["arms"]
    return dict.fromkeys(table["arms"], Unknown(binary=table.get("binary", False)))


def _tables(value: Any, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or not all(isinstance(table, Mapping) for table in value):
        raise InputError(
            f"{name} = {shorten(value)} is not a list of tables", fix=f"Write {name} above its keys"
        )
    return list(value)


def _check_group(table: Mapping[str, Any], number: int, seen: set[str]) -> None:
    where = f"[[group]] number {number}"
    if "name" not in table:
        raise InputError('key "name" is missing', where=where, expected="a name for each group")
    name = table["name"]
    where = f"[[group]] {shorten(name)}"
    for key in table:
        if key == "privacy":
            raise InputError(
                f"privacy = {shorten(table[key])} in one group",
                where=where,
                expected="one ε for the whole problem: different ones could change the order of arms",
                fix="Write privacy at the top of the scenario",
            )
        if key not in GROUP_KEYS:
            hint = nearest(key, GROUP_KEYS)
            raise RewardError(
                f'key "{key}" = {shorten(table[key])} is unknown',
                where=where,
                fix=hint,
                plain=InputError(f'key "{key}" is unknown', where=where, fix=hint),
            )
    if not isinstance(name, str):
        raise InputError(f"name = {shorten(name)}", where=where, expected="text")
    if name in seen:
        raise InputError(f'name "{name}" is used twice', where=where, expected="each group once")
    seen.add(name)
    arms = table.get("arms", {})
    if not isinstance(arms, Mapping):
        if not isinstance(arms, list) or not all(isinstance(arm, str) for arm in arms):
            expected = 'arms = { name = mean }, or ["name", "name"] where rewards come from sites'
            raise InputError(f"arms = {shorten(arms)}", where=where, expected=expected)
        if twice := [arm for k, arm in enumerate(arms) if arm in arms[:k]]:
            raise InputError(f'arm name "{twice[0]}" is used twice', where=where, expected="each name once")
    if "binary" in table and (not isinstance(table["binary"], bool) or isinstance(arms, Mapping)):
        raise InputError(
            f"binary = {shorten(table['binary'])}",
            where=where,
            expected="true or false, with arms given as a list of names",
        )
