"""Runs what a page of the docs tells its reader to type, and compares what comes out.

    python -m scripts.docs_commands docs/quick-start.md

Blocks fenced as `sh` and `python` run in order, in one folder that is empty at first. A block
fenced as `json` or `text` right after one is its output: JSON is compared as far as it is shown,
numbers to two digits; in text, `…` stands for anything or nothing. A comment before a block says
what is special about it:

    <!-- docs: background -->        it runs on, as a service does, until the page ends
    <!-- docs: not run, REASON -->   what needs another machine, or hours
    <!-- docs: clone -->             runs in a fresh clone only: see scripts/newcomer
    <!-- docs: with NAME=VALUE -->   variables that make it short
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
ADDRESS = "127.0.0.1:8000"
_FENCE = re.compile(
    r"^(?:<!-- docs: (?P<mark>[^>]*?) -->\n+)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_RUN = ("sh", "python")
_OUTPUT = ("json", "text")


@dataclass
class Block:
    """A command of a page, its mark and the output shown after it."""

    language: str
    code: str
    line: int
    mark: str = ""
    shown: tuple[str, str] | None = None  # language and content

    @property
    def is_run(self) -> bool:
        """Whether it can run anywhere."""
        return not self.mark.startswith(("not run", "clone"))


@dataclass
class Outcome:
    """What became of a page: a line for each block with its seconds."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def blocks_of(page: str) -> list[Block]:
    """The commands of a page, in order."""
    found: list[Block] = []
    end = -1
    for match in _FENCE.finditer(page):
        language, code = match["language"], match["code"]
        if language in _RUN:
            line = page[: match.start("code")].count("\n")
            found.append(Block(language, code, line, match["mark"] or ""))
            end = match.end()
        elif language in _OUTPUT and found and page[end : match.start()].count("\n\n") <= 2:
            found[-1].shown = found[-1].shown or (language, code)
    return found


def unmarked(page: str) -> list[str]:
    """Commands in blocks without a language, which nothing would run."""
    command = re.compile(r"^(?:\$ )?(?:longdoc|make|curl|pip|docker|python) ", re.MULTILINE)
    return [
        m["code"] for m in _FENCE.finditer(page) if not m["language"] and command.search(m["code"])
    ]


def run_page(path: Path, *, clone: Path | None = None) -> Outcome:
    """Run all blocks of a page; those for a fresh clone only where there is one."""
    outcome = Outcome()
    running: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory(prefix="docs-") as scratch:
        folder = clone or Path(scratch)
        port = _free_port()
        try:
            for block in blocks_of(path.read_text(encoding="utf-8")):
                served = bool(running) and "background" in block.mark  # by `make serve`, above
                if served or not (block.is_run or (clone and block.mark.startswith("clone"))):
                    continue
                _run_block(block, path.name, folder, port, running, outcome)
        finally:
            for process in running:
                _end(process)
    return outcome


def _run_block(
    block: Block,
    page: str,
    folder: Path,
    port: int,
    running: list[subprocess.Popen[str]],
    outcome: Outcome,
) -> None:
    code = block.code.replace(ADDRESS, f"127.0.0.1:{port}")
    where = f"{page}:{block.line + 1}"
    arguments = [sys.executable, "-c", code]
    if block.language == "sh":
        arguments = ["bash", "-euo", "pipefail", "-c", code]
    variables = _environment(folder, port) | dict(_variables(block.mark))
    started = time.monotonic()
    if "background" in block.mark:
        process = subprocess.Popen(
            arguments, cwd=folder, env=variables, text=True, start_new_session=True
        )
        running.append(process)
        if not _answers(port, process):
            outcome.faults.append(f"{where}: nothing is ready on port {port}")
    else:
        done = subprocess.run(
            arguments, cwd=folder, env=variables, text=True, capture_output=True, check=False,
            timeout=1800,
        )  # fmt: skip
        if done.returncode != 0:
            outcome.faults.append(f"{where} ended with {done.returncode}:\n{code}\n"
                                  f"{done.stdout[-2000:]}{done.stderr[-2000:]}")  # fmt: skip
        elif block.shown and (fault := difference(*block.shown, done.stdout)):
            outcome.faults.append(f"{where} prints something else: {fault}")
    seconds = time.monotonic() - started
    outcome.lines.append(f"{seconds:7.1f} s  {where}  {block.code.strip().splitlines()[0][:70]}")


def difference(language: str, shown: str, printed: str) -> str:
    """How an output differs from the one that a page shows; nothing when it does not."""
    if language == "json":
        missing = list(_missing(json.loads(shown), json.loads(printed), "answer"))
        return "; ".join(missing)
    pattern = re.sub(r"(\\ )?…(\\ )?", ".*?", re.escape(" ".join(shown.split())))
    if re.search(pattern, " ".join(printed.split())):
        return ""
    return f"\n{printed}\nand not\n{shown}"


def _missing(shown: Any, found: Any, where: str) -> Iterator[str]:
    if isinstance(shown, dict) and isinstance(found, dict):
        for name, value in shown.items():
            if name in found:
                yield from _missing(value, found[name], f"{where}.{name}")
            else:
                yield f"{where} has no {name}"
    elif isinstance(shown, list) and isinstance(found, list) and len(shown) == len(found):
        for index, (one, other) in enumerate(zip(shown, found, strict=True)):
            yield from _missing(one, other, f"{where}[{index}]")
    elif isinstance(shown, float) and isinstance(found, float | int):
        if abs(shown - found) > 0.01 * max(1.0, abs(shown)):
            yield f"{where} is {found}, and {shown} is shown"
    elif shown != found:
        yield f"{where} is {found!r}, and {shown!r} is shown"


def _environment(folder: Path, port: int) -> dict[str, str]:
    """`longdoc` and `python` on the path, and services on a port of their own."""
    if (folder / "longdoc.py").is_file():  # a clone has its own, as the page says
        path = f"{folder}/.venv/bin:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "LONGDOC_PORT": str(port)}
    programs = folder / ".bin"
    if not programs.is_dir():
        programs.mkdir()
        for name, words in (
            ("longdoc", [sys.executable, "-m", "longdoc"]),
            ("python", [sys.executable]),
        ):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LONGDOC_PORT": str(port),
    }


def _variables(mark: str) -> Iterable[tuple[str, str]]:
    return re.findall(r"(\w+)=(\S+)", mark)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int, process: subprocess.Popen[str], seconds: float = 600.0) -> bool:
    """Whether a service is ready soon; a clone sets itself up first."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10):
                return True
        except OSError:  # nothing listens yet, or it is not ready
            time.sleep(0.1)
    return False


def _end(process: subprocess.Popen[str]) -> None:
    """End a service and what started it."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    process.wait(30)


def main(arguments: list[str]) -> int:
    """Run pages and print what each command took; `--clone` runs them in this clone."""
    clone = ROOT if "--clone" in arguments else None
    failed = False
    for page in (name for name in arguments if name != "--clone"):
        outcome = run_page(Path(page), clone=clone)
        print("\n".join([*outcome.lines, *outcome.faults]), flush=True)
        failed = failed or bool(outcome.faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
