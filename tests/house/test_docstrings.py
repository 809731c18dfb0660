"""Whatever the reference shows has a docstring with numpydoc sections for all that it takes and returns."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "api.md"
ENTRY = re.compile(r"\.\. auto(function|class|exception):: (\S+)\n(?:   :members:([^\n]*)\n)?")
NOTHING = (None, "None", inspect.Signature.empty)


def named(path: str) -> Any:
    """The object with this full name; a function wins over a module of the same name."""
    parts = path.split(".")
    for split in range(1, len(parts)):
        try:
            found = importlib.import_module(".".join(parts[:split]))
            for part in parts[split:]:
                found = getattr(found, part)
        except (ImportError, AttributeError):
            continue
        return found
    raise AssertionError(f"there is no {path}")


def section(doc: str, title: str) -> str:
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}$|\Z)", doc, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def described(doc: str) -> set[str]:
    """The names that the sections of a docstring describe."""
    text = section(doc, "Parameters") + section(doc, "Attributes")
    lines = re.findall(r"^(\S[^:\n]*?)(?: ?:.*)?$\n {4}\S", text, re.MULTILINE)
    return {name.strip(" *") for line in lines for name in line.split(",")}


def lacks_of_function(f: Callable[..., Any]) -> Iterator[str]:
    doc, signature = inspect.getdoc(f) or "", inspect.signature(f)
    if not doc:
        yield "a docstring"
    yield from sorted({*signature.parameters} - {"self", "cls"} - described(doc))
    if signature.return_annotation not in NOTHING and not (section(doc, "Returns") or section(doc, "Yields")):
        yield "Returns"


def taken(kind: type) -> set[str]:
    """What is given to make an object: the fields of a dataclass or struct, or what ``__init__`` takes."""
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind) if field.init}
    if fields := getattr(kind, "__struct_fields__", ()):
        return set(fields)
    own = vars(kind).get("__init__")
    return set(inspect.signature(own).parameters) - {"self", "args", "kwargs"} if own else set()


def lacks_of_class(kind: type) -> Iterator[str]:
    docs = [inspect.cleandoc(base.__doc__ or "") for base in kind.__mro__]
    if not docs[0]:
        yield "a docstring"
    yield from sorted(taken(kind) - set().union(*map(described, docs)))


def lacks(kind: str, path: str, members: str) -> Iterator[str]:
    """What the docstrings of an entry of the reference lack, one by one."""
    found = named(path)
    if kind == "function":
        yield from lacks_of_function(found)
    if kind == "class":
        yield from lacks_of_class(found)
    for name in filter(None, map(str.strip, members.split(","))):
        member = inspect.getattr_static(found, name)
        member = getattr(member, "__func__", member)  # of a class method or a static one
        missing = lacks_of_function(member) if inspect.isfunction(member) else ()
        yield from (f"{name}: {what}" for what in missing)


ENTRIES = ENTRY.findall(PAGE.read_text("utf-8"))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry[1])
def test_a_docstring_describes_all_that_is_taken_and_returned(entry):
    assert list(lacks(*entry)) == []


def test_the_reference_has_entries():
    assert len(ENTRIES) > 60


def good(x: int, y: int = 2) -> int:
    """Add.

    Parameters
    ----------
    x, y : int
        Two numbers.

    Returns
    -------
    int
        The sum.
    """
    return x + y


def bare(x: int) -> int:
    return x


def no_words(x: int) -> None:
    """Take a number.

    Parameters
    ----------
    x : int
    """


@dataclasses.dataclass
class Half:
    """Two numbers.

    Parameters
    ----------
    x : int
        One of them.
    """

    x: int
    y: int


def test_what_is_missing_is_named():
    assert list(lacks_of_function(good)) == []
    assert list(lacks_of_function(bare)) == ["a docstring", "x", "Returns"]
    assert list(lacks_of_function(no_words)) == ["x"]
    assert list(lacks_of_class(Half)) == ["y"]
