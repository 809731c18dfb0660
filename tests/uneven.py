"""A method for tests that asks for unequal shares of pulls, and for the moments of the rewards."""

from __future__ import annotations

import dataclasses

from examples import uniform_method as uniform

from bestarm.protocol.machine import demand_rewards

SHARE = 4  # pulls of the first arm per pull of each other one; a power of 2 divides sums exactly


class Client(uniform.Client):
    """Uniform's client, which pulls its first arm more often and keeps all moments of all arms."""

    def __init__(self, layout, name, options):
        super().__init__(layout, name, options)
        self.shares = (SHARE,) + (1,) * (len(self.arms) - 1)
        self.asked, self.rewards = None, []

    def local(self):
        return super().local() | {"rewards": [dataclasses.astuple(event) for event in self.rewards]}

    def _pull(self):
        actions = super()._pull()
        if actions[0].arms:
            actions = [dataclasses.replace(actions[0], shares=self.shares, moments=True)]
        self.asked = actions[0]
        return actions

    def _took(self, event):
        demand_rewards(self.name, self.asked, event)
        self.rewards.append(event)
        means = (total / share for total, share in zip(event.sums, self.shares, strict=True))
        return self._pulled(tuple(means), event.times)

    @property
    def pulls(self):
        return self.count * sum(self.shares)


def pulls_of(part, arms, options):
    """A client's pulls until the first look, and after it."""
    first, width = min(part["count"], options.n0), SHARE + arms - 1
    return width * first, width * (part["count"] - first)


METHOD = dataclasses.replace(uniform.METHOD, name="uneven", client=Client, pulls_of=pulls_of)


def totals(events, shares):
    """The moments of all these events together: pulls, sum, squares, least and most of each arm."""
    times = sum(event.times for event in events)
    return [
        (
            times * share,
            sum(event.sums[i] for event in events),
            sum(event.squares[i] for event in events),
            min(event.least[i] for event in events),
            max(event.most[i] for event in events),
        )
        for i, share in enumerate(shares)
    ]
