"""The live page: the report of what goes on, in a browser that follows it. Read-only.

``Live`` keeps one source (``report.follow``) up to date and turns it into frames: the sections of a page
after so many events. ``application`` serves them: the page, a stream of server-sent events with what has
changed, and any earlier moment. ``serve`` runs that on a socket. Who may look is decided in ``Guard`` alone:
on a loopback address everybody on this computer, under one of its own names; elsewhere who has the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import secrets
import socket
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import (
        JSONResponse,
        PlainTextResponse,
        RedirectResponse,
        Response,
        StreamingResponse,
    )
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    from bestarm.errors import InputError as _InputError

    raise _InputError(
        f'a live page needs the package "{error.name}"', fix='Install it with: pip install "bestarm[report]"'
    ) from None

from bestarm.errors import InputError
from bestarm.report import page
from bestarm.report.facts import Facts
from bestarm.report.follow import BROKEN, Filed, Journalled
from bestarm.report.markup import Html, clean, tag

POLL, SLICE = 0.25, 0.5  # seconds between two looks at the source, and that one look may take
GAP = 0.3  # seconds between two frames of a stream, at least; more where a frame takes long to make
BEAT = 5.0  # seconds until a stream with no news says that it is there
STREAMS = 32  # that may be open at once
KEPT = 32  # earlier moments that are kept
VIEWERS = 256  # that may look back at once
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True)
class Frame:
    """The sections of a page after `count` events of the journal number `epoch`."""

    epoch: int
    count: int
    title: str
    over: bool
    sections: tuple[page.Section, ...]

    def changed(self, known: dict[str, str]) -> dict[str, str]:
        """The sections whose digest is not known; `known` is brought up to date."""
        found = {}
        for key, _, body in self.sections:
            digest = hashlib.sha256(body.encode()).hexdigest()
            if known.get(key) != digest:
                known[key], found[key] = digest, str(body)
        return found


class Live:
    """A source, and the newest frame of it."""

    def __init__(self, source: Journalled | Filed) -> None:
        self.source = source
        self.boot = secrets.token_hex(4)  # ids of another server's events mean nothing here
        self.closing = False
        self.streams = 0
        self.took = 0.0  # seconds to make the last frame
        self._frame = Frame(0, 0, "bestarm", False, ())
        self._made: tuple[int, int] | None = None
        self._news = asyncio.Event()
        self._making = asyncio.Lock()
        self._kept: OrderedDict[tuple[int, int], Frame] = OrderedDict()
        self._wishes: dict[str, int] = {}  # the number of each viewer's newest request for an earlier moment
        self._worker = ThreadPoolExecutor(1, "watch")
        self._looker = ThreadPoolExecutor(1, "look-back")

    async def follow(self) -> None:
        """Keep the source up to date, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            if await loop.run_in_executor(self._worker, self.source.catch_up, SLICE):
                self.tell()
            if self.source.trouble or self.source.count >= self.source.known:
                await asyncio.sleep(POLL)

    def tell(self) -> None:
        """Wake who waits for news."""
        self._news.set()
        self._news = asyncio.Event()

    def close(self) -> None:
        """End all streams and let go of the source."""
        self.closing = True
        self.tell()
        self._worker.shutdown(wait=True, cancel_futures=True)
        self._looker.shutdown(wait=True, cancel_futures=True)
        self.source.close()

    async def news(self) -> None:
        """Wait until something is new, for a beat at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), BEAT)

    async def pause(self) -> None:
        """Between two frames of a stream; not when it is over."""
        until = time.monotonic() + max(GAP, 4 * self.took)
        while not self.closing and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(GAP, left))

    async def frame(self) -> Frame:
        """The newest frame; whoever asks at the same time shares it."""
        async with self._making:
            key = (self.source.epoch, self.source.count)
            if self._made != key:
                began = time.monotonic()
                loop = asyncio.get_running_loop()
                self._frame = await loop.run_in_executor(self._worker, self._make)
                self._made, self.took = (self._frame.epoch, self._frame.count), time.monotonic() - began
            return self._frame

    def _make(self) -> Frame:
        epoch, count = self.source.epoch, self.source.count
        facts = self.source.facts()
        return Frame(epoch, count, "bestarm", False, ()) if facts is None else frame_of(facts, epoch, count)

    async def at(self, n: int, viewer: str) -> Frame | None:
        """An earlier moment; None if this viewer asks for another one meanwhile, or if there is none."""
        epoch, n = self.source.epoch, max(0, min(n, self.source.count))
        if (epoch, n) not in self._kept:
            if len(self._wishes) >= VIEWERS:
                self._wishes.clear()
            wish = self._wishes[viewer] = self._wishes.get(viewer, 0) + 1
            loop = asyncio.get_running_loop()

            def stop() -> bool:
                return self.closing or self._wishes.get(viewer) != wish

            facts = await loop.run_in_executor(self._looker, self.source.at, n, stop)
            if facts is None:
                return None
            self._kept[epoch, n] = await loop.run_in_executor(self._looker, frame_of, facts, epoch, n)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return self._kept[epoch, n]

    def state(self, frame: Frame) -> dict[str, Any]:
        """What is said beside the sections."""
        source = self.source
        state = "over" if frame.over else "going" if frame.epoch else "waiting"
        if source.trouble:
            state = "trouble"
        elif source.count < source.known:
            state = "reading"
        note = source.trouble or (f"{source.path} is not there yet" if state == "waiting" else "")
        quiet = source.quiet()
        return {
            "n": source.count,
            "known": source.known,
            "state": state,
            "note": clean(note, 500),
            "quiet": None if quiet is None else round(quiet, 1),
        }

    def identity(self, frame: Frame) -> str:
        """The id of the event that carries this frame."""
        return f"{self.boot}-{frame.epoch}-{frame.count}"


def frame_of(facts: Facts, epoch: int, count: int) -> Frame:
    """The frame of these facts."""
    verdict = facts.get("verdict")
    answer = "a study" if facts["kind"] == "study" else "not decided yet"
    if verdict:
        answer = verdict["arm"] or "undecided"
    over = verdict is not None or facts["kind"] == "study"
    link = None
    if verdict and facts["kind"] == "run":
        link = tag("p", tag("a", "Download record.json", href="record.json", download="record.json"))
    return Frame(epoch, count, f"bestarm: {clean(answer, 80)}", over, tuple(page.sections(facts, link)))


def contents(frame: Frame, known: dict[str, str]) -> dict[str, Any]:
    """A frame as the page's script takes it: the order of the sections, and those that it lacks."""
    order = [[key, title] for key, title, _ in frame.sections]
    shown = {"at": frame.count, "epoch": frame.epoch, "title": frame.title, "order": order}
    return {**shown, "sections": frame.changed(known)}


