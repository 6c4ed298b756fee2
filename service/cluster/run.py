"""`longdoc serve --ray`: keep a fleet on a Ray cluster until a signal ends it."""

from __future__ import annotations

import signal
import threading

import ray
from ray import serve

from service.cluster.connect import ClusterError, connect, first_line
from service.cluster.deployment import NAME, Fleet


def run(fleet: Fleet, address: str | None, host: str, port: int) -> None:
    """Deploy the fleet; on SIGTERM or SIGINT take it down, with everything accepted answered."""
    ended = threading.Event()
    connect(address)
    for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, which would end at once
        signal.signal(number, lambda *_: ended.set())
    try:
        serve.start(http_options={"host": host, "port": port})
        try:
            serve.run(fleet.application(), name=NAME, route_prefix="/")
        except RuntimeError as error:
            raise ClusterError(f"the replicas do not start: {first_line(error)}") from None
        replicas = f"{fleet.least} to {fleet.most} replicas"
        print(f"Longdoc is ready at http://{host}:{port} ({replicas})", flush=True)
        ended.wait()
        serve.delete(NAME)
        if address is None:
            serve.shutdown()
    finally:
        ray.shutdown()
