"""A machine takes only rewards that fit its outstanding pull."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm.problem.layout import Group, Layout
from bestarm.problem.moments import of_values
from bestarm.protocol.events import Pull, Pulled, Start
from bestarm.protocol.look_client import LookClient
from bestarm.protocol.machine import IllegalEvent, demand_rewards

PLAIN = Pull((0, 2), 10)
SHARED = Pull((0, 2), 10, shares=(3, 1))
RICH = Pull((0, 2), 10, shares=(3, 1), moments=True)
SUMS = Pulled((12.0, 3.0), 5)
MOMENTS = Pulled((12.0, 3.0), 5, (10.0, 2.0), (0.25, 0.5), (1.0, 1.0))


@pytest.mark.parametrize(
    ("pull", "pulled"),
    [
        (PLAIN, Pulled((0.0, 10.0), 10)),
        (SHARED, SUMS),
        (RICH, MOMENTS),
        (RICH, Pulled((15.0, 0.0), 5, (15.0, 0.0), (1.0, 0.0), (1.0, 0.0))),
        (RICH, replace(MOMENTS, sums=(12.0, 5.0 + 1e-10), squares=(10.0, 5.0 + 2e-10), times=6)),
    ],
)
def test_rewards_that_fit_are_taken(pull, pulled):
    demand_rewards("anna", pull, pulled)


@pytest.mark.parametrize(
    ("pull", "pulled"),
    [
        (PLAIN, Pulled((0.0, 0.0), 0)),
        (PLAIN, Pulled((0.0, 0.0), 11)),
        (PLAIN, Pulled((0.0,), 5)),
        (PLAIN, Pulled((0.0, 0.0, 0.0), 5)),
        (PLAIN, Pulled((5.5, 0.0), 5)),
        (PLAIN, Pulled((-0.5, 0.0), 5)),
        (PLAIN, Pulled((float("nan"), 0.0), 5)),
        (PLAIN, replace(MOMENTS, sums=(5.0, 3.0))),  # moments that were not asked for
        (SHARED, Pulled((15.5, 0.0), 5)),
        (SHARED, Pulled((15.0, 5.5), 5)),
        (RICH, SUMS),
        (RICH, replace(MOMENTS, squares=())),
        (RICH, replace(MOMENTS, least=(0.25,))),
        (RICH, replace(MOMENTS, most=(1.0, 1.0, 1.0))),
        (RICH, replace(MOMENTS, squares=(12.1, 2.0))),  # more than the sum
        (RICH, replace(MOMENTS, squares=(9.5, 2.0))),  # less than the sum squared over 15
        (RICH, replace(MOMENTS, squares=(float("nan"), 2.0))),
        (RICH, replace(MOMENTS, least=(-0.1, 0.5))),
        (RICH, replace(MOMENTS, least=(0.25, 0.7))),  # above the mean
        (RICH, replace(MOMENTS, most=(0.7, 1.0))),  # below the mean
        (RICH, replace(MOMENTS, most=(1.1, 1.0))),
        (RICH, Pulled((0.0, 0.0), 5, (0.0, 0.0), (0.5, 0.0), (0.0, 0.0))),  # least > most
    ],
)
def test_rewards_that_do_not_fit_are_refused(pull, pulled):
    with pytest.raises(IllegalEvent, match="anna"):
        demand_rewards("anna", pull, pulled)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_all_rewards_in_range_have_moments_that_fit(rewards):
    pull = Pull((0,), 1, shares=(len(rewards),), moments=True)
    demand_rewards("anna", pull, Pulled.of([of_values(np.array(rewards)).tolist()], 1))
    plain = [sum(rewards), sum(x * x for x in rewards), min(rewards), max(rewards)]
    demand_rewards("anna", pull, Pulled.of([[min(plain[0], len(rewards)), *plain[1:]]], 1))


class Whole(LookClient[None]):
    """A client that sees whole events."""

    def _pull(self):
        self._enter("pulling")
        return [RICH]

    def _took(self, event):
        self.event = event
        return []

    def _decode(self, data): ...

    def _answer(self, message): ...

    def _stop(self): ...


class Summed(Whole):
    """A client that sees sums only."""

    _took = LookClient._took

    def _pulled(self, sums, times):
        self.event = (sums, times)
        return []


@pytest.mark.parametrize(("client", "event"), [(Whole, MOMENTS), (Summed, ((12.0, 3.0), 5))])
def test_a_client_sees_the_whole_event_or_its_sums(client, event):
    machine = client(Layout((Group("g", ("a", "b", "c"), ("anna",)),)), "anna")
    assert machine.handle(Start()) == [RICH]
    machine.handle(MOMENTS)
    assert machine.event == event
