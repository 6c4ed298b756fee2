"""The port, taken before anything is loaded: whoever cannot have it is told at once."""

from __future__ import annotations

import socket

from models.errors import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; a port that is taken is the user's to change."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; "
            "choose another --port or --host"
        ) from None
