"""Work that grows with what a caller sent, away from the event loop.

The loop answers everybody, so it handles itself only what takes it a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

SMALL = 16_384  # bytes that are parsed on the event loop, in less time than a thread takes to start

_THREADS = 2  # Python runs one at a time; the second keeps a large input from holding up the next

T = TypeVar("T")


class Offload:
    """Runs calls in threads, few at once: what a caller left behind cannot pile up in a queue."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_THREADS)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="parsing")

    async def run(self, size: int, call: Callable[[], T]) -> T:
        """The call's result; a call on a small input is made here and now."""
        if size <= SMALL:
            return call()
        await self._room.acquire()
        working = asyncio.get_running_loop().run_in_executor(self._threads, call)
        working.add_done_callback(lambda _: self._room.release())
        try:
            return await asyncio.shield(working)  # a thread goes on; its place stays taken
        finally:
            # An error holds this frame, and would hold the input for as long as its future is here.
            del working, call

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
