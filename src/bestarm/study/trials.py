"""The trials of a study: columns, summaries and files."""

from __future__ import annotations

import contextlib
import csv
import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bestarm.errors import InputError
from bestarm.protocol.kernel import Script
from bestarm.protocol.registry import METHODS
from bestarm.records.describe import too_many
from bestarm.records.record import Record
from bestarm.simulate.draw import Scripted
from bestarm.simulate.run import Run
from bestarm.stats.intervals import binomial_interval, mean_interval, median_interval
from bestarm.study import settings
from bestarm.study.cells import COLUMNS, NUMBERS, Cell, _array, _by_machines, _stream, _trial_seed
from bestarm.study.limits import limit_of_runs
from bestarm.util.files import replacing
from bestarm.util.text import counted, nearest

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Trials:
    """The result of a study: one row per trial. ``trials["rounds"]`` is an array.

    ``to_pandas``, ``to_polars`` and ``to_arrow`` convert the rows to a table of those libraries.

    Parameters
    ----------
    columns : dict
        The name of each column, and an array with its values.
    varied : tuple of str
        The keys that the study varied; they are columns, too.
    seed : int or None
        The seed; it gives the same trials again. None if it is not known.
    cells : tuple of Cell
        The combinations of the varied keys, with which ``record`` replays a trial.
    trials : int
        The number of trials per cell.
    no_cells : str
        Why the cells of a study from a file are not known; else empty.

    Examples
    --------
    >>> import bestarm as ba
    >>> trials = ba.study(ba.Problem.paper_instance(1), method="fed-sel", trials=20, delta=0.1, seed=7)
    >>> trials["rounds"].mean(), bool(trials["correct"].all())
    (np.float64(1.0), True)
    >>> trials
    Trials(20 trials, 20 identified, seed 7)
    """

    columns: dict[str, NDArray[Any]]
    varied: tuple[str, ...] = ()
    seed: int | None = 0
    cells: tuple[Cell, ...] = field(default=(), repr=False)
    trials: int = 0
    no_cells: str = ""

    def __len__(self) -> int:
        return len(self.columns["trial"])

    def __repr__(self) -> str:
        found = int((self.columns["status"] == "identified").sum())
        varied = f", varying {', '.join(self.varied)}" if self.varied else ""
        seed = "seed not known" if self.seed is None else f"seed {self.seed}"
        return f"Trials({counted(len(self), 'trial')}{varied}, {found:,} identified, {seed})"

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise InputError(f'there is no column "{name}"', fix=nearest(name, self.columns))
        return self.columns[name]

    @property
    def costs(self) -> tuple[str, ...]:
        """The columns with costs; files of older versions lack `time`."""
        return tuple(name for name in NUMBERS if name in self.columns)

    def record(self, i: int) -> Record:
        """Repeat the trial of row i with the machines, on the same rewards that the study drew for it.

        Parameters
        ----------
        i : int
            The number of the row.

        Returns
        -------
        Record
            The full record of the trial.

        Raises
        ------
        InputError
            If there is no such row, or the file that these trials are from does not say what was run.
        """
        if not 0 <= i < len(self):
            raise InputError(f"there is no row {i}", expected=f"a row from 0 to {len(self) - 1}")
        if not self.cells or self.seed is None:
            why = self.no_cells or "the settings of the study are not known"
            raise InputError(
                f"this trial can't be run again: {why}",
                fix="Keep both files of a study together, or run the study again",
            )
        cell = self.cells[i // self.trials]
        trial = i % self.trials
        blocks = cell.blocks(self.trials)
        block = next(b for b, (start, size) in enumerate(blocks) if start <= trial < start + size)
        start, size = blocks[block]
        if not cell.kernel:
            return _by_machines(cell, _trial_seed(cell, self.seed, block, trial - start))
        script: Script
        _, script = cell.kernel(cell.problem, cell.unit, _stream(cell, self.seed, block), size, trial - start)
        source = Scripted(script)
        run = Run(cell.problem, cell.method, cell.options, None, source, adversaries=cell.adversaries)
        run.go()
        return run.record()

    def summary(self, level: float = 0.95, limits: bool = True) -> list[dict[str, Any]]:
        """Summarise each cell: means, medians and error rate with intervals, and the limit on pulls.

        The limit is the fewest pulls, on average, of any method that names the best arm with probability at
        least 1 − δ on every problem with 0/1 rewards and a unique best arm. Where it does not apply to these
        trials, `limit` is None and `no_limit` says why: see ``limit_of_runs``. `unproved` says why nothing
        is promised about the method's answers; it is empty if there is a proof.

        Parameters
        ----------
        level : float
            The confidence level of the intervals.
        limits : bool
            Whether to compute the limit.

        Returns
        -------
        list of dict
            One row per cell.
        """
        rows = []
        for keys, mask, cell in self._parts():
            identified = self["status"][mask] == "identified"
            row: dict[str, Any] = {**keys, "trials": len(identified), "undecided": int((~identified).sum())}
            if all(value is not None for value in self["correct"][mask]):
                wrong = int((identified & (self["correct"][mask] == False)).sum())  # noqa: E712
                row["errors"] = wrong
                row["error_rate"] = wrong / row["trials"]
                row["error_rate_interval"] = binomial_interval(wrong, row["trials"], level)
            for name in self.costs:
                values = self[name][mask].astype(np.float64)
                row[name] = {
                    "mean": float(values.mean()),
                    "mean_interval": mean_interval(values, level),
                    "median": float(np.median(values)),
                    "median_interval": median_interval(values, level),
                    "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
                }
            row["limit"], row["no_limit"] = None, self.no_cells if limits else ""
            row["unproved"] = METHODS[cell.method].unproved if cell else ""
            if limits and cell:
                row["limit"], row["no_limit"] = _limit(cell, row["undecided"])
            rows.append(row)
        return rows

    def _parts(self) -> Iterator[tuple[dict[str, Any], Any, Cell | None]]:
        """The varied keys, the rows and (if it is known) the cell of each combination."""
        for c, cell in enumerate(self.cells):
            yield cell.keys, slice(c * self.trials, (c + 1) * self.trials), cell
        if not self.cells:
            places: dict[tuple[Any, ...], list[int]] = {}
            for i, values in enumerate(zip(*(self[key] for key in self.varied), strict=True)):
                places.setdefault(values, []).append(i)
            for values, rows in (places or {(): list(range(len(self)))}).items():
                yield dict(zip(self.varied, values, strict=True)), np.array(rows), None

    @staticmethod
    def load(path: str | Path) -> Trials:
        """Read trials that ``save`` wrote.

        The file beside them, such as trials.csv.json, has the settings of the study. Without it, or if the
        rows have changed since, trials can be summarised and plotted, but not run again.

        Parameters
        ----------
        path : str or Path
            A .csv, .jsonl or .parquet file.

        Returns
        -------
        Trials

        Raises
        ------
        InputError
            If the file can't be read, or is not the file of a study.
        """
        path = Path(path)
        check_format(path)
        try:
            with path.open(encoding="utf-8", newline="") as file:
                if path.suffix == ".parquet":
                    rows = _package("pyarrow.parquet").read_table(path).to_pylist()
                elif path.suffix == ".jsonl":
                    rows = [json.loads(line) for line in file]
                else:
                    rows = [{k: _cell(k, v) for k, v in row.items()} for row in csv.DictReader(file)]
            names = list(rows[0])
            if missing := [name for name in ("trial", *COLUMNS) if name not in (*names, "time")]:
                raise KeyError(missing[0])
            columns = {name: _array(name, [row[name] for row in rows]) for name in names}
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=str(path)) from None
        except (ValueError, LookupError, TypeError, AttributeError, csv.Error, OverflowError):
            raise InputError(
                "this is not the file of a study",
                where=str(path),
                expected="a file that bestarm study --out wrote",
                fix="If these are results to analyse: bestarm evidence FILE --report FILE.html",
            ) from None
        varied = tuple(name for name in names if name not in ("trial", *COLUMNS))
        count = max((len(np.unique(columns["trial"].astype(np.int64))), 1))
        kept, why = settings.read(path)
        if kept is None:
            return Trials(columns, varied, None, (), count, why)
        try:
            cells = settings.cells_of(kept)
        except InputError as error:
            return Trials(columns, varied, kept.seed, (), count, str(error).rstrip("."))
        return Trials(columns, tuple(kept.varied), kept.seed, cells, kept.trials)

    def plot(self, x: str | None = None, y: str = "pulls_total", ax: Axes | None = None) -> Axes:
        """Plot means of `y` with 95 % intervals against the varied key `x` (needs ``bestarm[report]``).

        Each combination of the other varied keys is a line.

        Parameters
        ----------
        x : str, optional
            The varied key on the horizontal axis; by default the first one.
        y : str
            The column on the vertical axis.
        ax : matplotlib Axes, optional
            Where to draw; by default a new figure.

        Returns
        -------
        matplotlib Axes
        """
        from bestarm.report.plots import trials

        return trials(self, x, y, ax)

    def report(self, path: str | Path) -> Path:
        """Write the comparison as one HTML file.

        Parameters
        ----------
        path : str or Path
            The file to write.

        Returns
        -------
        Path
            The file that was written.
        """
        from bestarm.report import page

        return page.write(page.of_trials(self), path)

    def _repr_html_(self) -> str:
        from bestarm.report.page import study_fragment

        return study_fragment(self)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows as dicts of plain values.

        Yields
        ------
        dict
            One trial: the name of each column, and its value.
        """
        names = list(self.columns)
        lists = [self.columns[name].tolist() for name in names]
        for values in zip(*lists, strict=True):
            yield dict(zip(names, values, strict=True))

    def to_arrow(self) -> pyarrow.Table:
        """The rows as a ``pyarrow.Table``."""
        return _package("pyarrow").table({name: values.tolist() for name, values in self.columns.items()})

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a ``pandas.DataFrame``."""
        return _package("pandas").DataFrame({name: v.tolist() for name, v in self.columns.items()})

    def to_polars(self) -> polars.DataFrame:
        """The rows as a ``polars.DataFrame``."""
        columns = {name: values.tolist() for name, values in self.columns.items()}
        table: polars.DataFrame = _package("polars").DataFrame(columns, strict=False)
        return table

    def save(self, path: str | Path) -> Path:
        """Write the rows to a file, and the settings of the study to another one beside it.

        Parameters
        ----------
        path : str or Path
            The file to write: .csv, .jsonl or .parquet (which needs ``bestarm[study]``).

        Returns
        -------
        Path
            The file that was written.

        Raises
        ------
        InputError
            If the name of the file has another ending.
        """
        path = Path(path)
        check_format(path)
        with replacing(path) as scratch:
            if path.suffix == ".parquet":
                _package("pyarrow.parquet").write_table(self.to_arrow(), scratch)
            else:
                with scratch.open("w", encoding="utf-8", newline="") as file:
                    if path.suffix == ".csv":
                        writer = csv.DictWriter(file, list(self.columns))
                        writer.writeheader()
                        writer.writerows(self.rows())
                    else:
                        file.writelines(json.dumps(row) + "\n" for row in self.rows())
        if self.cells and self.seed is not None:
            settings.write(path, self.cells, self.seed, self.trials, self.varied)
        return path


