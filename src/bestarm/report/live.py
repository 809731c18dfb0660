"""The live page: a read-only report that follows a run in a browser.

``application`` serves the frames of ``report.frames``: the page, a stream of server-sent events with changed
sections, and any earlier moment. ``serve`` runs it on a socket; ``report.guard`` controls access.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from bestarm.errors import InputError
from bestarm.report import page
from bestarm.report.follow import BROKEN, Filed, Journalled
from bestarm.report.frames import Frame, Live, contents
from bestarm.report.guard import Guard, address, listen
from bestarm.report.markup import Html, clean, tag
from bestarm.util.loopback import is_loopback

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
    from starlette.types import ASGIApp
except ImportError as error:
    raise InputError(
        f'a live page needs the package "{error.name}"', fix='Install it with: pip install "bestarm[report]"'
    ) from None

STREAMS = 32  # most streams open at once


def application(live: Live, token: str | None) -> ASGIApp:
    """The web application. If a token is set, every request needs it."""

    async def shown(request: Request) -> Response:
        frame = await live.frame()
        return Response(shell(live, frame), media_type="text/html")

    async def events(request: Request) -> Response:
        if live.streams >= STREAMS:
            return PlainTextResponse("too many pages are open\n", 503)
        last = request.headers.get("last-event-id") or request.query_params.get("last", "")
        return StreamingResponse(stream(live, last), media_type="text/event-stream")

    async def at(request: Request) -> Response:
        try:
            frame = await live.at(request.path_params["n"], request.query_params.get("by", "")[:32])
        except (InputError, *BROKEN) as error:
            return JSONResponse({"error": clean(error, 500)}, 409)
        if frame is None:
            return JSONResponse({"error": "another moment was requested"}, 409)
        return JSONResponse(contents(frame, {}))

    async def record(request: Request) -> Response:
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(live._worker, live.source.record)
        if data is None:
            return PlainTextResponse("there is no record yet\n", 404)
        return Response(data, media_type="application/json")

    async def health(request: Request) -> Response:
        return JSONResponse({"ok": True, **live.state(await live.frame())})

    def asset(data: Callable[[], str], kind: str) -> Callable[[Request], Any]:
        async def give(request: Request) -> Response:
            return Response(data(), media_type=kind)

        return give

    routes = [
        Route("/", shown, methods=["GET"]),
        Route("/events", events, methods=["GET"]),
        Route("/at/{n:int}", at, methods=["GET"]),
        Route("/record.json", record, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
        Route("/page.js", asset(page.script, "text/javascript"), methods=["GET"]),
        Route("/live.js", asset(lambda: _asset("live.js"), "text/javascript"), methods=["GET"]),
        Route("/live.css", asset(lambda: page.style() + _asset("live.css"), "text/css"), methods=["GET"]),
    ]
    return Guard(Starlette(routes=routes), token)


async def stream(live: Live, last: str) -> AsyncIterator[str]:
    """Server-sent events: each has the number of events so far and the sections that have changed."""
    known: dict[str, str] = {}
    told = None
    live.streams += 1
    try:
        yield "retry: 1000\n\n"
        while not live.closing:
            waiting = asyncio.ensure_future(live.news())  # before reading, so that no change is missed
            try:
                frame = await live.frame()
                identity = live.identity(frame)
                if not known and identity == last:
                    frame.changed(known)  # the viewer already has all of this
                state = live.state(frame)
                said = {key: value for key, value in state.items() if key != "quiet"}
                plain = {**state, **contents(frame, known)}
                if plain["sections"] or said != told:
                    told = said
                    yield f"id: {identity}\ndata: {json.dumps(plain)}\n\n"
                else:
                    yield f"event: beat\ndata: {json.dumps(state)}\n\n"
                await live.pause()
                await waiting
            finally:
                waiting.cancel()
    finally:
        live.streams -= 1


@cache
def _asset(name: str) -> str:
    return files("bestarm.report").joinpath(name).read_text(encoding="utf-8")


def shell(live: Live, frame: Frame) -> str:
    """The current page; its script keeps it up to date."""
    status = tag("p", "This page updates itself when its script runs.", id="state", role="status")
    slider = tag(
        "input", type="range", id="slider", min="0", max=str(frame.count), value=str(frame.count), step="1",
        aria_label="go back to an earlier event",
    )  # fmt: skip
    back = tag(
        "div", slider, tag("span", "", id="place"), tag("button", "Live", id="live", type="button"),
        id="replay", hidden=not live.source.replays,
    )  # fmt: skip
    bar = tag("header", status, back, id="bar", aria_label="live")
    links = [tag("li", tag("a", title, href=f"#{key}")) for key, title, _ in frame.sections if title]
    body = [
        tag("section", tag("h2", title) if title else None, tag("div", content), id=key)
        for key, title, content in frame.sections
    ]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", frame.title),
        tag("link", rel="stylesheet", href="live.css"),
        tag("script", Html(""), src="page.js", defer=True),
        tag("script", Html(""), src="live.js", defer=True),
    )
    skip = tag("a", "To the verdict", href="#verdict", class_="skip")
    nav = tag("nav", tag("ul", *links, id="links"), aria_label="sections")
    whole = tag(
        "html",
        head,
        tag("body", skip, bar, nav, tag("main", *body), data_last=live.identity(frame)),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{whole}\n"


class _Quiet(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    source: Journalled | Filed,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the page until cancelled. `ready` is called with the address, including any token."""
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    door = listen(host, port)
    live = Live(source)
    config = uvicorn.Config(
        application(live, token), log_config=None, access_log=False, lifespan="off", server_header=False,
        http="h11", ws="none", loop="asyncio", proxy_headers=False, timeout_graceful_shutdown=10,
        limit_concurrency=4 * STREAMS,
    )  # fmt: skip
    server = _Quiet(config)
    # Not a TaskGroup: it would cancel the server, which must end by itself to close its streams properly.
    following = asyncio.create_task(live.follow())
    serving = asyncio.create_task(server.serve(sockets=[door]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        ready(address(host, door.getsockname()[1], token))
        done, _ = await asyncio.wait({following, serving}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        following.cancel()
        live.closing, server.should_exit = True, True
        live.tell()
        await asyncio.gather(following, serving, return_exceptions=True)
        live.close()
        door.close()


def watch(
    path: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the live page of a run until Ctrl-C or SIGTERM; then ``deploy.Interrupted`` is raised."""
    from bestarm.deploy.process import until_stopped
    from bestarm.report.follow import source

    with contextlib.closing(source(path)) as found:
        found.catch_up(0.0)
        if found.trouble:
            raise InputError(found.trouble)
        until_stopped(serve(found, host=host, port=port, ready=ready))