def application(live: Live, token: str | None) -> ASGIApp:
    """The web application. With a token, nobody sees anything without it."""

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
            return JSONResponse({"error": "another moment is asked for"}, 409)
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
            waiting = asyncio.ensure_future(live.news())  # before the look, so that no news is missed
            try:
                frame = await live.frame()
                identity = live.identity(frame)
                if not known and identity == last:
                    frame.changed(known)  # it has all of this
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
    """The page as it is now; its script keeps it up to date."""
    status = tag("p", "The page follows when its script runs.", id="state", role="status")
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


class Guard:
    """Lets in who may look, for GET alone, and puts the headers on that keep a page to itself.

    Without a token the name in the address must be one of this computer's own: else a foreign page whose name
    was made to point here (DNS rebinding) could read it. A token comes in the address once, then in a cookie.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        answer = self._answer(request)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await (self.app if answer is None else answer)(scope, receive, guarded)

    def _answer(self, request: Request) -> Response | None:
        """What to say instead of the page; None if it may be seen."""
        if request.method != "GET":
            return PlainTextResponse("this page is read-only\n", 405, {"allow": "GET"})
        if self.token is None:
            if not is_loopback(_host_name(request.headers.get("host", ""))):
                return PlainTextResponse("this page is for localhost\n", 403)
            return None
        cookie = f"bestarm_watch_{(request.scope.get('server') or ('', 0))[1]}"
        given = request.query_params.get("token")
        if given is not None and self._fits(given):
            answer = RedirectResponse("./", 303)
            answer.set_cookie(cookie, given, httponly=True, samesite="lax")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._fits(bearer) or self._fits(request.cookies.get(cookie, "")):
            return None
        headers = {"www-authenticate": "Bearer"}
        text = "this page needs the token that bestarm watch printed with its address\n"
        return PlainTextResponse(text, 401, headers)

    def _fits(self, given: str) -> bool:
        assert self.token is not None
        return secrets.compare_digest(given.encode(), self.token.encode())


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this computer's own, which no other computer reaches.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(128)
        except BaseException:
            found.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"can't listen on {host}, port {port}: {why}", fix="Take another --port, or none for a free one"
        ) from None
    return found


def address(host: str, port: int, token: str | None) -> str:
    """The address to open."""
    shown = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")


class _Quiet(uvicorn.Server):
    """A server that leaves signals to who runs it."""

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
    """Serve the page until cancelled. `ready` is given the address, with the token if there is one."""
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    door = listen(host, port)
    live = Live(source)
    config = uvicorn.Config(
        application(live, token), log_config=None, access_log=False, lifespan="off", server_header=False,
        http="h11", ws="none", loop="asyncio", proxy_headers=False, timeout_graceful_shutdown=10,
        limit_concurrency=4 * STREAMS,
    )  # fmt: skip
    server = _Quiet(config)
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
    from bestarm.deploy import until_stopped
    from bestarm.report.follow import source

    with contextlib.closing(source(path)) as found:
        found.catch_up(0.0)
        if found.trouble:
            raise InputError(found.trouble)
        until_stopped(serve(found, host=host, port=port, ready=ready))
