"""The paper's Figures 1 to 5, reproduced: each as SVG and PNG, its numbers as CSV, its caption as text.

``make`` writes them to a folder, figure by figure; the files of a figure appear all together or not at
all. A caption says what is shown, how it was made, and what differs from the paper. The paper's sweep over σ
is run once and serves both halves of Figure 4.
"""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bestarm.errors import InputError
from bestarm.report import plots
from bestarm.report.figures.costs import COLUMNS, phase2, rounds
from bestarm.report.figures.lambert import lambert
from bestarm.report.figures.network import network
from bestarm.report.figures.protocol import own_protocol, protocol
from bestarm.report.figures.sensors import divisions, sensors
from bestarm.report.figures.sweep import PERIODS, SIGMAS, TRIALS, Drawing, Sweep, Watch
from bestarm.util.disk_errors import write_error
from bestarm.util.seeds import check_seed
from bestarm.util.text import nearest, shorten

__all__ = [
    "COLUMNS",
    "FIGURES",
    "PERIODS",
    "SIGMAS",
    "STYLE",
    "Drawing",
    "Made",
    "Sweep",
    "divisions",
    "make",
    "protocol",
]

STYLE = {"svg.hashsalt": "bestarm", "font.size": 10, "axes.titlesize": 11, "legend.fontsize": 9}

HALVES = {"4": ("4a", "4b")}

# Quick ones first: finished figures stay after an interrupt.
FIGURES: dict[str, tuple[str, Callable[[Sweep], Drawing]]] = {
    "1": ("The protocol of Fed-SEL", own_protocol),
    "2": ("Heterogeneity on a field of sensors", sensors),
    "3": ("A network and its weakness", network),
    "5": ("Lambert's W and the bounds of Lemma 5", lambert),
    "4a": ("Rounds against heterogeneity", rounds),
    "4b": ("Phase II pulls against the period", phase2),
}


@dataclass(frozen=True)
class Made:
    """A figure that has been written: its name, its title and its files."""

    name: str
    title: str
    files: tuple[Path, ...]


def make(
    out: str | Path,
    *,
    only: Sequence[str] | None = None,
    trials: int = TRIALS,
    seed: int = 1,
    workers: int | None = None,
    watch: Watch | None = None,
) -> Iterator[Made]:
    """Write the figures to the folder `out`, all of them or those named in `only`, one by one.

    Raises errors about the arguments or the folder at once; then makes each figure when the iterator is
    advanced. Existing files of the same names are replaced.
    """
    named = list(FIGURES) if only is None else [n for name in only for n in HALVES.get(name, (name,))]
    names = list(dict.fromkeys(named))
    if not names:
        raise InputError("no figure is named", expected=f"one of: {', '.join(FIGURES)}")
    for name in names:
        if name not in FIGURES:
            raise InputError(f"there is no figure {shorten(name)}", fix=nearest(str(name), FIGURES))
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise InputError(f"trials = {trials!r} can't be used", expected="a whole number of at least 1")
    sweep = Sweep(trials, check_seed(seed), workers, watch)
    plots.check_format(Path("figure.svg"))
    folder = Path(out)
    with _scratch(folder):
        pass  # check that it is writable
    return _make(folder, names, sweep)


def _make(folder: Path, names: Sequence[str], sweep: Sweep) -> Iterator[Made]:
    for name in names:
        title, draw = FIGURES[name]
        with plots.pyplot().rc_context(STYLE):
            drawing = draw(sweep)
            try:
                files = _write(folder, f"figure-{name}", drawing, f"Figure {_printed(name)}. {title}.")
            finally:
                plots.pyplot().close(drawing.picture)
        yield Made(name, title, files)


def _printed(name: str) -> str:
    return name if name.isdigit() else f"{name[:-1]}({name[-1]})"


class _scratch:  # noqa: N801
    """A hidden folder inside `folder`, created if needed; InputError if that fails."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / f".figures.{os.getpid()}"

    def __enter__(self) -> Path:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.path.mkdir()
        except OSError as error:
            raise write_error(error, self.folder) from None
        return self.path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _write(folder: Path, stem: str, drawing: Drawing, heading: str) -> tuple[Path, ...]:
    """Write all files of a figure to a scratch folder, then move them to their places."""
    with _scratch(folder) as scratch:
        try:
            for ending, facts in {"svg": {"Date": None}, "png": {"Software": None}}.items():
                drawing.picture.savefig(scratch / f"{stem}.{ending}", dpi=200, metadata=facts)
            for suffix, rows in drawing.tables.items():
                with (scratch / f"{stem}{suffix}.csv").open("w", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)
            text = f"{heading}\n\n{drawing.caption}\n"
            (scratch / f"{stem}.txt").write_text(text, encoding="utf-8")
            made = sorted(path.name for path in scratch.iterdir())
            for name in made:
                (scratch / name).replace(folder / name)
        except OSError as error:
            raise write_error(error, folder) from None
    return tuple(folder / name for name in made)
