"""`longdoc classify`: what the service does, from the command line, without a server.

Takes texts (files, folders, standard input) or rows of texts (JSON Lines, Parquet), which go to a
file of results and can be resumed.

Exit codes: 0 when every document was classified, 1 when some could not be, 2 for a mistake in
the command.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import ConfigError
from models.extras import require
from models.progress import ProgressBar
from models.windows import OVERFLOWS
from service.bulk.source import Source, is_rows
from service.settings import Settings, read_settings

if TYPE_CHECKING:
    from service.pipeline import Options, Pipeline

_SETTINGS = ("bundle", "attention", "bundles", "engine", "device", "precision", "workers")
_MOST_BYTES = 64 << 20  # of one file
_IN_FLIGHT = 4  # documents under way at once, for each worker
_NO_TIMEOUT = 7 * 24 * 3600.0
_MANY = 32  # documents that are worth finding out what makes them faster: 0.2 s
_NAME_WIDTH = 40


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="FILE",
        help="texts: files, folders, - or none for stdin; or rows of texts: .jsonl, .parquet",
    )
    rows = parser.add_argument_group("rows of texts")
    rows.add_argument("--out", type=Path, metavar="FILE", help="results: .jsonl or .parquet")
    rows.add_argument("--text", default="text", metavar="NAME", help="column of the texts [text]")
    rows.add_argument("--id", metavar="NAME", help="column copied to the results [row number]")
    rows.add_argument("--resume", action="store_true", help="go on with an unfinished --out")
    rows.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="spread Parquet rows over a Ray cluster; without an address, over this machine",
    )
    parser.add_argument("--format", choices=("table", "jsonl"), default="table", help="[table]")
    parser.add_argument("--top-k", type=int, default=3, metavar="N", help="labels to score [3]")
    parser.add_argument("--evidence", type=int, default=0, metavar="N", help="passages to show [0]")
    parser.add_argument("--on-overflow", choices=OVERFLOWS, default="window", help="[window]")
    parser.add_argument("--glob", default="*.txt", help="files to take from folders [*.txt]")
    parser.add_argument("--no-progress", action="store_true", help="show no progress")
    for name in _SETTINGS:
        parser.add_argument(f"--{name}", metavar="VALUE", help="as for `longdoc serve`")


def run(args: argparse.Namespace) -> int:
    """Classify and print; results come in the order of the documents."""
    if args.top_k < 1 or args.evidence < 0:
        raise ConfigError("--top-k must be at least 1 and --evidence at least 0")
    settings = read_settings({name: getattr(args, name) for name in _SETTINGS})
    if any(is_rows(Path(path)) for path in args.paths):
        return _run_rows(args, settings)
    if args.out or args.resume:
        raise ConfigError("--out and --resume are for rows: name .jsonl or .parquet files")
    documents = list(_find(args.paths, args.glob))
    from service.pipeline import Options  # noqa: PLC0415
    from service.startup.deployment import load_deployment  # noqa: PLC0415 - after what can go wrong fast

    running = load_deployment(settings).start(settings, lambda _: None)
    if len(documents) >= _MANY:
        running.pipeline.reader.speed_up()
        running.share_runs()
    options = Options(args.top_k, args.on_overflow, args.evidence, _NO_TIMEOUT)
    try:
        failures = asyncio.run(
            _classify_all(running.pipeline, documents, options, args.format, args.no_progress)
        )
    finally:
        running.close()
    return 1 if failures else 0


def _run_rows(args: argparse.Namespace, settings: Settings) -> int:
    """Classify rows into a file; 1 when some of them have an error."""
    from service.bulk.job import Job  # noqa: PLC0415 - only for rows
    from service.bulk.progress import Progress  # noqa: PLC0415
    from service.pipeline import Options  # noqa: PLC0415
    from service.startup.deployment import load_deployment  # noqa: PLC0415

    source = Source([_rows_file(name) for name in args.paths], args.text, args.id)
    if args.out is None:
        raise ConfigError("name the file for the results with --out, such as --out results.jsonl")
    options = Options(args.top_k, args.on_overflow, args.evidence, _NO_TIMEOUT)
    if args.ray is not None:
        return _run_on_ray(source, args, settings, options)
    deployment = load_deployment(settings)
    decides = {
        "bundle": deployment.model.digest,
        "options": [args.top_k, args.on_overflow, args.evidence],
        "precision": settings.precision,
    }
    job = Job(source, args.out, decides)
    journal = job.open(resume=args.resume)
    running = deployment.start(settings, lambda _: None)
    running.pipeline.reader.speed_up()
    running.share_runs()
    try:
        with Progress(source.size, hidden=args.no_progress) as progress:
            asyncio.run(
                job.run(journal, lambda text: _result(running.pipeline, text, options), progress)
            )
    finally:
        running.close()
    if journal.failed:
        print(
            f"{journal.failed:,} of {journal.done:,} rows have an error; see the column `error`",
            file=sys.stderr,
        )
    return 1 if journal.failed else 0


def _run_on_ray(
    source: Source, args: argparse.Namespace, settings: Settings, options: Options
) -> int:
    """The same on a Ray cluster; a folder of results instead of a file."""
    require("ray", "--ray")
    from service.bulk.on_ray import RayJob  # noqa: PLC0415 - an extra

    failed = RayJob(
        source,
        args.out,
        address=args.ray or None,
        workers=settings.workers or 1,
        open_pipeline=functools.partial(_open_pipeline, settings),
        classify=functools.partial(_result, options=options),
    ).run()
    if failed:
        print(f"{failed:,} rows have an error; see the column `error`", file=sys.stderr)
    return 1 if failed else 0


def _open_pipeline(settings: Settings, workers: int) -> Pipeline:
    from service.startup.deployment import load_deployment  # noqa: PLC0415

    settings = replace(settings, workers=workers)
    running = load_deployment(settings).start(settings, lambda _: None)
    running.pipeline.reader.speed_up()
    running.share_runs()
    return running.pipeline


def _rows_file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"{name} is not a file")
    if not is_rows(path):
        raise ConfigError(f"{name} holds no rows; name .jsonl and .parquet files only, or none")
    return path


@dataclass(frozen=True)
class _Source:
    """A document that is read when its turn comes; None is standard input."""

    path: Path | None

    @property
    def name(self) -> str:
        return "-" if self.path is None else str(self.path)

    def read(self) -> str:
        """Its text; OSError or ValueError when there is none."""
        if self.path is None:
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with self.path.open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"larger than {_MOST_BYTES} bytes")
        return data.decode()


def _find(paths: Iterable[str], pattern: str) -> Iterator[_Source]:
    given = list(paths) or ["-"]
    for name in given:
        path = Path(name)
        if name == "-":
            yield _Source(None)
        elif path.is_dir():
            found = sorted(file for file in path.rglob(pattern) if file.is_file())
            if not found:
                raise ConfigError(f"{name} holds no file that matches {pattern!r}; set --glob")
            yield from map(_Source, found)
        elif path.is_file():
            yield _Source(path)
        else:
            raise ConfigError(f"{name} is neither a file nor a folder")


async def _classify_all(
    pipeline: Pipeline,
    sources: list[_Source],
    options: Options,
    form: str,
    no_progress: bool,
) -> int:
    """Print each document's line; return how many could not be classified."""
    failures = 0
    hidden = no_progress or len(sources) == 1
    with ProgressBar("classifying", len(sources), "document", hidden=hidden) as progress:
        async for line in _in_order(pipeline, sources, options):
            failures += "error" in line
            text = json.dumps(line, ensure_ascii=False) if form == "jsonl" else _table_line(line)
            progress.write(text)
            progress.add(1)
    return failures


