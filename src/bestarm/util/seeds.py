"""Seeds, and the random streams derived from them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import accumulate, repeat

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import ArrayLike, NDArray

from bestarm.errors import InputError

SEED_BITS = 53  # of generated seeds: exact in every JSON reader
Words = NDArray[np.uint32]


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


class Streams:
    """The generators of ``stream`` for many clients and arms, whose seeds are computed together.

    Parameters
    ----------
    seed : int
        The run's seed.
    clients, arms : arrays of int
        The client and the arm of each generator.

    Examples
    --------
    >>> first, second = Streams(7, [0, 3], [1, 2])
    >>> second.random() == stream(7, 3, 2).random()
    True
    """

    def __init__(self, seed: int, clients: ArrayLike, arms: ArrayLike) -> None:
        keys = np.asarray(clients, dtype=np.uint32), np.asarray(arms, dtype=np.uint32)
        self.words = _state_words(seed, *keys)

    def __getitem__(self, place: int) -> np.random.Generator:
        known = _Known(self.words[place])
        return np.random.Generator(np.random.PCG64(known))  # type: ignore[arg-type]  # NumPy documents it

    def __iter__(self) -> Iterator[np.random.Generator]:
        return map(self.__getitem__, range(len(self.words)))


class _Known(ISeedSequence):
    """A seed sequence whose state is known."""

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> NDArray[np.uint64]:
        return self.words


def _state_words(seed: int, *keys: Words) -> NDArray[np.uint64]:
    """What ``SeedSequence(seed, spawn_key=key).generate_state(4, np.uint64)`` returns, for many keys at once.

    The algorithm is that of NumPy, which promises never to change it (M. O'Neill's seed_seq_fe128).
    """
    entropy = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 128), 32)]
    sources: list[Words] = [np.full(1, word, np.uint32) for word in entropy] + list(keys)
    constants = map(np.uint32, accumulate(repeat(0x931E8875), _times, initial=0x43B0D7E5))
    before = next(constants)

    def hashed(value: Words) -> Words:
        nonlocal before
        value, before = value ^ before, next(constants)
        value = value * before
        return np.asarray(value ^ value >> np.uint32(16))

    def mixed(x: Words, y: Words) -> Words:
        both = np.uint32(0xCA01F9DD) * x - np.uint32(0x4973F715) * y
        return np.asarray(both ^ both >> np.uint32(16))

    with np.errstate(over="ignore"):
        pool = [hashed(word) for word in sources[:4]]
        for source in range(4):
            for place in range(4):
                if place != source:
                    pool[place] = mixed(pool[place], hashed(pool[source]))
        for word in sources[4:]:
            pool = [mixed(old, hashed(word)) for old in pool]
        constants = map(np.uint32, accumulate(repeat(0x58F38DED), _times, initial=0x8B51F9DD))
        before = next(constants)
        found = np.stack([hashed(pool[k % 4]) for k in range(8)], axis=-1)
    return found.view("<u4").view("<u8").astype(np.uint64)


def _times(x: int, y: int) -> int:
    """A product modulo 2^32."""
    return x * y & 0xFFFFFFFF


def seed_within(seed: int, *path: int) -> int:
    """The derived seed of a part, such as one trial of a study; `path` identifies the part.

    >>> seed_within(1, 0, 0), seed_within(1, 0, 1)
    (6341784589011438, 6230446213072509)
    """
    words = np.random.SeedSequence(seed, spawn_key=path).generate_state(2, np.uint32)
    return int(words[0]) << 21 | int(words[1]) >> 11
