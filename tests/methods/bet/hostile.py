"""Champions named by an adversary: any rule that uses only the past keeps the promise of Fed-Bet."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from bestarm.methods.bet import decisions


def worst(ranks, candidate):
    """Name the candidate that looks worst."""
    return np.asarray(np.argmin(np.where(candidate, ranks, np.inf), axis=-1))


def scrambled(ranks, candidate):
    """Name a candidate without regard to its rank: by digits of the rank that mean nothing."""
    return worst(np.where(candidate, np.mod(ranks * 1e6, 1.0), np.inf), candidate)


def sparing_the_first(ranks, candidate):
    """Name the best-looking candidate but the first, so that the first arm is a rival in every block."""
    others = candidate.copy()
    others[..., 0] &= candidate.sum(axis=-1) == 1
    return np.asarray(np.argmax(np.where(others, ranks, -np.inf), axis=-1))


def everyone(arms, champion, epsilon):
    """Let every client send a standing in every block."""
    return np.asarray(arms.count + 0.0 * champion.count) > 0


@contextlib.contextmanager
def adversary(named=worst):
    """Let an adversary name the champions among one arm of every client, in machines and kernel alike."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decisions, "named", named)
        patch.setattr(decisions, "leads", everyone)
        yield
