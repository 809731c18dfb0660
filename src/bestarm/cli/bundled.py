"""``bundled``: options that several commands share, declared once as the fields of a dataclass."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def bundled(**bundles: type[Any]) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the fields of dataclasses as options, in place of its parameters of those names."""
    options = {name: _fields_as_options(bundle) for name, bundle in bundles.items()}

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for own in signature.parameters.values():
            parameters += options.get(own.name, [own.replace(kind=own.KEYWORD_ONLY)])

        @functools.wraps(command)
        def run(**given: Any) -> int:
            for name, bundle in bundles.items():
                given[name] = bundle(**{option.name: given.pop(option.name) for option in options[name]})
            return command(**given)

        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _fields_as_options(bundle: type[Any]) -> list[inspect.Parameter]:
    """The parameters of a command for the fields of a dataclass."""
    hints, only = get_type_hints(bundle, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    return [
        inspect.Parameter(field.name, only, default=field.default, annotation=hints[field.name])
        for field in dataclasses.fields(bundle)
    ]
