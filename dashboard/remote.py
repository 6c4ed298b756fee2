"""A running service, reached over HTTP. What goes wrong becomes a sentence for the page."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from dashboard.addresses import SERVICES, may_ask, origin_of

_MOST_BYTES = 16 << 20


class RemoteError(Exception):
    """A service that is down, slow, refuses, or is not ours."""


@dataclass(frozen=True)
class Remote:
    """A service's address, and the key it wants if it wants one."""

    address: str
    key: str = ""
    seconds: float = 5.0

    def info(self) -> dict[str, Any]:
        """What the service says of itself."""
        found = self._json("GET", "/info")
        if not isinstance(found.get("engine"), dict) or "labels" not in found:
            raise RemoteError(f"{self.address} answers, but it is not a Longdoc service")
        return found

    def ready(self) -> bool:
        return self._request("GET", "/readyz")[0] == 200

    def metrics(self) -> dict[str, float]:
        """Its figures, summed over routes and statuses; buckets are left out."""
        status, body = self._request("GET", "/metrics")
        if status != 200:
            raise RemoteError(f"{self.address}/metrics answers with status {status}")
        found: dict[str, float] = {}
        try:
            for family in text_string_to_metric_families(body.decode()):
                for sample in family.samples:
                    if not sample.name.endswith("_bucket"):
                        found[sample.name] = found.get(sample.name, 0.0) + sample.value
                    if sample.name == "longdoc_requests_total":
                        status_class = f"requests_{sample.labels.get('status', '0')[0]}xx"
                        found[status_class] = found.get(status_class, 0.0) + sample.value
        except (ValueError, UnicodeDecodeError):
            raise RemoteError(f"{self.address}/metrics is not in Prometheus's format") from None
        if "longdoc_ready" not in found:
            raise RemoteError(f"{self.address} answers, but it is not a Longdoc service")
        return found

    def classify(self, text: str, evidence: int = 5) -> dict[str, Any]:
        """Classify a document; `client_ms` is the time it took as seen from here."""
        started = time.perf_counter()
        body = {"input": text, "top_k": None, "evidence": evidence}
        found = self._json("POST", "/classify", body)
        if not isinstance(found.get("results"), list) or not found["results"]:
            raise RemoteError(f"{self.address} answers, but it is not a Longdoc service")
        return found | {"client_ms": (time.perf_counter() - started) * 1e3}

    def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        status, content = self._request(method, path, body)
        try:
            found = json.loads(content)
        except ValueError:
            raise RemoteError(
                f"{self.address} answers, but it is not a Longdoc service (status {status})"
            ) from None
        if status != 200:
            detail = found.get("detail") if isinstance(found, dict) else None
            raise RemoteError(f"the service answers with status {status}: {detail or 'no reason'}")
        if not isinstance(found, dict):
            raise RemoteError(f"{self.address} answers, but it is not a Longdoc service")
        return found

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, bytes]:
        if origin_of(self.address) is None:
            raise RemoteError(f"{self.address!r} is no address; write http://127.0.0.1:8000")
        if not may_ask(self.address, os.environ.get(SERVICES, "").split(",")):
            raise RemoteError(
                f"this dashboard may not ask {self.address}: it asks services on its own machine, "
                "and others that it was started with (longdoc dashboard --service ADDRESS)"
            )
        headers = {"X-API-Key": self.key} if self.key else {}
        url = self.address.rstrip("/") + path
        deadline = time.monotonic() + 4 * self.seconds
        try:
            with httpx.stream(
                method,
                url,
                json=body,
                headers=headers,
                timeout=self.seconds,
                trust_env=False,
                follow_redirects=False,
            ) as response:
                content = b""
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > _MOST_BYTES or time.monotonic() > deadline:
                        raise RemoteError(
                            f"{self.address} sends without end; not a Longdoc service"
                        )
                return response.status_code, content
        except httpx.TimeoutException:
            raise RemoteError(
                f"{self.address} did not answer within {self.seconds:g} seconds; is it overloaded?"
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise RemoteError(
                f"nothing answers at {self.address} ({type(error).__name__}); start a service with "
                "`longdoc serve`"
            ) from None


def rates(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, Any]:
    """What happened between two readings of the metrics."""

    def grew(name: str) -> float:
        return max(0.0, after.get(name, 0.0) - before.get(name, 0.0))

    def mean_ms(name: str) -> float | None:
        count = grew(f"{name}_count")
        return grew(f"{name}_sum") / count * 1e3 if count else None

    return {
        "requests": grew("longdoc_requests_total") / seconds,
        "documents": grew("longdoc_documents_total") / seconds,
        "tokens": grew("longdoc_tokens_total") / seconds,
        "errors": (grew("requests_4xx") + grew("requests_5xx")) / seconds,
        "latency": mean_ms("longdoc_request_seconds"),
        "queue_wait": mean_ms("longdoc_queue_seconds"),
        "infer": mean_ms("longdoc_infer_seconds"),
        "queue": after.get("longdoc_queue_depth"),
        "memory": after.get("process_resident_memory_bytes", 0.0) / 1e6,
    }
