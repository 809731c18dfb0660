"""What a client of Fed-Bet does with pulls and rewards, whoever decides about its arms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bestarm.protocol.decisions import Ints
from bestarm.protocol.events import Pull, Pulled
from bestarm.stats.sums import Sums


def spread(missing: Ints, *, moments: bool, against: int | None = None) -> Pull:
    """A pull that makes the missing pulls, spread over the block as far as whole shares allow.

    >>> spread(np.array([12, 0, 36]), moments=False)
    Pull(arms=(0, 2), times=12, shares=(1, 3), moments=False, against=None)
    """
    arms = np.flatnonzero(missing)
    times = int(missing[arms].min())
    shares = tuple((missing[arms] // times).tolist())
    return Pull(tuple(arms.tolist()), times, shares if max(shares) > 1 else (), moments, against)


def spread_all(missing: Ints) -> tuple[Ints, Ints]:
    """``spread`` for many clients at once: the times of each pull, and the shares of the arms.

    >>> times, shares = spread_all(np.array([[12, 0, 36], [0, 0, 0]]))
    >>> times.tolist(), shares.tolist()
    ([12, 0], [[1, 0, 3], [0, 0, 0]])
    """
    least = np.where(missing > 0, missing, np.iinfo(np.int64).max).min(axis=1)
    times = np.where(missing.any(axis=1), least, 0)
    return times, missing // np.maximum(times, 1)[:, None]


def as_sums(arms: int, pull: Pull, event: Pulled) -> Sums:
    """The rewards of a batch as sums over all arms of the client."""
    at = list(pull.arms)
    sums = Sums.none(arms)
    sums.count[at] = event.times * np.asarray(pull.each)
    sums.total[at] = event.sums
    sums.squares[at] = event.squares if pull.moments else event.sums
    sums.least[at] = event.least if pull.moments else 0.0
    sums.most[at] = event.most if pull.moments else 1.0
    return sums


def as_pairs(arms: int, pull: Pull, event: Pulled) -> Sums:
    """Y of a batch, for each arm of the client against the one that the pull names."""
    at, sums = list(pull.arms), Sums.none(arms)
    sums.count[at] = event.times
    for part, values in zip(sums.parts[1:], zip(*event.pairs, strict=True), strict=True):
        part[at] = values
    return sums


def note_batch(batches: list[dict[str, Any]], heard: int, pull: Pull, event: Pulled, **more: int) -> None:
    """Add rewards to a certificate; batches of one ``Pull`` are added up. `more` says what they are for."""
    columns = ["sums", "squares", "least", "most"] if pull.moments else ["sums"]
    row = {c: list(getattr(event, c)) for c in columns}
    place: dict[str, Any] = {"heard": heard, **more, "arms": list(pull.arms), "each": list(pull.each)}
    if pull.against is not None:
        place["against"] = pull.against
        row["pairs"] = [list(pair) for pair in event.pairs]
    last = batches[-1] if batches else {}
    if any(last.get(key) != value for key, value in place.items()):
        batches.append({**place, "times": event.times, **row})
        return
    last["times"] += event.times
    join = {"sums": np.add, "squares": np.add, "least": np.minimum, "most": np.maximum}
    for c, values in row.items():
        if c == "pairs":
            last[c] = [_join_pairs(*both) for both in zip(last[c], values, strict=True)]
        else:
            last[c] = join[c](last[c], values).tolist()


def _join_pairs(first: Sequence[float], second: Sequence[float]) -> list[float]:
    (s, q, low, high), (t, r, least, most) = first, second
    return [s + t, q + r, min(low, least), max(high, most)]
