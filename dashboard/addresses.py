"""Which services the pages may fetch from: the loopback's, and those the operator names."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from models.errors import ConfigError

#: Environment variable with the addresses, by commas, that pages may fetch from as well.
SERVICES = "LONGDOC_DASHBOARD_SERVICES"


def may_ask(address: str, allowed: Iterable[str]) -> bool:
    """Whether a page may fetch from an address that anybody who opens it can type.

    Without this, the dashboard would fetch addresses for strangers from inside its network.
    """
    origin = origin_of(address)
    if origin is None:
        return False
    return _is_loopback(origin[1]) or origin in {origin_of(each) for each in allowed}


def check_services(services: Iterable[str]) -> None:
    """Raise ConfigError for an allowed address that is not one."""
    for address in services:
        if origin_of(address) is None:
            raise ConfigError(f"--service must be like http://10.0.0.5:8000; got {address!r}")


def origin_of(address: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None when it is not an address of a web service."""
    try:
        parts = urlsplit(address.strip())
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: wherever it leads
        return False
