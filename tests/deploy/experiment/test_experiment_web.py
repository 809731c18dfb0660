"""The HTTP interface of an experiment: answers, errors, limits, tokens, keys."""

from __future__ import annotations

import asyncio
import json
import math

import jsonschema
import pytest

import bestarm as ba
from bestarm.cli import experiment as command
from bestarm.deploy.experiment import folder as place
from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.limits import RATE, Limits
from bestarm.deploy.experiment.queue import Queue
from bestarm.deploy.experiment.settings import make_settings
from bestarm.deploy.experiment.web import application
from bestarm.report.experiment import page_of

KEYS = {
    "delta": 0.05, "bounds": (0.0, 1.0), "goal": "max", "binary": True, "deadline": None, "missing": None,
    "after": "stop", "seed": 1, "keys": {},
}  # fmt: skip


class Web:
    """An application without a network: what it answers to a request."""

    def __init__(self, folder, limits=None):
        self.headers = {}  # of the last answer
        self.token = place.create(folder, make_settings(["A", "B"], ["us", "eu"], None, **KEYS))
        self.experiment = ba.Experiment.open(place.journal_of(folder))
        self.queue = Queue(self.experiment)
        self.app = application(self.queue, self.experiment, place.callers_of(folder), page_of, limits)

    async def _send(self, method, path, body, headers):
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "http", "server": ("test", 80),
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        }  # fmt: skip
        found = {}

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            if message["type"] == "http.response.start":
                found["code"] = message["status"]
                self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                found["body"] = found.get("body", b"") + message.get("body", b"")

        await self.app(scope, receive, send)
        return found["code"], found["body"]

    async def call(self, method, path, body=None, *, token=None, **headers):
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        own = {"Authorization": f"Bearer {self.token if token is None else token}", **headers}
        code, text = await self._send(method, path, data, own)
        return code, json.loads(text) if text[:1] in (b"{", b"[") else text.decode()


@pytest.fixture
def web(tmp_path):
    found = Web(tmp_path / "e")
    yield found
    found.experiment.close()
    found.queue.close()


def test_a_subject_is_assigned_an_option_and_its_reward_counts(web):
    async def main():
        code, own = await web.call("POST", "/assign", {"site": "us"})
        assert (code, own["option"] in "AB") == (200, True)
        assert await web.call("POST", "/reward", {**{"token": own["token"]}, "reward": 1}) == (
            200, {"outcome": "counted"},
        )  # fmt: skip
        assert await web.call("POST", "/reward", {"token": own["token"], "reward": 1}) == (
            200, {"outcome": "again"},
        )  # fmt: skip
        code, status = await web.call("GET", "/status")
        assert (status["assigned"], status["told"], status["sites"][0]["site"]) == (1, 1, "us")

    asyncio.run(main())


def test_several_subjects_and_rewards_go_in_one_request(web):
    async def main():
        _, found = await web.call("POST", "/assign", {"site": "eu", "times": 3})
        rewards = [{"token": own["token"], "reward": 0} for own in found["assignments"]]
        assert await web.call("POST", "/reward", {"rewards": rewards}) == (200, {"outcomes": ["counted"] * 3})

    asyncio.run(main())


def test_a_repeated_request_with_its_key_gets_the_same_assignment(web):
    async def main():
        both = [await web.call("POST", "/assign", {"site": "us"}, **{"Idempotency-Key": "k"}) for _ in "ab"]
        assert both[0] == both[1]
        assert web.experiment.status.assigned == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "what"),
    [
        ("POST", "/assign", {"site": "mars"}, 400, "no site"),
        ("POST", "/assign", {}, 400, 'names no site. Expected {"site": "NAME"} with one of: '),
        ("POST", "/assign", {"site": "us", "times": 0}, 400, "1 to 10,000"),
        ("POST", "/assign", {"site": "us", "colour": 1}, 400, "colour"),
        ("POST", "/assign", b"{", 400, 'Expected {"site"'),
        ("POST", "/assign", b" " * (1 << 20) + b" {}", 413, "too large"),
        ("POST", "/reward", {"token": "0-1", "reward": 1}, 400, "not a token"),
        ("POST", "/reward", {"token": "0-1"}, 400, "no token or no reward. Expected {"),
        ("POST", "/reward", {"token": "0-1", "reward": "many"}, 400, "can't be read"),
        ("GET", "/assign", None, 405, "GET /assign: method not allowed. Expected one of: POST /assign, "),
        ("GET", "/nowhere", None, 404, "GET /nowhere: not found. Expected one of: POST /assign, "),
    ],
)
def test_errors_are_json_and_say_what_is_wrong(web, method, path, body, code, what):
    found, said = asyncio.run(web.call(method, path, body))
    assert found == code
    assert what in said["error"]
    assert web.experiment.status.assigned == 0


