"""The findings of ``--test`` on the terminal or as JSON, and the exit code that follows from them."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from rich.table import Table

from bestarm.cli.exit_codes import BAD_INPUT, OK, UNREACHABLE
from bestarm.cli.terminal import out, safe
from bestarm.util.text import counted

if TYPE_CHECKING:
    from bestarm.deploy.trial import Finding


def show_trial(found: list[Finding], as_json: bool) -> int:
    """Print all findings, and return 0 if there is no problem, else 2 (bad input) or 5 (no answer)."""
    bad = [finding for finding in found if not finding.ok]
    if as_json:
        rows = [{"ok": finding.ok, **dataclasses.asdict(finding)} for finding in found]
        print(json.dumps({"ok": not bad, "findings": rows}))
    else:
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for finding in found:
            mark = "[green]ok[/]" if finding.ok else "[bold red]PROBLEM[/]"
            fix = f"\nTo fix it: {safe(finding.fix)}" if finding.fix else ""
            table.add_row(mark, safe(finding.about), safe(finding.what) + fix)
        out.print(table)
        out.print("No problems found." if not bad else f"{counted(len(bad), 'problem')} found.")
    if any(finding.trouble == "input" for finding in bad):
        return BAD_INPUT
    return UNREACHABLE if bad else OK
