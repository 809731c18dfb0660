"""What a report or a live page shows of a run, as a plain dict; numbers are on the user's scale.

``of_record`` takes a finished run, ``of_rerun`` one in process at any moment, ``of_desk`` a federation's
server at any moment, ``of_site`` one of its clients or a node of a mesh, ``of_trials`` a study.
The pages of ``bestarm.report.page`` are functions of these facts alone. What a source doesn't know is None
or empty there: a partial run has no verdict, a server no pulls, a federation no true means.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from bestarm.adversary import Adversary
from bestarm.audit import verify
from bestarm.confidence import radius
from bestarm.errors import InputError
from bestarm.exact import clopper_pearson, fisher_pvalue
from bestarm.kept import Rerun
from bestarm.kernels import kernel_for
from bestarm.network import Network
from bestarm.peers import NetworkRun
from bestarm.plan import expected
from bestarm.problem import Data, Problem
from bestarm.protocol import METHODS, method_for
from bestarm.protocol.fisher import Looks
from bestarm.protocol.machine import Received, Start
from bestarm.protocol.options import make
from bestarm.protocol.rounds import heard
from bestarm.record import Record, on_user_scale, views_of
from bestarm.rewards import Recording, Scale
from bestarm.simulate import Drawn, Run, as_pulled, on_unit_scale, prepare
from bestarm.study import LIMIT_ARMS, Trials
from bestarm.theory import heterogeneity, limit
from bestarm.topology import circle
from bestarm.version import __version__
from bestarm.words import (
    aim,
    coins_said,
    leading,
    mean_of,
    still_in,
    too_many,
    what_helps,
    why_undecided,
)

Facts = dict[str, Any]

MOST_POINTS = 120  # of one line
MOST_PANELS = 12  # groups whose arms are drawn
MOST_MATRIX = 12
MOST_LAID_OUT = 300  # nodes; a spring layout takes time with the square of them
MOST_TRACED = 20_000  # rounds times clients of a run that is run again for its traces


def of_record(
    record: Record, *, quick: bool = False, check: bool = True, command: str | None = None
) -> Facts:
    """The facts of a run. `quick` leaves out what takes further runs: the forecast, and the arms' traces.

    Without `check` the record is believed. `command` is how the run was started, where that is known.
    """
    try:
        facts = _of_parts(
            record.method,
            record.delta,
            record.options,
            record.problem,
            record.verdict.certificate,
            network=record.network,
            faults=record.proven_faulty,
            warnings=record.warnings,
            adversaries=record.adversaries,
        )
        verdict = record.to_dict()["verdict"]
        verdict.pop("certificate")
        _as_said(facts["lines"], verdict)
        if verdict["status"] == "undecided" and verdict["reason"]:
            facts |= {"why": why_undecided(record), "helps": what_helps(record)}
            facts |= {"left": still_in(record), "first": leading(record)}
        facts |= {
            "verdict": verdict,
            "private": record.peers is not None or bool(record.verdict.certificate.get("local")),
            "rounds": record.rounds,
            "seed": record.seed,
            "version": record.version,
            "digest": record.digest,
            "command": command,
            "good_event": record.good_event,
            "interrupted": record.interrupted,
            "peers": _peers(record),
        }
        facts["costs"] |= {
            "rounds": None if record.peers is not None else record.rounds,
            "bits_up": record.bits.up,
            "bits_down": None if record.peers is not None else record.bits.down,
            "wire_bytes": record.wire_bytes,
        }
        if record.pulls is not None:
            facts["costs"] |= {"pulls": record.pulls.total, "longest": record.pulls.max_per_client}
            for row in facts["clients"]:
                row["pulls"] = record.pulls.by_client.get(row["name"])
        facts["checks"] = list(verify(record).failures) if check else []
        problem = _problem(record)
        if problem is not None and all(mean is not None for row in problem.means for mean in row):
            facts |= _of_problem(problem, record, quick)
        if problem is not None and not quick:
            facts["traces"] = _traces(problem, record) or facts["traces"]
            facts["so_far"] = [] if facts["lines"] else _so_far(problem, facts["traces"])
        return facts
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"this record can't be read as a run ({type(error).__name__}: {error})",
            fix='"bestarm verify" says what is wrong with it',
        ) from None


def so_far(record: Record) -> list[tuple[str, int, float]]:
    """Arms with their pulls and means, from running it again; empty where that can't be done."""
    problem = _problem(record)
    return [] if problem is None else _so_far(problem, _traces(problem, record) or [])


