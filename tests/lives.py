"""Live pages for tests: a real server on a real socket, and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
import time
from urllib.parse import urlsplit

from bestarm.report import follow, live

SECONDS = 120.0  # long enough for any step on a slow machine; reached only if something never happens


@contextlib.contextmanager
def serving(path, **keys):
    """The URL of a live page for this path, served by its own thread."""
    found, ready, ended = [], threading.Event(), []

    async def main():
        stop.append((asyncio.get_running_loop(), asyncio.current_task()))
        with contextlib.suppress(asyncio.CancelledError):
            await live.serve(follow.source(path), ready=lambda url: (found.append(url), ready.set()), **keys)

    def run():
        try:
            asyncio.run(main())
        except BaseException as error:
            ended.append(error)
        finally:
            ready.set()

    stop = []
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(SECONDS)
        if found:
            yield found[0]
    finally:
        loop, task = stop[0]
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(task.cancel)
        thread.join(SECONDS)
        assert not thread.is_alive()
        if ended:
            raise ended[0]


def ask(url, path="/", method="GET", **headers):
    """One request: status, headers and body."""
    where = urlsplit(url)
    line = http.client.HTTPConnection(where.hostname, where.port, timeout=SECONDS)
    try:
        line.request(method, path, headers=headers)
        answer = line.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        line.close()


class Stream:
    """A stream of server-sent events, as a browser reads it."""

    def __init__(self, url, last=None, **headers):
        where = urlsplit(url)
        self.line = http.client.HTTPConnection(where.hostname, where.port, timeout=SECONDS)
        self.line.request("GET", "/events", headers={**({"Last-Event-ID": last} if last else {}), **headers})
        self.answer = self.line.getresponse()
        self.sections, self.id = {}, None

    def next(self):
        """Read the next event and update the sections it contains."""
        event = {}
        while True:
            row = self.answer.readline().decode()
            if not row:
                return None
            row = row.rstrip("\n")
            if row:
                key, _, value = row.partition(": ")
                event[key] = value
            elif "data" in event:
                plain = json.loads(event["data"])
                if event.get("event") != "beat":
                    self.id = event["id"]
                    self.sections.update(plain["sections"])
                return plain
            else:
                event = {}

    def until(self, condition, seconds=SECONDS):
        """Read events until one satisfies the condition."""
        end = time.monotonic() + seconds
        while True:
            event = self.next()
            assert event is not None, "the stream has ended"
            if condition(event):
                return event
            assert time.monotonic() < end, event

    def close(self):
        self.answer.close()
        self.line.close()
