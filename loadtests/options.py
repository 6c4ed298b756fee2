"""The options of `longdoc loadtest`, and what they mean together."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.documents.lengths import AsTheyAre, Lengths, LogNormal, parse_lengths
from benchmarks.documents.making import read_documents
from benchmarks.store import LOCAL
from loadtests.deployments import Deployment, Wanted, find_deployments, parse_settings
from loadtests.generator import MASTER_PORT, Placement
from loadtests.limits import Limit, parse_limit
from loadtests.plan import KINDS, parse_mix
from loadtests.runner import Load, LoadOptions
from loadtests.service_client import check_address
from models.bundle import ROOT
from models.errors import ConfigError

_SECONDS, _QUICK_SECONDS = 30.0, 5.0
_WARM_UP, _QUICK_WARM_UP = 5.0, 1.0
_TIMEOUT, _SWEEP_TIMEOUT = 30.0, 300.0


@dataclass(frozen=True)
class Request:
    """What a command line asks for, checked."""

    address: str
    deployments: list[Deployment]
    lengths: list[Lengths]
    loads: list[Load]
    options: LoadOptions
    peak: Limit | None
    limits: list[Limit]

    @property
    def points(self) -> int:
        """How many loads there are."""
        return max(1, len(self.deployments)) * len(self.lengths) * len(self.loads)


_EXAMPLES = """
examples:
  longdoc loadtest http://127.0.0.1:8000 --rate 20 --html report.html
      20 documents a second, on schedule, at a service that runs
  longdoc loadtest http://127.0.0.1:8000 --find-peak p99=250ms
      the highest rate that keeps the 99th percentile under 250 ms with no errors
  longdoc loadtest --attention all --lengths 512,4096,16384 --quick
      latency and memory against length, a service for each attention started in turn
  longdoc loadtest http://127.0.0.1:8000 --users 50 --mix all --workers 2
      50 callers of all kinds, from two processes

exit codes: 0 done, 1 a limit was exceeded or the service was lost, 2 a mistake in the command
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "address", nargs="?", help="service to load, such as http://127.0.0.1:8000; "
        "without one, services are started here",
    )  # fmt: skip
    _configure_load(parser.add_argument_group("the load"))
    _configure_services(parser.add_argument_group("services to start, when no address is given"))
    _configure_generator(parser.add_argument_group("the load generator"))
    _configure_results(parser.add_argument_group("results"))


def _configure_load(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--rate", metavar="R", help="open model: this many requests a second arrive, whatever the "
        "service does; several by commas [half of the predicted capacity]")  # fmt: skip
    add("--users", metavar="N", help="closed model: this many callers, each waits for its answer; "
        "several by commas")  # fmt: skip
    add("--think", type=float, default=0.0, metavar="S", help="mean pause of a user [0]")
    add("--lengths", metavar="L", help="tokens of the documents: 512; 512,4096,16384; log-normal; "
        "log-normal:MEDIAN:SIGMA[:LOW:HIGH]; histogram:FILE; documents [log-normal]")  # fmt: skip
    add("--documents", type=Path, metavar="PATH", help="your own: a folder of texts, a text file, "
        "or JSON lines with `text` [written for the purpose]")  # fmt: skip
    kinds = ", ".join(KINDS)
    add("--mix", default="interactive", metavar="M", help=f"kinds of caller with weights, such as "
        f"interactive=8,batch=1, of {kinds}; or all [interactive]")  # fmt: skip
    add("--batch-size", type=int, default=8, metavar="N", help="documents of a batch [8]")
    add("--bulk-size", type=int, default=32, metavar="N", help="documents of a stream [32]")
    add("--seconds", type=float, metavar="S", help=f"measured time of each load [{_SECONDS:g}]")
    add("--warm-up", type=float, metavar="S", help=f"before it, not measured [{_WARM_UP:g}]")
    add("--timeout", type=float, metavar="S", help="how long a caller waits for an answer "
        f"[{_TIMEOUT:g}; {_SWEEP_TIMEOUT:g} in a sweep]")  # fmt: skip
    add("--quick", action="store_true", help="a first look: short loads")
    add("--find-peak", metavar="LIMIT", help="find the highest rate that keeps, say, p99=250ms "
        "with no errors")  # fmt: skip


def _configure_services(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--attention", metavar="NAMES", help="all, or names by commas")
    add("--engine", default="auto", metavar="NAMES", help="auto, onnxruntime, torch, by commas")
    add("--precision", default="fp32", metavar="NAMES", help="fp32, fp16, int8, by commas")
    add("--dataset", metavar="NAME", help="whose bundles [elife if there are any]")
    add("--bundle", metavar="NAME", help="one bundle, by name or folder")
    add("--bundles", type=Path, default=ROOT, metavar="FOLDER", help="folder of bundles")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help="a setting of the service, such as queue_seconds=1; repeatable")  # fmt: skip


