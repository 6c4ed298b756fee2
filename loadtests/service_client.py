"""A client of the service under load: what it is, its metrics, how long texts are."""

from __future__ import annotations

import http.client
import json
import math
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from models.errors import ConfigError, LongdocError

_MOST_TEXTS = 500
_MOST_BYTES = 4 << 20  # of one request for counts
_MEMORY = "process_resident_memory_bytes"
REFUSED = "longdoc_rejected_requests_total"


class ServiceClientError(LongdocError):
    """A service that cannot be reached, or is none of ours."""


@dataclass(frozen=True)
class ServiceClient:
    """A service's address, and the key it wants if it wants one."""

    address: str
    key: str = ""
    seconds: float = 10.0

    def info(self) -> dict[str, Any]:
        """What the service says of itself; refused when it is not ready or not ours."""
        found = self._json("GET", "/info")
        if not isinstance(found.get("engine"), dict) or "workers" not in found:
            raise ServiceClientError(f"{self.address} answers, but it is not a Longdoc service")
        return found

    def metrics(self) -> dict[str, float]:
        """Its metrics by name and labels, without histograms' buckets."""
        status, content = self._request("GET", "/metrics")
        if status != 200:
            raise ServiceClientError(f"{self.address}/metrics answers with status {status}")
        return dict(_samples(content.decode(errors="replace")))

    def memory(self) -> int | None:
        """Bytes that it holds now, if its metrics say so."""
        found = self.metrics().get(_MEMORY)
        return None if found is None else int(found)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has by the service's own tokenizer."""
        return [int(each["tokens"]) for each in self.estimate(texts)]

    def estimate(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """What each text would take: tokens, windows, seconds of one core, bytes."""
        found: list[dict[str, Any]] = []
        for some in _parts(texts):
            answer = self._json("POST", "/estimate", {"input": some})
            found += answer["estimates"]
        return found

    def _json(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        status, content = self._request(method, path, body)
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if status != 200:
            detail = found.get("detail") if isinstance(found, dict) else None
            hint = "; give the key with --api-key-file" if status == 401 else ""
            raise ServiceClientError(
                f"{self.address}{path} answers with status {status}: {detail or 'no reason'}{hint}"
            )
        if not isinstance(found, dict):
            raise ServiceClientError(f"{self.address} answers, but it is not a Longdoc service")
        return found

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        headers = {"Accept": "*/*"} | ({"X-API-Key": self.key} if self.key else {})
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(  # noqa: S310 - http and https only, see `check_address`
            self.address + path, data=data, headers=headers, method=method
        )
        try:
            with _OPENER.open(request, timeout=self.seconds) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServiceClientError(
                f"nothing answers at {self.address} ({_reason(error)}); start a service with "
                "`longdoc serve`, or give no address and one is started"
            ) from None


#: Asks the address itself, whatever proxies the environment names.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def check_address(text: str) -> str:
    """An address without a path; a ConfigError when it is none."""
    try:
        parts = urlsplit(text)
        named = parts.scheme in ("http", "https") and bool(parts.hostname)
        named = named and parts.path in ("", "/") and not parts.query and not parts.username
        _ = parts.port
    except ValueError:
        named = False
    if not named:
        raise ConfigError(f"{text!r} is no address of a service; write http://127.0.0.1:8000")
    return text.rstrip("/")


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for text in texts:
        if part and (len(part) == _MOST_TEXTS or size + 2 * len(text) > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(text)
        size += 2 * len(text)
    if part:
        yield part


def _samples(text: str) -> Iterator[tuple[str, float]]:
    """Names with labels and values of Prometheus's text format."""
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if line.startswith("#") or not name or "_bucket{" in name:
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            yield name, number


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(error).__name__
