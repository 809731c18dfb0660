"""The error that is raised for invalid input, and the one for a full disk.

It says what was wrong, where (file, table, key, line), what was expected and how to fix it. The command
line prints it and exits with code 2. Invalid input raises no other error.
"""

from __future__ import annotations

UNSHOWN = "not shown, for privacy"


class InputError(ValueError):
    """Invalid input from the user.

    Parameters
    ----------
    what : str
        What was wrong.
    where : str
        The file, table, key or client that is affected.
    expected : str
        What would be valid.
    fix : str
        What the user can do about it.

    Examples
    --------
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
        """Return this error with `where` in front of its location."""
        return type(self)(**self._located(where))

    def _located(self, where: str) -> dict[str, str]:
        joined = f"{where}: {self.where}" if self.where else where
        return {"what": self.what, "where": joined, "expected": self.expected, "fix": self.fix}


class RewardError(InputError):
    """Invalid input that quotes a reward, or data among which there may be rewards.

    Parameters
    ----------
    what, where, expected, fix : str
        As for ``InputError``.
    plain : InputError, optional
        What to say instead if rewards are private; by default, that a reward can't be used, and where.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        expected: str = "",
        fix: str = "",
        plain: InputError | None = None,
    ) -> None:
        super().__init__(what, where=where, expected=expected, fix=fix)
        unshown = f"a reward can't be used ({UNSHOWN})"
        self.plain = plain or InputError(unshown, where=where, expected=expected)

    def at(self, where: str) -> RewardError:
        return RewardError(**self._located(where), plain=self.plain.at(where))

    def unshown(self) -> InputError:
        """The same error without the data, for rewards that are private."""
        return self.plain


class DiskFull(InputError):
    """A disk is full, or the user's quota is used up. The command line exits with a code of its own.

    What was being written is missing, and everything before it is safe: run the command again when there is
    space.
    """
