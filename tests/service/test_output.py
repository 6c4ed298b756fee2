"""What a service prints goes out in order, or is dropped and counted; nobody waits for it."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from service import logs, output
from service.metrics import Metrics
from service.output import Output
from tests.support.serving import wait_until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        try:
            os.close(descriptor)
        except OSError:
            continue


def test_lines_come_in_order_and_whole(pipe: tuple[int, int]) -> None:
    read, write = pipe
    stream = Output(write)

    def print_some(name: str) -> None:
        for index in range(100):
            print(name, index, "ü", file=stream)

    threads = [threading.Thread(target=print_some, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.flush()
    lines = os.read(read, 1 << 20).decode().splitlines()
    for name in "abc":
        mine = [line for line in lines if line.startswith(name)]
        assert mine == [f"{name} {index} ü" for index in range(100)]
    assert len(lines) == 300
    assert stream.dropped == 0


@pytest.mark.parametrize("blocking", [True, False])
def test_a_pipe_that_nobody_reads_holds_up_nobody(pipe: tuple[int, int], blocking: bool) -> None:
    read, write = pipe
    os.set_blocking(write, blocking)
    stream = Output(write)
    begin = time.thread_time()
    for _ in range(20_000):
        print("x" * 99, file=stream)
    assert time.thread_time() - begin < 2.0
    begin = time.monotonic()
    stream.flush()
    assert time.monotonic() - begin < 5.0
    assert 10_000 < stream.dropped < 20_000
    arrived = 0
    while arrived < (20_000 - stream.dropped) * 100:  # what was kept comes when somebody reads
        arrived += len(os.read(read, 1 << 16))


def test_what_cannot_be_written_is_counted(pipe: tuple[int, int]) -> None:
    read, write = pipe
    os.close(read)
    for descriptor in (write, os.open("/dev/full", os.O_WRONLY), None):
        stream = Output(descriptor)
        stream.write("a\nb")
        stream.write("c\nd\n")
        stream.flush()
        assert stream.dropped == 3
        stream.write("e\n")
        stream.flush()
        assert stream.dropped == 4
        if descriptor not in (write, None):
            os.close(int(descriptor or 0))


def test_it_stands_for_a_stream(pipe: tuple[int, int]) -> None:
    stream = Output(pipe[1])
    assert stream.writable()
    assert not stream.isatty()
    assert stream.fileno() == pipe[1]
    assert stream.encoding == "utf-8"
    with pytest.raises(io.UnsupportedOperation):
        Output(None).fileno()
    assert not Output(None).isatty()


def test_dropped_lines_are_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Output(None))
    print("lost", file=sys.stderr)
    wait_until(lambda: output.dropped_lines() == 1)
    assert b"longdoc_dropped_log_lines_total 1.0" in Metrics().text()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_log_line_is_one_line_of_harmless_characters(log_format: str) -> None:
    root = logging.getLogger()
    before = root.handlers, root.level
    try:
        logs.configure(log_format, "info")
        (handler,) = root.handlers
        path = "/x\n2026 info ready\x1b[2J\x9b2J\u202e\u2028\x00"
        try:
            raise ValueError(path)
        except ValueError:
            record = logging.LogRecord(
                "a", logging.ERROR, "", 0, "fault at %s", (path,), sys.exc_info()
            )
        text = handler.format(record)
        rows = text.split("\n")
        assert all(row.isprintable() for row in rows)
        assert not any(row.startswith("2026 info ready") for row in rows)
    finally:
        root.handlers, root.level = before
