"""Where the rewards of a simulated run come from."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from bestarm.problem.moments import of_values
from bestarm.problem.pairs import subjects_of
from bestarm.problem.problem import Problem
from bestarm.protocol.decisions import Ints, Mask
from bestarm.protocol.events import Pull, Pulled
from bestarm.stats.sums import Sums
from bestarm.util.seeds import Streams, stream

T = TypeVar("T")
MANY_ARMS = 50  # with fewer, single seeds are as fast
Script = Mapping[int, Sequence[tuple[Pull, Pulled]]]  # each client's batches, in order


class Source(Protocol):
    """Where a run's rewards come from."""

    def draw(self, client: int, pull: Pull, times: int) -> Pulled | None:
        """Carry out a pull `times` times: ``times * pull.each[i]`` draws of arm i, and moments if it asks.

        It is carried out fewer times only if rewards run out; None if nothing is left.
        """


class Drawn:
    """Rewards from the problem's models, with a separate random stream for each client and arm."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.streams: dict[tuple[int, int], np.random.Generator] = {}
        self.made: dict[tuple[int, int], int] = {}
        self.first = np.cumsum([0, *map(len, problem.rewards)]).tolist()  # the place of each client's arms

    @cached_property
    def _seeded(self) -> Streams | None:
        """The streams of all arms, if there are so many that it pays to compute their seeds together."""
        counts = np.diff(self.first)
        if self.first[-1] < MANY_ARMS:
            return None
        clients = np.repeat(np.arange(len(counts)), counts)
        return Streams(self.seed, clients, np.arange(self.first[-1]) - np.asarray(self.first)[clients])

    def _stream(self, client: int, arm: int) -> np.random.Generator:
        """The random stream of an arm of a client."""
        found = self.streams.get((client, arm))
        if found is None:
            many = self._seeded
            found = stream(self.seed, client, arm) if many is None else many[self.first[client] + arm]
            self.streams[client, arm] = found
        return found

    def draw_all(self, asked: Ints, rich: Mask) -> Sums:
        """Carry out `asked[i, a]` pulls of arm a of each client i, for whom there are as many.

        Squares and extremes are those of the rewards only for the clients in `rich`; else rewards are 0/1.
        """
        found, made, rewards = Sums.none(asked.shape), self.made, self.problem.rewards
        places = np.nonzero(asked)
        rows: list[list[float]] = []
        for i, a, n, moments in zip(
            *(part.tolist() for part in (*places, asked[places], rich[places[0]])), strict=True
        ):
            model, rng, start = rewards[i][a], self._stream(i, a), made.get((i, a), 0)
            if moments:
                rows.append(model.moments(rng, n, start).tolist())
            else:
                total = float(model.sums(rng, n, start))
                rows.append([total, total, 0.0, 1.0])
            made[i, a] = start + n
        found.count[places] = asked[places]
        for part, column in zip(found.parts[1:], np.array(rows).T, strict=True):
            part[places] = column
        return found

    def draw(self, client: int, pull: Pull, times: int) -> Pulled | None:
        models = [self.problem.rewards[client][a] for a in pull.arms]
        made = [self.made.get((client, a), 0) for a in pull.arms]
        for model, start, share in zip(models, made, pull.each, strict=True):
            if model.limit is not None:
                times = min(times, (model.limit - start) // share)
        if times == 0:
            return None
        rows: list[list[float]] = []
        for a, model, start, share in zip(pull.arms, models, made, pull.each, strict=True):
            rng, n = self._stream(client, a), times * share
            if pull.moments:
                rows.append(model.moments(rng, n, start).tolist())
            else:
                rows.append([float(model.sums(rng, n, start))])
            self.made[client, a] = start + n
        pulled = Pulled.of(rows, times)
        return pulled if pull.against is None else self._paired(client, pull, pulled)

    def _paired(self, client: int, pull: Pull, pulled: Pulled) -> Pulled:
        """The rewards with the moments of their differences; all arms of the client move on together."""
        assert pull.against is not None
        models, end = self.problem.rewards[client], self.made[client, pull.against]
        for a in range(len(models)):
            self.made[client, a] = end
        places = [*pull.arms, pull.against]
        drawn = subjects_of([models[a] for a in places], end - pulled.times, pulled.times)
        *own, champion = (np.asarray(values) for values in drawn)
        pairs = [of_values((1.0 + champion - values) / 2.0).tolist() for values in own]
        return replace(pulled, pairs=tuple((s, q, low, high) for s, q, low, high in pairs))

    def agrees(self, client: int, pull: Pull, pulled: Pulled | None) -> bool:
        """Whether these rewards from an earlier process match the next draws; if so, skip past them.

        The rewards of a user's function are accepted without calling it again. Its later draws come from a
        fresh stream.
        """
        if pulled is None:
            return True
        known = []
        for i, (a, share) in enumerate(zip(pull.arms, pull.each, strict=True)):
            if self.problem.rewards[client][a].spec() is not None:
                known.append(i)
            else:
                made = self.made[client, a] = self.made.get((client, a), 0) + pulled.times * share
                self.streams[client, a] = stream(self.seed, client, a, made)
        if not known:
            return True
        shares = _at(known, pull.shares)
        part = Pull(_at(known, pull.arms), pulled.times, shares, pull.moments, pull.against)
        wanted = Pulled(
            _at(known, pulled.sums),
            pulled.times,
            _at(known, pulled.squares),
            _at(known, pulled.least),
            _at(known, pulled.most),
            _at(known, pulled.pairs),
        )
        return self.draw(client, part, pulled.times) == wanted


class Scripted:
    """Rewards that were drawn earlier: the batches of each client as (Pull, Pulled), in order.

    A batch of 0/1 rewards may be requested in parts. Given its sum, the sum of a part is hypergeometric. A
    batch with shares or moments comes as a whole.
    """

    def __init__(self, script: Script) -> None:
        self.script = {client: deque(batches) for client, batches in script.items()}
        self.rng = np.random.default_rng(0)  # only splits batches: any choice gives the same decisions

    def draw(self, client: int, pull: Pull, times: int) -> Pulled | None:
        batches, needed, total = self.script.get(client, deque()), times, np.zeros(len(pull.arms))
        if pull.shares or pull.moments:
            asked = Pull(pull.arms, times, pull.shares, pull.moments)
            if not batches or batches[0][0] != asked:
                raise AssertionError(f"client {client} asks for {asked}, which is not in the script")
            return batches.popleft()[1]
        while needed:
            if not batches or batches[0][0] != Pull(pull.arms, batches[0][0].times):
                what = f"{needed} more pulls of {pull.arms}, which are not in the script"
                raise AssertionError(f"client {client} asks for {what}")
            pulled = batches.popleft()[1]
            length, sums = pulled.times, pulled.sums
            if length > needed:
                ones = np.asarray(sums, dtype=np.int64)
                part = self.rng.hypergeometric(ones, length - ones, needed)
                rest = Pulled(tuple((ones - part).astype(float).tolist()), length - needed)
                batches.appendleft((Pull(pull.arms, rest.times), rest))
                length, sums = needed, tuple(part.astype(float).tolist())
            needed -= length
            total += sums
        return Pulled(tuple(total.tolist()), times)


def _at(places: Sequence[int], values: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(values[i] for i in places) if values else ()
