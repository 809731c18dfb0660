"""Webhooks: POST requests that tell a program about the verdict, an alarm, or a site that stands still.

Each notice is sent until it is accepted (a status of 2xx), at least once: the folder of the experiment notes
which were, so that a restart repeats none of them for long. The body is signed with the experiment's secret:
``X-Bestarm-Signature`` is the HMAC-SHA256 of the body, in hexadecimal.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from bestarm.deploy.experiment.alarms import words
from bestarm.deploy.experiment.settings import Settings
from bestarm.deploy.experiment.status import Status
from bestarm.errors import InputError
from bestarm.stats.alarms import Alarm
from bestarm.util.files import as_json, write
from bestarm.util.text import counted, shorten

FILE = "webhooks.json"
SECONDS = 10.0  # time limit of a request
LONGEST = 300.0  # most seconds between two attempts
log = logging.getLogger("bestarm")


class Notice(msgspec.Struct, frozen=True):
    """Something that happened. `id` is the same whenever the notice is sent, `time` is UTC in ISO 8601."""

    id: str
    event: str  # "verdict", "alarm" or "stalled"
    text: str
    site: str | None = None
    answer: str | None = None
    experiment: str = ""
    asked: str = ""
    delta: float | None = None
    time: str = ""


def notices(status: Status, alarms: Sequence[Alarm], stalled: float | None) -> Iterator[Notice]:
    """What there is to tell now; `stalled`: after how many seconds without progress a site stands still."""
    if status.state != "running":
        question = f" ({status.asked})" if status.asked else ""
        text = (
            f"the answer is: {status.answer}{question}" if status.answer else "the experiment ended undecided"
        )
        yield Notice("verdict", "verdict", text, answer=status.answer)
    for alarm in alarms:
        yield Notice(f"alarm {alarm.kind} {alarm.cell}", "alarm", words(alarm))
    for site in status.sites:
        if status.state != "running" or not site.awaited or stalled is None:
            continue
        text = ""
        if (site.oldest or 0.0) >= stalled:
            left = counted(site.open, "reward")
            text = f"{site.site} has {left} to come, the oldest for {site.oldest:.0f} seconds"
        elif not site.open and site.quiet >= stalled:
            text = f"{site.site} had no visitors for {site.quiet:.0f} seconds"
        if text:
            yield Notice(f"stalled {site.site} {status.blocks}", "stalled", text, site=site.site)


class Hooks:
    """Sends notices to web addresses."""

    def __init__(self, urls: Sequence[str], folder: Path, key: str) -> None:
        for url in urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise InputError(f"webhook {shorten(url)}", expected="an address with http:// or https://")
        self.urls, self.path, self._key = list(urls), folder / FILE, bytes.fromhex(key)
        data = self.path.read_bytes() if self.path.exists() else b"[]"
        self.sent: set[tuple[str, str]] = set(msgspec.json.decode(data, type=list[tuple[str, str]]))
        self._pause: dict[tuple[str, str], tuple[float, float]] = {}  # until when, and how long

    async def tell(self, found: Sequence[Notice], now: float) -> None:
        """Send the notices that were not accepted yet, unless an attempt failed a short while ago."""
        for notice in found:
            for url in self.urls:
                place = (url, notice.id)
                if place in self.sent or now < self._pause.get(place, (0.0, 0.0))[0]:
                    continue
                trouble = await asyncio.to_thread(self._post, url, notice)
                if trouble:
                    wait = min(LONGEST, 2.0 * self._pause[place][1]) if place in self._pause else 1.0
                    self._pause[place] = now + wait, wait
                    text = "the webhook %s did not take the notice of %s: %s; next attempt in %.0f s"
                    log.warning(text, url, notice.id, trouble, wait)
                    continue
                if self._pause.pop(place, None) is not None:
                    log.warning("the webhook %s has taken the notice of %s", url, notice.id)
                self.sent.add(place)
                write(self.path, as_json(sorted(self.sent)))

    def heard(self, found: Sequence[Notice]) -> bool:
        """Whether all addresses have accepted these notices."""
        return all((url, notice.id) in self.sent for notice in found for url in self.urls)

    def _post(self, url: str, notice: Notice) -> str:
        """Send a notice, and return what went wrong, or nothing."""
        body = msgspec.json.encode(notice)
        signature = hmac.new(self._key, body, hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/json", "X-Bestarm-Signature": signature}
        try:
            request = urllib.request.Request(url, body, headers, method="POST")
            with urllib.request.urlopen(request, timeout=SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            error.close()
            return f"HTTP {error.code}"
        except (OSError, HTTPException) as error:
            why = getattr(error, "reason", error)
            return str(getattr(why, "strerror", None) or why) or type(error).__name__


class Watched(Protocol):
    """An experiment, or a site of a federation."""

    @property
    def status(self) -> Status:
        """What it looks like now."""

    @property
    def alarms(self) -> list[Alarm]:
        """What speaks against the assumptions so far."""

    @property
    def settings(self) -> Settings:
        """What was asked, and δ."""


def news(experiment: Watched, stalled: float | None) -> list[Notice]:
    """The notices about an experiment now; that of the verdict has the time of the verdict."""
    status, found = experiment.status, list[Notice]()
    for notice in notices(status, experiment.alarms, stalled):
        when = status.ends if notice.event == "verdict" and status.ends is not None else status.time
        found.append(
            msgspec.structs.replace(
                notice,
                experiment=status.experiment,
                asked=status.asked,
                delta=experiment.settings.delta if status.asked else None,
                time=f"{datetime.fromtimestamp(when, UTC):%Y-%m-%dT%H:%M:%SZ}",
            )
        )
    return found
