"""The command line: one file per family of commands, and ``render/`` for what they print.

Text for people and JSON for programs are made here and nowhere else. A command turns its arguments into calls
of the other rooms and returns an exit code (``exit_codes``).
"""

from __future__ import annotations

from bestarm.cli.app import app, main
from bestarm.cli.render.record import show

__all__ = ["app", "main", "show"]
