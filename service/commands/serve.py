"""`longdoc serve`: serve a bundle over HTTP."""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from service.commands.fleet import add_fleet, add_settings, read_fleet
from service.settings import read_settings, unknown_variables

if TYPE_CHECKING:
    from service.service import Service

# How long a thread may keep the interpreter while another wants it: the event loop must not
# wait for workers, nor workers for each other, when documents take only a few milliseconds.
SWITCH_SECONDS = 0.0005
_COLLECT_AFTER = (10_000, 20, 20)  # objects, then rounds

EXAMPLE = "The larvae were fed on sugar and their neurons imaged under a two-photon microscope."


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare a flag for every setting, and the options of a fleet."""
    add_settings(parser)
    add_fleet(parser).add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="serve by replicas on a Ray cluster; without an address, on this machine",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it."""
    if args.ray is not None:
        return _serve_on_ray(args)
    # The workers are the parallelism: numpy's own threads would only spin, from its import on.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    gc.disable()  # until all is loaded: the collector would go through it again and again
    settings = read_settings(vars(args))
    from service import logs, output  # noqa: PLC0415 - wrong settings are told before anything loads

    output.detach()
    logs.configure(settings.log_format, settings.log_level)
    for sentence in unknown_variables():
        logs.service.warning(sentence)
    from service.http.listening import bind  # noqa: PLC0415
    from service.startup.selection import choose_engine, find_bundle  # noqa: PLC0415

    sys.setswitchinterval(SWITCH_SECONDS)
    with bind(settings.host, settings.port) as listening, ThreadPoolExecutor(1) as starter:
        # Whatever another thread can do without Python goes on while the next modules load.
        bundle = find_bundle(settings)
        opening = starter.submit(choose_engine, settings, bundle)
        from service.service import Service  # noqa: PLC0415
        from service.startup.deployment import Deployment, describe, load_tokenizer  # noqa: PLC0415

        model, tokenizer = describe(bundle, settings), load_tokenizer(bundle)
        reference = bundle.reference()

        def start() -> Service:
            opened = opening.result()
            deployment = Deployment(model, opened.engine, tokenizer, opened.factory, reference)
            service = Service(settings, deployment)
            service.when_ready = lambda: print(announcement(service, host, port))
            service.start()
            return service

        host, port = listening.getsockname()[:2]
        starting = starter.submit(start)
        from service.http.server import Server  # noqa: PLC0415

        service = starting.result()
        server = Server(service)
        _keep_what_is_loaded()
        server.run(sockets=[listening])
    output.drain()
    if not service.closed:  # a run that outlived the drain time must not hold up the end
        os._exit(0)
    return 0


def _serve_on_ray(args: argparse.Namespace) -> int:
    fleet = read_fleet(args)
    from service.cluster.run import run as run_fleet  # noqa: PLC0415 - an extra

    settings = read_settings(fleet.settings)
    run_fleet(fleet, args.ray or None, settings.host, settings.port)
    return 0


def _keep_what_is_loaded() -> None:
    """Spare the collector what stays for good, and let it look less often at what does not."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    gc.enable()


def announcement(service: Service, host: str, port: int) -> str:
    """What a person needs to know and can try."""
    model, engine = service.deployment.model, service.deployment.engine.info
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104
    reachable = f"[{reachable}]" if ":" in reachable and "[" not in reachable else reachable
    base = f"http://{reachable}:{port}"
    key = " -H 'X-API-Key: YOUR-KEY'" if service.settings.api_keys else ""
    body = shlex.quote(json.dumps({"input": EXAMPLE}))
    return (
        f"Longdoc is ready at {base} (documentation: {base}/docs)\n"
        f"  model   {model.name}: {model.task} ({len(model.labels)} labels, "
        f"{model.attention} attention, {model.max_tokens} tokens in one piece)\n"
        f"  engine  {engine.label}, {engine.precision}: {engine.reason}\n"
        f"  try     curl -s {base}/classify{key} -H 'Content-Type: application/json' -d {body}"
    )
