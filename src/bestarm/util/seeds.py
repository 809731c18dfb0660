"""Seeds, and the random streams derived from them."""

from __future__ import annotations

import secrets

import numpy as np

from bestarm.errors import InputError

SEED_BITS = 53  # of generated seeds: exact in every JSON reader


def check_seed(seed: int | None) -> int:
    """The seed, or a random one if it is None; InputError unless it is a whole number of at least 0."""
    if seed is None:
        return secrets.randbits(SEED_BITS)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed = {seed!r} can't be used", expected="a whole number of at least 0")
    return seed


def stream(seed: int, client: int, arm: int, *part: int) -> np.random.Generator:
    """The generator for one client's draws of one arm (or a `part` of them), spawned from the run's seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(client, arm, *part))))


def seed_within(seed: int, *path: int) -> int:
    """The derived seed of a part, such as one trial of a study; `path` identifies the part.

    >>> seed_within(1, 0, 0), seed_within(1, 0, 1)
    (6341784589011438, 6230446213072509)
    """
    words = np.random.SeedSequence(seed, spawn_key=path).generate_state(2, np.uint32)
    return int(words[0]) << 21 | int(words[1]) >> 11
