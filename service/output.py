"""Standard output and error that never stop a service, whatever becomes of who reads them.

A pipe that nobody reads blocks its writer, a closed one or a full disk raises. A service prints
lines for people and collectors, who may come and go; so a thread of their own writes them, and what
cannot be written is dropped and counted.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TextIO

_MOST_LINES = 4000  # that wait to be written
_LONGEST = 16_384  # characters written at once
_GATHERING = 0.01  # seconds: lines written together cost the threads that wait a switch less each
_FLUSH_SECONDS = 1.0  # seconds that a flush waits at most


class Output(io.TextIOBase):
    """A stream of text to a file descriptor; None, or one that fails, takes nothing."""

    encoding = "utf-8"

    def __init__(self, descriptor: int | None) -> None:
        super().__init__()
        self.dropped = 0  # lines; several threads add to it, and one that is lost matters little
        self._descriptor = descriptor
        self._partial = threading.local()
        self._waiting: SimpleQueue[str | threading.Event] = SimpleQueue()
        threading.Thread(target=self._write_on, name="output", daemon=True).start()

    def write(self, text: str) -> int:
        """Queue the lines that are whole; what has no end yet waits for it."""
        text_so_far: str = getattr(self._partial, "text", "") + text
        lines, newline, rest = text_so_far.rpartition("\n")
        self._partial.text = rest[:_LONGEST]
        if newline:
            if self._waiting.qsize() < _MOST_LINES:
                self._waiting.put(lines[:_LONGEST] + newline)
            else:
                self.dropped += lines.count("\n") + 1
        return len(text)

    def flush(self) -> None:
        """Wait until all is written, but not for long."""
        written = threading.Event()
        self._waiting.put(written)
        written.wait(_FLUSH_SECONDS)

    def fileno(self) -> int:
        """The file descriptor."""
        if self._descriptor is None:
            raise io.UnsupportedOperation("closed from the start")
        return self._descriptor

    def isatty(self) -> bool:
        """Whether a person reads it."""
        return self._descriptor is not None and os.isatty(self._descriptor)

    def writable(self) -> bool:
        """Yes: what cannot be written is dropped."""
        return True

    def _write_on(self) -> None:
        while True:
            batch = [self._waiting.get()]
            if not isinstance(batch[0], threading.Event):
                time.sleep(_GATHERING)
            with suppress(Empty):
                while len(batch) < _MOST_LINES:
                    batch.append(self._waiting.get_nowait())
            self._put_out([item for item in batch if isinstance(item, str)])
            for item in batch:
                if isinstance(item, threading.Event):
                    item.set()

    def _put_out(self, lines: list[str]) -> None:
        text = "".join(lines)
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            if self._descriptor is None:
                raise OSError("closed from the start")
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:  # a pipe that somebody made so says when it has room
                    select.select([], [self._descriptor], [])
        except (OSError, ValueError):
            self.dropped += bytes(data).count(b"\n") or text.count("\n")


def detach() -> None:
    """From now on, what the process prints goes out through threads of its own."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    _occupy_standard_descriptors()
    sys.stdout, sys.stderr = Output(_descriptor(sys.stdout)), Output(_descriptor(sys.stderr))
    atexit.register(drain)


def drain() -> None:
    """Give what is still to be written a moment: before the process ends."""
    for output in _outputs():
        output.flush()


def dropped_lines() -> int:
    """Lines that could not be written."""
    return sum(output.dropped for output in _outputs())


def _outputs() -> Iterable[Output]:
    return (stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, Output))


def _descriptor(stream: TextIO | None) -> int | None:
    try:
        return stream.fileno()  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return None


def _occupy_standard_descriptors() -> None:
    """Keep the numbers of closed streams from going to a socket, which libraries would print to."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
