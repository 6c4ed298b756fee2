"""The options that `longdoc pretrain` and `longdoc convert` share."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import ConfigError
from models.mechanisms import ATTENTIONS

if TYPE_CHECKING:
    from training.pretraining.run import Plan

_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")
_MOST_TOKENS = 1 << 20


def add_options(parser: argparse.ArgumentParser, *, rate: float) -> None:
    """Declare them."""
    parser.add_argument(
        "--param", action="append", default=[], metavar="KEY=VALUE",
        help="a parameter of the attention; see `longdoc attentions`",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--text", default="text", help="column with the text (default: text)")
    parser.add_argument("--max-tokens", type=int, help="most tokens that it will read at once")
    parser.add_argument(
        "--extend", choices=("repeat", "interpolate"), default="repeat",
        help="how positions beyond the encoder's are made (default: repeat)",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, default=60.0, help="of learning (default: 60)")
    parser.add_argument("--tokens", type=int, help="end after so many tokens, if that comes first")
    parser.add_argument(
        "--length", type=int, default=512, help="tokens of a piece of text (default: 512)"
    )
    parser.add_argument("--batch-tokens", type=int, default=8192, help="a step (default: 8192)")
    parser.add_argument("--rate", type=float, default=rate, help=f"(default: {rate:g})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, help="where tokens are kept (default: beside --out)")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (default: 1)")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was killed")


def make_plan(args: argparse.Namespace, *, start: Path | None, texts: str | None) -> Plan:
    """The options, checked as far as that goes without texts and encoder."""
    from training.pretraining.loop import Recipe  # noqa: PLC0415 - --help needs no extra
    from training.pretraining.run import Plan  # noqa: PLC0415

    for option in ("minutes", "tokens", "length", "batch_tokens", "rate", "max_tokens", "threads"):
        value = getattr(args, option)
        if value is not None and not value > 0:
            raise ConfigError(f"--{option.replace('_', '-')} must be above 0; got {value}")
    if args.length < 16:
        raise ConfigError(f"--length must be at least 16; got {args.length}")
    if max(args.length, args.max_tokens or 0) > _MOST_TOKENS:
        raise ConfigError(f"--length and --max-tokens must be at most {_MOST_TOKENS}")
    if args.seed < 0:
        raise ConfigError(f"--seed must not be negative; got {args.seed}")
    if args.param and args.attention is None:
        raise ConfigError("--param needs --attention")
    params = dict(_parameter(text) for text in args.param)
    return Plan(
        name=_NOT_IN_NAMES.sub("-", args.out.name.lower()).strip("-._")[:64] or "encoder",
        texts=texts,
        column=args.text,
        output=args.out,
        cache=args.cache or args.out.parent / ".cache",
        start=start,
        attention=args.attention,
        attention_params=ATTENTIONS[args.attention].validate(params) if args.attention else {},
        preset=getattr(args, "preset", "tiny"),
        vocabulary=getattr(args, "vocabulary", 8192),
        max_tokens=args.max_tokens,
        extension=args.extend,
        recipe=Recipe(
            minutes=args.minutes,
            tokens=args.tokens,
            length=args.length,
            batch_tokens=args.batch_tokens,
            rate=args.rate,
            seed=args.seed,
        ),
        threads=args.threads,
        resume=args.resume,
    )


def _parameter(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--param must be KEY=VALUE; got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value
