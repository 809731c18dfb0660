"""bestarm: which option is best, when sites can't pool their data and messages are dear."""

from bestarm.adversary import Adversary, Attack, attacks
from bestarm.audit import Verification, verify
from bestarm.confidence import Radius, radius
from bestarm.errors import InputError
from bestarm.exact import fisher_pvalue
from bestarm.network import Network
from bestarm.plan import Plan, Schedule, plan, problem_from_gaps, schedule
from bestarm.problem import Problem
from bestarm.record import Record
from bestarm.rewards import Bernoulli, Beta, Function, Recording, Table
from bestarm.scenario import Scenario, load
from bestarm.simulate import Interrupted, Progress, identify
from bestarm.study import StudyInterrupted, StudyProgress, Trials, study
from bestarm.theory import Bounds, Heterogeneity, Limit, bounds, heterogeneity, limit
from bestarm.topology import Graph, is_strongly_robust, strong_robustness, tolerance, weak_points
from bestarm.version import __version__

__all__ = [
    "Adversary",
    "Attack",
    "Bernoulli",
    "Beta",
    "Bounds",
    "Function",
    "Graph",
    "Heterogeneity",
    "InputError",
    "Interrupted",
    "Limit",
    "Network",
    "Plan",
    "Problem",
    "Progress",
    "Radius",
    "Record",
    "Recording",
    "Scenario",
    "Schedule",
    "StudyInterrupted",
    "StudyProgress",
    "Table",
    "Trials",
    "Verification",
    "__version__",
    "attacks",
    "bounds",
    "fisher_pvalue",
    "heterogeneity",
    "identify",
    "is_strongly_robust",
    "limit",
    "load",
    "plan",
    "problem_from_gaps",
    "radius",
    "schedule",
    "strong_robustness",
    "study",
    "tolerance",
    "verify",
    "weak_points",
]
