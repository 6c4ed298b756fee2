"""Server processes: started on a free port, ready at the first answer, ended with children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import LongdocError

if TYPE_CHECKING:
    import psutil

ROOT = Path(__file__).resolve().parent.parent.parent
_READY_SECONDS = 300.0
_END_SECONDS = 15.0
_POLL_SECONDS = 0.02


class StartError(LongdocError):
    """A server that did not start; the message ends with the last line it printed."""


@dataclass(frozen=True)
class Running:
    """A server that has answered; `start_seconds` from its process's start to that answer."""

    port: int
    pid: int
    start_seconds: float

    @property
    def address(self) -> str:
        """Its address for an HTTP client."""
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measured_python() -> str:
    """The interpreter that servers under comparison run on: one for all, where it is set up."""
    shared = ROOT / ".venv-peers-longdoc" / "bin" / "python"
    return str(shared) if shared.exists() else sys.executable


@contextmanager
def run_service(settings: Mapping[str, object], python: str = sys.executable) -> Iterator[Running]:
    """`longdoc serve` with these settings, from process start to ready."""
    from benchmarks.load.loops import get  # noqa: PLC0415 - parses by httptools, of an extra

    port = free_port()
    command = [python, "-m", "longdoc", "serve", "--port", str(port), "--log-level", "warning"]
    for name, value in settings.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    with run_server("the service", command, port, get("/readyz"), folder=ROOT) as running:
        yield running


@contextmanager
def run_server(
    title: str,
    command: Sequence[str],
    port: int,
    ready: bytes,
    *,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[Running]:
    """A server from process start until it answers the request `ready` with status 200.

    Without a folder it runs in a temporary one, which is removed at the end.
    """
    with tempfile.TemporaryDirectory(prefix="server-", ignore_cleanup_errors=True) as temporary:
        log = Path(temporary) / "log.txt"
        began = time.perf_counter()
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(  # noqa: S603 - our own commands
                    command,
                    cwd=folder or temporary,
                    env=_environment() | dict(variables or {}),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise StartError(f"{title} did not start: {error.strerror}") from None
        try:
            _wait_for_answer(process, title, port, ready, log)
            yield Running(port, process.pid, time.perf_counter() - began)
        finally:
            end_process(process, _END_SECONDS)


def _environment() -> dict[str, str]:
    """This process's variables with the project to import, and Python keeping what it compiles."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(ROOT)}


def _wait_for_answer(
    process: subprocess.Popen[bytes], title: str, port: int, ready: bytes, log: Path
) -> None:
    from benchmarks.load.loops import run, send_once  # noqa: PLC0415 - as above

    until = time.perf_counter() + _READY_SECONDS
    while time.perf_counter() < until:
        if process.poll() is not None:
            reason = _last_line(log) or f"it ended with code {process.returncode}"
            raise StartError(f"{title} did not start: {reason}")
        if run(send_once(port, ready)).status == 200:
            return
        time.sleep(_POLL_SECONDS)
    raise StartError(f"{title} gave no answer in {_READY_SECONDS:g} s: {_last_line(log)}")


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300].removeprefix("longdoc serve: ") if lines else ""


def end_process(process: subprocess.Popen[Any], patience: float = 10.0) -> None:
    """Send SIGTERM, wait, and kill whatever of its processes is left."""
    import psutil  # noqa: PLC0415 - a command's help needs none

    family = family_of(process.pid)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience)
    _, alive = psutil.wait_procs(family, timeout=1)
    for each in alive:
        with suppress(psutil.Error):
            each.kill()
    psutil.wait_procs(alive, timeout=5)
    process.wait(5)


def family_of(pid: int) -> list[psutil.Process]:
    """A process and all its descendants."""
    import psutil  # noqa: PLC0415

    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def unwind_when_terminated() -> None:
    """Let SIGTERM do what Ctrl-C does: results are kept, and no process is left behind."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
