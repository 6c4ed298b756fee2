"""The arena's table: accuracy of every mechanism and seed, beside the controls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from models.mechanisms import ATTENTIONS
from training.arena.records import Outcome, RunSpec, interval
from training.arena.settings import NO_ATTENTION, NO_MEMORY

Results = list[tuple[RunSpec, Outcome]]
#: Accuracy of a task's controls by length, then by name.
Controls = Mapping[str, Mapping[str, Mapping[str, float]]]
_TRAINED_CONTROLS = (NO_ATTENTION, NO_MEMORY)


def as_markdown(results: Iterable[tuple[RunSpec, Outcome]], controls: Controls) -> str:
    """A table for each task and judged length, a row for each mechanism, a column for each seed.

    An accuracy is marked + when the lower end of its 95% interval is above every control.
    """
    results = list(results)
    parts = []
    for task in dict.fromkeys(spec.task for spec, _ in results):
        part = [each for each in results if each[0].task == task]
        lengths = sorted({int(n) for _, o in part for n in (*o.accuracy, *o.left_out)})
        judged = [n for n in lengths if str(n) in controls.get(task, {})]
        parts += [_table(task, n, part, controls[task][str(n)]) for n in judged]
        beyond = [n for n in lengths if n not in judged]
        if beyond and judged:
            parts.append(_beyond(task, judged[-1], beyond, part))
    return "\n".join(parts)


def ceiling(results: Results, length: int, given: Mapping[str, float]) -> float:
    """The best control, trained ones included: what an accuracy has to exceed."""
    trained = [
        outcome.accuracy[str(length)]
        for spec, outcome in results
        if spec.attention in _TRAINED_CONTROLS and str(length) in outcome.accuracy
    ]
    return max([*given.values(), *trained])


def title(attention: str) -> str:
    """How people call it."""
    return ATTENTIONS[attention].title if attention in ATTENTIONS else attention


def in_order(attentions: Iterable[str]) -> list[str]:
    """Mechanisms as they are registered, controls last."""
    order = {name: index for index, name in enumerate(ATTENTIONS.names())}
    return sorted(set(attentions), key=lambda name: (order.get(name, len(order)), name))


def _table(task: str, length: int, results: Results, given: Mapping[str, float]) -> str:
    seeds = sorted({spec.seed for spec, _ in results})
    best = ceiling(results, length, given)
    lines = [
        f"### {task}, {length:,} tokens\n",
        "| attention | " + " | ".join(f"seed {seed}" for seed in seeds) + " | seconds | starts |",
        "|---|" + "---|" * (len(seeds) + 2),
    ]
    for attention in in_order(spec.attention for spec, _ in results):
        runs = {spec.seed: outcome for spec, outcome in results if spec.attention == attention}
        cells = [_cell(runs.get(seed), length, best) for seed in seeds]
        ran = [runs[seed] for seed in seeds if seed in runs]
        seconds = ", ".join(f"{outcome.seconds:.0f}" for outcome in ran)
        starts = ", ".join(str(len(outcome.attempts)) for outcome in ran)
        lines.append(f"| {title(attention)} | {' | '.join(cells)} | {seconds} | {starts} |")
    fill = " | " * (len(seeds) + 1)
    lines += [f"| {name} | {accuracy:.3f}{fill} |" for name, accuracy in given.items()]
    return "\n".join(lines) + "\n"


def _cell(outcome: Outcome | None, length: int, best: float) -> str:
    if outcome is None:
        return ""
    if str(length) in outcome.left_out:
        return f"left out: {outcome.left_out[str(length)]}"
    if str(length) not in outcome.accuracy:
        return "–"
    accuracy = outcome.accuracy[str(length)]
    low, high = interval(accuracy, outcome.tested[str(length)])
    return f"{accuracy:.3f} ({low:.3f} to {high:.3f}){' +' if low > best else ''}"


def _beyond(task: str, trained: int, lengths: list[int], results: Results) -> str:
    """Best seed at lengths that no stage has: where it is forgotten."""
    lines = [
        f"### {task}, longer than trained ({trained:,} tokens), the best seed\n",
        "| attention | " + " | ".join(f"{n:,}" for n in lengths) + " |",
        "|---|" + "---|" * len(lengths),
    ]
    for attention in in_order(spec.attention for spec, _ in results):
        ran = [outcome for spec, outcome in results if spec.attention == attention]
        cells = []
        for n in lengths:
            found = [o.accuracy[str(n)] for o in ran if str(n) in o.accuracy]
            out = [o.left_out[str(n)] for o in ran if str(n) in o.left_out]
            cells.append(f"{max(found):.3f}" if found else f"left out: {out[0]}" if out else "–")
        lines.append(f"| {title(attention)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
