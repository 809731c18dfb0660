"""Random faults for real processes: a seeded plan, and a supervisor that starts what has ended.

``Campaign`` kills, stops and pauses processes, cuts their network, fills their disk and puts back copies of
their journals. Like a service manager it starts a process again that has ended with a code after which the
documentation says so; any other code fails the campaign.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path

from soak_arms import HURRY, LEDGER, SOURCE, lost_batches, paid
from soak_network import CUT, HALF, HELD, OPEN, LoopbackNetwork

from bestarm.cli.exit_codes import BAD_INPUT, DISK_FULL, INTERRUPTED, OK, UNREACHABLE
from bestarm.deploy.sources import MEANS, PAUSE
from bestarm.util.journal import Journal

JOURNAL = "journal.db"
SECONDS = 240.0  # long enough for any step on a slow machine; reached only if something hangs
SMALL_FILE = 1 << 14  # bytes: a process may write no file beyond this while its disk is "full"
AGAIN = (INTERRUPTED, DISK_FULL, UNREACHABLE, -signal.SIGKILL, -signal.SIGTERM)

LASTS = (0.3, 0.3, 0.5, 0.5, 0.7, 0.7, 1, 1, 1, 1, 1.5, 1.5, 2, 2, 3, 3, 4, 4, 10, 25)  # seconds
BACKUP_EVENTS = 5  # between two backups of all journals

LULL = 6.0  # seconds to wait at most for progress before the next event

# kind of event -> how often
EVENTS = {
    "kill": 5, "stop": 3, "pause": 4, CUT: 2, HELD: 3, HALF: 1, "split": 1, "full disk": 3, "newest": 2,
    "older": 3,
}  # fmt: skip


def plan(seed, events):
    """What happens, in order: (seconds before it, kind, which process, how long it lasts)."""
    rng = random.Random(seed)
    kinds = rng.choices(list(EVENTS), list(EVENTS.values()), k=events)
    return [(rng.uniform(0.2, 2.0), kind, rng.random(), rng.choice(LASTS)) for kind in kinds]


class Campaign:
    """The processes of one run. A subclass says how they are made, started and checked.

    Parameters
    ----------
    folder : Path
        A new folder for everything.
    seed : int
        Of the plan.
    """

    best = ""  # the right verdict
    pause = 0.0  # seconds per reward while events happen
    turns = 1  # calls of each arm in one batch
    refusal = ()  # texts of the refusal of an older journal

    def __init__(self, folder, seed):
        self.folder, self.seed = folder, seed
        folder.mkdir(parents=True)
        for part in ("logs", "ledgers", "copies"):
            (folder / part).mkdir()
        self.began = time.monotonic()
        self.network = LoopbackNetwork()
        self.running, self.starts = {}, Counter()
        self.crashes = Counter()  # ends that may cost the batch under way
        self.told = set()  # processes that were told to stop
        self.finished = {}  # processes that have ended by themselves, with a verdict, and when
        self.full = set()  # processes whose disk is full
        self.due = []  # repairs: when, which process, and how
        self.copies = {}  # process -> [(number of its messages, folder with a copy of its journal)]
        self.log, self.done = [], Counter()
        self.refusals = 0  # of older journals
        self.lost = {}  # paid calls that are not in the journal, by process
        self.progress = 0  # messages at the last event
        self.make()

    def make(self):
        """Create the folders and links, and set `names`: the processes to start, in order."""
        raise NotImplementedError

    def command(self, name):
        raise NotImplementedError

    def place(self, name):
        """The folder with the journal of a process."""
        raise NotImplementedError

    def means(self, name):
        """The mean of each of its arms; None for a process without arms."""
        raise NotImplementedError

    def links(self, name):
        """The links between a process and the others."""
        raise NotImplementedError

    def split(self, part):
        """The links between two parts of the network."""
        raise NotImplementedError

    def messages(self, name):
        """The number of messages that a process has signed, according to its journal."""
        raise NotImplementedError

    def known(self, name):
        """The number of its messages that others can prove."""
        raise NotImplementedError

    def targets(self, kind):
        """The names of what this kind of event can happen to."""
        return self.names

    def pid(self, target):
        """The process id of a target; None if it does not run."""
        process = self.running.get(target)
        return process.pid if process is not None and process.poll() is None else None

    def start(self, name, ledger=None):
        self.starts[name] += 1
        environment = {**os.environ, PAUSE: str(self.pause), HURRY: str(self.folder / "hurry")}
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
        )
        words = self.command(name)
        if (means := self.means(name)) is not None:
            environment[MEANS] = json.dumps(means)
            environment[LEDGER] = str(ledger or self.ledger(name))
            words = [*words, "--arms", SOURCE]
        with (self.folder / "logs" / f"{name}.{self.starts[name]:03}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.told.discard(name)
        self.finished.pop(name, None)
        if name in self.full:
            self.limit(name)

    def ledger(self, name):
        return self.folder / "ledgers" / name

    def supervise(self):
        """Start again what has ended, as a service manager would; repair what is due."""
        now = time.monotonic()
        for repair in [each for each in self.due if each[0] <= now]:
            self.due.remove(repair)
            self.say(f"{repair[1]}: the {repair[3]} is over")
            repair[2]()
        for name in self.names:
            if name in self.finished or name not in self.running or self.running[name].poll() is None:
                continue
            code = self.running[name].returncode
            if code == OK and name not in self.told:
                self.finished[name] = now
                self.say(f"{name} has ended")
                continue
            self.crashes[name] += code not in (OK, INTERRUPTED)
            self.say(f"{name} ended with code {code} and is started again")
            self.demand(code in (OK, *AGAIN), f"{name} ended with code {code}")
            self.copy(name)
            self.start(name)

    def wait(self, condition, what):
        end = time.monotonic() + SECONDS
        while not condition():
            self.supervise()
            self.demand(time.monotonic() < end, f"it never came about: {what}")
            time.sleep(0.05)

    def sleep(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.supervise()
            time.sleep(0.05)

    def wait_for_progress(self):
        """Wait a little until there are new messages, so that events come at many stages of the run."""
        end = time.monotonic() + LULL
        while (now := sum(map(self.messages, self.names))) <= self.progress and time.monotonic() < end:
            self.sleep(0.3)
        self.progress = now

    def ended(self, name, why):
        """Wait for a process that was killed or told to stop; return its code."""
        process, end = self.running[name], time.monotonic() + SECONDS
        while process.poll() is None:
            self.demand(time.monotonic() < end, f"{name} goes on after {why}")
            time.sleep(0.02)
        self.crashes[name] += process.returncode not in (OK, INTERRUPTED)
        return process.returncode

    def happen(self, kind, part, seconds):
        """Let one event happen."""
        targets = self.targets(kind)
        target = targets[int(part * len(targets))]
        for repair in [each for each in self.due if each[1] == target]:
            self.due.remove(repair)
            repair[2]()
        self.done[kind] += 1
        self.say(f"event {self.done.total()}: {kind}, {target}, {seconds:g} s")
        if kind == "kill":
            self.kill(target)
        elif kind == "stop":
            self.stop(target)
        elif kind == "pause":
            pid = self.pid(target)
            self.signal(target, signal.SIGSTOP)
            self.later(seconds, target, kind, lambda: pid in self.left() and os.kill(pid, signal.SIGCONT))
        elif kind == "full disk":
            self.full.add(target)
            self.limit(target)
            self.later(seconds, target, kind, lambda: self.make_space(target))
        elif kind in ("newest", "older"):
            self.restore(target, older=kind == "older", killed=seconds < 3.0)
        else:
            links = self.split(part) if kind == "split" else self.links(target)
            self.network.become(links, CUT if kind == "split" else kind)
            self.later(seconds, target, kind, lambda: self.network.become(links, OPEN))

    def later(self, seconds, target, kind, repair):
        self.due.append((time.monotonic() + seconds, target, repair, kind))

    def repair_all(self):
        while self.due:
            self.due.pop()[2]()

    def signal(self, target, number):
        if (pid := self.pid(target)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def limit(self, target):
        """Let a process write only small files, as if the disk were full; or, after that, any files."""
        if (pid := self.pid(target)) is not None:
            most = SMALL_FILE if target in self.full else resource.RLIM_INFINITY
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def make_space(self, target):
        self.full.discard(target)
        self.limit(target)

    def kill(self, target):
        self.signal(target, signal.SIGKILL)

    def stop(self, target):
        """Tell a process to stop, and wait until it has."""
        if target not in self.names or self.pid(target) is None:
            self.signal(target, signal.SIGTERM)
            return
        self.told.add(target)
        self.signal(target, signal.SIGTERM)
        code = self.ended(target, "SIGTERM")
        self.demand(code in (OK, INTERRUPTED, DISK_FULL, -signal.SIGTERM), f"{target} stopped with {code}")
        self.copy(target)
        self.start(target)

    def restore(self, name, older, killed):
        """End a process, put back a copy of its journal, and start it again.

        The newest copy continues. One that lacks messages which others have is refused, with the documented
        message; then the newest copy is put back.
        """
        self.told.add(name)
        self.signal(name, signal.SIGKILL if killed else signal.SIGTERM)
        self.ended(name, "the end for a copy")
        newest = self.copy(name)
        copies = [copy for number, copy in self.copies[name] if number < self.known(name)]
        if older and copies and not self.finished:
            self.repair_all()
            self.put_back(name, copies[-1])
            self.refused(name)
            self.refusals += 1
        self.put_back(name, newest)
        self.start(name)

    def refused(self, name):
        """Run a process with an older journal: it must end with the documented message."""
        self.say(f"{name} has an older journal")
        self.start(name, ledger=self.folder / "ledgers" / "unused")
        process, names = self.running[name], self.names
        self.names = [each for each in names if each != name]
        try:
            self.wait(lambda: process.poll() is not None, f"{name} refuses its older journal")
        finally:
            self.names = names
        said = " ".join(self.last_log(name).read_text().split())
        as_expected = process.returncode == BAD_INPUT and all(text in said for text in self.refusal)
        self.demand(as_expected, f"{name} ended with code {process.returncode}: {said}")

    def copy(self, name):
        """Copy the journal of a process that has ended."""
        to = self.new_copy(name)
        for file in self.place(name).glob(f"{JOURNAL}*"):
            shutil.copy(file, to)
        self.copies.setdefault(name, []).append((self.messages(name), to))
        return to

    def back_up(self):
        """Copy all journals while they are in use, as the documentation says."""
        for name in self.names:
            to = self.new_copy(name)
            source = sqlite3.connect(self.place(name) / JOURNAL, timeout=SECONDS)
            target = sqlite3.connect(to / JOURNAL)
            with contextlib.closing(source), contextlib.closing(target):
                source.backup(target)
            self.copies.setdefault(name, []).append((self.messages(name), to))  # the copy may have fewer

    def new_copy(self, name):
        """A new folder for a copy of a journal."""
        to = self.folder / "copies" / f"{name}.{len(self.copies.get(name, [])):03}"
        to.mkdir()
        return to

    def put_back(self, name, copy):
        for file in self.place(name).glob(f"{JOURNAL}*"):
            file.unlink()
        for file in copy.iterdir():
            shutil.copy(file, self.place(name))

    def run(self, events):
        """Run to the verdict through this many events, and check everything."""
        try:
            self.say(f"seed {self.seed}")
            for name in self.names:
                self.start(name)
            self.wait(self.under_way, "all have begun")
            for number, (gap, kind, part, seconds) in enumerate(plan(self.seed, events)):
                self.sleep(gap)
                self.wait_for_progress()
                if number % BACKUP_EVENTS == 0:
                    self.back_up()
                self.happen(kind, part, seconds)
            self.repair_all()
            said = {name: self.messages(name) for name in self.names}
            self.say(f"no more events; messages so far: {said}; {self.refusals} older journals were refused")
            self.demand(not self.finished, "the run ended before its last event")
            (self.folder / "hurry").touch()
            self.wait(lambda: len(self.finished) == len(self.names), "all end with a verdict")
            self.wait(lambda: not self.left(), "no process is left")
            self.check()
            for name in self.names:
                self.check_paid(name)
        finally:
            self.end()

    def under_way(self):
        return all((self.place(name) / JOURNAL).exists() for name in self.names)

    def kinds(self, name):
        """How many events of each kind are in a journal."""
        with Journal.open(self.place(name) / JOURNAL, write=False) as journal:
            return Counter(event.kind for event in journal.events())

    def check(self):
        """Check verdicts, accusations and journals."""
        raise NotImplementedError

    def check_paid(self, name):
        """Every reward in the journal was paid once; a crash may cost no more than the batch under way."""
        if self.means(name) is None:
            return
        with Journal.open(self.place(name) / JOURNAL, write=False) as journal:
            bodies = [json.loads(event.body) for event in journal.events() if event.kind == "rewards"]
        batches, kept = [], 0
        for body in bodies:
            rest = sum(map(sum, body["rest"].values()))
            got = [(arm, times) for arm, times in body["got"].items() if times]
            batches.append((got, sum(body["sums"]) + rest - kept))
            kept = rest
        lost = lost_batches(paid(self.ledger(name)), [batch for batch in batches if batch[0]])
        self.lost[name] = lost
        most = self.crashes[name] * len(self.means(name)) * self.turns
        self.demand(lost <= most, f"{name} lost {lost} calls in {self.crashes[name]} crashes")

    def left(self):
        """The processes that have this run's folder in their command line."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def end(self):
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.running.values():
            process.wait()
        self.network.stop()

    def say(self, text):
        self.log.append(f"{time.monotonic() - self.began:7.2f} {text}")

    def last_log(self, name):
        return self.folder / "logs" / f"{name}.{self.starts[name]:03}.log"

    def demand(self, holds, what):
        """Fail with the seed, all events and all logs unless this holds."""
        if holds:
            return
        logs = [f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("logs/*"))]
        story = "\n".join([f"{what} (seed {self.seed})", *self.log, *logs])
        raise AssertionError(story)
