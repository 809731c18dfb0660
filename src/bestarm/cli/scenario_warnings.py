"""Warnings about a scenario, before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bestarm.cli.terminal import out, safe, warn
from bestarm.problem.question import KEYS, lead_said
from bestarm.protocol.registry import Method, method_for, method_named
from bestarm.records.describe import groups_with_too_many_liars, too_many_sites
from bestarm.records.questions import asked_silently
from bestarm.scenario.load import load
from bestarm.simulate.identify import default_method
from bestarm.simulate.setup import Scenario


def _method(scenario: Scenario, name: str | None, options: Mapping[str, Any]) -> Method:
    return method_named(
        name
        or scenario.method
        or default_method(options, scenario.problem.layout, bool(scenario.adversaries))
    )


def warn_of_ties(scenario: Scenario, method: str | None, options: Mapping[str, Any]) -> list[str]:
    """Warn of ties that an exact comparison can never decide, unless an option ends the run."""
    if options.get("budget") or options.get("epsilon"):
        return []
    if options.get("margin") and scenario.problem.layout.question.kind == "control":
        return []
    name, layout = _method(scenario, method, options).name, scenario.problem.layout
    chosen = method_for(name, layout)
    cure = "epsilon or budget" if chosen.epsilon else "budget or max_rounds"
    ties = scenario.problem.ties(local=chosen.local_bests)
    return warn([f"{tie}. An exact comparison never ends: set {cure}" for tie in ties])


def load_asked(path: Path, options: Mapping[str, Any]) -> tuple[Scenario, dict[str, Any]]:
    """A scenario with the question that the flags ask, and the other flags."""
    question = {key: value for key, value in options.items() if key in KEYS}
    rest = {key: value for key, value in options.items() if key not in KEYS}
    loaded = load(path, question)
    kind = loaded.problem.layout.question.kind
    warn([f'{path}: {key} does not belong to question = "{kind}" and is left out' for key in loaded.left_out])
    return loaded, rest


def say_question(scenario: Scenario, options: Mapping[str, Any], quiet: bool = False) -> str:
    """Say what will be asked, where sites share options and nobody said which question is meant."""
    if scenario.asked or scenario.family or "question" in options:
        return ""
    text = asked_silently(scenario.problem.layout.groups)
    if text and not quiet:
        out.print(safe(text), style="yellow", soft_wrap=True)
    return text


def warn_of_lying_sites(scenario: Scenario) -> list[str]:
    """Say which lead is needed where sites that differ may lie."""
    question, faults = scenario.problem.layout.question, scenario.options.get("byzantine", 0)
    if question.kind != "overall" or not faults:
        return []
    return warn([lead_said(question, faults, scenario.problem.scale)])


def warn_of_liars(scenario: Scenario, method: str | None, options: Mapping[str, Any]) -> list[str]:
    """Warn where more clients lie than the run tolerates."""
    if _method(scenario, method, options).peers:
        return []  # there it matters how many are around one client, and a run refuses too many
    layout = scenario.problem.layout
    liars = {name for adversary in scenario.adversaries for name in adversary.names(layout)}
    groups = {group.name: group.clients for group in layout.groups}
    if layout.question.kind != "anywhere":
        text = too_many_sites(groups, options.get("byzantine", 0), liars)
        return warn([f"{text}: nothing is promised"] if text else [])
    found = groups_with_too_many_liars(groups, options.get("byzantine", 0), liars)
    return warn([f"{text}: nothing is promised" for text in found])
