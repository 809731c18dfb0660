"""The facts of a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bestarm.report.facts.parts import data_facts, versions
from bestarm.report.facts.structs import CellFacts, MeanFacts, StudyFacts
from bestarm.study.trials import Trials


def of_trials(trials: Trials) -> StudyFacts:
    """The facts of a study: a cell for each combination of the varied keys."""
    return StudyFacts(
        varied=tuple(trials.varied),
        cells=tuple(_cell(trials, row) for row in trials.summary(limits=False)),
        seed=trials.seed,
        data=data_facts(trials.cells[0].problem.data) if trials.cells else None,
        versions=versions(),
    )


def _cell(trials: Trials, row: Mapping[str, Any]) -> CellFacts:
    return CellFacts(
        keys={key: row[key] for key in trials.varied},
        trials=row["trials"],
        undecided=row["undecided"],
        costs={name: MeanFacts(row[name]["mean"], row[name]["mean_interval"]) for name in trials.costs},
        errors=row.get("errors"),
        error_interval=row.get("error_rate_interval"),
    )
