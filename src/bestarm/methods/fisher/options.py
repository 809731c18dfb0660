"""Options of Fed-Fisher."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm.protocol.options import Common, choice, number, option, whole

# What to save: (n₀, q, quiet). Chosen with benchmarks/preferences.py, which shows the trade-offs.
PREFERENCES = {"pulls": (32, 1.5, 0), "rounds": (16, 3.0, 3), "bits": (32, 2.0, 3)}


@dataclass(frozen=True, kw_only=True)
class Fisher(Common):
    """Options of `fisher`, in addition to those of every method.

    Parameters
    ----------
    n0 : int, optional
        The pulls of each arm by the first look.
    q : float, optional
        The factor by which pulls grow from look to look.
    quiet : int, optional
        The number of first looks that are local, without messages.
    prefer : str
        What to save ("pulls", "rounds" or "bits"). It sets `n0`, `q` and `quiet` if they are not given.

    Raises
    ------
    InputError
        If an option has an invalid value.
    """

    n0: int | None = option(
        None,
        "pulls of each arm by the first look",
        whole(1, 2**30, optional=True),
        "a whole number from 1 to 2^30",
        unset="by --prefer",
    )
    q: float | None = option(
        None,
        "factor by which pulls grow from look to look",
        lambda x: x is None or number(1.05, below=1000.5)(x),
        "a number from 1.05 to 1000",
        unset="by --prefer",
    )
    quiet: int | None = option(
        None,
        "number of first looks without messages",
        whole(0, 60, optional=True),
        "a whole number from 0 to 60",
        unset="by --prefer",
    )
    prefer: str = option(
        "pulls",
        "what to save: pulls, rounds or bits",
        choice(*PREFERENCES),
        " or ".join(f'"{p}"' for p in PREFERENCES),
    )