def _so_far(problem: Problem, traces: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, float]]:
    """Where rewards were recorded, the mean is theirs, and not that of coins."""
    found = []
    for trace in traces:
        pulls, mean = trace["pulls"][-1], trace["mean"][-1]
        group = problem.layout.groups[trace["group"]]
        models = problem.rewards[problem.layout.clients.index(trace["client"])]
        model = models[group.arms.index(trace["arm"])]
        if isinstance(model, Recording):
            mean = problem.scale.user(float(np.mean(model.values[:pulls])))
        found.append((f"{group.name}/{trace['arm']}", pulls, mean))
    return found


def _as_said(lines: Sequence[dict[str, Any]], verdict: Mapping[str, Any]) -> None:
    """One arm, one mean: that of the verdict, which may be the middle of a bin, ends the winner's line."""
    for line in lines:
        if line["name"] == verdict["arm"] and verdict["mean"] is not None:
            line["mean"][-1] = verdict["mean"]


def of_rerun(rerun: Rerun, sums: Mapping[tuple[int, int], dict[int, float]]) -> Facts:
    """The facts of a run in process, as its journal has it by now.

    `sums` has, by the first honest client of each group and its arm, the sum of the rewards after so many
    pulls.
    """
    record = rerun.run.record()
    facts = of_record(record, quick=True, check=rerun.run.over)
    if not rerun.run.over:
        facts |= {"verdict": None, "digest": None}
    told = _Told(record.method, record.delta, record.options, record.problem, record.verdict.certificate)
    clients, firsts, drawn = rerun.run.problem.layout.clients, rerun.firsts(), set(told.leading())
    lines = {(clients[i], firsts[i], a): sums[i, a] for i, a in sorted(sums) if firsts[i] in drawn}
    facts["traces"] = told.drawn(lines)
    return facts


def of_desk(desk: Any) -> Facts:
    """The facts of a federation, from its server's desk: whatever is known by now."""
    if desk.done:
        facts = of_record(desk.record(), quick=True)
        facts["checks"] += desk.failures
    else:
        m, setup = desk.machine, desk.setup
        record = {k: v for k, v in vars(setup.options).items() if k != "delta"}
        facts = _of_parts(
            setup.method,
            setup.options.delta,
            record,
            setup.problem,
            {"server": m.certificate(), "local": None},
            faults=m.faulty,
            warnings=m.warnings,
            bits=desk.bits,
        )
        facts |= {"rounds": m.rounds, "checks": list(desk.failures)}
        facts["costs"] |= {"rounds": m.rounds, "bits_up": m.bits_up, "bits_down": m.bits_down}
        facts["costs"]["wire_bytes"] = m.bytes
    known = {fault["client"] for fault in facts["faults"]}
    for client, why in desk.suspects().items():
        if client not in known:
            facts["faults"].append({"client": client, "round": None, "reason": why})
    for row in facts["clients"]:
        row["messages"] = desk.next[row["name"]]
    refused: dict[str, int] = {}
    for (who, why), times in desk.refused.items():
        refused[f"{who}: {why}"] = refused.get(f"{who}: {why}", 0) + times
    facts |= {"waiting": desk.waiting_for(), "dropped": list(desk.dropped), "refused": refused}
    facts["notes"] = [note._asdict() for note in desk.notes]
    _mark(facts)
    return facts


