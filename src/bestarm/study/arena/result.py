"""What an arena found: facts of entrants and instances, one score per pair, and views of them.

Everything is a frozen struct that JSON can hold, so an arena can be kept as data and drawn again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bestarm.errors import InputError
from bestarm.util import files
from bestarm.util.text import counted

COSTS = ("pulls", "longest", "rounds", "time", "bits_up", "bits_down")
FORMAT = 1
FILE = "arena.json"


class Mean(msgspec.Struct, frozen=True):
    """A mean over trials, half the width of its 95 % interval (None for one trial), and the median."""

    mean: float
    half: float | None
    median: float


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entrant; `proof` is empty if nothing is stated about its error probability."""

    label: str
    title: str
    proof: str
    source: str
    headline: bool


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """An instance. `gap` is between the two best values; `limit` is the information limit, or None."""

    name: str
    about: str
    source: str
    question: str
    shared: bool
    sites: int
    clients: int
    options: int
    gap: float
    limit: float | None


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """One entrant on one instance.

    `errors` counts wrong answers, `error` is the exact 95 % interval of their rate, and `keeps` says whether
    it shows that the rate is at most δ: "yes", "no" or "open", or "no answer" if all runs stayed undecided.
    `over_limit` is the mean number of pulls divided by the limit, where the limit applies. `command` gives
    the same numbers; it is empty if the method or the instance was given in Python only.
    """

    method: str
    instance: str
    trials: int
    undecided: int
    errors: int
    error: tuple[float, float]
    keeps: str
    pulls: Mean
    longest: Mean
    rounds: Mean
    time: Mean
    bits_up: Mean
    bits_down: Mean
    over_limit: float | None
    command: str

    @property
    def solved(self) -> bool:
        """Whether every run gave an answer, and the error rate was not shown to be above δ."""
        return not self.undecided and self.keeps != "no"

    def cost(self, name: str) -> Mean:
        """The cost with this name."""
        found = {
            "pulls": self.pulls,
            "longest": self.longest,
            "rounds": self.rounds,
            "time": self.time,
            "bits_up": self.bits_up,
            "bits_down": self.bits_down,
        }
        return found[name]


class LeftOut(msgspec.Struct, frozen=True):
    """A pair that was not run, and why."""

    method: str
    instance: str
    why: str


