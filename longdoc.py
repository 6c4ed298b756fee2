"""The `longdoc` command: finds the subcommand asked for and imports only that one.

Each subcommand is a module with `configure(parser)`, which declares its options, and
`run(args)`, which does the work and returns the exit code.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from models.errors import LongdocError

#: subcommand: (module, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "attentions": ("models.catalogue", "List the attention mechanisms and their parameters."),
    "serve": ("service.commands.serve", "Serve a bundle over HTTP"),
    "export": ("export.command", "Export checkpoints to bundles, with certificates"),
    "verify": ("export.verify_command", "Measure a bundle's certificates again on this machine"),
    "bundles": ("export.bundles_command", "List the bundles there are"),
    "bench": ("benchmarks.engine.command", "Measure time and memory against document length"),
    "loadtest": ("loadtests.loadtest_command", "Load a service and report how it held up"),
    "report": ("dashboard.report_command", "Write the main figures as one HTML file"),
    "classify": ("service.commands.classify", "Classify files, folders or standard input"),
    "train": ("training.train_command", "Train a classifier from labelled documents"),
    "evaluate": (
        "training.evaluate_command",
        "Evaluate a checkpoint or bundle on labelled documents",
    ),
}


class _ShowVersion(argparse.Action):
    """Looks the version up only when it is asked for: that takes longer than all the rest here."""

    def __call__(self, parser: argparse.ArgumentParser, *_args: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415

        parser.exit(message=f"longdoc {version('longdoc')}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return 0 when done, 2 for a mistake the user can mend."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    named = next((a for a in arguments if not a.startswith("-")), None)
    parser = argparse.ArgumentParser(
        prog="longdoc", description="Train, export and serve classifiers for long documents."
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="tell which this is")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module_name, summary) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name == named:  # import only what is asked for
            module = importlib.import_module(module_name)
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    args = parser.parse_args(arguments)
    try:
        return int(args.run(args))
    except LongdocError as error:
        print(f"longdoc {named}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"longdoc {named}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
