"""The terms of a run: what every process of a federation or a mesh knows about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bestarm.errors import InputError
from bestarm.problem.layout import Layout
from bestarm.problem.problem import Problem
from bestarm.problem.scale import Scale
from bestarm.protocol.options import Common, make, on_unit_scale
from bestarm.protocol.registry import Method, method_for, method_named

LABELS = ("name", "date")


@dataclass(frozen=True)
class Terms:
    """What all parties know about a run: id, method, options, and the problem without its means.

    `name` and `date` are labels for readers: the scenario's file, and the day on which the run was set up.
    """

    run: bytes
    method: str
    keys: dict[str, Any]
    problem: dict[str, Any]
    name: str = field(default="", kw_only=True, compare=False)
    date: str = field(default="", kw_only=True, compare=False)

    @property
    def labels(self) -> dict[str, str]:
        """The labels that it has, as files have them."""
        return {key: value for key in LABELS if (value := getattr(self, key))}

    @cached_property
    def layout(self) -> Layout:
        return Problem.layout_from_dict(self.problem)[0]

    @cached_property
    def scale(self) -> Scale:
        return Problem.layout_from_dict(self.problem)[1]

    @cached_property
    def room(self) -> Method:
        return method_for(self.method, self.layout, self.options)

    @cached_property
    def options(self) -> Common:
        return make(method_named(self.method).options, self.keys, where="options")

    @cached_property
    def unit(self) -> Common:
        """The options in the form that the machines use."""
        return on_unit_scale(self.options, self.scale)


def labels_of(plain: Mapping[str, Any]) -> dict[str, str]:
    """The labels in a file; older ones have none."""
    return {key: str(plain.get(key, "")) for key in LABELS}


def without_means(problem: Problem) -> dict[str, Any]:
    """The public part of a problem. Rewards come from the sites, so it names no data file."""
    if problem.layout.paired:
        raise InputError(
            "pairs are for recorded data in one process: sites can't tell which rewards are of one subject",
            fix="Use bestarm run, or leave out pair",
        )
    plain = {key: value for key, value in problem.to_dict().items() if key != "data"}
    groups = [{k: v for k, v in group.items() if k != "rewards"} for group in plain["groups"]]
    return {**plain, "groups": groups}