class Arena(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an arena: ``scores`` has one row per entrant and instance.

    Parameters
    ----------
    delta : float
        The error probability.
    trials : int
        Runs of each method on each instance.
    seed : int
        Gives the same numbers again.
    most : int
        Pulls after which a baseline's run ends undecided.
    version : str
        Version of bestarm.
    entries : tuple of Entry
        Methods and baselines.
    grounds : tuple of Ground
        Instances.
    scores : tuple of Score
        One per method and instance.
    left_out : tuple of LeftOut
        Pairs that were not run.
    format : int
        Version of this format.

    Examples
    --------
    >>> import bestarm as ba
    >>> found = ba.arena(["bet", "lucb"], ["zipf"], trials=20, seed=1, workers=1)
    >>> [(score.method, score.errors, score.keeps) for score in found.scores]
    [('bet', 0, 'open'), ('lucb', 0, 'open')]
    >>> found.score("bet", "zipf").pulls.mean < found.score("lucb", "zipf").pulls.mean
    True
    """

    delta: float
    trials: int
    seed: int
    most: int
    version: str
    entries: tuple[Entry, ...]
    grounds: tuple[Ground, ...]
    scores: tuple[Score, ...]
    left_out: tuple[LeftOut, ...] = ()
    format: int = FORMAT

    def __repr__(self) -> str:
        pairs = f"{counted(len(self.entries), 'method')} on {counted(len(self.grounds), 'instance')}"
        return f"Arena({pairs}, {counted(self.trials, 'run')} of each, seed {self.seed})"

    def score(self, method: str, instance: str) -> Score:
        """The score of an entrant on an instance.

        Parameters
        ----------
        method : str
            The entrant's label, such as "bet:prefer=pulls".
        instance : str
            The name of the instance.

        Returns
        -------
        Score
            The costs and errors.

        Raises
        ------
        InputError
            If this pair was not run.
        """
        for score in self.scores:
            if (score.method, score.instance) == (method, instance):
                return score
        why = [one.why for one in self.left_out if (one.method, one.instance) == (method, instance)]
        raise InputError(f"{method} was not run on {instance}" + (f": {why[0]}" if why else ""))

    def on(self, instance: str) -> list[Score]:
        """The scores on an instance, fewest pulls first; those that did not solve it last.

        Parameters
        ----------
        instance : str
            The name of the instance.

        Returns
        -------
        list of Score
            One per entrant that was run on it.
        """
        found = [score for score in self.scores if score.instance == instance]
        return sorted(found, key=lambda score: (not score.solved, score.pulls.mean))

    def front(self, instance: str, x: str = "rounds", y: str = "pulls") -> list[Score]:
        """The scores on an instance that no other beats in both costs.

        Parameters
        ----------
        instance : str
            The name of the instance.
        x, y : str
            Two costs, such as "rounds" and "pulls".

        Returns
        -------
        list of Score
            The front, from the least cost `x` to the least cost `y`.
        """
        found = [score for score in self.scores if score.instance == instance and score.solved]
        ranked = sorted(found, key=lambda score: (score.cost(x).mean, score.cost(y).mean))
        front: list[Score] = []
        for score in ranked:
            if not front or score.cost(y).mean < front[-1].cost(y).mean:
                front.append(score)
        return front

    def profile(self, cost: str, instances: Sequence[str]) -> dict[str, list[float]]:
        """For each entrant, its cost over the least cost of any entrant, on each instance that it solved.

        The share of instances with a ratio of at most τ is the performance profile of Dolan and Moré (2002).
        An instance that the entrant did not solve (a run stayed undecided, or too many were wrong), or can't
        run, has no ratio.

        Parameters
        ----------
        cost : str
            A cost, such as "pulls".
        instances : sequence of str
            The names of the instances.

        Returns
        -------
        dict
            The ratios of each entrant, from the smallest to the largest.
        """
        ratios: dict[str, list[float]] = {}
        for name in instances:
            solved = [score for score in self.on(name) if score.solved]
            least = min((score.cost(cost).mean for score in solved), default=0.0)
            for score in solved:
                own = score.cost(cost).mean
                ratios.setdefault(score.method, []).append(1.0 if own == least else own / max(least, 1e-12))
        return {label: sorted(found) for label, found in ratios.items()}

    def to_json(self) -> bytes:
        """The arena as JSON, indented so that changes can be compared.

        Returns
        -------
        bytes
            What ``load`` reads.
        """
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def to_csv(self) -> str:
        """One row per entrant and instance.

        Returns
        -------
        str
            A CSV table.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        head = ["method", "instance", "trials", "undecided", "errors"]
        head += ["error_low", "error_high", "keeps_delta"]
        head += [part for cost in COSTS for part in (cost, f"{cost}_half", f"{cost}_median")]
        writer.writerow([*head, "pulls_over_limit", "proof", "command"])
        proofs = {entry.label: entry.proof for entry in self.entries}
        for one in self.scores:
            row: list[object] = [one.method, one.instance, one.trials, one.undecided, one.errors]
            row += [*one.error, one.keeps]
            for cost in COSTS:
                row += [one.cost(cost).mean, one.cost(cost).half, one.cost(cost).median]
            writer.writerow([*row, one.over_limit, proofs[one.method], one.command])
        return text.getvalue()

    @staticmethod
    def load(path: str | Path) -> Arena:
        """Read an arena that ``save`` wrote.

        Parameters
        ----------
        path : str or Path
            The file arena.json, or the folder that it is in.

        Returns
        -------
        Arena

        Raises
        ------
        InputError
            If the file can't be read, or is not that of an arena.
        """
        path = Path(path) / FILE if Path(path).is_dir() else Path(path)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Arena)
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", where=str(path)) from None
        except msgspec.MsgspecError as error:
            raise InputError(
                f"this is not the file of an arena: {error}",
                where=str(path),
                expected="a file that bestarm arena --out wrote",
            ) from None
        if found.format != FORMAT:
            raise InputError(f"format {found.format} is unknown", where=str(path), expected=str(FORMAT))
        return found

    def save(self, folder: str | Path) -> Path:
        """Write arena.json, cells.csv and the page index.html into a folder, which is made if it is missing.

        Parameters
        ----------
        folder : str or Path
            Where to write.

        Returns
        -------
        Path
            The page.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files.write(folder / FILE, self.to_json())
        files.write(folder / "cells.csv", self.to_csv().encode())
        return self.report(folder / "index.html")

    def report(self, path: str | Path) -> Path:
        """Write the page: one HTML file without scripts or network access.

        Parameters
        ----------
        path : str or Path
            The file to write.

        Returns
        -------
        Path
            The file that was written.
        """
        from bestarm.report.page import of_arena, write

        return write(of_arena(self), path)
