"""What a release consists of: one version, a changelog, a citation, a wheel that works anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile

import pytest

from bestarm.version import __version__


def test_the_version_is_written_once_and_named_everywhere(root):
    assert f"version: {__version__}\n" in (root / "CITATION.cff").read_text("utf-8")
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    assert re.search(rf"^## {re.escape(__version__)}\b", changes, re.MULTILINE)
    assert 'dynamic = ["version"]' in (root / "pyproject.toml").read_text("utf-8")


def test_the_citation_names_the_paper(root):
    text = (root / "CITATION.cff").read_text("utf-8")
    assert "Exploiting Heterogeneity in Robust Federated Best-Arm Identification" in text
    assert re.findall(r"family-names: (\w+)", text) == ["Mitra", "Pappas", "Hassani"]


def test_the_security_policy_names_this_version(root):
    line = ".".join(__version__.split(".")[:2])
    assert f"| {line}.x | yes |" in (root / "SECURITY.md").read_text("utf-8")


def test_the_package_is_typed(root):
    assert (root / "src" / "bestarm" / "py.typed").exists()


@pytest.mark.soak
def test_the_wheel_installs_in_an_empty_environment_and_runs(root, tmp_path):
    def run(*words: object) -> str:
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run([str(w) for w in words], cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, root)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "bestarm/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"bestarm", f"bestarm-{__version__}.dist-info"}
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[report]", "-c", root / "constraints.txt")
    assert run(python, "-m", "bestarm.cli", "--version").strip() == f"bestarm {__version__}"
    scenario = root / "examples" / "target-detection.toml"
    assert "west/s1" in run(python, root / "examples" / "side_by_side.py", scenario, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").stat().st_size > 10_000
