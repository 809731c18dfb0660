"""Tokens: the number of an assignment, signed with the experiment's secret, so that nobody can guess one."""

from __future__ import annotations

import hashlib
import secrets

from bestarm.errors import InputError
from bestarm.util.text import shorten

DIGITS = 16  # of the signature, hexadecimal


class Tokens:
    """Makes and reads tokens.

    >>> tokens = Tokens("00")
    >>> tokens.read(tokens.make(41))
    41
    """

    def __init__(self, key: str) -> None:
        self._key = bytes.fromhex(key)

    def make(self, number: int) -> str:
        """The token of an assignment."""
        return f"{number}-{self._signature(number)}"

    def read(self, token: object) -> int:
        """The number of the assignment; InputError for anything that this experiment did not give out."""
        if isinstance(token, str) and len(token) <= 40:
            number, _, signature = token.partition("-")
            if number.isascii() and number.isdecimal() and signature.isascii():
                right = self._signature(int(number))
                if secrets.compare_digest(signature, right) and number == str(int(number)):
                    return int(number)
        raise InputError(
            f"{shorten(token)} is not a token of this experiment",
            expected="a token that came with an assignment",
        )

    def _signature(self, number: int) -> str:
        found = hashlib.blake2s(str(number).encode(), key=self._key, digest_size=DIGITS // 2)
        return found.hexdigest()
