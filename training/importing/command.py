"""`longdoc import`: a Hugging Face folder to a checkpoint of ours."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from models.checkpoint import CHECKPOINT

if TYPE_CHECKING:
    from training.importing.folder import Found


_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "folder",
        type=Path,
        help="folder with config.json, model.safetensors and tokenizer.json: BERT, RoBERTa, "
        "XLM-R, DistilBERT, MPNet, Longformer, BigBird, Nyströmformer, ModernBERT, or "
        "sentence-transformers of them",
    )
    parser.add_argument("--out", type=Path, help="folder to write (default: checkpoints/FOLDER)")
    parser.add_argument(
        "--without-head", action="store_true", help="leave its labels out, to train others"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what was found and what fits, and stop"
    )


def run(args: argparse.Namespace) -> int:
    """Say what is there, then import it."""
    from training.importing.folder import opened  # noqa: PLC0415 - --help needs no extra
    from training.importing.network import build  # noqa: PLC0415
    from training.importing.write import write_import  # noqa: PLC0415

    folder: Path = args.folder
    with opened(folder, without_head=args.without_head) as (found, weights):
        _report(found)
        if args.dry_run:
            return 0
        target = args.out or Path("checkpoints") / folder.resolve().name
        name = _NOT_IN_NAMES.sub("-", target.name.lower()).strip("-._")[:64] or "imported"
        written = write_import(found, build(found, weights), target, name)
    print(f"written: {target}")
    if written.name == CHECKPOINT:
        print(f"next: longdoc export {target}, or longdoc train DATA --from {target}")
    else:
        print(f"next: longdoc train DATA --from {target}")
    return 0


def _report(found: Found) -> None:
    for title, entries in (
        ("found", found.found),
        ("left out", found.ignored),
        ("note", found.notes),
    ):
        for entry in entries:
            print(f"{title}: {entry}")
