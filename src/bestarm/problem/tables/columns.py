"""Which column of a table is what."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from bestarm.errors import InputError
from bestarm.problem.tables.ratings import ratings_of


@dataclass(frozen=True)
class Columns:
    """Which column of a table is what.

    Rewards are given in one of four ways: one `reward` per row; a `reward` with the `count` of rows that it
    stands for; counts of 0/1 rewards, `successes` of `trials`; or counts of `ratings`, one column for each.

    Parameters
    ----------
    option : str
        Names what is compared.
    site : str, optional
        Names where it was tried. Without it all rows belong to one site, named "all".
    reward, count, successes, trials : str, optional
        The numbers.
    ratings : tuple of str
        Columns that count ratings, whose names contain the rating, such as "1 star", "2 stars", ….
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
    ratings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_rewards([field.name for field in fields(self) if getattr(self, field.name)])
        given = self.given
        for key, name in given.items():
            if list(given.values()).count(name) > 1 or name in self.ratings:
                raise InputError(f'{key} = "{name}" is given twice', expected="each column once")
        if self.ratings:
            ratings_of(self.ratings)

    @property
    def given(self) -> dict[str, str]:
        """The single columns by their roles."""
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "ratings"}
        return {key: name for key, name in found.items() if name is not None}

    @property
    def plain(self) -> dict[str, str]:
        """All columns by their roles, as text."""
        return self.given | ({"ratings": ", ".join(self.ratings)} if self.ratings else {})

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that hold names: site, if there is one, and option."""
        return (self.option,) if self.site is None else (self.site, self.option)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold numbers: reward, or reward and count, successes and trials, or ratings."""
        found = (self.reward, self.count, self.successes, self.trials, *self.ratings)
        return tuple(name for name in found if name is not None)


def check_rewards(keys: Collection[str]) -> None:
    """Raise InputError unless these keys say in one way which columns contain the rewards."""
    by_trials = "successes" in keys or "trials" in keys
    ways = ("reward" in keys) + by_trials + ("ratings" in keys)
    if ways != 1 or ("successes" in keys) != ("trials" in keys):
        raise InputError(
            "it is not clear which columns contain the rewards",
            expected="either reward (with count, if rows are repeated), or successes and trials, or ratings",
        )
    if "count" in keys and "reward" not in keys:
        raise InputError("count goes with reward; trials and ratings are counts themselves")
