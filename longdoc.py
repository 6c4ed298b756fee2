"""The `longdoc` command: finds the subcommand and imports only that one.

Each subcommand is a module with `configure(parser)`, which declares its options, and
`run(args)`, which does the work and returns the exit code. Declaring options imports nothing of
an extra, so that `--help` and completion work in every installation.

What can go wrong between a command and its shell is handled here for all of them:

| what                        | exit code | printed                  |
|-----------------------------|-----------|--------------------------|
| a LongdocError              | 2         | its message              |
| a disk or device is full    | 2         | the system's reason      |
| Ctrl-C                      | 130       | interrupted              |
| the reader of a pipe left   | 141       | nothing                  |
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from models.errors import LongdocError
from models.extras import require


@dataclass(frozen=True)
class Command:
    """Where a subcommand is, its line of help, and the extra that it cannot run without."""

    module: str
    summary: str
    extra: str | None = None


COMMANDS: dict[str, Command] = {
    "attentions": Command("models.catalogue", "List the attention mechanisms and parameters"),
    "serve": Command("service.commands.serve", "Serve a bundle over HTTP"),
    "ray-config": Command(
        "service.commands.ray_config", "Print a Ray Serve configuration of replicas", "ray"
    ),
    "classify": Command("service.commands.classify", "Classify files, folders or standard input"),
    "bundles": Command("export.bundles_command", "List the bundles there are"),
    "train": Command(
        "training.train_command", "Train a classifier from labelled documents", "torch"
    ),
    "import": Command("training.importing.command", "Import a Hugging Face checkpoint", "torch"),
    "arena": Command(
        "training.arena_command",
        "Train every attention on tasks that a bag of words cannot solve",
        "torch",
    ),
    "pretrain": Command(
        "training.pretraining.pretrain_command", "Train an encoder on text without labels", "torch"
    ),
    "convert": Command(
        "training.pretraining.convert_command", "Replace the attention of an encoder", "torch"
    ),
    "evaluate": Command(
        "training.evaluate_command",
        "Evaluate a checkpoint or bundle on labelled documents",
        "torch",
    ),
    "export": Command(
        "export.command", "Export checkpoints to bundles, with certificates", "torch"
    ),
    "verify": Command(
        "export.verify_command", "Check a bundle's certificates again, or a running service"
    ),
    "bench": Command(
        "benchmarks.engine.command", "Measure time and memory against document length"
    ),
    "loadtest": Command(
        "loadtests.loadtest_command", "Load a service and report how it held up", "loadtest"
    ),
    "dashboard": Command(
        "dashboard.dashboard_command", "Open the dashboard in a browser", "dashboard"
    ),
    "report": Command(
        "dashboard.report_command", "Write the main figures as one HTML file", "dashboard"
    ),
    "completion": Command("models.completion", "Print the completion script of a shell"),
}

_USAGE, _INTERRUPTED, _PIPE_CLOSED = 2, 130, 141  # the last two: 128 + the signal's number
#: Faults of the system that a user can mend; others are ours, and keep their traceback.
_MENDABLE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
    | {errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code, whatever becomes of its output."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = _find_command(arguments)
    title = f"longdoc {name}" if name else "longdoc"
    try:
        try:
            return _run(arguments, name)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk shows here, while it can still be reported
    except LongdocError as error:
        return _fail(f"{title}: {error}", _USAGE)
    except KeyboardInterrupt:
        return _fail(f"{title}: interrupted", _INTERRUPTED)
    except BrokenPipeError:
        _discard(sys.stdout)
        _discard(sys.stderr)
        return _PIPE_CLOSED
    except OSError as error:
        if error.errno not in _MENDABLE:
            raise
        _discard(sys.stdout)
        where = f"{error.filename}: " if error.filename else "cannot write the output: "
        return _fail(f"{title}: {where}{error.strerror}", _USAGE)


def _find_command(arguments: Sequence[str]) -> str | None:
    """The subcommand, of the arguments or, when a shell completes a line, of that line."""
    words = os.environ["COMP_LINE"].split()[1:] if _completes() else arguments
    return next((word for word in words if not word.startswith("-")), None)


def _completes() -> bool:
    return "_ARGCOMPLETE" in os.environ and "COMP_LINE" in os.environ


def _run(arguments: Sequence[str], name: str | None) -> int:
    command = COMMANDS.get(name or "")
    helps = _completes() or any(word in ("-h", "--help") for word in arguments)
    if command is not None and command.extra is not None and not helps:
        require(command.extra, f"longdoc {name}")
    parser = _make_parser(name)
    if _completes():
        import argcomplete  # noqa: PLC0415

        argcomplete.autocomplete(parser)
    args = parser.parse_args(arguments)
    return int(args.run(args))


def _make_parser(name: str | None) -> argparse.ArgumentParser:
    """The parser of all subcommands, with the options of the one that is named."""
    parser = argparse.ArgumentParser(
        prog="longdoc", description="Train, export and serve classifiers for long documents."
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for each, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            each, help=command.summary, description=f"{command.summary}."
        )
        if each == name:
            module = importlib.import_module(command.module)
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    return parser


class _ShowVersion(argparse.Action):
    """Looks the version up only on request: that takes longer than everything else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_args: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415

        parser.exit(message=f"longdoc {version('longdoc')}\n")


def _fail(sentence: str, code: int) -> int:
    """Print why on standard error, if anybody reads that, and return the code."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)
    return code


def _discard(stream: TextIO | None) -> None:
    """Send what a stream still holds to nowhere: the interpreter flushes it again as it ends."""
    if stream is None:
        return
    try:
        descriptor = stream.fileno()
    except (io.UnsupportedOperation, ValueError):  # captured by a test, or closed
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
