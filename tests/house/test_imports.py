"""Which modules are loaded when, and which package may import which."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from docs import rooms as house

SLOW = ["typer", "rich", "scipy.stats", "nats", "grpc", "plotly", "matplotlib", "dask", "pyarrow"]


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('\\n'.join(sys.modules))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stdout.split())


def test_importing_bestarm_loads_no_heavy_module():
    loaded = loaded_after("import bestarm")
    assert "bestarm.simulate.run" in loaded
    assert not loaded & {*SLOW, "scipy.special", "scipy.optimize"}


def test_a_run_loads_no_heavy_module_either():
    code = "import bestarm as ba; ba.identify(ba.Problem.bernoulli([[.9, .1]]), 'fed-sel', seed=1)"
    assert not loaded_after(code) & set(SLOW)


def imports_of(path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_the_protocol_imports_no_io_and_no_driver(root):
    above = ("errors", "util.text", "util.seeds", "problem", "stats", "protocol", "methods")
    allowed = tuple(f"bestarm.{room}" for room in above)
    forbidden = {
        "time",
        "random",
        "socket",
        "asyncio",
        "os",
        "pathlib",
        "secrets",
        "numpy.random",
        "datetime",
    }
    files = [p for room in ("protocol", "methods") for p in (root / "src/bestarm" / room).rglob("*.py")]
    assert len(files) > 30
    for path in files:
        names = imports_of(path)
        assert not names & forbidden, path
        for name in names:
            assert not name.startswith("bestarm") or name == "bestarm" or name.startswith(allowed), (
                path,
                name,
            )


@pytest.mark.parametrize("package", ["typer", "rich", "click"])
def test_only_the_command_line_imports_the_terminal(root, package):
    for path in (root / "src/bestarm").rglob("*.py"):
        if "cli" not in path.relative_to(root / "src/bestarm").parts:
            assert not any(name.split(".")[0] == package for name in imports_of(path)), path


def test_no_module_imports_the_command_line(root):
    for path in (root / "src/bestarm").rglob("*.py"):
        if "cli" not in path.relative_to(root / "src/bestarm").parts:
            assert not any(name.startswith("bestarm.cli") for name in imports_of(path)), path


def test_every_package_has_its_place_in_the_layers():
    assert set(house.rooms()) <= set(house.ROOMS), "add the new room to ROOMS in docs/rooms.py"


def test_every_import_follows_the_layers():
    seen = 0
    for room, target, late, path in house.imports():
        seen += 1
        above = house.PLACE[target] < house.PLACE[room]
        assert above or (late and (room, target) in house.LATE_AND_DOWN), f"{path}: {room} imports {target}"
    assert seen > 100


def test_the_listed_exceptions_exist():
    assert {(room, target) for room, target, late, _ in house.imports() if late} >= set(house.LATE_AND_DOWN)


def test_the_picture_of_the_rooms_is_current():
    assert house.PICTURE.read_text("utf-8") == house.draw(), "run: python docs/rooms.py"