def of_site(site: Any, sums: Mapping[int, dict[int, float]]) -> Facts:
    """The facts of one client of a federation or one node of a mesh, from its own fold.

    `sums` has, for each of its arms, the sum of the rewards that counted after so many pulls.
    """
    place, m, peer = site.place, site.machine, site.place.setup.method == "p2p"
    setup, me = place.setup, place.name if peer else place.client
    j = setup.layout.group_of[me]
    options = {k: v for k, v in vars(setup.options).items() if k != "delta"}
    certificate = {"server": {"rounds": [], "events": []}, "local": {me: m.local()}}
    facts = _of_parts(setup.method, setup.options.delta, options, setup.problem, certificate, bits={})
    told = _Told(setup.method, setup.options.delta, options, setup.problem, certificate)
    facts["traces"] = told.drawn({(me, j, a): sums[a] for a in sorted(sums)})
    left = {exit_["name"] for exit_ in facts["exits"]}
    arms = []
    for a, name in enumerate(site.group.arms):
        n, total = next(reversed(sums.get(a, {}).items()), (0, 0.0))
        shown = {key: values[0] for key, values in told.around(j, [n], [total]).items()} if n else {}
        wanted = site.pull is not None and a in site.pull.arms
        fate = "out" if told.arm(j, a) in left else "pulled now" if wanted else "in"
        arms.append({"name": name, "pulls": site.made[name], "counted": n, "fate": fate, **shown})
    verdict = None
    if site.verdict is not None:
        verdict = msgspec.to_builtins(on_user_scale(site.verdict, setup.scale))
        verdict.pop("certificate")
    wanted = site.pull
    facts |= {
        "kind": "site",
        "peer": peer,
        "me": me,
        "group": setup.layout.groups[j].name,
        "state": str(m.state),
        "wants": None if wanted is None else {"arms": len(wanted.arms), "times": wanted.times},
        "arms": arms,
        "verdict": verdict,
        "sent": len(site.own) if peer else len(site.ups),
        "heard": len(site.slots.accepted) if peer else site.heard,
        "kept": sum(map(len, site.kept)),
    }
    facts["costs"] |= {"pulls": site.pulls}
    if peer:
        facts |= _view(site, told)
    return facts


def _view(node: Any, told: _Told) -> Facts:
    """What a node takes each arm-set to be, from what it heard, and whom it hears."""
    m, setup, view = node.machine, node.place.setup, []
    means = setup.unit.exchange == "means"
    for j, group in enumerate(setup.layout.groups):
        known = m.arms[j] >= 0
        low, high = max(float(m.lower[j]), 0.0), min(float(m.upper[j]), 1.0)
        view.append(
            {
                "group": group.name,
                "arm": group.arms[m.arms[j]] if known else None,
                "mean": told.user(float(m.means[j])) if means and not np.isnan(m.means[j]) else None,
                "interval": sorted((told.user(low), told.user(high))) if known and not means else None,
                "standing": None if means else bool(m.standing[j]),
            }
        )
    votes = (m.votes >= 0).sum(axis=1)
    heard = [
        {"name": name, "reports": int(votes[i]), "out": bool(m.out[i])} for name, i in m.neighbours.items()
    ]
    faults = [{"client": who, "round": None, "reason": why} for who, why in node.suspects().items()]
    tells = [n.name for n in node.place.heard]
    return {"view": view, "hears": heard, "tells": tells, "faults": faults, "checks": list(node.failures)}


def _of_parts(
    method: str,
    delta: float,
    options: Mapping[str, Any],
    problem: Mapping[str, Any],
    certificate: Mapping[str, Any],
    *,
    network: Mapping[str, Any] | None = None,
    faults: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[Mapping[str, Any]] = (),
    adversaries: Sequence[Mapping[str, Any]] = (),
    bits: Mapping[str, int] | None = None,
) -> Facts:
    """What a server's history and the clients' part show, whether or not the run has ended."""
    told = _Told(method, delta, options, problem, certificate, bits)
    liars = {client: a["attack"] for a in adversaries for client in a["clients"]}
    facts: Facts = {
        "kind": "run",
        "method": method,
        "delta": delta,
        "options": dict(options),
        "scale": dict(problem["scale"]),
        "data": _data(Data.from_dict(problem)),
        "aim": aim(problem),
        "mean": mean_of(problem),
        "coins": coins_said(method, problem),
        "file": "record.json",
        "so_far": [],
        "groups": [
            {"name": g["name"], "arms": list(g["arms"]), "clients": len(g["clients"])}
            for g in problem["groups"]
        ],
        "verdict": None,
        "rounds": 0,
        "lines": told.lines(),
        "claimed": method != "fisher",
        "exits": told.exits(),
        "traces": told.traces(),
        "clients": told.clients(),
        "costs": {},
        "plan": None,
        "limit": None,
        "heterogeneity": None,
        "faults": [dict(fault) for fault in faults],
        "warnings": [dict(warning) for warning in warnings],
        "liars": liars,
        "network": None if network is None else _network(network, problem),
        "peers": None,
        "checks": [],
        "waiting": [],
        "dropped": [],
        "refused": {},
        "notes": [],
        "seed": None,
        "version": __version__,
        "digest": None,
        "command": None,
        "versions": _versions(),
    }
    facts["broken"] = (network or {}).get("broken") if method == "p2p" else too_many(problem, options, liars)
    _mark(facts)
    return facts


