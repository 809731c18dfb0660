"""Which runs the information limit applies to."""

from __future__ import annotations

from bestarm.problem.problem import Problem
from bestarm.protocol.options import Common
from bestarm.protocol.registry import METHODS
from bestarm.stats.limit import LIMIT_ARMS, Limit, limit


def limit_of_runs(
    problem: Problem, method: str, options: Common, *, undecided: int = 0, broken: str = ""
) -> tuple[Limit | None, str]:
    """The limit for runs of a method with these options; or None, and why it does not apply.

    This function alone decides where a limit is shown.

    Parameters
    ----------
    problem : Problem
        The problem of the runs.
    method : str
        The method's name.
    options : Common
        The method's options.
    undecided : int
        How many of the runs ended without an arm.
    broken : str
        Why the runs carry no guarantee, such as more liars than `byzantine`; empty if they do.

    Returns
    -------
    tuple of (Limit or None) and str
        The limit and an empty string, or None and the reason.

    Examples
    --------
    >>> import bestarm as ba
    >>> from bestarm.methods.fisher.options import Fisher
    >>> problem = ba.Problem.paper_instance(1)
    >>> found, why_not = limit_of_runs(problem, "fisher", Fisher(delta=0.1))
    >>> round(found.total), why_not
    (951, '')
    >>> limit_of_runs(problem, "fisher", Fisher(delta=0.1, max_rounds=2))
    (None, 'max_rounds = 2 may end a run before it has decided')
    """
    why_not = _why_no_limit(problem, method, options, undecided, broken)
    return (None, why_not) if why_not else (limit(problem, options.delta), "")


def _why_no_limit(problem: Problem, method: str, options: Common, undecided: int, broken: str) -> str:
    layout = problem.layout
    if why := METHODS[method].unproved:
        return why
    if layout.question.kind != "anywhere":
        options_asked = {name for group in layout.groups for name in group.arms}
        if layout.question.kind != "overall" or layout.question.also:
            return f'it is not computed for question = "{layout.question.kind}"'
        if len(options_asked) != 2:
            return f'for question = "overall" it is computed for two options, not {len(options_asked)}'
    for key in ("budget", "max_rounds"):
        if getattr(options, key) is not None:
            return f"{key} = {getattr(options, key)} may end a run before it has decided"
    if options.epsilon > 0.0:
        return f"with epsilon = {options.epsilon:g} any arm that is close enough may be named"
    if layout.finite:
        return "rewards that run out may end a run before it has decided"
    if undecided:
        return f"{undecided} of the runs ended undecided" if undecided > 1 else "a run ended undecided"
    if broken:
        return broken
    if why := METHODS[method].plan.no_limit(options):
        return why
    if not METHODS[method].coins and not all(group.binary for group in layout.groups):
        return f"rewards are not 0/1, and {method} uses them as they are"
    if any(mean is None for row in problem.means for mean in row):
        return "true means are unknown"
    if problem.best is None:
        return "the best arm is not unique"
    if (arms := sum(layout.arm_counts)) > LIMIT_ARMS:
        return f"with {arms:,} arms it takes too long to compute"
    return ""
