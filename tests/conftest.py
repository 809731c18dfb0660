"""Shared by all tests: where real data may lie, and Hypothesis without deadlines (machines are noisy)."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):  # the tests start hundreds of processes: compile once
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="bestarm-")
    atexit.register(shutil.rmtree, os.environ["PYTHONPYCACHEPREFIX"], ignore_errors=True)

settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets; not part of the project, so a test that needs it may have to skip."""
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
