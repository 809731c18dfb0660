"""The OpenAPI description of the HTTP interface."""

from __future__ import annotations

from typing import Any

import msgspec

from bestarm.deploy.experiment.clerk import MOST, MOST_KEY, REMEMBERED
from bestarm.deploy.experiment.settings import Settings
from bestarm.deploy.experiment.status import Status
from bestarm.version import __version__

DAYS = f"{REMEMBERED / 86_400:g}"
TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}
REFERENCE = "#/components/schemas/{name}"
OUTCOMES = ["counted", "again", "late", "unplanned", "after"]


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _errors(*codes: int) -> dict[str, Any]:
    text = {
        400: "the request is invalid", 401: "the bearer token is missing or wrong",
        408: "the body did not come in time",
        409: "the token has another reward already, or the key was used for another request",
        410: "the experiment is over, with after = stop", 413: "the request is too large",
        429: "too many requests of this caller, or too many that wait",
        503: "the journal can't be written",
    }  # fmt: skip
    error = _object(["error"], error=TEXT)
    found = {str(code): {"description": text[code], **_json(error)} for code in codes}
    if 429 in codes:
        found["429"]["headers"] = {"Retry-After": {"schema": WHOLE, "description": "seconds"}}
    return found


def _page(summary: str, media: str) -> dict[str, Any]:
    """A page that a caller reads as text."""
    answer = {"description": summary, "content": {media: {"schema": TEXT}}}
    return {"get": {"summary": summary, "responses": {"200": answer, **_errors(401, 429)}}}


def description(settings: Settings, *, page: bool = False) -> dict[str, Any]:
    """The description of the interface of one experiment; `page`: whether there is a page for people."""
    low, high = settings.bounds
    site = {**TEXT, "enum": list(settings.sites)}
    reward = {**NUMBER, "minimum": low, "maximum": high}
    assignment = _object(["option", "token"], option=TEXT, token=TEXT)
    told = _object(["token", "reward"], token=TEXT, reward=reward)
    outcome = {**TEXT, "enum": OUTCOMES}
    key = {
        "name": "Idempotency-Key", "in": "header", "schema": {**TEXT, "maxLength": MOST_KEY},
        "description": f"a repeated request with the same key gets the same assignments, for {DAYS} days",
    }  # fmt: skip
    assign = {
        "summary": "give the next subjects of a site an option each",
        "parameters": [key],
        "requestBody": _json(
            _object([], site=site, times={**WHOLE, "minimum": 1, "maximum": MOST, "default": 1})
        ),
        "responses": {
            "200": {
                "description": "the assignment, or a list of them if `times` was given",
                **_json({"oneOf": [assignment, _object(["assignments"], assignments=_list(assignment))]}),
            },
            **_errors(400, 401, 408, 409, 410, 413, 429, 503),
        },
    }
    tell = {
        "summary": "tell the reward of an assignment, or a list, all or none; to tell it again is harmless",
        "requestBody": _json({"oneOf": [told, _object(["rewards"], rewards=_list(told))]}),
        "responses": {
            "200": {
                "description": "whether it counts",
                **_json(
                    {
                        "oneOf": [
                            _object(["outcome"], outcome=outcome),
                            _object(["outcomes"], outcomes=_list(outcome)),
                        ]
                    }
                ),
            },
            **_errors(400, 401, 408, 409, 413, 429, 503),
        },
    }
    (shown,), parts = msgspec.json.schema_components([Status], ref_template=REFERENCE)
    status = {
        "summary": "what the experiment looks like now",
        "responses": {"200": {"description": "status", **_json(shown)}, **_errors(401, 429)},
    }
    own = {
        "summary": "this description",
        "responses": {"200": {"description": "OpenAPI", **_json({"type": "object"})}, **_errors(401, 429)},
    }
    health = {"summary": "whether it takes requests", "security": [], "responses": _health()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "bestarm experiment", "version": __version__},
        "security": [{"bearer": []}],
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": parts,
        },
        "paths": {
            "/assign": {"post": assign},
            "/reward": {"post": tell},
            "/status": {"get": status},
            "/health": {"get": health},
            "/metrics": _page("metrics for Prometheus", "text/plain"),
            "/openapi.json": {"get": own},
            **({"/": _page("a page for people", "text/html")} if page else {}),
        },
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items, "maxItems": MOST}


def _health() -> dict[str, Any]:
    found = _json(_object(["ok", "error"], ok={"type": "boolean"}, error=TEXT))
    return {
        "200": {"description": "it does", **found},
        "503": {"description": "the journal can't be written", **found},
    }
