"""A federation for tests: its processes, a server and clients in this process, and waiting for them."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from rich.console import Console

import federations
from bestarm.cli.render.federation import status_table
from bestarm.deploy.federation import files
from bestarm.deploy.federation.client import Client
from bestarm.deploy.federation.server import Server
from bestarm.deploy.federation.site import Site
from bestarm.deploy.sources import MEANS, PAUSE, FromPython
from federations import Coins

CLI = [sys.executable, "-m", "bestarm.cli"]
SECONDS = 120.0  # long enough for any step on a slow machine; reached only if something never happens

PATIENT = f"""
from bestarm.cli.app import main
from bestarm.deploy.federation import alarms, client, wire
alarms.ALARM_SECONDS = client.ALARM_SECONDS = wire.CONNECT_SECONDS = {SECONDS}
main()
"""
PATIENT_CLI = [sys.executable, "-c", PATIENT]  # a client that fails has more time to say why


class Processes:
    """A federation of real processes, all of which end with the test."""

    def __init__(self, folder, case, pause=0.0, linger=10.0, cli=CLI):
        self.folder, self.case, self.linger, self.cli = folder, case, linger, cli
        files.init(case, folder, port=0)
        self.names = case.problem.layout.clients
        self.pause, self.running = pause, {}

    def start(self, name, *args, place=None):
        """Start the server or a client, with a coin for each arm or with the source in `args`."""
        environment = {**os.environ, PAUSE: str(self.pause)}
        if name == "server":
            args = args or ("--json",)
            command = [*self.cli, "server", str(self.folder), "--linger", str(self.linger), *args]
        else:
            j = self.case.problem.layout.group_of[name]
            arms = self.case.problem.layout.groups[j].arms
            environment[MEANS] = json.dumps(dict(zip(arms, self.case.problem.means[j], strict=True)))
            place = str(place or self.folder / "clients" / name)
            command = [
                *self.cli,
                "client",
                place,
                *(args or ["--arms", "bestarm.deploy.sources:Coins"]),
                "--json",
            ]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def broker(self):
        pids = [int(p.stem.rpartition("_")[2]) for p in (self.folder / "broker").glob("*.ports")]
        return pids[0] if pids else None

    def kill(self, name):
        if name == "broker":
            pid = self.broker()
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        self.running[name].kill()
        self.running[name].wait()
        self.start(name)

    def ends(self, name, seconds=SECONDS):
        """Wait for a process to exit and return its exit code."""
        try:
            return self.running[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} goes on\n{self.logs()}") from None

    def says(self, name, text, seconds=SECONDS):
        """Wait until this text appears in a process's log."""
        until = time.monotonic() + seconds
        while text not in (self.folder / f"{name}.log").read_text():
            assert time.monotonic() < until, f"{text}: {self.logs()}"
            time.sleep(0.05)

    def wait(self, seconds=2 * SECONDS):
        until = time.monotonic() + seconds
        while self.running["server"].poll() is None:
            assert time.monotonic() < until, self.logs()
            time.sleep(0.05)
        assert self.running["server"].returncode == 0, self.logs()
        for name in self.names:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.running[name].wait(5)

    def logs(self):
        return "\n".join(f"{path.name}: {path.read_text()[-600:]}" for path in self.folder.glob("*.log"))

    def end(self):
        for process in self.running.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check_pulls(folder, names):
    """Every pull in a client's journal counts once, or waits to be used."""
    for name in names:
        site = Site.open(files.Place.load(folder / "clients" / name))
        federations.check_pulls(site)
        site.journal.close()


@contextlib.asynccontextmanager
async def serving(folder, case, start=(), **options):
    """Run a server and these clients in this process; all end with the test."""
    if not folder.exists():
        files.init(case, folder, port=0)
    server = Server(folder, **{"linger": SECONDS, **options})
    tasks = {"server": asyncio.create_task(server.run())}
    try:
        await until(lambda: (server.ready and server.seen) or tasks["server"].done())
        if tasks["server"].done():
            tasks["server"].result()
        for name in start:
            tasks[name] = asyncio.create_task(client(folder, case, name).run())
        yield server, tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def shown(status):
    """The server's table, as text."""
    console = Console(width=200, file=io.StringIO())
    console.print(status_table(status))
    return console.file.getvalue()


def client(folder, case, name, place=None, **options):
    coins = Coins(case.problem)
    i = case.problem.layout.clients.index(name)
    arms = case.problem.layout.groups[case.problem.layout.group_of[name]].arms

    def source(site):
        def pull(arm, times):
            return coins.rewards(i, arms.index(arm), site.made[arm], times)

        return FromPython(pull)

    return Client(place or folder / "clients" / name, source, **options)


async def until(condition, seconds=SECONDS):
    """Wait until the condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        await asyncio.sleep(0.02)


def listens(family, host):
    with socket.socket(family) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def read_only(folder):
    """Make a folder read-only, for root too (with a mount); skips the test where that is not possible."""
    mode = folder.stat().st_mode
    folder.chmod(0o500)
    mounted = os.access(folder, os.W_OK)  # root may still write
    try:
        if mounted:
            for how in (["--bind", str(folder), str(folder)], ["-o", "remount,bind,ro", str(folder)]):
                if subprocess.run(["mount", *how], check=False, capture_output=True).returncode:
                    pytest.skip("this system can't make a folder read-only for root")
        yield
    finally:
        while (
            mounted
            and not subprocess.run(["umount", str(folder)], check=False, capture_output=True).returncode
        ):
            pass
        folder.chmod(mode)
