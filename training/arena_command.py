"""`longdoc arena`: train every attention on tasks that a bag of words cannot solve."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from models.errors import ConfigError
from models.mechanisms import ATTENTIONS
from training.arena.settings import BUDGETS, TASKS, USUAL


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks",
        help=f"names with commas between them: {', '.join(TASKS)} (default: {', '.join(USUAL)})",
    )
    parser.add_argument(
        "--attention", default="all", metavar="NAMES", help="mechanisms (default: all)"
    )
    parser.add_argument(
        "--budget", default="small", help=f"{' or '.join(BUDGETS)} (default: small)"
    )
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of each (default: 3)")
    parser.add_argument("--text", metavar="DATA", help="labelled documents for the task text")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("arena"),
        help="folder of results; what is there already is not done again (default: arena)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="runs at the same time (default: one for each core)"
    )


def run(args: argparse.Namespace) -> int:
    """Do what is not done yet, feature_scales how far it is; print the table."""
    from training.arena.campaign import hold, plan  # noqa: PLC0415 - loads torch

    budget = BUDGETS[_known("budget", args.budget, BUDGETS)]
    tasks = _names("task", args.tasks, list(TASKS), USUAL)
    attentions = _names(
        "attention",
        None if args.attention == "all" else args.attention,
        ATTENTIONS.names(),
        ATTENTIONS.names(),
    )
    for option in ("seeds", "jobs"):
        value = getattr(args, option)
        if value is not None and value < 1:
            raise ConfigError(f"--{option} must be at least 1; got {value}")
    missing = [name for name in tasks if name not in budget.seconds]
    if missing:
        raise ConfigError(
            f"budget {args.budget} is too small for {', '.join(missing)}; it has: "
            + ", ".join(budget.seconds)
        )
    specs = plan(tasks, attentions, budget, args.seeds or budget.seeds, args.text)
    return hold(args.output, specs, args.jobs, args.text)


def _names(
    what: str, given: str | None, known: Sequence[str], usual: Sequence[str]
) -> tuple[str, ...]:
    if given is None:
        return tuple(usual)
    return tuple(_known(what, name.strip(), known) for name in given.split(","))


def _known(what: str, name: str, known: Iterable[str]) -> str:
    known = list(known)
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ConfigError(f"unknown {what} {name!r}{hint}; known: {', '.join(known)}")
