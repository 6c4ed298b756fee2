"""`longdoc dashboard`: Streamlit with the pages, on the loopback by default."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from benchmarks.store import LOCAL
from dashboard.addresses import SERVICES, check_services
from models.bundle import ROOT
from models.errors import ConfigError

_APP = Path(__file__).with_name("app.py")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ANY = ("0.0.0.0", "::")  # noqa: S104 - recognised, not listened on


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on [127.0.0.1]")
    parser.add_argument("--port", type=int, default=8501, help="port to listen on [8501]")
    parser.add_argument(
        "--public-name",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which browsers may reach it, besides the loopback and --host",
    )
    parser.add_argument(
        "--service",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a service the pages may ask, such as http://10.0.0.5:8000; those on the loopback "
        f"always may be (also: {SERVICES}, by commas)",
    )
    parser.add_argument("--store", type=Path, default=LOCAL, help=f"results file [{LOCAL}]")
    parser.add_argument("--bundles", type=Path, default=ROOT, help="folder of bundles")
    parser.add_argument("--browser", action="store_true", help="open it in a browser, too")


def run(args: argparse.Namespace) -> int:
    """Become Streamlit; does not return."""
    if not 0 <= args.port < 1 << 16:
        raise ConfigError(f"--port must be from 0 to 65535; got {args.port}")
    services = [*filter(None, os.environ.get(SERVICES, "").split(",")), *args.service]
    check_services(services)
    command = streamlit_command(args)
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, SERVICES: ",".join(services)})  # noqa: S606


def streamlit_command(args: argparse.Namespace) -> list[str]:
    """Streamlit's command line: what does not depend on options is in `.streamlit/config.toml`."""
    names = [*_LOOPBACK, *args.public_name, *([args.host] if args.host not in _ANY else [])]
    return [
        sys.executable,
        *("-m", "streamlit", "run", str(_APP)),
        *("--server.address", args.host),
        *("--server.port", str(args.port)),
        *("--server.headless", json.dumps(not args.browser)),
        *(word for name in dict.fromkeys(names) for word in ("--server.allowedHosts", name)),
        "--",
        *("--store", str(args.store.absolute())),
        *("--bundles", str(args.bundles.absolute())),
    ]
