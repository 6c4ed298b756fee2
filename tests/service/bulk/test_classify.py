"""Rows classified many at once come back in order, and the rows' end is told last."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest

from service.bulk import classify as module
from service.bulk.classify import classify_rows
from service.bulk.source import Row, SourceError


def _rows(count: int, *, broken_at: int | None = None) -> Iterator[Row]:
    for n in range(count):
        if n == broken_at:
            raise SourceError("damaged")
        yield Row(n, f"text {n}", "wrong" if n % 10 == 3 else None, n)


async def _slowly(text: str) -> dict[str, Any]:
    for _ in range(random.randrange(5)):
        await asyncio.sleep(0)
    return {"label": text}


async def _collect(rows: Iterator[Row], got: list[tuple[Any, dict[str, Any]]]) -> None:
    async for row, answer in classify_rows(rows, _slowly):
        got.append((row.id, answer))


def test_every_row_has_its_own_answer_in_order() -> None:
    got: list[tuple[Any, dict[str, Any]]] = []
    asyncio.run(_collect(_rows(1000), got))
    assert [n for n, _ in got] == list(range(1000))
    for n, answer in got:
        assert answer == ({"error": "wrong"} if n % 10 == 3 else {"label": f"text {n}"})


def test_no_more_rows_are_held_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROWS", 40)
    under_way = most = 0

    async def counted(_: str) -> dict[str, Any]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return {}

    async def run() -> None:
        async for _ in classify_rows(_rows(500), counted):
            pass

    asyncio.run(run())
    assert 1 < most <= 40 + module._READ_ROWS


def test_what_stands_before_a_damage_is_answered_first() -> None:
    got: list[tuple[Any, dict[str, Any]]] = []
    with pytest.raises(SourceError, match="damaged"):
        asyncio.run(_collect(_rows(200, broken_at=77), got))
    # The reader had 64 rows before the piece that the damage is in.
    assert [n for n, _ in got] == list(range(64))


def test_a_consumer_that_stops_leaves_nothing_running() -> None:
    async def run() -> int:
        answers = classify_rows(_rows(300), _slowly)
        async for row, _ in answers:
            if row.id == 5:
                break
        await answers.aclose()
        await asyncio.sleep(0)
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1
