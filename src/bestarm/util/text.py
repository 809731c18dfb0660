"""Helpers for messages: shorten values, escape control characters, count things, suggest names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


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
