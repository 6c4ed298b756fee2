"""All runs of an arena: planned, done side by side, and told of while they go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.mechanisms import ATTENTIONS
from training.arena.conductor import conduct, cores
from training.arena.controls import controls_of
from training.arena.picture import progress_picture
from training.arena.records import Outcome, RunSpec, read_results, result_path
from training.arena.settings import (
    NO_ATTENTION,
    NO_MEMORY,
    PARAMETERS,
    RATE,
    RATES,
    TASKS,
    Budget,
)
from training.arena.table import Controls, as_markdown
from training.storage import load_json, save_json, storing, written_beside

#: Tasks that ask what ∞-former's memory carries; other mechanisms have none.
_OF_MEMORY = ("memory-1", "memory-2")
#: Tokens of the longest documents of the tasks that are beyond Linformer's usual limit.
_LONG = {"listops-500": 2000}


def hold(folder: Path, specs: Sequence[RunSpec], jobs: int | None, source: str | None) -> int:
    """Do what has no result in the folder; print the table, return the exit code."""
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    waiting = [spec for spec in specs if not result_path(folder, spec).exists()]
    print(f"{len(specs)} runs, {len(specs) - len(waiting)} of them done; results in {folder}")
    report = Report(folder, specs, len(waiting), jobs or cores())
    report.find_controls(source)
    failed = conduct(folder, waiting, report.jobs, report)
    print(report.write())
    for spec in failed:
        print(f"failed: {spec.key}")
    return 1 if failed else 0


def plan(
    tasks: Sequence[str],
    attentions: Sequence[str],
    budget: Budget,
    seeds: int,
    source: str | None,
) -> list[RunSpec]:
    """All runs: task by task, then seed by seed, so that early results say something of all."""
    specs = []
    for task in tasks:
        TASKS[task](source)  # fails now, not in every run
        if task in _OF_MEMORY:
            names = [name for name in attentions if name == "infinite_former"]
            names += [NO_MEMORY] if names else []
        else:
            names = [*attentions, NO_ATTENTION]
        for seed in range(seeds):
            specs += [_spec(task, name, seed, budget, source) for name in names]
    return specs


def _spec(task: str, name: str, seed: int, budget: Budget, source: str | None) -> RunSpec:
    mechanism = {NO_ATTENTION: "softmax", NO_MEMORY: "infinite_former"}.get(name, name)
    longest = int(_LONG.get(task, 0))
    given = dict(PARAMETERS.get(mechanism, {}))
    if mechanism == "linformer" and longest > int(given["max_length"]):
        given |= {"max_length": longest, "k": longest // 4}
    return RunSpec(
        task=task,
        attention=name,
        params=ATTENTIONS[mechanism].validate(given),
        # Longformer's global tokens are the document's first, and ListOps' root stands there too.
        readout="first" if mechanism == "longformer" or task.startswith("listops") else "last",
        seed=seed,
        rate=RATES.get(mechanism, RATE),
        batch=budget.batch,
        seconds=budget.seconds[task],
        tested=budget.tested,
        longest=budget.longest,
        source=source if task == "text" else None,
    )


class Report:
    """Table and plot in the folder, and a line for each run that ends."""

    def __init__(self, folder: Path, specs: Sequence[RunSpec], waiting: int, jobs: int) -> None:
        self.folder = folder
        self.specs = specs
        self.left = waiting
        self.jobs = jobs

    def find_controls(self, source: str | None) -> None:
        """Fit the controls that have not been fitted yet."""
        for name in dict.fromkeys(spec.task for spec in self.specs):
            path = self._controls_path(name)
            if not path.exists():
                task = TASKS[name](source)
                judged = [stage for stage in task.stages if stage.judged]
                save_json(path, {str(s.length): controls_of(task, s) for s in judged})

    def __call__(self, spec: RunSpec, error: str | None) -> None:
        """Tell of a run that ended."""
        self.left -= 1
        what = error or "no result"
        if error is None:
            what = self._words(Outcome(**load_json(result_path(self.folder, spec))["outcome"]))
        self.write()
        number = f"{len(self.specs) - self.left}/{len(self.specs)}"
        left = f"about {self._minutes_left():.0f} min left"
        print(f"[{number}] {spec.task}, {spec.attention}, seed {spec.seed}: {what}; {left}",
              flush=True)  # fmt: skip

    def write(self) -> str:
        """Write table and plot of all that is there; return the table."""
        mine = {spec.key for spec in self.specs}
        results = [each for each in read_results(self.folder) if each[0].key in mine]
        if not results:
            return "no results yet"
        names = {spec.task for spec, _ in results}
        controls: Controls = {name: load_json(self._controls_path(name)) for name in names}
        table = as_markdown(results, controls)
        with written_beside(self.folder / "table.md") as beside:
            beside.write_text(table, encoding="utf-8")
        with written_beside(self.folder / "progress.svg") as beside:
            beside.write_bytes(progress_picture(results))
        return table

    def _words(self, outcome: Outcome) -> str:
        found = [f"{accuracy:.3f} at {int(n):,}" for n, accuracy in outcome.accuracy.items()]
        out = [f"{int(n):,} left out ({why})" for n, why in outcome.left_out.items()]
        return ", ".join([*found, *out]) + f" ({outcome.seconds:.0f} s, {outcome.ended})"

    def _minutes_left(self) -> float:
        """From what finished runs of a task took, or the whole budget where none has finished."""
        taken: dict[str, list[float]] = {}
        for spec, outcome in read_results(self.folder):
            taken.setdefault(spec.task, []).append(outcome.seconds)
        waiting = [s for s in self.specs if not result_path(self.folder, s).exists()]
        seconds = [
            sum(taken[s.task]) / len(taken[s.task]) if s.task in taken else s.seconds
            for s in waiting
        ]
        return sum(seconds) / self.jobs / 60

    def _controls_path(self, task: str) -> Path:
        return self.folder / "controls" / f"{task}.json"
