"""Serve an experiment: the HTTP interface, the deadlines, and the webhooks, until the process is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bestarm.deploy.experiment.callers import Callers
from bestarm.deploy.experiment.experiment import Experiment
from bestarm.deploy.experiment.folder import RECORD, STOP, callers_of, journal_of
from bestarm.deploy.experiment.limits import RATE, Limits
from bestarm.deploy.experiment.queue import Queue
from bestarm.deploy.experiment.web import Pages, application
from bestarm.deploy.experiment.webhooks import Hooks, news
from bestarm.errors import InputError

try:
    import uvicorn
    from starlette.types import ASGIApp
except ImportError as error:
    raise InputError(
        f'serving an experiment needs the package "{error.name}"',
        fix='Install it with: pip install "bestarm[serve]"',
    ) from None

MOST_CONNECTIONS = 4_000
TICK = 1.0  # seconds between two looks at deadlines and webhooks
log = logging.getLogger("bestarm")


class _Quiet(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server_of(app: ASGIApp) -> uvicorn.Server:
    """A server of this application, which leaves signals to its caller."""
    return _Quiet(
        uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", server_header=False,
            proxy_headers=False, timeout_graceful_shutdown=10, limit_concurrency=MOST_CONNECTIONS,
        )
    )  # fmt: skip


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 chooses a free port."""
    try:
        found = socket.create_server((host, port), backlog=1024, family=_family(host))
    except (OSError, OverflowError) as error:
        why = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        raise InputError(
            f"can't listen on {host}, port {port}: {why}", fix="Choose another --port, or omit it"
        ) from None
    return found


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


async def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    webhooks: Sequence[str] = (),
    stalled: float | None = None,
    rate: float = RATE,
    pages: Pages | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the experiment in a folder until cancelled.

    Parameters
    ----------
    folder : Path
        The folder that ``bestarm experiment new`` created.
    host, port : str, int
        Where to listen; port 0 chooses a free port.
    webhooks : sequence of str
        The addresses that are told about the verdict, alarms and sites that stand still.
    stalled : float, optional
        After how many seconds a site that a block waits for counts as standing still.
    rate : float
        Requests per second of one caller.
    pages : callable, optional
        Makes the page of a status and alarms.
    ready : callable
        Called with the address when it takes requests.
    """
    experiment = Experiment.open(journal_of(folder))
    with contextlib.ExitStack() as stack:
        stack.enter_context(experiment)
        callers = callers_of(folder)
        place = folder if folder.is_dir() else folder.parent
        hooks = Hooks(webhooks, place, experiment.settings.key)
        door = stack.enter_context(listen(host, port))
        queue = Queue(experiment)
        stack.callback(queue.close)
        server = server_of(application(queue, experiment, callers, pages, Limits(rate)))
        serving = asyncio.create_task(server.serve(sockets=[door]))
        watching = asyncio.create_task(_watch(experiment, place, queue, hooks, stalled, callers))
        try:
            while not server.started and not serving.done():
                await asyncio.sleep(0.01)
            shown = f"[{host}]" if ":" in host else host
            ready(f"http://{shown}:{door.getsockname()[1]}")
            done, _ = await asyncio.wait({serving, watching}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            watching.cancel()
            server.should_exit = True
            await asyncio.gather(serving, watching, return_exceptions=True)


async def _watch(
    experiment: Experiment,
    folder: Path,
    queue: Queue,
    hooks: Hooks,
    stalled: float | None,
    callers: Callers,
) -> None:
    """Let deadlines take effect, end the experiment if asked to, write the record, and send notices."""
    while True:
        with contextlib.suppress(InputError):  # a file that can't be read: the callers stay as they were
            callers.refresh()
        try:
            if (folder / STOP).exists():
                await asyncio.to_thread(experiment.stop)
            if experiment.verdict is not None and not (folder / RECORD).exists():
                await asyncio.to_thread(experiment.record().save, folder / RECORD)
            (folder / STOP).unlink(missing_ok=True)
            found = await asyncio.to_thread(news, experiment, stalled)
            await hooks.tell(found, time.monotonic())
        except InputError as error:
            queue.trouble = queue.trouble or str(error)
            log.error("%s", error)
        await asyncio.sleep(TICK)