def test_only_callers_with_a_token_are_answered_but_health_is_public(web):
    async def main():
        for path in ("/status", "/metrics", "/openapi.json", "/"):
            code, said = await web.call("GET", path, token="wrong")
            assert (code, "token" in said["error"]) == (401, True)
        assert (await web.call("GET", "/health", token="wrong"))[0] == 200
        code, said = await web.call("GET", f"/?token={web.token}", token="")
        assert code == 401  # an empty header is a header
        code, text = await web._send("GET", f"/?token={web.token}", b"", {})
        assert (code, b"is running" in text) == (200, True)

    asyncio.run(main())


def test_a_caller_can_be_removed(tmp_path, web):
    callers = place.callers_of(tmp_path / "e")
    token = callers.add("mobile")
    assert callers.who(f"Bearer {token}") == "mobile"
    callers.remove("mobile")
    assert callers.who(f"Bearer {token}") is None
    assert place.callers_of(tmp_path / "e").names == ["app"]


def test_a_second_reward_is_a_conflict_and_after_the_end_there_is_nothing(web):
    async def main():
        _, own = await web.call("POST", "/assign", {"site": "us"})
        await web.call("POST", "/reward", {"token": own["token"], "reward": 1})
        assert (await web.call("POST", "/reward", {"token": own["token"], "reward": 0}))[0] == 409
        web.experiment.stop()
        assert (await web.call("POST", "/assign", {"site": "us"}))[0] == 410

    asyncio.run(main())


def test_requests_that_wait_together_share_one_write(web):
    async def main():
        before = len(web.experiment._clerk._journal)
        found = await asyncio.gather(*(web.call("POST", "/assign", {"site": "us"}) for _ in range(200)))
        assert len({own["token"] for _, own in found}) == 200
        assert len(web.experiment._clerk._journal) - before == 200

    asyncio.run(main())


def test_a_journal_that_can_not_be_written_ends_the_service(web):
    async def main():
        web.experiment._clerk._journal.close()
        assert (await web.call("POST", "/assign", {"site": "us"}))[0] == 503
        assert (await web.call("POST", "/assign", {"site": "us"}))[0] == 503
        assert (await web.call("GET", "/health"))[0] == 503
        assert web.experiment.status.assigned == 0  # nothing took effect

    asyncio.run(main())


def test_the_description_names_every_route_and_method(web):
    code, said = asyncio.run(web.call("GET", "/openapi.json"))
    described = {(path, method.upper()) for path, own in said["paths"].items() for method in own}
    served = {(route.path, method) for route in web.app.routes for method in route.methods - {"HEAD"}}
    assert (code, described) == (200, served)
    assert said["paths"]["/assign"]["post"]["requestBody"]["content"]["application/json"]["schema"][
        "properties"
    ]["site"]["enum"] == ["us", "eu"]


CALLS = [
    ("POST", "/assign", {"site": "us"}, 200),
    ("POST", "/assign", {"site": "eu", "times": 3}, 200),
    ("POST", "/assign", {"site": "mars"}, 400),
    ("POST", "/assign", {"site": "us", "times": -1}, 400),
    ("POST", "/assign", {"x": 1}, 400),
    ("POST", "/assign", b"x" * (1 << 21), 413),
    ("POST", "/assign", b'{"site": "\xff"}', 400),
    ("POST", "/assign", b"[" * 100_000, 400),
    ("POST", "/reward", {"token": "TOKEN", "reward": 1}, 200),
    ("POST", "/reward", {"token": "TOKEN", "reward": 0}, 409),
    ("POST", "/reward", {"rewards": [{"token": "TOKEN", "reward": 1}]}, 200),
    ("POST", "/reward", {"token": "TOKEN", "reward": 0.5}, 400),
    ("POST", "/reward", b'{"token": "TOKEN", "reward": NaN}', 400),
    ("POST", "/reward", b'{"token": "TOKEN", "reward": 1e999}', 400),
    ("POST", "/reward", {"token": "9-0000000000000000", "reward": 1}, 400),
    ("GET", "/status", None, 200),
    ("GET", "/health", None, 200),
    ("GET", "/openapi.json", None, 200),
    ("GET", "/metrics", None, 200),
    ("GET", "/?token=TOKEN", None, 200),
]


def test_answers_are_as_described(web):
    """Every answer has a code that the description lists for its route, and fits the schema there."""

    async def main():
        said = (await web.call("GET", "/openapi.json"))[1]
        _, first = await web.call("POST", "/assign", {"site": "us"})
        for method, path, body, expected in CALLS:
            sent = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
            found = await web.call(method, path, sent.replace(b"TOKEN", first["token"].encode()))
            own = said["paths"][path.partition("?")[0]][method.lower()]
            assert (found[0], str(found[0]) in own["responses"]) == (expected, True), (path, body)
            ((media, described),) = own["responses"][str(found[0])]["content"].items()
            assert web.headers["content-type"].startswith(media)
            schema = {**described["schema"], "components": said["components"]}
            jsonschema.Draft202012Validator(schema).validate(found[1])
            (refused,) = [await web.call(method, path, sent, token="x")] if path != "/health" else [(401, {})]
            assert refused[0] == 401
            assert path == "/health" or "401" in own["responses"]

    asyncio.run(main())