def _cell(name: str, text: str) -> Any:
    """The value of a cell of a CSV file."""
    if name in NUMBERS or name == "trial":
        return int(text)
    plain = {"": None, "True": True, "False": False}
    if text in plain:
        return plain[text]
    if name not in COLUMNS:  # a varied key: a number or a word
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                return kind(text)
    return text


def _limit(cell: Cell, undecided: int) -> tuple[dict[str, float] | None, str]:
    """The limit of a cell's trials, or None and why it does not apply."""
    layout = cell.problem.layout
    if cell.network is not None:
        broken = cell.network.broken or ""
    else:
        liars = {name for adversary in cell.adversaries for name in adversary.to_dict(layout)["clients"]}
        groups = [{"name": group.name, "clients": group.clients} for group in layout.groups]
        broken = too_many({"groups": groups}, vars(cell.options), liars)
    found, why_not = limit_of_runs(
        cell.problem, cell.method, cell.options, undecided=undecided, broken=broken
    )
    if found is None:
        return None, why_not
    return {"total": found.total, "longest": found.longest, "coins": found.coins}, ""


def _package(module: str) -> Any:
    """Import an optional library; InputError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        extra = '"bestarm[study]"' if name == "pyarrow" else name
        raise InputError(
            f"this needs {name}, which is not installed", fix=f"Install it with: pip install {extra}"
        ) from None


def check_format(path: Path) -> None:
    """InputError unless the file name ends in a supported format."""
    if path.suffix not in (".csv", ".jsonl", ".parquet"):
        raise InputError(
            f'"{path.suffix}" is not a supported format', where=str(path), expected=".csv, .jsonl or .parquet"
        )
    if path.suffix == ".parquet":
        _package("pyarrow.parquet")
