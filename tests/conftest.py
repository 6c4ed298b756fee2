"""Shared by all tests: one thread per process, and which files `make test-fast` leaves out."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
# Where shells start tests in the background they ignore Ctrl-C, and so would what tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
#: Files whose tests export, train, render, wait or start processes, and everything in e2e/:
#: `pytest --durations=0` shows what belongs here.
SLOW = (
    "attacks/",
    "benchmarks/engine/test_command.py",
    "benchmarks/fidelity/test_fidelity.py",
    "benchmarks/peers/test_comparison.py",
    "benchmarks/peers/test_parts.py",
    "benchmarks/servers/test_process.py",
    "benchmarks/service/test_measures.py",
    "contract/test_attention_cost.py",
    "contract/test_engine_contract.py",
    "contract/test_engine_kit.py",
    "contract/test_engine_memory.py",
    "dashboard/test_charts.py",
    "dashboard/test_remote.py",
    "e2e/",
    "export/test_certificate.py",
    "export/test_command.py",
    "export/test_encoders.py",
    "export/test_graph.py",
    "project/test_longdoc.py",
    "service/http/test_body.py",
    "service/http/test_connection.py",
    "service/http/test_stream.py",
    "service/startup/test_speed_up.py",
    "service/test_output.py",
    "service/test_verify.py",
    "service/text/test_evidence.py",
    "training/arena/test_running.py",
    "training/arena/test_tasks.py",
    "training/finetuning/test_run.py",
    "training/importing/",
    "training/pretraining/test_run.py",
    "training/test_run.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files as slow."""
    for item in items:
        if item.path.is_relative_to(TESTS):
            place = item.path.relative_to(TESTS).as_posix()
            if place.startswith(SLOW):
                item.add_marker(pytest.mark.slow)
