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
        cells=tuple(_cell(trials, row) for row in trials.summary()),
        seed=trials.seed,
        data=data_facts(trials.cells[0].problem.data) if trials.cells else None,
        versions=versions(),
        trials=trials.trials,
        methods=tuple(dict.fromkeys(cell.method for cell in trials.cells)),
        deltas=tuple(dict.fromkeys(float(cell.options.delta) for cell in trials.cells)),
        unknown=trials.no_cells,
    )


def _cell(trials: Trials, row: Mapping[str, Any]) -> CellFacts:
    least = row["limit"] and row["limit"]["total"]
    return CellFacts(
        keys={key: row[key] for key in trials.varied},
        trials=row["trials"],
        undecided=row["undecided"],
        costs={name: MeanFacts(row[name]["mean"], row[name]["mean_interval"]) for name in trials.costs},
        errors=row.get("errors"),
        error_interval=row.get("error_rate_interval"),
        over_limit=row["pulls_total"]["mean"] / row["limit"]["total"] if least else None,
        no_limit=row["no_limit"],
        unproved=row["unproved"],
    )
