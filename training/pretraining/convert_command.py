"""`longdoc convert`: replaces an encoder's attention and teaches it to go on as before."""

from __future__ import annotations

import argparse
from pathlib import Path

from models.mechanisms import ATTENTIONS
from training.pretraining.options import add_options, make_plan


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("folder", type=Path, help="an encoder, or a checkpoint of one")
    parser.add_argument("--attention", required=True, choices=ATTENTIONS.names(), metavar="NAME")
    parser.add_argument(
        "--texts", help="text to teach it on, as for `longdoc pretrain` (default: it is not taught)"
    )
    add_options(parser, rate=3e-4)


def run(args: argparse.Namespace) -> int:
    """Replace, teach, and print the error of every layer before and after."""
    from training.pretraining.run import convert  # noqa: PLC0415 - --help needs no extra

    checks = convert(make_plan(args, start=args.folder, texts=args.texts))
    if checks is None:
        print(f"{args.out} is finished already")
        return 0
    if checks:
        first, last = checks[0], checks[-1]
        layers = [name for name in first if name.startswith("layer_")]
        print("| layer | relative error before | after |\n|---|---|---|")
        for name in layers:
            print(f"| {name.removeprefix('layer_')} | {first[name]:.3f} | {last[name]:.3f} |")
        print(f"after {last['tokens']:,} tokens")
    else:
        print("replaced; nothing was taught: name --texts for that")
    print(f"written: {args.out}\nnext: longdoc train DATA --from {args.out}")
    return 0
