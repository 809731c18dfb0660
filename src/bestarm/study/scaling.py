"""How the costs of each method scale."""

from __future__ import annotations

from bestarm.protocol.planning import Scaling
from bestarm.protocol.registry import METHODS

EVERY = Scaling(
    "every method",
    "byzantine",
    "G ≥ 2f+1",
    "with f liars per group, any method that keeps δ < ½ and always names an arm needs 2f+1 clients",
    "proved",
)


def scaling() -> list[Scaling]:
    """How each method's cost scales in δ, H, σ, K and f, each row labelled as proved or measured.

    "Proved" rows follow from the corrected theorems (for Fed-SEL: on the good event). "Measured" rows are
    results of simulated runs on the paper's instance, and may not apply to other instances.

    Returns
    -------
    list of Scaling
        The rows of every registered method, then a row that holds for every method.

    Examples
    --------
    >>> sorted({row.basis for row in scaling()})
    ['measured', 'proved']
    """
    return [*(row for method in METHODS.values() for row in method.plan.scaling), EVERY]
