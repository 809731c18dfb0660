"""Blocks that are announced, and the races that play them together.

The races of a question usually share their blocks. If every site has its own answer and several blocks may be
open, each site is a track of its own: its blocks close when its own parts are in, whatever the others do.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from bestarm.methods.bet.sites.course import Course
from bestarm.methods.bet.sites.decisions import Before, Stand
from bestarm.methods.bet.sites.messages import Part
from bestarm.protocol.decisions import Ints, Mask
from bestarm.protocol.verdict import Reason


@dataclass(eq=False)
class OpenBlock:
    """A block that is announced: what every client has to pull in it, and the parts that have come."""

    n: int
    step: int
    pulls: Ints  # (clients, options)
    stands: list[Stand | None] = field(default_factory=list)
    parts: dict[int, Part] = field(default_factory=dict)
    filled: bool = False  # closed without the parts that are missing
    references: list[int | None] = field(default_factory=list)  # the arm of each client, see Course
    before: Before | None = None  # what its bets follow from, if sites may lie

    def waits_for(self, i: int) -> bool:
        return bool(self.pulls[i].any()) and i not in self.parts


@dataclass(eq=False)
class Track:
    """Races whose blocks are announced and closed together, and their blocks that are open."""

    races: tuple[int, ...]
    members: Mask  # of the clients
    announced: int  # pulls after all blocks that are announced
    open: deque[OpenBlock]
    closed: int = 0  # blocks
    ended: Reason | None = None  # why no more blocks can be announced


def tracks_of(course: Course) -> list[Track]:
    """The tracks of a question, each with its first block."""
    races = range(len(course.members))
    groups = [(r,) for r in races] if course.own_pace else [tuple(races)]
    found = list[Track]()
    for group in groups:
        members = np.zeros(course.clients, dtype=bool)
        for r in group:
            members[course.members[r]] = True
        pulls = np.where(members[:, None], course.first(), 0)
        first = OpenBlock(0, course.n1, pulls, references=course.references(()))
        found.append(Track(group, members, course.n1, deque([first])))
    return found
