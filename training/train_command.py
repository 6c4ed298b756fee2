"""`longdoc train`: from labelled documents to a checkpoint."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from models.config import PRESETS, READOUTS
from models.errors import ConfigError, EngineError
from models.mechanisms import ATTENTIONS
from training.data_options import HUB, DataOptions
from training.finetuning.options import add_options, check_without_start, make_fine_plan
from training.finetuning.recipe import FinePlan
from training.finetuning.recipe import Recipe as FineRecipe
from training.plan import Plan
from training.recipe import BLANK_BATCH, BLANK_RATE, Recipe

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LONGEST = {"n": 65_536, "n²": 8192}  # tokens read in one piece, by how the cost grows
_MOST_TOKENS = 1 << 20
#: Options that say where things are put or found, not what is trained.
_PLACES = ("output", "cache", "resume")
_FILES = ("data", "valid", "test", "tokenizer")


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Declare how labelled documents are read; shared with `longdoc evaluate`."""
    parser.add_argument("--text", default="text", help="column with the text (default: text)")
    parser.add_argument("--label", default="label", help="column with the label (default: label)")
    parser.add_argument("--split", default="split", help="column with the split (default: split)")
    parser.add_argument("--test", metavar="DATA", help="a further source, all of it test")
    parser.add_argument(
        "--label-names", metavar="A,B,…", help="names of labels that are numbers from 0"
    )
    parser.add_argument(
        "--drop-incomplete",
        action="store_true",
        help="leave out rows without text or label, and classes with a single document",
    )


