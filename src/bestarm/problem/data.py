"""Facts about the data file of a problem, for readers of a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bestarm.errors import InputError
from bestarm.util.text import counted


@dataclass(frozen=True)
class Data:
    """The file that rewards were read from.

    `reward` is the column of the rewards, `rows` is the number of rows read, and `skipped` the number of rows
    without a name or a number. `rewards` is the total number of rewards, which may be larger than `rows` if
    rows are `counts`. If `resample`, pulls draw from the rewards with replacement; otherwise each is played
    once, in the order of the file or, if `shuffled`, in an order drawn at random. `notes` say what the reader
    of a verdict should know about the file. `pair` is the column of the subjects, if rows of one subject are
    compared.
    """

    csv: str
    reward: str
    rows: int
    rewards: int
    resample: bool
    skipped: int = 0
    counts: bool = False
    shuffled: bool = False
    notes: tuple[str, ...] = ()
    pair: str = ""

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Data | None:
        """The data of a problem's ``to_dict``, if it has any."""
        found = plain.get("data")
        if isinstance(found, Mapping) and "replace" in found:  # as records called it earlier
            found = {**found, "resample": found["replace"]}
        try:
            return msgspec.convert(found, Data | None)
        except msgspec.ValidationError as error:
            raise InputError(f"the description of the data can't be read: {error}") from None

    @property
    def source(self) -> str:
        """Where the rewards come from, such as "80 rows of late.csv"."""
        return f"{self.rewards:,} rewards that {self.csv} counts" if self.counts else self._rows

    @property
    def _rows(self) -> str:
        return f"{counted(self.rows, 'row')} of {self.csv}"

    def simulation(self, draws: int | None) -> str:
        """What a run is that made these draws: a simulation if it resampled; empty otherwise.

        >>> Data("d.csv", "late", 60, 60, resample=True).simulation(2880)
        'Simulation: 2,880 draws from 60 rows of d.csv (48 draws per row: your data alone do not decide this)'
        """
        if not self.resample:
            return ""
        if draws is None:  # only the clients know
            return f"Simulation: draws from {self.source}, with replacement"
        each = draws / self.rewards
        noun = "reward" if self.counts else "row"
        per = f"{each:,.0f}" if each >= 10 else f"{each:.2g}"
        why = 'rows = "once" shows whether your data alone decide this'
        if each > 1:
            why = "your data alone do not decide this"
        return f"Simulation: {counted(draws, 'draw')} from {self.source} ({per} draws per {noun}: {why})"

    def __str__(self) -> str:
        """Text on what a verdict from this file is about.

        >>> print(Data("d.csv", "late", 60, 60, resample=False, skipped=1))
        From d.csv: 60 rows, each played once, in order. 1 row without a name or a number left out.
        """
        order = "in a random order" if self.shuffled else "in order"
        what = f"{self.rewards:,} counted rewards" if self.counts else counted(self.rows, "row")
        text = f"From {self.csv}: {what}, each played once, {order}."
        if self.pair:
            text += f" Rows of the same {self.pair} are compared with each other."
        if self.resample:
            text = (
                f"Pulls draw from the {self.source} with replacement: a verdict is about the file, not about "
                'where its rows came from. rows = "once" plays each of them once.'
            )
        if self.skipped:
            text += f" {counted(self.skipped, 'row')} without a name or a number left out."
        return " ".join([text, *(f"{note[0].upper()}{note[1:]}." for note in self.notes)])
