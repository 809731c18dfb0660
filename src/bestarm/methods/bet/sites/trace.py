"""Read the certificate of a question about several sites; see ``protocol.trace``."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.methods.bet import trace as bet
from bestarm.protocol.trace import Exit, Line, Wealths


@dataclass(frozen=True)
class Trace(bet.Trace):
    """Options instead of groups: the pages of a question show them by name."""

    def lines(self) -> list[Line]:
        return []

    def exits(self) -> list[Exit]:
        return []

    def wealths(self) -> Wealths | None:
        return None
