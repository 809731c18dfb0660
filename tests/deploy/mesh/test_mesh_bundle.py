"""The support bundle of a mesh's node contains no private key."""

from __future__ import annotations

import json
import zipfile

import pytest

import bestarm as ba
from bestarm.cli.bundle import mesh_bundle
from bestarm.deploy.bundle import secrets_in
from bestarm.deploy.mesh import files
from bestarm.deploy.mesh.bundle import bundle
from bestarm.errors import InputError
from bestarm.graphs.generators import complete
from bestarm.simulate.network import Network


@pytest.mark.parametrize("whose", ["mesh", "node"])
def test_a_node_s_bundle_has_its_setup_and_dates_but_no_key(tmp_path, whose):
    problem = ba.Problem.from_rewards({"north": {"a": 0.9, "b": 0.1}, "south": {"c": 0.5, "d": 0.1}})
    case = ba.Scenario(problem, "p2p", None, {"delta": 0.1}, network=Network(complete(2)))
    files.init(*files.terms_of(case, {}), tmp_path / "m", port=0)
    place = tmp_path / "m" if whose == "mesh" else tmp_path / "m" / "nodes" / "north-1"
    assert mesh_bundle(place, out=tmp_path / "b.zip", as_json=True) == 0
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    secrets = list(secrets_in(tmp_path / "m"))
    assert {path.name for _, path in secrets} == {"peer.key", "tls.key"}
    assert [path for secret, path in secrets if secret in b"\n".join(parts.values())] == []
    assert json.loads(parts["about.json"])["folder of"] == whose
    assert len(json.loads(parts["certificates.json"])) == (whose == "node")
    with pytest.raises(InputError, match="not a folder of a mesh"):
        bundle(tmp_path)