def test_a_caller_that_makes_too_many_requests_is_told_when_to_come_back_and_others_are_served(tmp_path):
    now = 0.0
    web = Web(tmp_path / "shop", Limits(1.0, clock=lambda: now))
    other = place.callers_of(tmp_path / "shop").add("other")

    async def main():
        nonlocal now
        codes = [(await web.call("POST", "/assign", {"site": "us"}))[0] for _ in range(8)]
        assert codes == [200] * 5 + [429] * 3
        assert web.headers["retry-after"] == "1"
        code, said = await web.call("GET", "/status")
        assert (code, said["error"]) == (429, "more than 1 requests per second; try again later")
        assert (await web.call("GET", "/health"))[0] == 200
        web.app = application(web.queue, web.experiment, place.callers_of(tmp_path / "shop"), page_of)
        assert (await web.call("GET", "/status", token=other))[1]["assigned"] == 5  # nothing else took effect

    asyncio.run(main())


def test_each_caller_has_its_own_bucket_which_fills_with_time_and_the_metrics_count():
    now = 0.0
    limits = Limits(2.0, clock=lambda: now)
    assert [limits.take("a") for _ in range(11)] == [0.0] * 10 + [0.5]
    assert limits.take("b") == 0.0
    now = 0.75
    assert (limits.take("a"), limits.take("a") > 0) == (0.0, True)
    assert (limits.made, limits.refused) == ({"a": 11, "b": 1}, {"a": 2})
    assert all(Limits(math.inf).take("a") == 0.0 for _ in range(10_000))
    with pytest.raises(ba.InputError, match="above 0"):
        Limits(0.0)


def test_metrics_count_the_requests_of_each_caller_and_those_without_a_token(web):
    async def main():
        await web.call("GET", "/status")
        await web.call("GET", "/status", token="wrong")
        _, text = await web.call("GET", "/metrics")
        assert 'bestarm_experiment_requests_total{caller="app"} 2' in text
        assert "bestarm_experiment_requests_unauthorized_total 1" in text

    asyncio.run(main())


def test_the_default_rate_of_the_command_is_that_of_the_interface():
    assert command.RATE == RATE


def test_metrics_are_those_of_the_status(web):
    async def main():
        _, first = await web.call("POST", "/assign", {"site": "us", "times": 7})
        _, text = await web.call("GET", "/metrics")
        assert 'bestarm_experiment_assignments_total{site="us"} 7' in text
        assert 'bestarm_experiment_holds_up{site="eu"} 0' in text
        _, given = await web.call("POST", "/assign", {"site": "us", "times": 100})
        both = first["assignments"] + given["assignments"]
        rewards = [{"token": own["token"], "reward": 1} for own in both]
        await web.call("POST", "/reward", {"rewards": rewards})
        _, text = await web.call("GET", "/metrics")
        assert 'bestarm_experiment_holds_up{site="eu"} 1' in text
        assert 'bestarm_experiment_holds_up{site="us"} 0' in text

    asyncio.run(main())


def test_a_key_belongs_to_one_request_of_one_caller(tmp_path):
    web = Web(tmp_path / "shop")
    other = place.callers_of(tmp_path / "shop").add("other")
    web.app = application(web.queue, web.experiment, place.callers_of(tmp_path / "shop"), page_of)

    async def main():
        same = {"Idempotency-Key": "visitor-1"}
        _, first = await web.call("POST", "/assign", {"site": "us"}, **same)
        assert (await web.call("POST", "/assign", {"site": "us"}, **same))[1] == first
        for body in ({"site": "eu"}, {"site": "us", "times": 2}):
            code, said = await web.call("POST", "/assign", body, **same)
            assert (code, "used for another request" in said["error"]) == (409, True)
        _, theirs = await web.call("POST", "/assign", {"site": "us"}, token=other, **same)
        assert theirs["token"] != first["token"]
        together = [
            web.call("POST", "/assign", {"site": site}, **{"Idempotency-Key": "visitor-2"})
            for site in ("us", "eu")
        ]
        assert [code for code, _ in await asyncio.gather(*together)] == [200, 409]
        code, said = await web.call("POST", "/assign", {"site": "us"}, **{"Idempotency-Key": "x" * 201})
        assert (code, "at most 200" in said["error"]) == (400, True)
        assert web.experiment.status.assigned == 3

    asyncio.run(main())


def test_callers_that_another_process_adds_or_removes_are_noticed(tmp_path):
    file = tmp_path / "callers.json"
    served, other = Callers(file), Callers(file)
    token = other.add("web")
    assert served.who(f"Bearer {token}") is None
    served.refresh()
    assert served.who(f"Bearer {token}") == "web"
    other.remove("web")
    served.refresh()
    assert served.who(f"Bearer {token}") is None
    file.write_text("{")
    with pytest.raises(ba.InputError, match="can't be read"):
        served.refresh()
    file.unlink()
    served.refresh()
    assert served.names == []
