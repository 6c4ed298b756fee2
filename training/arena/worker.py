"""One run in a process of its own: `python -m training.arena.worker FOLDER KEY`."""

from __future__ import annotations

import os
import platform
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from models.errors import LongdocError
from training.arena.records import RunSpec, spec_path, write_result
from training.arena.running import Run
from training.storage import load_json


def main(folder: Path, spec: RunSpec) -> None:
    """Train and test on one thread; the state goes when the result is there."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    state = folder / "states" / f"{spec.key}.safetensors"
    outcome = Run(spec, state).train()
    write_result(folder, spec, outcome, environment())
    state.unlink(missing_ok=True)


def _end_with_parent() -> None:
    """End this process when the one that started it has ended; its state is stored."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def environment() -> dict[str, Any]:
    """What figures depend on besides the run."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "longdoc": version("longdoc"),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        main(Path(sys.argv[1]), RunSpec(**load_json(spec_path(Path(sys.argv[1]), sys.argv[2]))))
    except LongdocError as error:
        sys.exit(f"{error}")
