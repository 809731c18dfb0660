"""Wide tables of ratings: a column for each rating, such as "1 star" to "5 stars", that counts it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bestarm.errors import InputError

NUMBER = re.compile(r"\d+(?:\.\d+)?")
STEMS = frozenset(["star", "rating", "score", "vote", "point", "grade", "count"])  # words beside the number
HIGHEST = 10  # a bare number above it is no rating, but for example a year


def rating_in(name: str) -> float | None:
    """The rating that the name of a column stands for: the only number in it; None if there is not one.

    >>> [rating_in(name) for name in ("1★", "rating_4.5", "stars", "2 of 5")]
    [1.0, 4.5, None, None]
    """
    found = NUMBER.findall(name)
    return float(found[0]) if len(found) == 1 else None


def looks_like_rating(name: str) -> bool:
    """Whether a column is named like a rating.

    >>> [looks_like_rating(name) for name in ("1★", "2 stars", "n_3_star", "5", "2024", "q3", "stars")]
    [True, True, True, True, False, False, False]
    """
    rating = rating_in(name)
    words = {word.removesuffix("s") for word in re.findall(r"[^\W\d_]+", name.lower())} - {"n", "count", "of"}
    return rating is not None and (words <= STEMS and (rating <= HIGHEST or bool(words)))


def ratings_of(names: Sequence[str]) -> dict[str, float]:
    """The rating of each of these columns; InputError if that is not clear.

    >>> ratings_of(["1★", "3★"])
    {'1★': 1.0, '3★': 3.0}
    """
    found: dict[str, float] = {}
    for name in names:
        rating = rating_in(name)
        if rating is None:
            raise InputError(
                f'column "{name}" does not say which rating it counts',
                where="ratings",
                expected='names with one number each, such as "1 star", "2 stars"',
                fix="Rename the columns, or use one row for each rating with its count in a column",
            )
        if rating in found.values():
            raise InputError(f"two columns count the rating {rating:g}", where="ratings")
        found[name] = rating
    if len(found) < 2:
        raise InputError("ratings are counted in one column each", where="ratings", expected="at least two")
    return found
