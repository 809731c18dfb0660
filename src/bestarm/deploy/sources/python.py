"""Rewards from a Python function or object."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bestarm.deploy.sources.base import Exhausted, Source
from bestarm.errors import UNSHOWN, InputError
from bestarm.util.text import nearest, shorten


class FromPython(Source):
    """Rewards from ``package.module:object``, or from an object.

    The object is a function, or has a method ``pull``, or is a class with one (created without arguments). It
    is called as ``f(arm)`` for one reward, or as ``f(arm, times)`` for a list of 1 to `times` rewards if its
    second parameter is named `times` or has no default. It may be ``async``; if it is not, it runs in a
    thread, and the time limit cannot stop it. It is called again if it raises; ``Exhausted`` and
    StopIteration mean that there are no more rewards. If it has a method ``resume``, that is called first
    with `made`: how many pulls of each arm were made before.
    """

    def __init__(self, what: str | object, made: Mapping[str, int] | None = None, **options: Any) -> None:
        name = what if isinstance(what, str) else getattr(what, "__name__", type(what).__name__)
        super().__init__(name, **options)
        found = self._imported(what) if isinstance(what, str) else what
        if isinstance(found, type):
            with self._told("can't be created without arguments"):
                found = found()
        if callable(resume := getattr(found, "resume", None)):
            with self._told("can't resume"):
                resume(dict(made or {}))
        self._function: Any = getattr(found, "pull", found)
        if not callable(self._function):
            shown = shorten(found) if self.private is None else "it"
            raise InputError(f"{shown} can't be called", where=self.name, expected="f(arm) or f(arm, times)")
        self.batch = _takes_times(self._function, self.name)
        self.limited = any(
            inspect.iscoroutinefunction(f) for f in (self._function, type(self._function).__call__)
        )

    @contextlib.contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Turn whatever the user's code raises into an error, which quotes it unless rewards are private."""
        try:
            yield
        except Exception as error:
            kind = type(error).__name__
            if self.private is not None:
                raise InputError(f"{what} ({kind}; why is {UNSHOWN})", where=self.name) from None
            raise InputError(f"{what} ({kind}: {error})", where=self.name) from error

    def _imported(self, what: str) -> object:
        module, colon, path = what.partition(":")
        if not colon or not module or not path:
            raise InputError(f'"{what}" does not name an object', expected="package.module:object")
        with self._told(f'module "{module}" can\'t be imported'):
            found: object = importlib.import_module(module)
        for name in path.split("."):
            if not hasattr(found, name):
                raise InputError(f'there is no "{name}"', where=what, fix=_nearest(name, found))
            found = getattr(found, name)
        return found

    async def _fetch(self, arm: str, times: int) -> Sequence[object]:
        arguments = (arm, times) if self.batch else (arm,)
        if self.limited:
            found = await self._function(*arguments)
        else:
            thread = asyncio.ensure_future(asyncio.to_thread(self._called, *arguments))
            try:
                found = await asyncio.shield(thread)
            except asyncio.CancelledError:
                found = await thread  # the process can't end before it, and its rewards are paid for
            if inspect.isawaitable(found):
                found = await found
        if not self.batch:
            return [found]
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
            raise InputError(
                f"gave {shorten(found)}", where=self._where(arm), expected=f"a list of 1 to {times} rewards"
            )
        return list(found)

    def _called(self, *arguments: Any) -> Any:
        try:
            return self._function(*arguments)
        except StopIteration:  # StopIteration can't be raised out of a thread
            raise Exhausted(f"{self._where(arguments[0])}: there are no more rewards") from None


def _nearest(name: str, within: object) -> str:
    """A hint about the names that the user gave to something in a module or an object."""
    known = [each for each in dir(within) if not each.startswith("_")]
    return nearest(name, known) if known else f'Define "{name}" there'


def _takes_times(function: Any, where: str) -> bool:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return False  # some built-in functions have no signature
    places = [
        p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    batch = len(places) > 1 and (places[1].name == "times" or places[1].default is inspect.Parameter.empty)
    try:
        signature.bind(*(("arm", 1) if batch else ("arm",)))
    except TypeError:
        raise InputError(
            f"its parameters are {signature}", where=where, expected="f(arm) or f(arm, times)"
        ) from None
    return batch