def _data(data: Data | None) -> Facts | None:
    return None if data is None else {"said": str(data), "replace": data.replace}


def _mark(facts: Facts) -> None:
    """Say of each client what became of it."""
    faults = {fault["client"]: fault["reason"] for fault in facts["faults"]}
    for row in facts["clients"]:
        attack = facts["liars"].get(row["name"])
        row["faulty"], row["attack"] = faults.get(row["name"]), attack


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {"bestarm": __version__, "Python": platform.python_version()} | {
        name: version(name.lower()) for name in ("NumPy", "SciPy")
    }


def _peers(record: Record) -> dict[str, int] | None:
    if record.peers is None:
        return None
    answers: dict[str, int] = {}
    for verdict in record.peers.values():
        answer = verdict.arm or f"undecided ({verdict.reason})"
        answers[answer] = answers.get(answer, 0) + 1
    return answers


class _Told:
    """A certificate as it can be drawn: lines, eliminations, clients."""

    def __init__(
        self,
        method: str,
        delta: float,
        options: Mapping[str, Any],
        problem: Mapping[str, Any],
        certificate: Mapping[str, Any],
        bits: Mapping[str, int] | None = None,
    ) -> None:
        self.bits = bits  # of each client, where somebody has counted them
        self.method, self.delta, self.options = method, delta, options
        self.groups, self.scale = problem["groups"], Scale(**problem["scale"])
        self.server, self.local = certificate["server"], certificate.get("local") or {}
        self.problem = problem
        self.n_clients = sum(len(g["clients"]) for g in self.groups)
        self.pooled = method == "fisher" and any(len(g["clients"]) > 1 for g in self.groups)
        self.looks = None
        if method == "fisher":
            unit = make(METHODS[method].options, {**options, "delta": delta}, where="options")
            self.looks = Looks(unit, sum(len(g["arms"]) for g in self.groups))

    def arm(self, j: int, a: int) -> str:
        return f"{self.groups[j]['name']}/{self.groups[j]['arms'][a]}"

    def user(self, x: float) -> float:
        return self.scale.user(x)

    def alpha(self, j: int, count: Any) -> Any:
        """α of an arm of group j after so many pulls."""
        name = self.options.get("radius", "paper")
        return radius(name, self.n_clients, len(self.groups[j]["arms"]), self.delta).alpha(count)

    def around(self, j: int, counts: Sequence[int], sums: Sequence[float]) -> dict[str, list[float]]:
        """Mean and interval after so many pulls: ±α, or (Fed-Fisher) an exact 95 % one for the eye."""
        n, total = np.asarray(counts, dtype=np.float64), np.asarray(sums, dtype=np.float64)
        mean = total / n
        if self.method == "fisher":
            lower, upper = clopper_pearson(total, n, 0.025)
        else:
            a = self.alpha(j, n)
            lower, upper = np.maximum(mean - a, 0.0), np.minimum(mean + a, 1.0)
        return self._columns(mean, lower, upper)

    def _columns(self, mean: Any, lower: Any, upper: Any) -> dict[str, list[float]]:
        flip = self.scale.goal == "min"
        low, high = (upper, lower) if flip else (lower, upper)
        columns = {"mean": mean, "lower": low, "upper": high}
        return {key: [float(self.user(float(x))) for x in values] for key, values in columns.items()}

    def lines(self) -> list[dict[str, Any]]:
        """Each group's arm as the server saw it, round by round; of peers, as the first honest one sent."""
        rounds = self.server["rounds"]
        if self.method == "p2p":
            return self._peer_lines()
        by_group: dict[int, list[Any]] = {}
        for view in views_of(rounds):
            by_group.setdefault(view.group, []).append(view)
        named = {
            j: arm for row in rounds for j, arm in zip(row["group"], row.get("arm", []), strict=False)
        } or dict(enumerate(self.server.get("arms") or []))
        fell = {j: row["round"] for row in rounds for j in row["out"]}
        final = max((view.round for line in by_group.values() for view in line), default=0)
        found = []
        for j, line in by_group.items():
            shown = [line[k] for k in _thin(len(line))]
            clipped = [(max(v.lower, 0.0), min(v.upper, 1.0)) for v in shown]
            fate, when = ("out", fell[j]) if j in fell else ("stays", None)
            if fate == "stays" and line[-1].round < final:
                fate, when = "withdrew", line[-1].round + 1
            arm = named.get(j)
            found.append(
                {
                    "group": j,
                    "name": self.groups[j]["name"] if arm is None or arm < 0 else self.arm(j, arm),
                    "round": [v.round for v in shown],
                    "pulls": [v.pulls for v in shown],
                    "fate": fate,
                    "when": when,
                    **self._columns(
                        [v.mean for v in shown], [low for low, _ in clipped], [high for _, high in clipped]
                    ),
                }
            )
        return found

    def _peer_lines(self) -> list[dict[str, Any]]:
        found = []
        for j, group in enumerate(self.groups):
            part = next((p for c in group["clients"] if "sent" in (p := self.local.get(c, {}))), None)
            if part is None or not part["sent"]["count"]:
                continue
            keep = _thin(len(part["sent"]["count"]))
            counts = [part["sent"]["count"][k] for k in keep]
            sums = [part["sent"]["sum"][k] for k in keep]
            found.append(
                {
                    "group": j,
                    "name": self.arm(j, part["arm"]),
                    "round": [],
                    "pulls": counts,
                    "fate": "stays",
                    "when": None,
                    **self.around(j, counts, sums),
                }
            )
        return found

    def exits(self) -> list[dict[str, Any]]:
        """Who left, when and why: arms inside their group, and groups at the server."""
        return list(self._pooled_exits()) if self.pooled else [*self._local_exits(), *self._server_exits()]

    def _local_exits(self) -> Any:
        """Arms that clients dropped; clients of one group are put together."""
        for j, group in enumerate(self.groups):
            seen: dict[int, list[dict[str, Any]]] = {}
            for client in group["clients"]:
                part = self.local.get(client, {})
                for row in _rows(part.get("exits", {})):
                    seen.setdefault(row["arm"], []).append({**row, "by": part})
            for arm, rows in seen.items():
                yield self._local_exit(j, arm, rows, len(group["clients"]))

    def _local_exit(self, j: int, arm: int, rows: list[dict[str, Any]], clients: int) -> dict[str, Any]:
        first = rows[0]
        if self.looks is not None:
            n = self.looks.size(first["look"])
            p = float(fisher_pvalue(first["sum"], first["rival"], n))
            rival, rival_sum = self._rival(j, first), first["rival"]
            why: dict[str, Any] = {"kind": "p", "p": p, "level": self.looks.level(first["look"])}
        else:
            n = first["epoch"]
            rival, rival_sum = self.arm(j, first["top"]), first["top_sum"]
            width = self.scale.high - self.scale.low
            why = {"kind": "radius", "bound": width * float(self.options["c"] * self.alpha(j, n))}
        counts = sorted(self.looks.size(r["look"]) if self.looks else r["epoch"] for r in rows)
        return {
            "name": self.arm(j, arm),
            "group": j,
            "where": "clients",
            "clients": len(rows),
            "of": clients,
            "pulls": counts[0],
            "pulls_last": counts[-1],
            "round": None,
            "mean": self.user(first["sum"] / n),
            "rival": rival,
            "rival_mean": self.user(rival_sum / n),
            "why": why,
        }

    def _rival(self, j: int, exit_: Mapping[str, Any]) -> str:
        """The arm that beat one inside its client: the client's own best, or the leader of all."""
        for row in _rows(exit_["by"]["sent"]):
            if row["look"] == exit_["look"] and row["sum"] == exit_["rival"] and row["arm"] != exit_["arm"]:
                return self.arm(j, row["arm"])
        for line in self.server["rounds"]:
            if line["look"] == exit_["look"]:
                leader = line["leader"]
                return self.arm(leader, line["arm"][line["group"].index(leader)])
        return "another arm of the group"  # at a look that was not reported

    def _server_exits(self) -> Any:
        width = self.scale.high - self.scale.low
        for row in self.server["rounds"]:
            seen = {view.group: view for view in views_of([row])}
            for k, j in enumerate(row["out"]):
                view = seen[j]
                if "threshold" in row:
                    rival, rival_mean = None, None
                    why = {
                        "kind": "interval",
                        "end": self.user(min(view.upper, 1.0)),
                        "best": self.user(row["threshold"]),
                    }
                else:
                    first = seen[row["leader"]]
                    rival, rival_mean = self.groups[row["leader"]]["name"], self.user(first.mean)
                    log_p = row["log_p"][k] if k < len(row["log_p"]) else 0.0
                    why = {"kind": "p", "p": float(np.exp(log_p)), "level": row["level"]}
                yield {
                    "name": f"{self.groups[j]['name']} (the whole group)", "group": j, "where": "server",
                    "clients": None, "of": None, "pulls": view.pulls, "pulls_last": view.pulls,
                    "round": row["round"], "mean": self.user(view.mean), "rival": rival,
                    "rival_mean": rival_mean, "why": why, "width": width,
                }  # fmt: skip

    def _pooled_exits(self) -> Any:
        flat = [(j, a) for j, g in enumerate(self.groups) for a in range(len(g["arms"]))]
        for row in self.server.get("exits", []):
            (j, a), rival = flat[row["arm"]], flat[row["rival"]]
            level, p = float(np.exp(row["log_level"])), float(np.exp(row["log_p"]))
            yield {
                "name": self.arm(j, a), "group": j, "where": "server", "clients": None, "of": None,
                "pulls": row["coins"], "pulls_last": row["coins"], "round": row["round"],
                "mean": self.user(row["sum"] / row["coins"]), "rival": self.arm(*rival),
                "rival_mean": self.user(row["rival_sum"] / row["rival_coins"]),
                "why": {"kind": "p", "p": p, "level": level},
            }  # fmt: skip

    def leading(self) -> list[int]:
        """The groups that are drawn arm by arm: the winner, and those that came closest."""
        sign = 1 if self.scale.goal == "min" else -1
        lines = sorted(self.lines(), key=lambda line: (line["fate"] != "stays", sign * line["mean"][-1]))
        return [line["group"] for line in lines[:MOST_PANELS]] or list(range(len(self.groups)))[:MOST_PANELS]

    def traces(self) -> list[dict[str, Any]]:
        """Each arm as its group's first honest client saw it, as far as its part of the record tells."""
        points: dict[int, dict[int, dict[int, float]]] = {}
        who: dict[int, str] = {}
        for j in self.leading():
            group = self.groups[j]
            client = next((c for c in group["clients"] if "sent" in self.local.get(c, {})), None)
            if client is None:
                continue
            who[j], mine = client, points.setdefault(j, {})
            part = self.local[client]
            for row in _rows(part.get("exits", {})):
                n = self.looks.size(row["look"]) if self.looks else row["epoch"]
                mine.setdefault(row["arm"], {})[n] = row["sum"]
                if "top" in row:
                    mine.setdefault(row["top"], {})[n] = row["top_sum"]
            for row in _rows(part["sent"]):
                n = self.looks.size(row["look"]) if self.looks else row["count"]
                arms = row.get("arms", [row.get("arm", part.get("arm"))])
                for arm, total in zip(arms, row.get("sums", [row.get("sum")]), strict=True):
                    mine.setdefault(arm, {})[n] = total
        return self.drawn({(who[j], j, a): p for j, arms in points.items() for a, p in arms.items()})

    def drawn(self, points: Mapping[tuple[str, int, int], Mapping[int, float]]) -> list[dict[str, Any]]:
        """Counts and sums, by client, group and arm, as lines."""
        gone: dict[tuple[str, int], int] = {}
        for client, part in self.local.items():
            for row in _rows(part.get("exits", {})):
                gone[client, row["arm"]] = self.looks.size(row["look"]) if self.looks else row["epoch"]
        pooled = {(e["group"], e["name"]) for e in self._pooled_exits()} if self.pooled else set()
        found = []
        for (client, j, a), line in points.items():
            counts = sorted(n for n in line if n > 0)
            if self.method != "fisher":  # an interval that says nothing yet is not drawn
                counts = [n for n in counts if self.alpha(j, n) < 0.5] or counts[-1:]
            counts = [counts[k] for k in _thin(len(counts))]
            if counts:
                shown = self.around(j, counts, [line[n] for n in counts])
                out = (client, a) in gone or (j, self.arm(j, a)) in pooled
                arm = self.groups[j]["arms"][a]
                found.append({"group": j, "arm": arm, "client": client, "pulls": counts, "out": out, **shown})
        return found

    def clients(self) -> list[dict[str, Any]]:
        bits = self._bits() if self.bits is None else self.bits
        return [
            {
                "name": client,
                "group": g["name"],
                "pulls": None,
                "bits_up": bits.get(client, 0) if bits else None,
                "messages": None,
            }
            for g in self.groups
            for client in g["clients"]
        ]

    def _bits(self) -> dict[str, int] | None:
        """Bits that each client sent up: a server is fed what the server was sent, and its count watched."""
        if self.method == "p2p":
            return None
        found: dict[str, int] = {}
        try:
            layout, scale = Problem.layout_from_dict(self.problem)
            room = method_for(self.method, layout)
            options = make(room.options, {**self.options, "delta": self.delta}, where="options")
            assert room.server is not None
            server = room.server(layout, on_unit_scale(options, scale))
            server.handle(Start())
            for event in heard(self.server["events"]):
                before = server.bits_up
                server.handle(event)
                if isinstance(event, Received):
                    found[event.sender] = found.get(event.sender, 0) + server.bits_up - before
        except InputError:  # the page's checks say what is wrong
            return None
        return found


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _thin(count: int) -> list[int]:
    """Places of at most MOST_POINTS of so many points: the first, the last, and a spread between them."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round(k) for k in np.linspace(0, count - 1, MOST_POINTS)})


def _problem(record: Record) -> Problem | None:
    """The problem, where its rewards were written down."""
    try:
        return Problem.from_dict(record.problem)
    except (InputError, KeyError):
        return None


def _of_problem(problem: Problem, record: Record, quick: bool) -> Facts:
    """What follows from true means: heterogeneity, the limit, and a forecast of runs like this one."""
    found: Facts = {}
    h = heterogeneity(problem)
    shown = np.argsort(h.global_gaps, kind="stable")[:MOST_MATRIX]
    found["heterogeneity"] = {
        "groups": [h.groups[j] for j in shown],
        "matrix": [[_finite(x) for x in row] for row in h.matrix[np.ix_(shown, shown)].tolist()],
        "more": len(h.groups) - len(shown),
    }
    found["best"] = problem.best
    binary = METHODS[record.method].coins or all(g.binary for g in problem.layout.groups)
    exact = binary and not record.options.get("epsilon") and problem.best is not None
    if exact and sum(problem.layout.arm_counts) <= LIMIT_ARMS:
        least = limit(problem, record.delta)
        found["limit"] = {"pulls": least.total, "longest": least.longest, "for": least.holds_for}
    if not quick:
        found["plan"] = _plan(problem, record)
    return found


def _finite(x: float) -> float | str | None:
    return None if np.isnan(x) else "∞" if np.isinf(x) else x


def _plan(problem: Problem, record: Record) -> Facts | None:
    """A forecast from runs like this one without liars, where those are quickly simulated."""
    _, _, options = prepare(problem, record.method, {**record.options, "delta": record.delta})
    if record.network is not None or kernel_for(record.method, problem, options) is None:
        return None
    pairs = sum(len(models) for models in problem.rewards)
    trials = min(400_000 // max(record.rounds, 1), 200_000 // pairs, 200)
    if trials < 20:
        return None
    keys = {k: v for k, v in record.options.items() if v is not None}
    row = expected(problem, record.method, trials=trials, seed=1, delta=record.delta, **keys)
    if row.cost is None:
        return None
    ranges = {
        key: {"mean": r.mean, "low": r.low, "high": r.high}
        for key in ("pulls", "longest", "rounds", "bits_up", "bits_down")
        for r in [getattr(row.cost, key)]
    }
    proved = {}
    if row.bounds is not None:
        most = (row.bounds.pulls_most, row.bounds.longest_most, row.bounds.rounds)
        proved = {k: _finite(x) for k, x in zip(("pulls", "longest", "rounds"), most, strict=True)}
    return {"trials": trials, "ranges": ranges, "proved": proved, "decided": row.cost.decided}


class _Traced:
    """A source of rewards that keeps what it gave: by client and arm, the sum after each batch."""

    def __init__(self, source: Any, clients: set[int]) -> None:
        self.source, self.clients = source, clients
        self.points: dict[tuple[int, int], dict[int, float]] = {}
        self.last: dict[tuple[int, int], tuple[int, float]] = {}

    def draw(self, client: int, arms: tuple[int, ...], times: int) -> tuple[tuple[float, ...], int]:
        sums, given = self.source.draw(client, arms, times)
        if client in self.clients and given:
            for arm, total in zip(arms, sums, strict=True):
                n, before = self.last.get((client, arm), (0, 0.0))
                self.last[client, arm] = (n + given, before + total)
                self.points.setdefault((client, arm), {})[n + given] = before + total
        return sums, given


def _traces(problem: Problem, record: Record) -> list[dict[str, Any]] | None:
    """Every arm's sums as the run went, from running it again; None unless the very same run comes out."""
    work = max(record.rounds, 1) * len(problem.layout.clients)
    if record.seed is None or record.interrupted or work > MOST_TRACED:
        return None
    _, _, options = prepare(problem, record.method, {**record.options, "delta": record.delta})
    liars = [Adversary(**keys) for keys in record.adversaries]
    lying = {client for a in record.adversaries for client in a["clients"]}
    told = _Told(record.method, record.delta, record.options, record.problem, record.verdict.certificate)
    layout, firsts = problem.layout, {}
    for j in told.leading():
        honest = [client for client in layout.groups[j].clients if client not in lying]
        if honest:
            firsts[layout.clients.index(honest[0])] = (honest[0], j)
    source = _Traced(Drawn(as_pulled(problem, record.method), record.seed), set(firsts))
    run: Run | NetworkRun
    if record.network is None:
        run = Run(problem, record.method, options, record.seed, source, adversaries=liars)
    else:
        network = Network.from_dict(record.network)
        run = NetworkRun(problem, record.method, options, record.seed, source, network, adversaries=liars)
    run.go()
    if run.record().verdict != record.verdict:
        return None
    points = {(*firsts[i], a): line for (i, a), line in source.points.items()}
    return told.drawn(dict(sorted(points.items(), key=lambda at: (at[0][1], at[0][2]))))


