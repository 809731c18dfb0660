"""Clients or peers as processes on this computer, for the demos; their arms pay coins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bestarm.deploy.sources import MEANS, PAUSE, SEED

CLI = ("-m", "bestarm.cli")  # Python's arguments for the command line
COINS = ("--arms", "bestarm.deploy.sources:Coins")


class DemoProcesses:
    """The processes of a demo, by name; ``end`` stops them all."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(
        self, name: str, arguments: Sequence[str], log: Path, *,
        means: Mapping[str, float | None], pause: float, seed: int | None,
    ) -> None:  # fmt: skip
        """Start Python with these arguments, and coins with these means as its arms."""
        environment = {**os.environ, MEANS: json.dumps(means), PAUSE: str(pause)}
        if seed is not None:
            environment[SEED] = f"{seed}/{name}"
        with log.open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *arguments],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """Kill a process without warning, and wait until it is gone."""
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def wait_for_all(self, seconds: float) -> None:
        """Wait until all processes have ended, or this time is over."""
        until = time.monotonic() + seconds
        for process in self.processes.values():
            try:
                process.wait(max(0.01, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                continue

    def end(self, seconds: float = 60) -> None:
        """Stop all processes; kill those that have not stopped after this time."""
        for stop in (subprocess.Popen.terminate, subprocess.Popen.kill):
            for process in self.processes.values():
                if process.poll() is None:
                    stop(process)
            self.wait_for_all(seconds)
