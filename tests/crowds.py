"""Problems with many kinds of arms, and the same run by single machines and by a crowd."""

from __future__ import annotations

import numpy as np

import bestarm as ba
from bestarm.simulate.crowd_run import CrowdRun
from bestarm.simulate.draw import Drawn
from bestarm.simulate.identify import as_pulled, crowd_of, run_of


def arm_of(rng, kind, mean):
    """An arm with about this mean."""
    rows = int(rng.integers(1, 200))
    match kind:
        case "coins":
            return mean
        case "beta":
            return ba.Beta(8 * mean, 8 * (1 - mean))
        case "recorded coins":
            return ba.Recording(tuple((rng.random(rows) < mean).astype(float).tolist()))
    return ba.Recording(tuple(rng.beta(8 * mean, 8 * (1 - mean), rows).tolist()))


KINDS = ["coins", "beta", "recorded coins", "recorded numbers"]


def problem_of(seed, kinds, groups):
    rng = np.random.default_rng(seed)
    means = [0.2, 0.5, 0.55, 0.8]
    return ba.Problem.from_rewards(
        {
            f"g{j}": {
                f"a{k}": arm_of(rng, kinds[int(rng.integers(len(kinds)))], float(rng.choice(means)))
                for k in range(int(rng.integers(1, 5)))
            }
            for j in range(groups)
        }
    )


def both(problem, method, options, seed):
    """The records of the same run, of single machines and of a crowd."""
    machines = run_of(problem, method, options, seed)
    crowd = crowd_of(problem, method, options, least=1)
    assert crowd is not None
    together = CrowdRun(problem, method, options, seed, Drawn(as_pulled(problem, method), seed), crowd)
    for run in (machines, together):
        run.go()
    return machines.record(), together.record()
