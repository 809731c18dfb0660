"""What ``bestarm federation init`` and the renewals tell their operator."""

from __future__ import annotations

import json
import shlex

import pytest

from bestarm.cli.app import main
from bestarm.deploy.federation import files

SITES = """
method = "fed-sel"
[[group]]
name = "Süd"
arms = ["a", "b"]
[[group]]
name = "St. Mary's"
arms = ["c", "d"]
"""


@pytest.fixture
def bestarm(monkeypatch, capsys):
    """Run a command as a user types it; returns its output."""

    def run(*args):
        monkeypatch.setattr("sys.argv", ["bestarm", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "sites.toml").write_text(SITES)
    return tmp_path / "sites.toml"


def test_init_prints_which_folder_belongs_to_which_site(bestarm, scenario, tmp_path):
    said = bestarm("federation", "init", scenario, "--out", tmp_path / "fed", "--port", 0)
    assert f"Süd-1 (group Süd): {tmp_path}/fed/clients/Süd-1\n" in said
    assert f"St. Mary's-1 (group St. Mary's): {tmp_path}/fed/clients/St.-Mary-s-1\n" in said
    assert "layout.json" not in said, "each folder has it"


def test_printed_commands_can_be_pasted_into_a_shell(bestarm, scenario, tmp_path):
    folder = tmp_path / "dir with ü space"
    said = bestarm("federation", "init", scenario, "--out", folder, "--port", 0)
    command = said[said.index("bestarm server") :].strip()
    assert shlex.split(command) == ["bestarm", "server", str(folder)]


def test_init_lists_the_folders_as_json(bestarm, scenario, tmp_path):
    facts = json.loads(
        bestarm("federation", "init", scenario, "--out", tmp_path / "fed", "--port", 0, "--json")
    )
    assert list(facts["folders"]) == ["Süd-1", "St. Mary's-1"]
    for client, folder in facts["folders"].items():
        assert files.Place.load(tmp_path / folder).client == client
    assert facts["layout"] is None


def test_init_says_that_a_large_layout_must_be_copied_too(bestarm, tmp_path):
    groups = "".join(f'[[group]]\nname = "g{k}"\narms = ["a", "b"]\n' for k in range(400))
    (tmp_path / "large.toml").write_text(f'method = "fed-sel"\n{groups}')
    said = bestarm("federation", "init", tmp_path / "large.toml", "--out", tmp_path / "fed", "--port", 0)
    assert "and 380 more: with --json, init prints all of them" in said
    assert f"{tmp_path}/fed/layout.json" in said


def test_renewals_say_what_is_new_and_what_is_left_to_do(bestarm, scenario, tmp_path):
    folder = tmp_path / "fed"
    bestarm("federation", "init", scenario, "--out", folder, "--port", 0)
    assert "the broker has a new certificate, which ends on 20" in bestarm(
        "federation", "renew-certificate", folder, "--host", "one.example.org", "--host", "two.example.org"
    )
    said = bestarm("federation", "renew-certificate", folder, "--authority")
    assert f"copy {folder}/broker/ca.pem to the folder of each client" in said
    said = json.loads(bestarm("federation", "renew-certificate", folder, "--authority", "--json"))["next"]
    assert f"copy {folder}/broker/ca.pem to the folder of each client" in said
    assert set(json.loads(bestarm("federation", "renew-certificate", folder, "--json"))) == {
        "certificate",
        "authority",
    }
    keys = json.loads(bestarm("federation", "renew-server-key", folder, "--json"))
    assert keys["nkey"] == files.Federation.load(folder).nkey
    assert keys["key"][:16] in bestarm("federation", "renew-server-key", folder), "the same until it is used"


def test_with_a_nats_of_your_own_the_renewal_says_what_to_reload(bestarm, scenario, tmp_path):
    bestarm(
        "federation", "init", scenario, "--out", tmp_path / "fed", "--nats", "tls://nats.example.org:4222"
    )
    said = bestarm("federation", "renew-server-key", tmp_path / "fed")
    assert f"let your NATS server reload {tmp_path}/fed/broker/accounts.conf" in said


def test_mesh_init_prints_the_folder_of_each_node(bestarm, scenario, tmp_path):
    scenario.write_text(SITES.replace("fed-sel", "p2p") + '[network]\ngenerator = "complete"\nn = 2\n')
    said = bestarm("mesh", "init", scenario, "--out", tmp_path / "mesh", "--port", 0)
    assert f"Süd-1 (group Süd): {tmp_path}/mesh/nodes/node+0\n" in said
    facts = json.loads(bestarm("mesh", "init", scenario, "--out", tmp_path / "mesh", "--port", 0, "--json"))
    assert facts["folders"]["St. Mary's-1"] == f"{tmp_path}/mesh/nodes/node+1"
