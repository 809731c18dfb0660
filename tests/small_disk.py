"""Programs on a small disk in memory, or with a read-only folder, for tests. Needs Linux, but not root."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys

import pytest

SMALL = 'mount -t tmpfs -o "size=$1" none "$2" && cd "$2" && shift 2 && exec "$@"'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && cd "$1" && shift && exec "$@"'


@functools.cache
def available():
    """Whether this system lets users mount file systems of their own."""
    unshare = shutil.which("unshare")
    words = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$0"', "/tmp"]
    return unshare is not None and subprocess.run(words, capture_output=True, check=False).returncode == 0


def _run(script, *words, timeout):
    if not available():
        pytest.skip("this system does not let users mount file systems")
    command = ["unshare", "-rm", "sh", "-c", script, "sh", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def on_small_disk(folder, words, size="4m", timeout=120):
    """Run a command in `folder`, where an empty disk of this size is mounted. It is gone afterwards."""
    return _run(SMALL, size, folder, *words, timeout=timeout)


def read_only(folder, words, timeout=120):
    """Run a command in `folder`, which is read-only for it."""
    return _run(READ_ONLY, folder, *words, timeout=timeout)


def python(code):
    return [sys.executable, "-c", code]


def shell(script):
    """A shell script in which ``bestarm`` is the command."""
    return ["bash", "-c", f'bestarm() {{ "{sys.executable}" -m bestarm.cli "$@"; }}\n{script}']
