"""Where a deployed client's rewards come from: a Python function, a command, a web address, a CSV file.

The input is an arm's name and a number of pulls; the output is rewards on the user's scale, each a finite
number in [low, high]. ``pull`` returns at least one reward and at most as many as requested; ask again for
the rest. Rewards that arrived before an error are returned first; the next call raises the error. So every
reward that was paid for reaches the caller, which saves it before asking for more: a crash loses at most one
batch. A cancelled ``pull`` keeps the rewards it has for the next call.

Errors: ``InputError`` (not a number, or out of range: a mistake in the set-up, never retried, because leaving
a reward out would bias the mean), ``SourceFailed`` (no answer after retries), ``Exhausted`` (there are
no more rewards).
"""

from __future__ import annotations

from bestarm.deploy.sources.base import MAX_OUTPUT, PIECE, Exhausted, Retry, Source, SourceFailed
from bestarm.deploy.sources.command import FromCommand
from bestarm.deploy.sources.demo import MEANS, PAUSE, SEED, Coins
from bestarm.deploy.sources.python import FromPython
from bestarm.deploy.sources.recorded import FromCsv
from bestarm.deploy.sources.web import FromHttp

__all__ = [
    "MAX_OUTPUT",
    "MEANS",
    "PAUSE",
    "PIECE",
    "SEED",
    "Coins",
    "Exhausted",
    "FromCommand",
    "FromCsv",
    "FromHttp",
    "FromPython",
    "Retry",
    "Source",
    "SourceFailed",
]
