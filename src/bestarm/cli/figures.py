"""``bestarm figures``: the paper's figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from bestarm.cli.exit_codes import INTERRUPTED, OK
from bestarm.cli.options import Json, Workers
from bestarm.cli.render.progress import study_progress
from bestarm.cli.terminal import err, out, safe


def figures(
    folder: Annotated[Path, typer.Argument(metavar="OUT/", help="the folder to write to; made if missing")],
    only: Annotated[
        str | None,
        typer.Option(metavar="4a,5,…", help="some of them: 1, 2, 3, 4a, 4b (4: both), 5 [default: all]"),
    ] = None,
    trials: Annotated[int, typer.Option(help="runs behind each point of Figure 4; the paper has 50")] = 50,
    seed: Annotated[int, typer.Option(help="the same seed gives the same files")] = 1,
    workers: Workers = None,
    as_json: Json = False,
) -> int:
    """Reproduce the paper's figures: SVG, PNG, the numbers as CSV, and a caption for each."""
    from bestarm.report.figures import Made, make

    made: list[Made] = []
    names = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    try:
        with study_progress(quiet=as_json) as watch:
            made.extend(make(folder, only=names, trials=trials, seed=seed, workers=workers, watch=watch))
    except KeyboardInterrupt:
        kept = f"finished: {', '.join(done.name for done in made)}" if made else "nothing was written"
        err.print(f"interrupted; {kept}")
        return INTERRUPTED
    if as_json:
        rows = [{"name": d.name, "title": d.title, "files": [str(path) for path in d.files]} for d in made]
        print(json.dumps({"folder": str(folder), "trials": trials, "seed": seed, "figures": rows}))
    else:
        for done in made:
            out.print(f"Figure {done.name}: {done.title}", style="bold")
            out.print(f"  {', '.join(path.name for path in done.files)}", soft_wrap=True)
        where = safe(str(folder))
        out.print(
            f"In {where}: pictures (.svg, .png), their numbers (.csv) and captions (.txt).", soft_wrap=True
        )
    return OK
