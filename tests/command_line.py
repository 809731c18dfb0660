"""Runs the command line in this process, as a user types it: a process of its own takes a second to start."""

from __future__ import annotations

import contextlib
import io
import sys
from subprocess import CompletedProcess
from unittest.mock import patch

from bestarm.cli import main, terminal


def bestarm(*args, cwd=".", width=100):
    """Run a command in a folder; returns its exit code and what it printed."""
    words = ["bestarm", *map(str, args)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.ExitStack() as around:
        for console in (terminal.out, terminal.err):
            around.enter_context(patch.object(console, "_width", width))
        around.enter_context(patch.object(sys, "argv", words))
        around.enter_context(contextlib.chdir(cwd))
        around.enter_context(contextlib.redirect_stdout(out))
        around.enter_context(contextlib.redirect_stderr(err))
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return CompletedProcess(words, code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
