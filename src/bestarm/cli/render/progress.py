"""Progress bars on stderr. On a pipe, or with --json, they are not shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from bestarm.cli.terminal import err
from bestarm.simulate.run import Progress
from bestarm.study.study import StudyProgress
from bestarm.util.text import counted

if TYPE_CHECKING:
    from bestarm.study.forecast import PlanProgress

DELAY = 2.0  # seconds of work before a bar appears


@contextmanager
def waiting(text: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A line that says what is being done and for how long, once that takes over two seconds.

    It gives a function that changes the text.
    """
    if quiet or not err.is_terminal:
        yield lambda text: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Bar(*columns, console=err, transient=True)
    task = bar.add_task(text)
    timer = threading.Timer(DELAY, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda text: bar.update(task, description=text)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


@contextmanager
def run_progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A line about one run: pulls, rounds, and how many clients have reported."""
    with waiting("starting", quiet) as tell:

        def watch(progress: Progress) -> None:
            tell(
                f"{counted(progress.pulls, 'pull')}, {counted(progress.rounds, 'round')}, "
                f"{progress.reported:,} of {counted(progress.clients, 'client')} reported"
            )

        yield watch if err.is_terminal and not quiet else None


@contextmanager
def study_progress(quiet: bool) -> Iterator[Callable[[StudyProgress], None] | None]:
    """A bar of a study's trials."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.completed:,}/{task.total:,} trials"), BarColumn(), TimeRemainingColumn())
    with Bar(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda progress: bar.update(task, completed=progress.done, total=progress.total)


@contextmanager
def folder_progress(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar of the files that ``federation init`` makes."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (TextColumn("making keys and folders"), BarColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=err, transient=True)
    task = bar.add_task("")
    begun = time.monotonic()

    def watch(done: int, total: int) -> None:
        if time.monotonic() - begun > DELAY:
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield watch
    finally:
        bar.stop()


@contextmanager
def plan_progress(quiet: bool) -> Iterator[Callable[[PlanProgress], None] | None]:
    """A bar of the simulated runs behind a plan: of which method, and how many."""
    if quiet or not err.is_terminal:
        yield None
        return
    columns = (
        TextColumn("simulated runs of {task.fields[method]}: {task.completed:,} of {task.total:,}"),
        BarColumn(),
        TimeElapsedColumn(),
    )
    bar = Bar(*columns, console=err, transient=True)
    task = bar.add_task("", total=1, method="")
    begun = time.monotonic()

    def watch(progress: PlanProgress) -> None:
        if time.monotonic() - begun > DELAY:
            bar.start()
        bar.update(task, completed=progress.done, total=progress.total, method=progress.method)

    try:
        yield watch
    finally:
        bar.stop()


@contextmanager
def evidence_progress(
    quiet: bool,
) -> Iterator[tuple[Callable[[int], None] | None, Callable[[int, int], None] | None]]:
    """A bar of the rows of a table that are read, and then of their random orders."""
    if quiet or not err.is_terminal:
        yield None, None
        return
    bar = Bar(TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=err, transient=True)
    task = bar.add_task("", total=None)
    begun = time.monotonic()

    def show(text: str, done: int, total: int | None) -> None:
        if time.monotonic() - begun > DELAY:
            bar.start()
            bar.update(task, description=text, completed=done, total=total)

    try:
        yield (
            lambda rows: show(f"{counted(rows, 'row')} read", rows, None),
            lambda done, total: show("random orders of the rows", done, total),
        )
    finally:
        bar.stop()
