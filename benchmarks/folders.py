"""Making the folders of a federation with 1,000 and 10,000 clients, and writing the same files bare.

"Bare" writes files with the same names and sizes and syncs them once, but makes no keys and no certificates.
The time of both is mostly that of the file system, so only their ratio says something about bestarm.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import bestarm as ba
from bestarm.deploy.federation import files
from bestarm.simulate.setup import Scenario

SIZES = (1_000, 10_000)


def measure() -> list[dict[str, Any]]:
    return [_size(clients) for clients in SIZES]


def _size(clients: int) -> dict[str, Any]:
    problem = ba.Problem.from_rewards({f"site {k}": {"old": 0.5, "new": 0.6} for k in range(clients)})
    with tempfile.TemporaryDirectory() as scratch:
        folder, bare = Path(scratch, "ours"), Path(scratch, "bare")
        begun = time.perf_counter()
        files.init(Scenario(problem, "fed-sel", None, {}), folder, port=0)
        ours = time.perf_counter() - begun
        made = {path.relative_to(folder): path.stat() for path in folder.rglob("*") if path.is_file()}
        own = next((folder / "clients").iterdir())
        begun = time.perf_counter()
        _write_bare(bare, {path: facts.st_size for path, facts in made.items()})
        return {
            "clients": clients,
            "seconds": ours,
            "bare seconds": (alone := time.perf_counter() - begun),
            "ratio": ours / alone,
            "MB on disk": sum(facts.st_blocks * 512 for facts in made.values()) / 1e6 + clients * 4096 / 1e6,
            "kB per client folder": sum(path.stat().st_size for path in own.iterdir()) / 1e3,
        }


def _write_bare(folder: Path, sizes: dict[Path, int]) -> None:
    folder.mkdir()
    known = {Path()}
    for path, size in sizes.items():
        if path.parent not in known:
            (folder / path.parent).mkdir(parents=True, exist_ok=True)
            known.add(path.parent)
        (folder / path).write_bytes(b"x" * size)
    os.sync()