def configure(parser: argparse.ArgumentParser) -> None:
    recipe = Recipe()
    parser.add_argument(
        "data",
        help="JSONL, CSV, TSV or Parquet (also .gz, .xz, .zst), a folder with a subfolder per "
        f"class, or {HUB}NAME for a Hugging Face data set",
    )
    parser.add_argument(
        "--attention",
        choices=ATTENTIONS.names(),
        metavar="NAME",
        help="see `longdoc attentions` (default: chosen by the lengths of the documents; with "
        "--from, the encoder's own)",
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the attention; see `longdoc attentions`",
    )
    parser.add_argument("--preset", default="base", choices=sorted(PRESETS), help="network size")
    parser.add_argument("--name", help="name of the classifier (default: DATA-ATTENTION)")
    parser.add_argument("--task", help="what it tells apart, in a line, for the card")
    parser.add_argument("--output", type=Path, help="checkpoint folder (default: checkpoints/NAME)")
    parser.add_argument(
        "--cache",
        type=Path,
        help="folder for what runs on the same data share (default: .cache next to the output)",
    )
    parser.add_argument(
        "--start",
        dest="begins_as",
        default="bag",
        choices=("bag", "blank"),
        help="bag: from the best bag of tokens, for prose; blank: from nothing, for sequences "
        "whose order tells (default: bag)",
    )
    parser.add_argument(
        "--readout",
        default="mean",
        choices=READOUTS,
        help="what the head reads, with --start blank: the mean, the first or the last token",
    )
    add_data_options(parser)
    parser.add_argument("--valid", metavar="DATA", help="a further source, all of it validation")
    parser.add_argument(
        "--drop-duplicates",
        action="store_true",
        help="leave out documents of train and valid that stand in test too",
    )
    parser.add_argument("--tokenizer", type=Path, help="your tokenizer.json; else one is learnt")
    parser.add_argument("--vocabulary", type=int, default=recipe.vocabulary, metavar="N")
    parser.add_argument(
        "--budget", type=float, metavar="M", help="million tokens to train on (default: 3 passes)"
    )
    parser.add_argument(
        "--crop", type=int, default=recipe.crop, help="longest piece of a document at a step"
    )
    parser.add_argument(
        "--last-crop", type=int, help="the same for the last quarter (default: twice --crop)"
    )
    parser.add_argument(
        "--rate",
        type=float,
        help="learning rate; lower for long documents (default: "
        f"{recipe.rate:g}, with --from {FineRecipe().rate:g})",
    )
    parser.add_argument("--max-tokens", type=int, help="longest document read in one piece")
    parser.add_argument(
        "--opening",
        type=int,
        default=0,
        metavar="TOKENS",
        help="tokens at the beginning with weights of their own; for documents read whole",
    )
    parser.add_argument("--seed", type=int, default=recipe.seed)
    parser.add_argument(
        "--threads", type=int, default=1, help="same seed, same weights (default 1)"
    )
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--resume", action="store_true", help="go on with a run that was killed")
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Train, and print where the checkpoint is and how well it does."""
    # Imported here, so that --help works without the extra.
    from training.card import behind_baseline, headline  # noqa: PLC0415
    from training.finetuning.run import fine_tune  # noqa: PLC0415
    from training.run import train  # noqa: PLC0415

    if args.attention is None and args.start is None:
        from training.choosing import choose_attention  # noqa: PLC0415

        args.attention, reason = choose_attention(data_options(args))
        print(f"attention: {args.attention}: {reason}", flush=True)
    plan = make_plan(args)
    checkpoint = train(plan) if isinstance(plan, Plan) else fine_tune(plan)
    if checkpoint is None:
        print(f"{plan.output} is finished already")
        return 0
    print(headline(checkpoint.evaluation, checkpoint.name))
    if warning := behind_baseline(checkpoint.evaluation):
        print(f"WARNING: {warning}\n", file=sys.stderr)
    print(f"checkpoint: {plan.output}")
    return 0


def make_plan(args: argparse.Namespace) -> Plan | FinePlan:
    """The options, checked as far as that goes without the data."""
    if args.start is None:
        check_without_start(args)
    stem = re.split(r"[./]", args.data.rstrip("/").removeprefix(HUB).split("/")[-1].lower())[0]
    name = (
        args.name
        or f"{re.sub(r'[^a-z0-9_-]+', '-', stem).strip('-') or 'data'}-"
        f"{args.attention or args.start.name.lower()}"
    )
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"--name must be small letters, digits, dots, dashes or underscores; got {name!r}"
        )
    for option in ("vocabulary", "crop", "last_crop", "max_tokens", "threads", "budget", "rate"):
        value = getattr(args, option)
        if value is not None and not value > 0:
            raise ConfigError(f"--{option.replace('_', '-')} must be above 0; got {value}")
    if args.seed < 0:
        raise ConfigError(f"--seed must not be negative; got {args.seed}")
    params = dict(_parameter(text) for text in args.param)
    task = args.task or f"Which of the labels of {stem} a text belongs to"
    if args.start is not None:
        return make_fine_plan(
            args,
            name=name,
            task=task,
            command=reproducing_command(args, name),
            data=data_options(args),
            params=params,
            defaults=_defaults(),
        )
    checked = ATTENTIONS[args.attention].validate(params)
    max_tokens = _max_tokens(args.attention, checked, args.max_tokens)
    output = args.output or Path("checkpoints") / name
    blank = args.begins_as == "blank"
    return Plan(
        name=name,
        task=task,
        command=reproducing_command(args, name),
        output=output,
        cache=args.cache or output.parent / ".cache",
        data=data_options(args),
        tokenizer=args.tokenizer,
        network={
            **PRESETS[args.preset],
            "attention": args.attention,
            "attention_params": checked,
            **_beginning(args),
        },
        max_tokens=max_tokens,
        recipe=Recipe(
            vocabulary=args.vocabulary,
            budget=args.budget,
            crop=min(args.crop, max_tokens),
            last_crop=min(args.last_crop or 2 * args.crop, max_tokens),
            batch_tokens=BLANK_BATCH if blank else Recipe().batch_tokens,
            rate=args.rate or (BLANK_RATE if blank else Recipe().rate),
            seed=args.seed,
        ),
        device=_device(args.device),
        threads=args.threads,
        resume=args.resume,
        blank=blank,
    )


def _beginning(args: argparse.Namespace) -> dict[str, Any]:
    """Fields of the network that depend on what it starts from."""
    if args.begins_as == "bag":
        if args.readout != "mean":
            raise ConfigError(f"--readout {args.readout} needs --start blank: a bag is a mean")
        return {"damp_repeats": True, "opening": args.opening}
    if args.opening:
        raise ConfigError("--opening belongs to a bag; leave it out with --start blank")
    return {"convolution": 3, "readout": args.readout, "position_gain": 0.2}


def data_options(args: argparse.Namespace) -> DataOptions:
    return DataOptions(
        data=args.data,
        valid=getattr(args, "valid", None),
        test=args.test,
        text=args.text,
        label=args.label,
        split=args.split,
        label_names=tuple(args.label_names.split(",")) if args.label_names else (),
        drop_incomplete=args.drop_incomplete,
        drop_duplicates=getattr(args, "drop_duplicates", False),
        seed=getattr(args, "seed", 0),
    )


def reproducing_command(args: argparse.Namespace, name: str) -> str:
    """The command that trains this again, with files by their names alone."""
    parser = argparse.ArgumentParser()
    configure(parser)
    words = ["longdoc", "train", _file_name(args.data)]
    words += ["--from", args.start.name] if args.start else []
    words += ["--attention", args.attention] if args.attention else []
    words += ["--name", name]
    for action in parser._actions:
        option = action.dest
        if option in ("help", "data", "attention", "start", "name", *_PLACES):
            continue
        value = getattr(args, option)
        if value in (None, False, []) or value == action.default:
            continue
        flag = action.option_strings[0]
        if value is True:
            words.append(flag)
        elif isinstance(value, list):
            words += [word for item in value for word in (flag, item)]
        else:
            words += [flag, _file_name(str(value)) if option in _FILES else str(value)]
    return shlex.join(words)


def _defaults() -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    configure(parser)
    return {action.dest: action.default for action in parser._actions}


def _file_name(source: str) -> str:
    return source if source.startswith(HUB) else Path(source).name


def _parameter(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--param must be KEY=VALUE; got {text!r}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _max_tokens(attention: str, params: dict[str, Any], given: int | None) -> int:
    spec = ATTENTIONS[attention]
    limit = int(params[spec.max_length]) if spec.max_length else _MOST_TOKENS
    if given is not None and given > limit:
        raise ConfigError(f"--max-tokens must be at most {limit} for this attention; got {given}")
    return given or min(limit, _LONGEST[spec.cost])


def _device(wanted: str) -> str:
    import torch  # noqa: PLC0415

    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise EngineError("--device cuda: PyTorch finds no usable GPU here; use --device cpu")
    return "cuda" if there and wanted != "cpu" else "cpu"
