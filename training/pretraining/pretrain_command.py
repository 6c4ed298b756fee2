"""`longdoc pretrain`: from text without labels to an encoder."""

from __future__ import annotations

import argparse
from pathlib import Path

from models.mechanisms import ATTENTIONS
from training.pretraining.options import add_options, make_plan

_PRESETS = ("tiny", "small", "mini")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("texts", help="as for `longdoc train`, without labels; or a .txt file")
    parser.add_argument("--attention", choices=ATTENTIONS.names(), metavar="NAME")
    parser.add_argument(
        "--from", dest="start", type=Path, metavar="FOLDER",
        help="an encoder that `longdoc import`, `pretrain` or `convert` wrote; without it, one is "
        "made from nothing",
    )  # fmt: skip
    parser.add_argument("--preset", choices=_PRESETS, default="tiny", help="size, from nothing")
    parser.add_argument(
        "--vocabulary", type=int, default=8192, help="entries that are learnt, from nothing"
    )
    add_options(parser, rate=5e-4)


def run(args: argparse.Namespace) -> int:
    """Learn, and print how far it came."""
    from training.pretraining.run import pretrain  # noqa: PLC0415 - --help needs no extra

    checks = pretrain(make_plan(args, start=args.start, texts=args.texts))
    if checks is None:
        print(f"{args.out} is finished already")
        return 0
    first, last = checks[0], checks[-1]
    print(
        f"perplexity {first['perplexity']:.1f} → {last['perplexity']:.1f}, masked tokens found "
        f"{first['accuracy']:.3f} → {last['accuracy']:.3f}, order {last['order_accuracy']:.3f}"
    )
    print(f"written: {args.out}\nnext: longdoc train DATA --from {args.out}")
    return 0
