"""Access to a live page: everyone on this computer; from elsewhere, only with the token.

``Guard`` alone decides about access. ``listen`` opens the socket, ``address`` is the URL to open.
"""

from __future__ import annotations

import secrets
import socket

from bestarm.errors import InputError
from bestarm.util.loopback import from_this_computer

try:
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise InputError(
        f'a live page needs the package "{error.name}"', fix='Install it with: pip install "bestarm[report]"'
    ) from None

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """Allows only permitted GET requests, and adds headers that isolate the page.

    Without a token the host name in the address must belong to this computer: otherwise a foreign page whose
    name resolves to this computer (DNS rebinding) could read it. A token comes in the address once, then in a
    cookie.
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
        """The refusal to send instead of the page; None if access is allowed."""
        if request.method != "GET":
            return PlainTextResponse("this page is read-only\n", 405, {"allow": "GET"})
        if self.token is None:
            if not from_this_computer(request.headers.get("host", "")):
                return PlainTextResponse("this page can only be opened from localhost\n", 403)
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


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 chooses a free port."""
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
            f"can't listen on {host}, port {port}: {why}", fix="Choose another --port, or omit it"
        ) from None
    return found


def address(host: str, port: int, token: str | None) -> str:
    """The address to open."""
    shown = socket.gethostname() if host in ("0.0.0.0", "::", "") else host
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
