"""Classifies rows, many at once, and gives the results back in the order of the rows."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

from models.errors import LongdocError
from service.bulk.source import Row

#: Classifies a text; what is wrong with it comes back as a dictionary with an `error`.
Classify = Callable[[str], Awaitable[dict[str, Any]]]

# A long document takes as long as hundreds of short ones: results behind it wait for it, and the
# workers need others to go on with.
_MOST_ROWS = 512
_MOST_CHARACTERS = 16 << 20
_READ_ROWS = 32  # rows read at a time
_READ_CHARACTERS = 1 << 20


async def classify_rows(
    rows: Iterator[Row], classify: Classify
) -> AsyncGenerator[tuple[Row, dict[str, Any]], None]:
    """Each row with its result. What ends the rows is raised after all before it are answered."""
    pending: deque[tuple[Row, asyncio.Task[dict[str, Any]]]] = deque()
    characters = 0
    reading: asyncio.Task[list[Row]] | None = _start_reading(rows)
    failure: LongdocError | None = None
    try:
        while reading or pending:
            if reading and len(pending) < _MOST_ROWS and characters < _MOST_CHARACTERS:
                try:
                    read = await reading
                except LongdocError as error:
                    read, failure = [], error
                for row in read:
                    characters += len(row.text)
                    pending.append((row, asyncio.create_task(_answer(row, classify))))
                reading = _start_reading(rows) if read else None
            else:
                row, task = pending.popleft()
                answer = await task
                characters -= len(row.text)
                yield row, answer
    finally:
        for _, task in pending:
            task.cancel()
        if reading:
            reading.cancel()
    if failure is not None:
        raise failure


def _start_reading(rows: Iterator[Row]) -> asyncio.Task[list[Row]]:
    return asyncio.create_task(asyncio.to_thread(_read, rows))


def _read(rows: Iterator[Row]) -> list[Row]:
    """The next few rows; none at the end."""
    read: list[Row] = []
    characters = 0
    for row in rows:
        read.append(row)
        characters += len(row.text)
        if len(read) == _READ_ROWS or characters >= _READ_CHARACTERS:
            break
    return read


async def _answer(row: Row, classify: Classify) -> dict[str, Any]:
    return {"error": row.error} if row.error is not None else await classify(row.text)
