"""Waiting for an answer only as long as somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from service.http.body import ClientLeft

T = TypeVar("T")

_UNWATCHED_SECONDS = 0.2


async def unless_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The work's result; if the caller hangs up first, the work is cancelled.

    One looks for the caller only after a moment: most answers are there before, and a task for
    each would cost more than the work that is dropped sooner.
    """
    working = asyncio.current_task()
    left = False
    watcher: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal left
        try:
            await client_left(request.receive)
        except ClientLeft:
            left = True
            if working is not None:
                working.cancel()

    def start_watching() -> None:
        nonlocal watcher
        watcher = asyncio.create_task(watch())

    timer = asyncio.get_running_loop().call_later(_UNWATCHED_SECONDS, start_watching)
    try:
        return await work
    except asyncio.CancelledError:
        if left and working is not None and working.uncancel() == 0:
            raise ClientLeft from None
        raise
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()


async def client_left(receive: Receive) -> NoReturn:
    """Raise ClientLeft when the caller hangs up; to be called once the body is read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientLeft
