"""`longdoc evaluate`: the report of training for any checkpoint or bundle, on any labelled data."""

from __future__ import annotations

import argparse
from pathlib import Path

from training.train_command import add_data_options, data_options


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, help="folder of a checkpoint or a bundle")
    parser.add_argument("--data", required=True, help="labelled documents, as for `longdoc train`")
    add_data_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report here")
    parser.add_argument(
        "--cache", type=Path, help="keep tokens and baseline for the next time (default: not kept)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (default: 1)")


def run(args: argparse.Namespace) -> int:
    from training.card import headline, report_tables  # noqa: PLC0415 - --help needs no extra
    from training.evaluate_run import evaluate_folder  # noqa: PLC0415
    from training.storage import save_json  # noqa: PLC0415

    found = evaluate_folder(args.model, data_options(args), args.cache, args.threads)
    print(f"{found.name} on {found.documents} documents of {Path(args.data).name}\n")
    print(headline(found.report, found.name))
    print(f"Expected calibration error: {found.report['calibration_error']:.4f}\n")
    print(report_tables(found.report))
    if "baseline" not in found.report:
        print("No baseline: the data has no train and valid split to fit one on.")
    if args.json is not None:
        save_json(args.json, found.report)
    return 0
