"""Which column of a table is what."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from bestarm.errors import InputError


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what.

    Rewards are given in one of three ways: one `reward` per row; a `reward` with the `count` of rows that it
    stands for; or counts of 0/1 rewards, `successes` of `trials`.

    Parameters
    ----------
    option : str
        Names what is compared.
    site : str, optional
        Names where it was tried. Without it all rows belong to one site, named "all".
    reward, count, successes, trials : str, optional
        The numbers.
    time : str, optional
        When a row was recorded: numbers, or dates and times in ISO 8601.
    pair : str, optional
        Which rows were recorded together. Reserved: readers ignore it.

    Raises
    ------
    InputError
        If it is not clear which columns contain the rewards, or if a column is named twice.

    Examples
    --------
    >>> Columns(option="banner", site="shop", successes="clicks", trials="views").numbers
    ('clicks', 'views')
    """

    option: str
    site: str | None = None
    reward: str | None = None
    successes: str | None = None
    trials: str | None = None
    count: str | None = None
    time: str | None = None
    pair: str | None = None

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        check_rewards([key for key, name in given.items() if name is not None])
        names = [name for name in given.values() if name is not None]
        for key, name in given.items():
            if name is not None and names.count(name) > 1:
                raise InputError(f'{key} = "{name}" is given twice', expected="each column once")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that hold names: site, if there is one, and option."""
        return (self.option,) if self.site is None else (self.site, self.option)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold numbers: reward, or reward and count, or successes and trials."""
        found = (self.reward, self.count, self.successes, self.trials)
        return tuple(name for name in found if name is not None)


def check_rewards(keys: Collection[str]) -> None:
    """Raise InputError unless these keys say in one way which columns contain the rewards."""
    by_trials = "successes" in keys or "trials" in keys
    if ("reward" in keys) == by_trials or ("successes" in keys) != ("trials" in keys):
        raise InputError(
            "it is not clear which columns contain the rewards",
            expected="either reward (with count, if rows are repeated), or successes and trials",
        )
    if by_trials and "count" in keys:
        raise InputError("count goes with reward; trials is the count of successes")
