"""Opens bundles as the service does, each in a process of its own with little time and memory.

Run as a program it reads a folder's path a line and answers with a line of JSON. Modules are
loaded once; each bundle is opened in a fork, so that a crash or a hang is that bundle's alone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 20
MEMORY = 1 << 30  # that opening may take beyond what the modules took


@dataclass(frozen=True)
class Attempt:
    """What opening a bundle came to: `refused`, `served`, or what went wrong."""

    outcome: str
    message: str
    seconds: float
    megabytes: float


class Opener:
    """A process that opens bundles."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def open(self, folder: Path) -> Attempt:
        """Open a bundle and classify with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{folder}\n")
        self._process.stdin.flush()
        return Attempt(**json.loads(self._process.stdout.readline()))


@contextmanager
def opener() -> Iterator[Opener]:
    """A process that opens bundles, ended at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.stranger"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield Opener(process)
        assert process.stdin is not None
        process.stdin.close()


def _open(folder: Path) -> str:
    """Everything that a start does with a bundle; the answer's label."""
    import numpy as np  # noqa: PLC0415

    from models.bundle import load_bundle  # noqa: PLC0415
    from service.engines import open_engine  # noqa: PLC0415
    from service.startup.selftest import check_reference  # noqa: PLC0415

    bundle = load_bundle(folder)
    engine = open_engine(bundle, engine="onnxruntime", device="cpu")
    tokenizer = bundle.tokenizer()

    def read(text: str) -> Any:
        return np.array(tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    check_reference(engine, read, bundle.reference())
    logits = engine.run(np.array([[1, 2]]), np.array([2])).logits[0]
    assert np.isfinite(logits).all()
    return bundle.manifest.labels[int(logits.argmax())]


def _attempt(folder: Path, answer: int) -> None:
    from models.errors import LongdocError  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    try:
        outcome, message = "served", _open(folder)
    except LongdocError as error:
        outcome, message = "refused", str(error)
    except BaseException as error:
        outcome, message = "traceback", repr(error)
    os.write(answer, json.dumps([outcome, message]).encode())
    os._exit(0)


def _watch(folder: Path) -> Attempt:
    reading, writing = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _attempt(folder, writing)
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(SECONDS)
    content = b""
    while part := os.read(reading, 1 << 16):
        content += part
    os.close(reading)
    _, status, usage = os.wait4(child, 0)
    signal.alarm(0)
    outcome, message = json.loads(content) if content else ("killed", f"by {status}")
    return Attempt(outcome, message, time.monotonic() - began, usage.ru_maxrss / 1024)


def _main() -> None:
    import onnxruntime  # noqa: F401, PLC0415 - loaded before the forks

    import models.onnx_network  # noqa: PLC0415
    import models.tokenizer_file  # noqa: PLC0415
    import service.engines.ort  # noqa: PLC0415
    import service.startup.selftest  # noqa: F401, PLC0415

    del models
    for line in sys.stdin:
        print(json.dumps(vars(_watch(Path(line.rstrip("\n"))))), flush=True)


if __name__ == "__main__":
    _main()
