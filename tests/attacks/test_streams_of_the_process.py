"""A standard output or error that is closed, full or not read must not matter to a service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.attacks.target import Target, attacked
from tests.support.serving import wait_until


@contextmanager
def _unread_pipe() -> Iterator[int]:
    """A pipe that is full already and that nobody reads."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    try:
        yield write
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def _left_pipe() -> Iterator[int]:
    """A pipe whose reader has left."""
    read, write = os.pipe()
    os.close(read)
    try:
        yield write
    finally:
        os.close(write)


@contextmanager
def _full_device() -> Iterator[int]:
    with open("/dev/full", "wb") as file:  # noqa: PTH123 - a descriptor is wanted, not a path
        yield file.fileno()


@pytest.mark.parametrize("opened", [_unread_pipe, _left_pipe, _full_device])
def test_output_that_cannot_be_written(opened: Any) -> None:
    with opened() as descriptor, attacked(stdout=descriptor, stderr=descriptor) as target:
        _answers_and_ends(target, kept=opened is _unread_pipe)


def test_descriptors_that_are_closed_from_the_start() -> None:
    with attacked(before=["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh"]) as target:
        _answers_and_ends(target)


def _answers_and_ends(target: Target, *, kept: bool = False) -> None:
    body = json.dumps({"input": "The larvae were fed on sugar."})
    with httpx.Client(base_url=target.url, timeout=20) as client:
        for _ in range(200):
            answer = client.post(
                "/classify", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 200
    # What the start still had to do once it had announced itself is done.
    if len(os.sched_getaffinity(0)) > 1:
        wait_until(lambda: '"all_cores_threads":0' not in httpx.get(target.url + "/info").text)
    # The lines of a pipe are kept for a while, for it may still be read.
    assert target.metrics()["longdoc_dropped_log_lines_total"] > 0 or kept
    target.process.send_signal(signal.SIGTERM)
    assert target.process.wait(20) == 0


def test_lines_that_can_be_written_are_written() -> None:
    with attacked(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as target:
        for _ in range(20):
            assert target.serves()
        target.process.send_signal(signal.SIGTERM)
        printed, logged = target.process.communicate(timeout=20)
    assert b"Longdoc is ready" in printed
    assert logged.count(b"route=/classify") == 20
    assert b"draining" in logged