def _network(network: Mapping[str, Any], problem: Mapping[str, Any]) -> Facts:
    names = network["names"] or [c for g in problem["groups"] for c in g["clients"]]
    group = {c: j for j, g in enumerate(problem["groups"]) for c in g["clients"]}
    drawn = drawn_network(names, network["edges"], [group.get(name, -1) for name in names])
    return drawn | {k: network.get(k) for k in ("messages", "delay", "loss", "start", "crashes")}


def drawn_network(
    names: Sequence[str], edges: Sequence[Sequence[int]], group: Sequence[int], positions: Any = None
) -> Facts:
    """A graph with a place in the unit square for each node; `group` is −1 for nodes of none."""
    pairs = [(int(u), int(v)) for u, v in edges]
    places = layout(len(names), pairs, group) if positions is None else _unit(np.asarray(positions))
    return {"names": list(names), "group": list(group), "edges": pairs, "places": places}


def _unit(spots: Any) -> list[tuple[float, float]]:
    span = np.ptp(spots, axis=0)
    return [(float(x), float(y)) for x, y in (spots - spots.min(axis=0)) / np.where(span > 0, span, 1.0)]


def layout(n: int, edges: Sequence[tuple[int, int]], group: Sequence[int]) -> list[tuple[float, float]]:
    """Places in the unit square: by springs where networkx is there, else in a circle, group by group."""
    if n <= MOST_LAID_OUT:
        try:
            import networkx as nx

            graph = nx.Graph(edges)
            graph.add_nodes_from(range(n))
            spots = nx.spring_layout(graph, seed=0)
            return _unit(np.array([spots[k] for k in range(n)]))
        except ImportError:
            pass
    order = sorted(range(n), key=lambda k: group[k])
    spots = circle(n) / 2.0 + 0.5
    at = {node: spots[k] for k, node in enumerate(order)}
    return [(float(at[k][0]), float(at[k][1])) for k in range(n)]


def of_trials(trials: Trials, source: str = "") -> Facts:
    """The facts of a study: a row for each combination of the varied keys."""
    rows = trials.summary()
    return {
        "kind": "study",
        "varied": list(trials.varied),
        "trials": trials.trials,
        "rows": rows,
        "seed": trials.seed,
        "data": _data(trials.cells[0].problem.data) if trials.cells else None,
        "method": trials.cells[0].method if trials.cells and "method" not in trials.varied else None,
        "source": source,
        "versions": _versions(),
    }
