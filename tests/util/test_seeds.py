"""Seeds that are computed together give the streams that single seeds give."""

from __future__ import annotations

import pytest

from bestarm.util.seeds import Streams, stream


@pytest.mark.parametrize("seed", [0, 7, 2**53 - 1, 2**64 + 5, 2**130 + 9])
def test_streams_that_are_seeded_together_are_those_of_single_seeds(seed):
    places = [(0, 0), (1, 3), (3631, 1), (70000, 2)]
    found = Streams(seed, *zip(*places, strict=True))
    for generator, place in zip(found, places, strict=True):
        assert generator.bit_generator.state == stream(seed, *place).bit_generator.state
