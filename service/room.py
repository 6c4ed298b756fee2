"""Bulk requests that wait for room in the queue, instead of being refused."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from service.errors import Overloaded


class Room:
    """Waits until `admit` takes a request's works; the first that came is the first to look."""

    def __init__(self, admit: Callable[[Sequence[float], float], None]) -> None:
        self._admit = admit
        #: Those that wait; what leaves the queue calls `look` when there are any.
        self.waiters: deque[asyncio.Future[None]] = deque()

    async def wait(self, works: Sequence[float], patience: float) -> None:
        """Wait behind earlier bulk requests until the queue takes this one."""
        loop, woken = asyncio.get_running_loop(), False
        while True:
            waiter = loop.create_future()  # before looking: what ends from now on wakes it
            (self.waiters.appendleft if woken else self.waiters.append)(waiter)
            try:
                self._admit(works, patience)
            except Overloaded:
                woken = await self._woken(waiter)
            else:
                self.waiters.remove(waiter)
                self.look()  # there may be some for the next one, too
                return

    async def _woken(self, waiter: asyncio.Future[None]) -> bool:
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self.waiters:
                self.waiters.remove(waiter)
            self.look()
            raise
        return True

    def look(self) -> None:
        """Have the next request look for room: something has left the queue. Thread-safe."""
        if self.waiters:
            with suppress(IndexError, RuntimeError):  # none left, or the event loop has ended
                self.waiters[0].get_loop().call_soon_threadsafe(self._wake_next)

    def _wake_next(self) -> None:
        if self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
