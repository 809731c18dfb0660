"""The one error that a user's input can cause.

It says what was wrong, where (file, table, key, line), what was expected and how to mend it. The command
line prints it and exits with code 2; nothing else is raised for bad input.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something that the user gave can't be used.

    >>> print(InputError("delta = 2 is not a probability", where="a.toml", expected="a number in (0, 1)"))
    a.toml: delta = 2 is not a probability. Expected a number in (0, 1).
    """

    def __init__(self, what: str, *, where: str = "", expected: str = "", fix: str = "") -> None:
        self.what, self.where, self.expected, self.fix = what, where, expected, fix
        text = f"{where}: {what}" if where else what
        if expected:
            text += f". Expected {expected}"
        if fix:
            text += f". {fix}"
        super().__init__(text if text.endswith(("?", "!", ".")) else text + ".")

    def at(self, where: str) -> InputError:
        """The same error, seen from one level further out."""
        joined = f"{where}: {self.where}" if self.where else where
        return InputError(self.what, where=joined, expected=self.expected, fix=self.fix)


def shorten(value: object) -> str:
    """A value as a message shows it: its text, cut where it is long.

    >>> shorten("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    try:
        text = repr(value)
    except ValueError:  # a whole number with thousands of digits
        text = "a very long number"
    return text if len(text) <= 60 else text[:57] + "..."


def visible(text: str) -> str:
    """A text with nothing hidden in it: control characters and marks of direction are written out.

    >>> print(visible("a\\x1b[2Jb \\u202eevil"))
    a\\x1b[2Jb \\u202eevil
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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
