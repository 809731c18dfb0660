"""``peer --test``: a peer's rewards, keys and neighbours are checked, and its journal stays as it was."""

from __future__ import annotations

import bestarm as ba
from bestarm.cli.render.trial import show_trial
from bestarm.cli.sources import Rewards
from bestarm.deploy.mesh import files
from bestarm.deploy.mesh.trial import trial
from bestarm.graphs.generators import complete
from bestarm.simulate.network import Network


def test_a_peer_is_tested_without_a_journal_and_neighbours_that_do_not_run_are_named(tmp_path):
    problem = ba.Problem.from_rewards({"north": {"a": 0.9, "b": 0.1}, "south": {"c": 0.5, "d": 0.1}})
    case = ba.Scenario(problem, "p2p", None, {"delta": 0.1}, network=Network(complete(2)))
    files.init(*files.terms_of(case, {}), tmp_path / "m", port=0)
    place = tmp_path / "m" / "nodes" / "north-1"

    def tested(command):
        make = Rewards(command=command).source()
        return trial(place, make)

    found = tested("sh -c 'echo 1' {arm}")
    bad = [finding for finding in found if not finding.ok]
    assert [finding.about for finding in bad] == ["neighbour south-1"]
    assert show_trial(found, as_json=True) == 5
    found = tested("sh -c 'echo 2' {arm}")
    assert {f.about: f.trouble for f in found if not f.ok} == {
        "arm a": "input", "arm b": "input", "neighbour south-1": "unreachable",
    }  # fmt: skip
    assert show_trial(found, as_json=True) == 2
    assert not list(place.glob("journal*"))
    (place / "peer.key").chmod(0o640)
    (finding,) = tested("sh -c 'echo 1' {arm}")
    assert finding.fix == f"Run: chmod 600 {place / 'peer.key'}"
