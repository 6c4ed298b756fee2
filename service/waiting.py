"""Waiting for an answer only as long as somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from service.body import ClientLeft

T = TypeVar("T")


async def unless_client_leaves(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The work's result; if the caller hangs up first, the work is cancelled."""
    working = asyncio.current_task()
    left = False

    async def watch() -> None:
        nonlocal left
        try:
            await client_left(request.receive)
        except ClientLeft:
            left = True
            if working is not None:
                working.cancel()

    watcher = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if left and working is not None and working.uncancel() == 0:
            raise ClientLeft from None
        raise
    finally:
        watcher.cancel()


async def client_left(receive: Receive) -> NoReturn:
    """Raise ClientLeft when the caller hangs up; to be called once the body is read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientLeft
