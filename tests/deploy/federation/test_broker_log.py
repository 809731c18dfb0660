"""The broker's log rotates while the broker runs, and its errors are still found."""

from __future__ import annotations

import socket
import ssl
import time

import pytest

from bestarm.deploy.federation import broker, files
from bestarm.deploy.process import free_port
from federations import CASES
from helpers import SECONDS


@pytest.mark.slow
def test_the_broker_s_log_rotates_while_it_runs_and_errors_are_still_read(tmp_path, monkeypatch):
    monkeypatch.setattr(broker, "LONGEST_LOG", 1 << 14)
    one = broker.Broker(tmp_path / "f", files.init(CASES["fisher"], tmp_path / "f", port=0))
    one.start()
    tls = ssl.create_default_context(cafile=str(tmp_path / "f" / "broker" / "ca.pem"))
    logs, heard, until = tmp_path / "f" / "broker", 0, time.monotonic() + SECONDS

    def stranger():
        plain = socket.create_connection(("localhost", one.port))
        with tls.wrap_socket(plain, server_hostname="localhost") as line:
            line.sendall(b"CONNECT {}\r\nPING\r\n")
            while line.recv(4096):
                pass

    try:
        while len(list(logs.glob("broker.log.*"))) < broker.LOGS - 1:
            assert time.monotonic() < until, "it never rotated"
            stranger()
            heard += len(one.complaints())
        assert heard
        one.complaints()
        after = 0
        while not after:  # also in the newest file
            assert time.monotonic() < until
            stranger()
            after = len(one.complaints())
        for _ in range(400):
            stranger()
        files_now = list(logs.glob("broker.log*"))
        assert len(files_now) <= broker.LOGS
        assert sum(path.stat().st_size for path in files_now) < 4 * broker.LOGS * broker.LONGEST_LOG
    finally:
        one.stop()


def test_a_port_in_use_is_named_at_once_and_the_broker_can_move(tmp_path, monkeypatch):
    monkeypatch.setattr(broker, "PORT_SECONDS", 0.1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        made = files.init(CASES["fisher"], tmp_path / "f", port=port)
        with pytest.raises(broker.Unreachable, match=f"port {port} is used .* --port N .* tls://localhost:N"):
            broker.Broker(tmp_path / "f", made).start()
        moved = broker.Broker(tmp_path / "f", made, free_port())
        moved.start()
        try:
            assert moved.port != port
            assert moved.alive()
        finally:
            moved.stop()
