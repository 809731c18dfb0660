"""The metrics of an experiment, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from bestarm.deploy.experiment.limits import Limits
from bestarm.deploy.experiment.status import Status
from bestarm.stats.alarms import Alarm


def metrics_of(status: Status, alarms: Sequence[Alarm], limits: Limits | None = None) -> str:
    """The metrics page."""
    lines = list[str]()

    def add(name: str, kind: str, *values: tuple[str, float]) -> None:
        lines.append(f"# TYPE bestarm_experiment_{name} {kind}")
        lines.extend(f"bestarm_experiment_{name}{labels} {value:g}" for labels, value in values)

    add("decided", "gauge", ("", status.state != "running"))
    add("blocks_total", "counter", ("", status.blocks))
    add("rewards_waiting", "gauge", ("", status.waiting))
    add("alarms", "gauge", ("", len(alarms)))
    if status.lead is not None and status.leader is not None:
        add("lead", "gauge", (f'{{leader="{_quoted(status.leader)}"}}', status.lead))
    if status.more is not None:
        add("assignments_expected", "gauge", ("", status.more))
    if status.seconds is not None:
        add("seconds_expected", "gauge", ("", status.seconds))
    for name, kind, values in (
        ("assignments_total", "counter", [site.assigned for site in status.sites]),
        ("rewards_total", "counter", [site.told for site in status.sites]),
        ("rewards_counted_total", "counter", [site.counted for site in status.sites]),
        ("rewards_missing_total", "counter", [site.filled for site in status.sites]),
        ("rewards_late_total", "counter", [site.late for site in status.sites]),
        ("assignments_unplanned_total", "counter", [site.unplanned for site in status.sites]),
        ("assignments_open", "gauge", [site.open for site in status.sites]),
        ("assignments_per_hour", "gauge", [site.per_hour for site in status.sites]),
        ("oldest_open_seconds", "gauge", [site.oldest or 0.0 for site in status.sites]),
        ("holds_up", "gauge", [float(site.holds_up) for site in status.sites]),
    ):
        labels = [f'{{site="{_quoted(site.site)}"}}' for site in status.sites]
        add(name, kind, *zip(labels, map(float, values), strict=True))
    if limits is None:
        return "\n".join(lines) + "\n"
    for name, counts in (("requests_total", limits.made), ("requests_limited_total", limits.refused)):
        add(name, "counter", *((f'{{caller="{_quoted(who)}"}}', float(n)) for who, n in counts.items()))
    add("requests_unauthorized_total", "counter", ("", limits.strangers))
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
