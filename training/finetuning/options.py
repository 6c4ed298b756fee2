"""The options of `longdoc train` that come with `--from`, and the plan they make."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from models.errors import ConfigError
from models.mechanisms import ATTENTIONS
from training.data_options import DataOptions
from training.finetuning.recipe import FinePlan, Recipe

#: What only training from nothing has a use for.
_FROM_NOTHING: Final = (
    "preset", "tokenizer", "vocabulary", "budget", "crop", "last_crop", "opening",
)  # fmt: skip
_MOST_TOKENS = 1 << 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    recipe = Recipe()
    group = parser.add_argument_group("with --from")
    group.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="FOLDER",
        help="fine-tune this encoder, which `longdoc import` wrote, or an earlier checkpoint of "
        "one; --attention then replaces its own",
    )
    group.add_argument("--epochs", type=float, help=f"passes (default: {recipe.epochs:g})")
    group.add_argument(
        "--layer-decay",
        type=float,
        help=f"each layer has so much of the rate above it (default: {recipe.layer_decay:g})",
    )
    group.add_argument(
        "--batch-tokens", type=int, help=f"tokens a step (default: {recipe.batch_tokens})"
    )
    group.add_argument(
        "--overlap",
        type=int,
        help=f"tokens that neighbouring windows share (default: {recipe.overlap})",
    )
    group.add_argument(
        "--merge",
        choices=("mean", "strongest"),
        help="what stands for a document in windows: their mean, weighted by tokens, or the window "
        "that is surest (default: mean)",
    )
    group.add_argument(
        "--precision",
        choices=("auto", "bf16", "fp32"),
        help="what training computes in (default: bf16 where the processor is faster in it)",
    )
    group.add_argument(
        "--gradient-checkpointing",
        choices=("auto", "on", "off"),
        help="compute activations again instead of keeping them (default: if memory asks)",
    )
    group.add_argument(
        "--extend",
        choices=("repeat", "interpolate"),
        help="how positions beyond the encoder's are made, with --max-tokens (default: repeat)",
    )
    group.add_argument(
        "--new-head", action="store_true", help="replace the labels that it has by the data's"
    )


_RECIPE = ("epochs", "rate", "layer_decay", "batch_tokens", "overlap", "merge", "precision")
#: The destinations of these options, but `start`.
OWN: Final = (
    *(option for option in _RECIPE if option != "rate"),
    "gradient_checkpointing",
    "extend",
    "new_head",
)


def check_without_start(args: argparse.Namespace) -> None:
    """Refuse options that have no meaning for training from nothing."""
    for option in OWN:
        if getattr(args, option) not in (None, False):
            raise ConfigError(f"--{option.replace('_', '-')} needs --from")


def make_fine_plan(
    args: argparse.Namespace,
    *,
    name: str,
    task: str,
    command: str,
    data: DataOptions,
    params: dict[str, Any],
    defaults: dict[str, Any],
) -> FinePlan:
    """The options, checked as far as that goes without the data and the encoder."""
    for option in _FROM_NOTHING:
        if getattr(args, option) != defaults[option]:
            raise ConfigError(
                f"--{option.replace('_', '-')} cannot be given with --from: the encoder decides"
            )
    if args.device == "cuda":
        raise ConfigError("--from trains on the CPU only for now; leave --device out")
    if params and args.attention is None:
        raise ConfigError("--param needs --attention: without it, the encoder's own stays")
    if args.max_tokens is not None and args.max_tokens > _MOST_TOKENS:
        raise ConfigError(f"--max-tokens must be at most {_MOST_TOKENS}; got {args.max_tokens}")
    recipe = Recipe(
        **{
            option: getattr(args, option) for option in _RECIPE if getattr(args, option) is not None
        },
        frugal={"on": True, "off": False}.get(args.gradient_checkpointing or "auto"),
        seed=args.seed,
    )
    _check(recipe)
    output = args.output or Path("checkpoints") / name
    return FinePlan(
        name=name,
        task=task,
        command=command,
        output=output,
        cache=args.cache or output.parent / ".cache",
        data=data,
        start=args.start,
        attention=args.attention,
        attention_params=ATTENTIONS[args.attention].validate(params) if args.attention else {},
        max_tokens=args.max_tokens,
        extension=args.extend or "repeat",
        new_head=args.new_head,
        recipe=recipe,
        threads=args.threads,
        resume=args.resume,
    )


def _check(recipe: Recipe) -> None:
    for option, value in (("epochs", recipe.epochs), ("batch-tokens", recipe.batch_tokens)):
        if not value > 0:
            raise ConfigError(f"--{option} must be above 0; got {value}")
    if not 0 < recipe.layer_decay <= 1:
        raise ConfigError(f"--layer-decay must be above 0 and at most 1; got {recipe.layer_decay}")
    if recipe.overlap < 0:
        raise ConfigError(f"--overlap must not be negative; got {recipe.overlap}")
