"""`longdoc verify URL`: check a running service, ours or another's, and print what held."""

from __future__ import annotations

import argparse

from service.verify.checks import Finding, Plan, run_checks
from service.verify.client import Address, recognise

_MARKS = {True: "held", False: "FAILED", None: "not offered"}


def configure(parser: argparse._ActionsContainer) -> None:
    """Declare the options."""
    parser.add_argument("--api-key", metavar="KEY", help="key that the service wants")
    parser.add_argument(
        "--model", metavar="NAME", help="model of an Open Inference Protocol server to check"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        metavar="X",
        help="largest difference between answers that are the same [1e-4]",
    )
    parser.add_argument(
        "--long-words", type=int, default=16_000, metavar="N", help="words of a long text [16000]"
    )


def run(url: str, args: argparse.Namespace) -> int:
    """Print a line for each check; 1 when one did not hold."""
    service = recognise(Address(url, args.api_key), args.model)
    print(f"{url}: {service.kind}")
    failed = 0
    for finding in run_checks(service, Plan(args.tolerance, args.long_words)):
        print(_row(finding), flush=True)
        failed += finding.held is False
    print(f"{failed} did not hold" if failed else "all of it held")
    return 1 if failed else 0


def _row(finding: Finding) -> str:
    return f"{_MARKS[finding.held]:<12} {finding.name:<36} {finding.seen}"
