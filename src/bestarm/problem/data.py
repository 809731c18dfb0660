"""Facts about the data file of a problem, for readers of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bestarm.errors import InputError


@dataclass(frozen=True)
class Data:
    """The file that rewards were read from.

    `reward` is the column of the rewards, `rows` is the number of rows used, and `skipped` the number of rows
    without a name or a number. `rewards` is the total number of rewards, which may be larger than `rows` if
    rows are `counts`. `pair` is the column of the subjects, if rows of one subject are compared.
    """

    csv: str
    reward: str
    rows: int
    rewards: int
    replace: bool
    skipped: int = 0
    counts: bool = False
    pair: str = ""

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Data | None:
        """The data of a problem's ``to_dict``, if it has any."""
        try:
            return msgspec.convert(plain.get("data"), Data | None)
        except msgspec.ValidationError as error:
            raise InputError(f"the description of the data can't be read: {error}") from None

    def __str__(self) -> str:
        """Text on what a verdict from this file is about.

        >>> print(Data("d.csv", "late", 60, 60, replace=False, skipped=1))
        From d.csv: 60 rows, each played once, in order. 1 row without a name or a number left out.
        """
        text = f"From {self.csv}: {self.rows:,} rows, each played once, in order."
        if self.pair:
            text += f" Rows of the same {self.pair} are compared with each other."
        if self.replace:
            many = f"{self.rows:,} rows of {self.csv}"
            if self.counts:
                many = f"{self.rewards:,} rewards that {self.csv} counts"
            text = (
                f"Pulls draw from the {many} with replacement: a verdict is about the file, not about where "
                f"its rows came from.{'' if self.counts else ' replace = false plays each row once.'}"
            )
        if self.skipped:
            text += f" {self.skipped:,} row{'s' * (self.skipped > 1)} without a name or a number left out."
        return text
