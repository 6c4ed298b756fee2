"""Joining a Ray cluster, or starting one on this machine."""

from __future__ import annotations

import socket

import ray

from models.errors import LongdocError

_REACH_SECONDS = 5.0


class ClusterError(LongdocError):
    """A Ray cluster that cannot be reached, or that could not do what was asked."""


def connect(address: str | None) -> None:
    """Join the cluster at an address; without one, start a cluster on this machine."""
    try:
        if address is not None:
            host, _, port = address.rpartition("/")[2].rpartition(":")
            socket.create_connection((host, int(port)), _REACH_SECONDS).close()  # Ray waits minutes
        ray.init(address=address or "local", log_to_driver=False, ignore_reinit_error=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {first_line(error)}; start one with "
            "`ray start --head`, or leave the address out to use this machine"
        ) from None


def first_line(error: Exception) -> str:
    """What an error says at first; Ray's go on for pages."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
