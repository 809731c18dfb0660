"""Long campaigns, run by `make soak`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernels import check_replay, option_sets, problems


@pytest.mark.soak
@settings(max_examples=5000)
@given(problems(), option_sets(), st.integers(0, 2**32))
def test_kernels_and_machines_agree_on_thousands_of_problems(problem, options, seed):
    check_replay(problem, options, seed)
