"""Visitors with delays, losses and repeats, and a program that is killed with SIGKILL three times."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from campaign_site import campaign

import bestarm as ba
from bestarm.deploy.experiment.audit import audit
from bestarm.util.journal import Journal

PROGRAM = Path(__file__).with_name("campaign_site.py")


@pytest.mark.parametrize(("count", "kills"), [(1_000, 1), pytest.param(100_000, 3, marks=pytest.mark.slow)])
def test_after_kills_and_repeats_the_verdict_is_that_without_them(tmp_path, count, kills, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    whole = campaign(None, count, repeats=0.0, keys=False)
    path, rng = tmp_path / "e.db", random.Random(3)
    command, visitor = [sys.executable, PROGRAM, path, str(count)], 0
    for _ in range(kills):
        visitor += rng.randrange(count // 8, count // 4)
        killed = subprocess.run([*command, str(visitor)], capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        with Journal.open(path, write=False) as journal:
            assert len(journal) > 0
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    resumed = ba.Experiment.open(path, clock=lambda: 0.0)
    assert resumed.record().to_dict() == whole.record().to_dict()
    assert resumed.status.told == whole.status.told
    resumed.close()
    found = audit(path)
    assert found.failures == ()
    assert found.assigned == count
    assert found.told == whole.status.told
    assert found.filled > 0
    if count >= 100_000:
        assert whole.verdict.arm == "B"
        assert ba.verify(whole.record()).ok
