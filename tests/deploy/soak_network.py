"""A network on loopback whose links can be cut, held up, or lost on one side only, for the soak tests."""

from __future__ import annotations

import asyncio
import contextlib
import threading

OPEN, CUT, HELD, HALF = STATES = ("open", "cut", "held", "half")


class Link:
    """A port that leads to another one.

    While it is CUT, its connections are ended and new ones are refused. While it is HELD, nothing passes,
    and what was on its way arrives later. HALF is like CUT, but the far end is never told.
    """

    def __init__(self, target):
        self.target, self.state = target, OPEN
        self.passes = asyncio.Event()
        self.passes.set()
        self.pairs, self.tasks = [], set()

    async def start(self):
        self.server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    def become(self, state):
        self.state = state
        if state == HELD:
            self.passes.clear()
        else:
            self.passes.set()
        if state in (CUT, HALF):
            pairs, self.pairs = self.pairs, [] if state == CUT else self.pairs
            for near, far in pairs:
                near.transport.abort()
                if state == CUT:
                    far.transport.abort()

    async def _join(self, reader, near):
        if self.state in (CUT, HALF):
            near.transport.abort()
            return
        await self.passes.wait()
        try:
            back, far = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            near.transport.abort()
            return
        self.pairs.append((near, far))
        for source, sink, told in ((reader, far, True), (back, near, False)):
            task = asyncio.ensure_future(self._pump(source, sink, told))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _pump(self, source, sink, up):
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                await self.passes.wait()
                sink.write(data)
                await sink.drain()
        await self.passes.wait()
        if not (up and self.state == HALF):
            sink.close()

    async def stop(self):
        self.server.close()
        for pair in self.pairs:
            for writer in pair:
                writer.transport.abort()
        for task in list(self.tasks):
            task.cancel()


class LoopbackNetwork:
    """Links by name, in a thread of their own."""

    def __init__(self):
        self.links = {}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def _do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def link(self, name, target):
        """Make a link to a port of this computer and return the port to use instead."""

        async def make():
            self.links[name] = Link(target)
            await self.links[name].start()

        self._do(make())
        return self.links[name].port

    def become(self, names, state):
        async def change():
            for name in names:
                self.links[name].become(state)

        self._do(change())

    def stop(self):
        async def end():
            for link in self.links.values():
                await link.stop()
            await asyncio.sleep(0)

        self._do(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(30)
        self.loop.close()
