"""The server's monitoring pages answer only requests that name this computer."""

from __future__ import annotations

import asyncio

import pytest

from bestarm.deploy.federation import metrics
from bestarm.deploy.process import free_port


def asked(lines):
    """The status and the body of the answer to a request."""

    async def main():
        port = free_port()
        server = await metrics.serve(port, lambda: "bestarm_round 3\n", lambda: "")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write("\r\n".join([*lines(port), "", ""]).encode())
        async with asyncio.timeout(60):
            answer = (await reader.read()).decode()
        writer.close()
        server.close()
        return answer

    head, _, body = asyncio.run(main()).partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize("port", [True, False])
def test_a_request_that_names_this_computer_is_answered(name, port):
    def lines(number):
        return ["GET /metrics HTTP/1.1", f"host: {name}:{number}" if port else f"Host: {name}", "Accept: */*"]

    assert asked(lines) == (200, "bestarm_round 3\n")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/"])
@pytest.mark.parametrize("host", ["Host: evil.example", "Host: localhost.evil.example:80", "Host: [", "X: y"])
def test_a_request_that_names_another_host_or_none_is_refused(path, host):
    status, body = asked(lambda port: [f"GET {path} HTTP/1.1", host])
    assert status == 403
    assert "localhost" in body
    assert "bestarm_round" not in body


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "get"])
def test_only_get_and_head_are_answered(method, path):
    assert asked(lambda port: [f"{method} {path} HTTP/1.1", "Host: localhost"])[0] == 405


def test_head_is_answered_without_the_page():
    assert asked(lambda port: ["HEAD /metrics HTTP/1.1", "Host: localhost"]) == (200, "")
