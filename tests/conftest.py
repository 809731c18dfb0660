"""Shared by all tests: the folder of real data, and Hypothesis without deadlines (CI machines are noisy)."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import marking
from bestarm.deploy import process
from bestarm.protocol.registry import METHODS
from bestarm.simulate.lying_client import ATTACKS

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # the tests start hundreds of processes, so compile once
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="bestarm-")
    atexit.register(shutil.rmtree, os.environ["PYTHONPYCACHEPREFIX"], ignore_errors=True)

# A shell lets what it starts in the background ignore Ctrl-C, and every process inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    marking.fast = "not slow" in (config.option.markexpr or "")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    process.PORTS = process.PORTS[worker::workers]  # two workers never use the same port


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    """pyplot keeps every figure until it is closed, and warns at the twentieth."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(autouse=True)
def no_attack_or_method_stays():
    """Tests and pages may register attacks and methods."""
    tables = (ATTACKS, METHODS)
    known = [dict(table) for table in tables]
    yield
    for table, before in zip(tables, known, strict=True):
        table.clear()
        table.update(before)


@pytest.fixture(autouse=True)
def no_test_writes_into_the_examples_or_stays_in_another_folder():
    """Doctests and others read the examples, by paths from the folder in which the tests were started."""
    folder, files = Path.cwd(), _examples()
    yield
    assert Path.cwd() == folder, "the test stayed in another folder"
    assert _examples() == files, "a test wrote into the folder examples"


def _examples() -> dict[str, tuple[int, int]]:
    """When each file there was last changed, and its size."""
    files = [entry for entry in os.scandir(EXAMPLES) if entry.is_file()]
    return {file.name: (file.stat().st_mtime_ns, file.stat().st_size) for file in files}


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets. It is not part of the project; tests that need it skip without it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not at {folder}")
    return folder


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def chromium():
    """The browser of the tests in tests/browser."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        names = ", ".join(BROWSERS)
        pytest.fail(f"no Chromium on the PATH (looked for {names}): install it, or run make test")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()
