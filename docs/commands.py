"""The command-line reference, from the commands' own help; ``conf.py`` puts it into cli.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import typer

from bestarm.cli import app
from bestarm.protocol.registry import METHODS

PLACE = "*`make docs` puts the reference here. `bestarm --help` and `bestarm COMMAND --help` print the same.*"


def _text(words: str | None) -> str:
    return (words or "").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    plain = [name for name in names if "_" not in name]
    return ", ".join(f"`{name}{' ' + parameter.metavar if parameter.metavar else ''}`" for name in plain)


def _default(parameter: Any) -> str:
    """The default, unless the help states it or it says nothing."""
    value = parameter.default
    if callable(value) or value in (None, False, True, "", ()) or value == []:
        return ""
    return f" [default: {f'{value:,}' if isinstance(value, int) and value >= 10_000 else value}]"


def _table(parameters: list[Any]) -> Iterator[str]:
    yield "| | |\n|---|---|"
    for parameter in parameters:
        needed = " (required)" if parameter.required and parameter.param_type_name == "option" else ""
        default = "" if "[default" in (parameter.help or "") else _default(parameter)
        yield f"| {_name(parameter)} | {_text(parameter.help)}{needed}{_text(default)} |"


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield before + name, command


def reference() -> str:
    """All commands as Markdown; the options of the methods, which several commands share, are listed once."""
    shared = {field.name for method in METHODS.values() for field in dataclasses.fields(method.options)}
    lines: list[str] = []
    methods: dict[str, Any] = {}
    for name, command in _commands(typer.main.get_command(app)):
        own = [p for p in command.params if p.name not in shared and p.name != "help"]
        both = {p.name: p for p in command.params if p.name in shared}
        takes_all = set(both) == shared
        arguments = [p.metavar or p.name.upper() for p in own if p.param_type_name == "argument"]
        lines += [
            f"## bestarm {name}",
            f"```text\n{' '.join(('bestarm', name, *arguments, '…'))}\n```",
            command.help or "",
        ]
        listed = own if takes_all else [*own, *both.values()]
        lines.append("\n".join(_table(listed)) if listed else "It has no options.")
        if takes_all:
            methods = both
            lines.append("And all [options of the methods](#options-of-the-methods).")
    lines += [
        "## Options of the methods",
        "The same names are keys of a scenario file and keywords in Python.",
        "\n".join(_table(list(methods.values()))),
    ]
    return "\n\n".join(lines)
