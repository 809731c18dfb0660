"""bestarm: find the best option when sites can't pool their data and communication is expensive."""

import bestarm.methods  # noqa: F401 (registers them)
from bestarm.deploy.experiment.experiment import Assignment, Experiment, ExperimentOver
from bestarm.errors import InputError
from bestarm.evidence.evidence import evidence
from bestarm.evidence.record import Evidence
from bestarm.graphs.graph import Graph
from bestarm.graphs.robustness import is_strongly_robust, strong_robustness, tolerance, weak_points
from bestarm.methods.bet.options import Bet
from bestarm.methods.fed_sel.options import FedSel
from bestarm.methods.fed_sel.theorem import Bounds, bounds
from bestarm.methods.fisher.options import Fisher
from bestarm.methods.p2p.options import PeerToPeer
from bestarm.methods.robust_fed_sel.options import RobustFedSel
from bestarm.problem.instances import Instance, instances
from bestarm.problem.problem import Problem
from bestarm.problem.rewards import Bernoulli, Beta, Function, Recording, Table
from bestarm.protocol.registry import Method, load_entry_points, register_method
from bestarm.protocol.verdict import Answer, Verdict
from bestarm.records.record import Record
from bestarm.records.schema import record_schema
from bestarm.records.verify import Verification, verify
from bestarm.scenario.load import load
from bestarm.simulate.adversary import Adversary
from bestarm.simulate.identify import Interrupted, identify
from bestarm.simulate.lying_client import Attack, attacks
from bestarm.simulate.network import Network
from bestarm.simulate.run import Progress
from bestarm.simulate.setup import Scenario
from bestarm.stats.fisher_exact import fisher_pvalue
from bestarm.stats.heterogeneity import Heterogeneity, heterogeneity
from bestarm.stats.limit import Limit, limit
from bestarm.stats.radii import Radius, radius
from bestarm.study.arena.bandit import Bandit, Outcome, Pulls
from bestarm.study.arena.baseline import Baseline
from bestarm.study.arena.result import Arena
from bestarm.study.arena.run import arena
from bestarm.study.plan import Plan, plan
from bestarm.study.plan_setup import problem_from_gaps
from bestarm.study.schedule import Schedule, schedule
from bestarm.study.study import StudyInterrupted, StudyProgress, study
from bestarm.study.trials import Trials
from bestarm.version import __version__

__all__ = [
    "Adversary",
    "Answer",
    "Arena",
    "Assignment",
    "Attack",
    "Bandit",
    "Baseline",
    "Bernoulli",
    "Bet",
    "Beta",
    "Bounds",
    "Evidence",
    "Experiment",
    "ExperimentOver",
    "FedSel",
    "Fisher",
    "Function",
    "Graph",
    "Heterogeneity",
    "InputError",
    "Instance",
    "Interrupted",
    "Limit",
    "Method",
    "Network",
    "Outcome",
    "PeerToPeer",
    "Plan",
    "Problem",
    "Progress",
    "Pulls",
    "Radius",
    "Record",
    "Recording",
    "RobustFedSel",
    "Scenario",
    "Schedule",
    "StudyInterrupted",
    "StudyProgress",
    "Table",
    "Trials",
    "Verdict",
    "Verification",
    "__version__",
    "arena",
    "attacks",
    "bounds",
    "evidence",
    "fisher_pvalue",
    "heterogeneity",
    "identify",
    "instances",
    "is_strongly_robust",
    "limit",
    "load",
    "plan",
    "problem_from_gaps",
    "radius",
    "record_schema",
    "register_method",
    "schedule",
    "strong_robustness",
    "study",
    "tolerance",
    "verify",
    "weak_points",
]

load_entry_points()  # last, so that a third-party method can import everything above
