"""Shared by the tests of federations: a slow machine may take long to connect and to answer."""

from __future__ import annotations

import pytest

from bestarm.deploy.federation import trial, wire
from helpers import SECONDS


@pytest.fixture(autouse=True)
def _slow_machines_connect_too(monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_SECONDS", SECONDS)
    monkeypatch.setattr(trial, "ANSWER_SECONDS", SECONDS)
