"""Helpers for messages: shorten values, escape control characters, count things, suggest names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from itertools import zip_longest


def shorten(value: object) -> str:
    """The repr of a value for a message, cut off if it is long.

    >>> shorten("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    try:
        text = repr(value)
    except ValueError:  # a whole number with thousands of digits
        text = "a very long number"
    return text if len(text) <= 60 else text[:57] + "..."


def visible(text: str) -> str:
    """A text with control characters and direction marks escaped.

    >>> print(visible("a\\x1b[2Jb \\u202eevil"))
    a\\x1b[2Jb \\u202eevil
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut_middle(text: str, most: int) -> str:
    """A text of at most this many characters, which keeps its beginning and its end.

    >>> cut_middle("regional-hospital-of-northfield", 20), cut_middle("north", 20)
    ('regional-h…orthfield', 'north')
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


def short_names(names: Iterable[str], most: int) -> dict[str, str]:
    """Names of at most this many characters, by the whole name: without what all begin with, if they would
    be alike otherwise.

    >>> list(short_names(["regional-hospital-north/first", "regional-hospital-south/first"], 13).values())
    ['…north/first', '…south/first']
    """
    found = {name: cut_middle(name, most) for name in names}
    if len(set(found.values())) == len(found):
        return found
    first, last = min(found), max(found)  # what these share, all share
    shared = next(k for k, pair in enumerate(zip_longest(first, last)) if pair[0] != pair[1])
    start = 1 + max(first.rfind(mark, 0, shared) for mark in " -_./")
    return {name: cut if cut == name else cut_middle(f"…{name[start:]}", most) for name, cut in found.items()}


def counted(n: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "round"), counted(2000, "round")
    ('1 round', '2,000 rounds')
    """
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names with commas and an "and", cut off after the first ones.

    >>> listed(["a", "b"]), listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a and b', 'a, b and c', 'a, b and 1 more')
    """
    if not names:
        return ""
    *first, last = names if len(names) <= most else [*names[:most], f"{len(names) - most:,} more"]
    return f"{', '.join(first)} and {last}" if first else last


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the known word closest to `word`, or lists all of them.

    >>> nearest("perod", ["period", "delta"])
    'Did you mean "period"?'
    >>> nearest("xyz", ["period", "delta"])
    'Known: delta, period'
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f'Did you mean "{close[0]}"?' if close else "Known: " + ", ".join(names)
