"""What the arena runs: tasks, budgets, and each mechanism's parameters, in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from training.arena.listops import ListOps
from training.arena.recall import Recall
from training.arena.tasks import Task

#: Names of the controls that are trained like a mechanism.
NO_ATTENTION = "no attention"
NO_MEMORY = "infinite_former without memory"

#: ∞-former's segment; the tasks of memory keep what is asked for outside the last one.
SEGMENT = 64

#: The tasks that need no data.
_MADE: tuple[Task, ...] = (
    Recall("recall-8", 8, (256, 1024)),
    Recall("recall-16", 16, (256, 1024)),
    Recall("memory-1", 1, (256,), within=0.7, first_length=256, asked_first=False),
    Recall("memory-2", 2, (256,), within=0.7, first_length=256, asked_first=False),
    ListOps("listops-20", 20, 100),
    ListOps("listops-100", 100, 400),
    ListOps("listops-500", 500, 2000),
)


def _of_code(task: Task) -> Callable[[str | None], Task]:
    return lambda _source: task


def _text(source: str | None) -> Task:
    from training.arena.text import read_text  # noqa: PLC0415 - loads what reads all formats

    return read_text(source)


#: Tasks by name; what makes one is given the source of the labelled documents, if any.
TASKS: Mapping[str, Callable[[str | None], Task]] = {
    **{task.name: _of_code(task) for task in _MADE},
    "text": _text,
}


@dataclass(frozen=True)
class Budget:
    """How much a run may take.

    seconds    of processor time for a run on a task; without any, the task needs a larger budget
    seeds      runs of every mechanism on a task
    batch      documents a step
    tested     documents of a test
    longest    tokens up to which recall is tested beyond what was trained
    """

    seconds: Mapping[str, float]
    seeds: int
    batch: int
    tested: int
    longest: int


BUDGETS: Mapping[str, Budget] = {
    "small": Budget(
        {
            "recall-8": 110, "recall-16": 110, "memory-1": 40, "memory-2": 60,
            "listops-20": 100, "listops-100": 100,
        },
        seeds=3, batch=64, tested=1000, longest=2048,
    ),
    "paper": Budget(
        {
            "recall-8": 1200, "recall-16": 2400, "memory-1": 300, "memory-2": 1200,
            "listops-20": 3600, "listops-100": 7200, "listops-500": 16_000, "text": 20_000,
        },
        seeds=3, batch=32, tested=2000, longest=16_384,
    ),
}  # fmt: skip
#: What runs when no tasks are named.
USUAL = ("recall-8", "listops-20", "memory-1", "memory-2")

#: At n = 256 a budget is at most a quarter of it; what is left out takes its default.
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "linformer": {"projection": "mean", "k": 256, "max_length": 1024},
    "nystromformer": {"landmarks": 32},
    "performer": {"features": 64},
    "skyformer": {"landmarks": 32},
    "infinite_former": {"segment": SEGMENT, "basis": 32},
    "longformer": {"window": 32},
    "bigbird": {"block": 8, "random": 2},
    "sparse": {"stride": 16},
    "blockwise": {"blocks": 2},
    "reformer": {"chunk": 16, "rounds": 4},
}
RATE, RATES = 2e-3, {"performer": 3e-3}
