"""The server's monitoring pages, on the loopback address only: ``/healthz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

from bestarm.deploy.federation.desk import Desk
from bestarm.errors import InputError
from bestarm.protocol.machine import SiteServer
from bestarm.util.loopback import from_this_computer

READ_SECONDS = 30.0  # time limit for reading a request
MOST_HEADERS = 100


async def serve(port: int, metrics: Callable[[], str], trouble: Callable[[], str]) -> asyncio.Server:
    """Serve the pages.

    Parameters
    ----------
    port : int
        The port on 127.0.0.1.
    metrics : callable
        Returns the metrics page.
    trouble : callable
        Returns what is wrong with the server, or "" if it is healthy.

    Raises
    ------
    InputError
        If the port can't be used.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(READ_SECONDS):
                method, path, host = await _request(reader)
            writer.write(_page(method, path, host, metrics, trouble))
            await writer.drain()
        writer.close()

    try:
        return await asyncio.start_server(answer, "127.0.0.1", port)
    except (OSError, OverflowError) as error:
        why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        raise InputError(
            f"port {port} can't be used for the metrics ({why})", fix="Choose another port"
        ) from None


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, bytes, str]:
    """The method, the path and the Host header of a request."""
    line, host = await reader.readline(), ""
    for _ in range(MOST_HEADERS):
        key, _, value = (header := await reader.readline()).partition(b":")
        if not header.strip():
            break
        if key.lower() == b"host":
            host = value.decode(errors="replace").strip()
    method, path = line.split(b" ")[:2] if line.count(b" ") >= 2 else (b"", b"")
    return method, path, host


def _page(
    method: bytes, path: bytes, host: str, metrics: Callable[[], str], trouble: Callable[[], str]
) -> bytes:  # fmt: skip
    """The answer to a request; to HEAD, without the body."""
    code, body = "404 Not Found", "see /metrics and /healthz\n"
    if not from_this_computer(host):
        code, body = "403 Forbidden", "this page can only be opened as localhost, 127.0.0.1 or [::1]\n"
    elif method not in (b"GET", b"HEAD"):
        code, body = "405 Method Not Allowed\r\nAllow: GET, HEAD", "this page is read-only\n"
    elif path == b"/metrics":
        code, body = "200 OK", metrics()
    elif path == b"/healthz":
        wrong = trouble()
        code = "503 Service Unavailable" if wrong else "200 OK"
        body = f"{wrong or 'ok'}\n"
    head = f"HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
    head += f"Content-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n"
    return (head if method == b"HEAD" else head + body).encode()


def metrics_of(
    desk: Desk, complaints: int, online: bool, stores: bool, more: Mapping[str, int] | None = None
) -> str:
    """The metrics page, in the format of Prometheus."""
    m = desk.machine
    facts = {
        "round": m.round,
        "active_groups": int(m.active.sum()),
        "clients": len(desk.setup.layout.clients),
        "clients_missing": len(desk.waiting_for()),
        "clients_suspect": len(desk.suspects()),
        "messages_accepted_total": desk.slots.used.total(),
        "messages_refused_total": sum(desk.refused.values()),
        "notes_total": len(desk.notes),
        "broker_complaints_total": complaints,
        "broadcasts_total": len(desk.broadcasts),
        "bits_up_total": m.bits_up,
        "bits_down_total": m.bits_down,
        "done": int(desk.done),
        "broker_connected": int(online),
        "broker_stores": int(stores),
    }
    if isinstance(m, SiteServer):
        facts["rewards_waiting"] = m.unused()
    facts |= more or {}
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in facts}
    return "".join(f"# TYPE bestarm_{k} {kinds[k]}\nbestarm_{k} {v}\n" for k, v in facts.items())
