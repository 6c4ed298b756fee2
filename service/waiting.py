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
    task = asyncio.create_task(work)
    leaving = asyncio.create_task(client_left(request.receive))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientLeft
    finally:
        task.cancel()
        if not leaving.cancel():
            leaving.exception()  # it has been noticed


async def client_left(receive: Receive) -> NoReturn:
    """Raise ClientLeft when the caller hangs up; to be called once the body is read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientLeft
