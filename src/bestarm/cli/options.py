"""Options that several commands share, and ``with_options``: one --key for each option of each method."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
import typer.core

from bestarm.errors import InputError
from bestarm.problem.question import KINDS
from bestarm.protocol.registry import METHODS
from bestarm.simulate.identify import DEFAULT_METHOD, DEFAULT_WITH_LIARS
from bestarm.util.disk_errors import demand_writable, write_error

SHOWN = [name for name, method in METHODS.items() if not method.rival]
ScenarioPath = Annotated[Path, typer.Argument(metavar="SCENARIO.toml", help="the scenario file")]
MethodOption = Annotated[
    str | None,
    typer.Option(
        "--method",
        help=f"one of: {', '.join(SHOWN)} [default: the scenario's, or {DEFAULT_METHOD}; with liars "
        f"and 0/1 rewards {DEFAULT_WITH_LIARS}]",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="run even if the network cannot tolerate that many liars")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object and nothing else")]
DemoFolder = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="keep the demo's folder here")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="number of processes [default: all cores]; it does not change the numbers"),
]


class InPanels(typer.core.TyperCommand):
    """A command whose help shows its options in panels, in plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if (line := parameter.get_help_record(ctx)) is not None:
                panels.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(line)
        for title, lines in panels.items():
            with formatter.section(title):
                formatter.write_dl(lines)


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one --key for each option of each method, with the help that the method declares."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    added: dict[str, inspect.Parameter] = {}
    for method in METHODS.values():
        hints = get_type_hints(method.options)
        for field in dataclasses.fields(method.options):
            added[field.name] = _parameter(field, hints[field.name])
    parameters = [*own, *QUESTION_FLAGS, *added.values()]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def _parameter(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    """The command's parameter for one option of a method."""
    kind = next(t for t in (bool, int, float, str) if t in (hint, *getattr(hint, "__args__", ())))
    flag = "--" + field.name.replace("_", "-")
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool else list(dict.fromkeys([flag, f"--{field.name}"]))
    info = typer.Option(
        *names,
        help=f"{field.metadata['help']} [default: {_default(field.name)}]",
        show_default=False,
        rich_help_panel=_panel(field.name),
    )
    annotation = Annotated[kind | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _panel(key: str) -> str:
    """The help panel of a method's option: named after the methods that have the option."""
    have = [name for name in SHOWN if key in METHODS[name].options.__dataclass_fields__]
    return "Options of all methods" if len(have) == len(SHOWN) else f"Options of {', '.join(have)}"


def _default(key: str) -> str:
    """The default of a method's option, as text; where methods differ, each one's."""
    by_value: dict[str, list[str]] = {}
    for name, method in METHODS.items():
        for field in dataclasses.fields(method.options):
            if field.name == key:
                by_value.setdefault(str(field.metadata["shown"]), []).append(name)
    if len(by_value) == 1:
        return next(iter(by_value))
    return "; ".join(f"{value} for {', '.join(names)}" for value, names in by_value.items())


QUESTION_HELP = {
    "question": (str, f"one of: {', '.join(KINDS)} [default: anywhere]"),
    "weights": (str, 'weights of the sites: equal, rows, or "US=2,EU=1" [default: equal]'),
    "control": (str, "the option that the others are compared with"),
    "simultaneous": (bool, "with each: one delta for all sites together, not one per site"),
    "also": (str, "with overall: each, to answer for every site as well"),
    "missing_options": (str, "options that some sites do not offer: refuse or average [default: refuse]"),
}


def _flag(key: str, kind: type, text: str) -> inspect.Parameter:
    info = typer.Option(
        "--" + key.replace("_", "-"), help=text, show_default=False, rich_help_panel="Question"
    )
    annotation = Annotated[kind | None, info]  # type: ignore[valid-type]
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


QUESTION_FLAGS = [_flag(key, kind, text) for key, (kind, text) in QUESTION_HELP.items()]


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The question and the options of methods that the user has given."""
    found = {key: value for key, value in options.items() if value is not None}
    if found.get("weights", "equal") not in ("equal", "rows"):
        found["weights"] = dict(_weight(part) for part in found["weights"].split(","))
    return found


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        if name.strip():
            return name.strip(), float(number)
    except ValueError:
        pass
    raise InputError(f"--weights {text!r}", expected="equal, rows, or SITE=NUMBER, for example US=2,EU=1")


def check_folder(path: Path | None) -> None:
    """InputError if a file cannot be written there. Called before the work, not after it."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(error, path) from None
    if path.is_dir():
        raise InputError("can't be written: it is a folder", where=str(path), expected="the name of a file")
    demand_writable(path)
