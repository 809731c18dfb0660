"""A trial of a federation's client (``--test``): its folder, its source of rewards and the broker.

The journal is only read. Nothing that is drawn counts, and no message of the run is sent: the server is only
greeted, which is not stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from bestarm.deploy.federation.broker import Unreachable
from bestarm.deploy.federation.files import JOURNAL, Place
from bestarm.deploy.federation.hello import (
    HELLO,
    OlderJournal,
    demand_newest,
    follow,
    greet,
    read_answer,
    split_answer,
)
from bestarm.deploy.federation.keys import CA
from bestarm.deploy.federation.refusals import TAKEN, advice
from bestarm.deploy.federation.site import KIND, Site
from bestarm.deploy.process import demand_packages
from bestarm.deploy.sources import Source
from bestarm.deploy.trial import (
    RESTORE,
    Finding,
    Wants,
    noted,
    refused,
    try_clock,
    try_folder,
    try_keys,
    try_source,
)
from bestarm.util.journal import Event, Journal
from bestarm.util.text import counted

ANSWER_SECONDS = 5.0  # time limit for an answer of the mailbox or the server

NO_RESPONDERS = "503"  # the status of an answer if nobody listens

ASK = (
    "If it runs, ask its operator whether this folder is the newest one of this client (add-client makes one)"
)


def trial(folder: Path, make: Callable[[Wants], Source], *, url: str | None = None) -> list[Finding]:
    """Check all that a client needs, and return what was found.

    Parameters
    ----------
    folder : Path
        The client's folder.
    make : callable
        Makes the source of rewards for a site.
    url : str, optional
        The address of the broker, if not the one in the folder.

    Returns
    -------
    list of Finding
        One for each check; ``ok`` is false for a problem.
    """
    demand_packages("federation")
    checked = try_keys(folder, ("client.key", "client.nk"), Place.load, _owner)
    place, found = checked
    if place is None:
        return found
    ca = place.folder / CA
    found += try_clock(folder, {str(ca): ca.read_bytes()} if ca.exists() else {})
    found += try_folder(folder)
    with contextlib.ExitStack() as stack, noted(found, "journal", RESTORE):
        site, what = _site(place, stack)
        found.append(Finding("journal", what))
        found += asyncio.run(try_source(make, site))
        found += asyncio.run(_try_broker(site, url or place.setup.url))
    return found


def _owner(place: Place) -> str:
    return f"{place.client} of run {place.setup.run.hex()[:8]}"


class _Empty:
    """A journal without events."""

    def events(self) -> Iterator[Event]:
        return iter(())

    def last(self, kind: str) -> None:
        return None


def _site(place: Place, stack: contextlib.ExitStack) -> tuple[Site, str]:
    """The site as its journal says, which is only read; and the journal in words."""
    journal: Any = _Empty()
    if not (place.folder / JOURNAL).exists():
        return Site(place, journal, speak=False), "there is none yet: a new run"
    journal = stack.enter_context(Journal.open(place.folder / JOURNAL, KIND, write=False))
    site = Site(place, journal, speak=False)
    state = "has its verdict" if site.over else "can be resumed"
    return site, f"{counted(len(journal), 'event')}, {counted(site.pulls, 'pull')}; the run {state}"


async def _try_broker(site: Site, url: str) -> list[Finding]:
    """Connect to the broker as this client would, and greet the server."""
    from bestarm.deploy.federation import wire

    place = site.place
    try:
        nc = await wire.connect(url, place.nkey, place.folder / CA, place.client, f"_INBOX_{place.slot}")
    except Unreachable as error:
        trouble: Literal["input", "unreachable"] = "input" if TAKEN in str(error) else "unreachable"
        return [Finding("broker", str(error), advice(str(error), place.client), trouble)]
    tls = "TLS" if url.startswith("tls:") else "no TLS"
    try:
        found = [Finding("broker", f"{url}: connected ({tls}), and the key is accepted")]
        return [*found, await _try_mailbox(nc, place), await _try_server(nc, site)]
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                await nc.close()


async def _try_server(nc: Any, site: Site) -> Finding:
    """Greet the server as a client does on each connection: it says which messages it has.

    Its key may have been renewed since the journal was written. As in a run, the answers bring the broadcasts
    that are missing, among them the statement that names the new key.
    """
    from bestarm.deploy.federation import wire

    subject = f"{site.place.setup.subject}.{HELLO}.{site.place.slot}"
    heard, server = site.heard, site.server
    while True:
        hello, before = greet(site, heard), heard
        parts = split_answer(await wire.request(nc, subject, hello, ANSWER_SECONDS))
        heard, server = follow(site, heard, server, parts[1:])
        answer = read_answer(site, hello, parts[0], server) if parts else None
        if answer is not None or heard == before:
            break
    if not parts:
        what = "no answer from the server: it does not run, or this is not the key that it knows"
        return Finding("server", what, f"Start the server. {ASK}", "unreachable")
    if answer is None:
        what = "the server's answer is not signed with a key that follows from the one in client.json"
        return Finding("server", what, ASK, "unreachable")
    try:
        demand_newest(site, answer)
    except OlderJournal as error:
        return refused("server", error, RESTORE)
    renewed = "" if server == site.server else "; its key was renewed, and this client will follow"
    return Finding("server", f"it answers, and has {counted(answer.due, 'message')} of this client{renewed}")


async def _try_mailbox(nc: Any, place: Place) -> Finding:
    """Ask the mailbox for a message without waiting; a message that comes is handed back at once."""
    import nats.errors

    about, fix = "mailbox", "Start the server: it makes the mailboxes"
    wish = json.dumps({"batch": 1, "no_wait": True}).encode()
    try:
        # Not a request: a stored message keeps its subject, so that it would not be taken for the answer.
        inbox = nc.new_inbox()
        answers = await nc.subscribe(inbox)
        await nc.publish(f"{place.setup.subject}.next.{place.slot}", wish, reply=inbox)
        answer = await answers.next_msg(timeout=ANSWER_SECONDS)
    except (nats.errors.Error, TimeoutError) as error:
        what = f"no answer from the mailbox ({type(error).__name__})"
        return Finding(about, what, fix, "unreachable")
    status = (answer.headers or {}).get("Status")
    if status == NO_RESPONDERS:
        return Finding(about, "there is no mailbox for this client yet", fix, "unreachable")
    if status is not None:
        return Finding(about, "there, and empty")
    await answer.nak()
    await nc.flush()
    return Finding(about, "there, with messages for this client")