def _configure_generator(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--web", action="store_true", help="steer the load from Locust's page in the browser")
    add("--web-host", default="127.0.0.1", metavar="HOST", help="where it listens [127.0.0.1]")
    add("--web-port", type=int, default=8089, metavar="PORT", help="its port [8089]")
    add("--workers", type=int, default=0, metavar="N", help="divide the load among N processes")
    add("--remote-workers", type=int, default=0, metavar="N",
        help="and among N on other machines, started there with --worker-of")  # fmt: skip
    add("--master-port", type=int, default=MASTER_PORT, metavar="PORT",
        help=f"where remote workers report [{MASTER_PORT}]")  # fmt: skip
    add("--worker-of", metavar="HOST[:PORT]", help="do nothing but work for a load test there")
    add("--seed", type=int, default=0, metavar="N", help="of documents and arrivals [0]")
    add("--pool", type=int, metavar="N", help="how many different documents [64; 16 if quick]")
    add("--api-key-file", type=Path, metavar="FILE", help="file with the service's API key")


def _configure_results(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--store", type=Path, default=LOCAL, metavar="FILE", help=f"results file [{LOCAL}]")
    add("--html", type=Path, metavar="FILE", help="write a report")
    add("--fail-above", action="append", default=[], metavar="LIMIT",
        help="exit code 1 when exceeded: p99=500ms, errors=1%%; repeatable")  # fmt: skip


def read_request(args: argparse.Namespace) -> Request:
    """The options together; a ConfigError says what does not fit."""
    _check_numbers(args)
    address = "" if args.address is None else check_address(args.address)
    own = read_documents(args.documents) if args.documents else []
    lengths = _lengths(args.lengths, bool(own))
    loads = _loads(args)
    sweep = _is_sweep(args, lengths)
    if sweep and not loads:
        loads = [Load("closed")]
    settings = parse_settings(args.set)
    if sweep and loads == [Load("closed")]:
        settings = {"queue_seconds": "3600"} | settings  # lengths are compared, not admission
    options = LoadOptions(
        mix=parse_mix(args.mix),
        seconds=args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS),
        warm_up=_QUICK_WARM_UP if args.quick and args.warm_up is None
        else _WARM_UP if args.warm_up is None else args.warm_up,
        think=args.think,
        timeout=args.timeout or (_SWEEP_TIMEOUT if sweep else _TIMEOUT),
        seed=args.seed,
        pool=args.pool or (16 if args.quick else 64),
        batch_size=args.batch_size,
        bulk_size=args.bulk_size,
        quick=args.quick,
        own=own,
        key=_key(args.api_key_file),
        placement=_placement(args),
    )  # fmt: skip
    request = Request(
        address=address,
        deployments=[] if address else find_deployments(_wanted(args, settings)),
        lengths=lengths,
        loads=loads or [Load("open")],
        options=options,
        peak=parse_limit(args.find_peak, "--find-peak") if args.find_peak else None,
        limits=[parse_limit(text) for text in args.fail_above],
    )
    _check_together(args, request)
    return request


def _is_sweep(args: argparse.Namespace, lengths: list[Lengths]) -> bool:
    """Whether several services or lengths are compared on services of our own."""
    several = any("," in (given or "") for given in (args.attention, args.engine, args.precision))
    return args.address is None and (several or args.attention == "all" or len(lengths) > 1)


def _wanted(args: argparse.Namespace, settings: dict[str, str]) -> Wanted:
    return Wanted(
        args.bundle, args.attention, args.dataset, args.engine, args.precision, args.bundles,
        settings,
    )  # fmt: skip


def _lengths(given: str | None, own: bool) -> list[Lengths]:
    if given is None:
        return [AsTheyAre() if own else LogNormal()]
    found = [parse_lengths(part) for part in given.split(",")]
    if not own and any(isinstance(each, AsTheyAre) for each in found):
        raise ConfigError("--lengths documents needs --documents PATH")
    return found


def _loads(args: argparse.Namespace) -> list[Load]:
    if args.rate is not None and args.users is not None:
        raise ConfigError("give --rate (open model) or --users (closed model), not both")
    if args.rate is not None:
        rates = [_number("--rate", part, 1e-3, 1e5) for part in args.rate.split(",")]
        return [Load("open", rate=rate) for rate in rates]
    if args.users is not None:
        users = [_number("--users", part, 1, 1e4) for part in args.users.split(",")]
        return [Load("closed", users=int(number)) for number in users]
    return []


def _number(option: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high or (option == "--users" and value != int(value)):
        noun = "a whole number" if option == "--users" else "a number"
        raise ConfigError(f"{option} must be {noun} from {low:g} to {high:g}; got {text.strip()!r}")
    return value


def _check_numbers(args: argparse.Namespace) -> None:
    ranges = (
        ("seconds", 0.5, 86_400), ("warm_up", 0, 3600), ("timeout", 0.01, 3600),
        ("think", 0, 3600), ("pool", 1, 10_000), ("batch_size", 1, 1000), ("bulk_size", 1, 10_000),
        ("workers", 0, 64), ("remote_workers", 0, 256), ("web_port", 1, 65_535),
        ("master_port", 1, 65_534),
    )  # fmt: skip
    for name, low, high in ranges:
        value = getattr(args, name)
        if value is not None and not low <= value <= high:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option} must be from {low:g} to {high:g}; got {value:g}")


def _check_together(args: argparse.Namespace, request: Request) -> None:
    if request.address:
        for name in ("attention", "bundle", "dataset", "set"):
            if getattr(args, name):
                raise ConfigError(f"--{name} chooses a service to start; an address names one")
    if args.find_peak and (args.users or "," in (args.rate or "") or args.web):
        raise ConfigError("--find-peak chooses the rates itself: leave out --users, --web, and "
                          "all but one --rate")  # fmt: skip
    if args.web and (request.points > 1 or request.limits):
        raise ConfigError("--web takes one service, one length and one load, and no --fail-above")
    if len(request.deployments) > 1 and request.options.placement.elsewhere:
        raise ConfigError("--remote-workers cannot reach services that are started here in turn")


def _placement(args: argparse.Namespace) -> Placement:
    port = args.master_port if args.remote_workers else 0
    return Placement(args.workers, args.remote_workers, port)


def _key(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"--api-key-file: {path} cannot be read") from None
    if not key or not key.isprintable() or not key.isascii():
        raise ConfigError(f"--api-key-file: {path} holds no key")
    return key