async def _in_order(
    pipeline: Pipeline, sources: list[_Source], options: Options
) -> AsyncIterator[dict[str, Any]]:
    """Classify a few at a time; yield in the order given."""
    most = _IN_FLIGHT * pipeline.scheduler.policy.workers
    tasks: list[asyncio.Task[dict[str, Any]]] = []
    for source in sources:
        tasks.append(asyncio.create_task(_classify(pipeline, source, options)))
        if len(tasks) == most:
            yield await tasks.pop(0)
    for task in tasks:
        yield await task


async def _classify(pipeline: Pipeline, source: _Source, options: Options) -> dict[str, Any]:
    try:
        text = await asyncio.to_thread(source.read)
    except (OSError, ValueError) as error:
        return {"file": source.name, "error": _reason(error)}
    return {"file": source.name, **await _result(pipeline, text, options)}


async def _result(pipeline: Pipeline, text: str, options: Options) -> dict[str, Any]:
    """A text's result, or what is wrong with the text."""
    from service.errors import ServiceError  # noqa: PLC0415

    try:
        answer = await pipeline.classify([text], options, bulk=True)
    except ServiceError as error:
        return {"error": str(error)}
    return asdict(answer.results[0])


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: byte {error.start} is wrong"
    return str(error)


def _table_line(line: dict[str, Any]) -> str:
    name = line["file"]
    if len(name) > _NAME_WIDTH:
        name = "…" + name[1 - _NAME_WIDTH :]
    if "error" in line:
        return f"{name:<{_NAME_WIDTH}}  error: {line['error']}"
    others = ", ".join(f"{s['label']} {s['score']:.3f}" for s in line["scores"][1:])
    tokens = line["tokens"]
    read = f"{tokens['used']} of {tokens['total']}" if tokens["truncated"] else tokens["total"]
    rows = [
        f"{name:<{_NAME_WIDTH}}  {line['label']}  {line['score']:.3f}  ({read} tokens"
        + (f", {tokens['windows']} windows" if tokens["windows"] > 1 else "")
        + (f"; {others})" if others else ")")
    ]
    for passage in line["evidence"]:
        shown = " ".join(passage["text"].split())
        rows.append(f"    {passage['weight']:+.3f}  {shown}")
    return "\n".join(rows)
