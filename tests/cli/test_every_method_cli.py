"""Every registered method answers each of its questions from the command line, with all its files."""

from __future__ import annotations

from functools import partial

import pytest

import bestarm as ba
import command_line
from bestarm.protocol.registry import METHODS
from marking import slow

pytest.importorskip("matplotlib")

ONE_SITE = '[[group]]\nname = "west"\narms = { A = 0.9, B = 0.1 }\n'
OWN = f'{ONE_SITE}[[group]]\nname = "east"\narms = {{ C = 0.5, D = 0.2 }}\n'
SHARED = f'{ONE_SITE}[[group]]\nname = "east"\narms = {{ A = 0.8, B = 0.2 }}\n'
KEYS = {"control": 'control = "B"\nmargin = 0.3\n'}


def cases():
    """Each method with each of its questions; some of the rivals, which share a server, are slow."""
    rivals = [method.name for method in METHODS.values() if method.rival]
    for method in METHODS.values():
        for kind in method.questions:
            case = (method.name, kind)
            yield slow(case)[0] if method.name in rivals[1:] and kind == "anywhere" else case


def scenario(method, kind):
    """The keys and the sites of a small problem that the method takes."""
    if kind != "anywhere":
        return f'method = "{method}"\nquestion = "{kind}"\n{KEYS.get(kind, "")}{SHARED}'
    known = METHODS[method]
    network = '[network]\ngenerator = "complete"\nn = 2\n' if known.peers else ""
    return f'method = "{method}"\n{ONE_SITE if known.pools else OWN}{network}'


@pytest.mark.parametrize(("method", "kind"), list(cases()))
def test_a_run_writes_its_record_report_and_picture(method, kind, tmp_path):
    bestarm = partial(command_line.bestarm, cwd=tmp_path)
    (tmp_path / "s.toml").write_text(scenario(method, kind))
    files = ["--out", "r.json", "--report", "r.html", "--plot", "r.svg"]
    done = bestarm("run", "s.toml", "--seed", 1, "--delta", 0.1, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "picture: r.svg" in done.stdout
    assert (tmp_path / "r.svg").stat().st_size > 1000
    record = ba.Record.load(tmp_path / "r.json")
    assert record._repr_html_()
    assert record.plot().get_title()
