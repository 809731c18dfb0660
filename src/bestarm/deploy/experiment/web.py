"""The HTTP interface of an experiment: POST /assign, POST /reward, GET /status, /health, /metrics and more.

Requests and answers are JSON, errors too. Every request but GET /health needs the bearer token of a caller.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.clerk import MOST_KEY, ExperimentOver, OtherRequest, Request, SecondReward
from bestarm.deploy.experiment.limits import Limits
from bestarm.deploy.experiment.metrics import metrics_of
from bestarm.deploy.experiment.openapi import description
from bestarm.deploy.experiment.queue import Broken, Busy, Queue
from bestarm.deploy.experiment.settings import Settings
from bestarm.deploy.experiment.status import Status
from bestarm.errors import InputError
from bestarm.stats.alarms import Alarm

try:
    from starlette import requests as web
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError as error:
    raise InputError(
        f'serving an experiment needs the package "{error.name}"',
        fix='Install it with: pip install "bestarm[serve]"',
    ) from None

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
MOST_BYTES = 1 << 20  # of a request
BODY_SECONDS = 30.0  # for sending it
Handler = Callable[[web.Request], Awaitable[Response]]
Body = TypeVar("Body")
Pages = Callable[[Status, Sequence[Alarm], Settings], str]


class AssignBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /assign."""

    site: str | None = None
    times: int | None = None


class OneReward(msgspec.Struct, forbid_unknown_fields=True):
    """One reward."""

    token: str
    reward: float


class RewardBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of POST /reward: one reward, or several."""

    token: str | None = None
    reward: float | None = None
    rewards: list[OneReward] | None = None


ONE_SITE, ONE_REWARD = '{"site": "NAME"}', '{"token": "…", "reward": 1} or {"rewards": […]}'
_assign, _reward = msgspec.json.Decoder(AssignBody), msgspec.json.Decoder(RewardBody)
_encode = msgspec.json.Encoder().encode


class TooLarge(Exception):
    """The body of a request is too large."""


class TooSlow(Exception):
    """The body of a request did not come in time."""


class Guard:
    """Who may call, and how often."""

    def __init__(self, callers: Callers, limits: Limits) -> None:
        self.callers, self.limits = callers, limits

    def refusal(self, request: web.Request, header: str) -> Response | None:
        """The answer to a request with this Authorization header that may not be made; else None."""
        who = request.state.caller = self.callers.who(header)
        if who is None:
            self.limits.strangers += 1
            text = (
                "no caller has this token. Send the header Authorization: Bearer TOKEN with a caller's token"
            )
            if request.method == "GET" and request.url.path == "/":
                text += ", or open /?token=TOKEN in a browser"
            found = answer({"error": f"{text}."}, 401)
            found.headers["www-authenticate"] = "Bearer"
            return found
        wait = self.limits.take(who)
        if not wait:
            return None
        text = f"more than {self.limits.rate:g} requests per second; try again later"
        return _later(text, math.ceil(wait))


def answer(value: object, code: int = 200) -> Response:
    """An answer in JSON."""
    return Response(_encode(value), code, media_type="application/json")


class Subject(Protocol):
    """What is served: an experiment, or a site of a federation."""

    @property
    def settings(self) -> Settings:
        """Sites, options and rewards."""

    @property
    def status(self) -> Status:
        """What it looks like now."""

    @property
    def alarms(self) -> list[Alarm]:
        """What speaks against the assumptions so far."""


def application(
    queue: Queue,
    experiment: Subject,
    callers: Callers,
    pages: Pages | None = None,
    limits: Limits | None = None,
) -> Starlette:
    """The web application of an experiment, or of a site of a federation."""
    limits = limits or Limits()
    guard = Guard(callers, limits)
    known = _encode(description(experiment.settings, page=pages is not None))
    site = next(iter(experiment.settings.sites)) if len(experiment.settings.sites) == 1 else None

    async def assign(request: web.Request) -> Response:
        body = await _read(request, _assign, ONE_SITE)
        key = _key(request)
        if (body.site or site) is None:
            known = ", ".join(experiment.settings.sites)
            raise InputError("the request names no site", expected=f"{ONE_SITE} with one of: {known}")
        asked = Request(site=body.site or site, times=1 if body.times is None else body.times, key=key)
        given = (await queue.submit(asked)).assigned
        return answer(given[0] if body.times is None else {"assignments": given})

    async def reward(request: web.Request) -> Response:
        body = await _read(request, _reward, ONE_REWARD)
        if body.rewards is not None and body.token is None and body.reward is None:
            told = [(each.token, each.reward) for each in body.rewards]
            return answer({"outcomes": (await queue.submit(Request(rewards=told))).outcomes})
        if body.token is None or body.reward is None or body.rewards is not None:
            raise InputError("the request has no token or no reward", expected=ONE_REWARD)
        (outcome,) = (await queue.submit(Request(rewards=[(body.token, body.reward)]))).outcomes
        return answer({"outcome": outcome})

    async def status(request: web.Request) -> Response:
        return answer(experiment.status)

    async def health(request: web.Request) -> Response:
        return answer({"ok": not queue.trouble, "error": queue.trouble}, 503 if queue.trouble else 200)

    async def metrics(request: web.Request) -> Response:
        text = metrics_of(experiment.status, experiment.alarms, limits)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(request: web.Request) -> Response:
        return Response(known, media_type="application/json")

    async def page(request: web.Request) -> Response:
        assert pages is not None
        headers = {"content-security-policy": POLICY, "cache-control": "no-store"}
        made = pages(experiment.status, experiment.alarms, experiment.settings)
        return Response(made, media_type="text/html", headers=headers)

    routes = [
        Route("/assign", _safe(assign, guard), methods=["POST"]),
        Route("/reward", _safe(reward, guard), methods=["POST"]),
        Route("/status", _safe(status, guard), methods=["GET"]),
        Route("/metrics", _safe(metrics, guard), methods=["GET"]),
        Route("/openapi.json", _safe(openapi, guard), methods=["GET"]),
        Route("/health", health, methods=["GET"]),
    ]
    if pages is not None:
        routes.append(Route("/", _safe(page, guard, browser=True), methods=["GET"]))

    requests = [f"{'POST' if 'POST' in (each.methods or ()) else 'GET'} {each.path}" for each in routes]

    async def missing(request: web.Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        asked = f"{request.method} {request.url.path[:100]}: {str(error.detail).lower()}"
        found = answer({"error": f"{asked}. Expected one of: {', '.join(requests)}."}, error.status_code)
        found.headers.update(error.headers or {})
        return found

    return Starlette(routes=routes, exception_handlers={HTTPException: missing})


def _later(text: str, seconds: int) -> Response:
    """The answer to a request that may be repeated after some seconds."""
    found = answer({"error": text}, 429)
    found.headers["retry-after"] = str(seconds)
    return found


def _safe(handler: Handler, guard: Guard, browser: bool = False) -> Handler:
    """A handler that answers callers only, and turns errors into answers.

    A browser has the token in the address: ``/?token=…``.
    """

    async def handle(request: web.Request) -> Response:
        header = request.headers.get("authorization", "")
        if browser and not header:
            header = f"Bearer {request.query_params.get('token', '')}"
        refused = guard.refusal(request, header)
        if refused is not None:
            return refused
        try:
            return await handler(request)
        except Busy:
            return _later("too many requests wait; try again", 1)
        except Broken as error:
            return answer({"error": str(error)}, 503)
        except TooLarge:
            return answer({"error": f"the request is too large. Expected at most {MOST_BYTES:,} bytes."}, 413)
        except TooSlow:
            return answer({"error": f"the body did not come within {BODY_SECONDS:g} seconds"}, 408)
        except ExperimentOver as error:
            return answer({"error": str(error)}, 410)
        except (SecondReward, OtherRequest) as error:
            return answer({"error": str(error)}, 409)
        except InputError as error:
            return answer({"error": str(error)}, 400)

    return handle


def _key(request: web.Request) -> str:
    """The idempotency key of a request; callers can't see each other's."""
    key = request.headers.get("idempotency-key", "")
    if len(key) > MOST_KEY:
        raise InputError("the Idempotency-Key is too long", expected=f"at most {MOST_KEY} characters")
    return f"{request.state.caller}\n{key}" if key else ""


async def _read(request: web.Request, decoder: msgspec.json.Decoder[Body], expected: str) -> Body:
    """The body of a request; an empty one has no fields."""
    try:
        return decoder.decode(await _body(request) or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"the body can't be read: {str(error)[:300]}", expected=expected) from None


async def _body(request: web.Request) -> bytes:
    """The body of a request that is not too large."""
    parts, size = list[bytes](), 0
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > MOST_BYTES:
        raise TooLarge
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BYTES:
                    raise TooLarge
                parts.append(part)
    except TimeoutError:
        raise TooSlow from None
    return b"".join(parts)
