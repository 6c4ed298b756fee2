"""Who may come in: callers with a key, while the service takes work and the queue has room."""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping

from service.errors import Unauthorized
from service.service import Service

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})
CLASSIFY_PATH = "/classify"
_WORK_PATHS = (CLASSIFY_PATH, "/infer")

Headers = Mapping[bytes, bytes]  # names in lower case


class Door:
    """What is asked of a request's head, before its body is read."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._keys = [key.encode() for key in service.settings.api_keys]

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise what keeps a request out: no key, draining, or no room for it."""
        if path in OPEN_PATHS:
            return
        if self._keys:
            sent = headers.get(b"x-api-key") or headers.get(b"authorization", b"")
            key = sent.removeprefix(b"Bearer ").strip()
            matches = [hmac.compare_digest(key, known) for known in self._keys]
            if not any(matches):
                raise Unauthorized
        self.service.check_draining()
        if method == "POST" and path.endswith(_WORK_PATHS):
            admission = self.service.running.scheduler.admission
            if admission.crowded:
                admission.refuse_if_full(self._most_work(headers))

    def is_full(self, headers: Headers) -> bool:
        """Whether the queue has no room for what such a head announces; costs next to nothing."""
        scheduler = self.service.scheduler
        if scheduler is None or not scheduler.admission.crowded:
            return False
        return scheduler.admission.is_full(self._most_work(headers))

    def _most_work(self, headers: Headers) -> float:
        """Predicted work of the heaviest document that the body can hold."""
        size = headers.get(b"content-length", b"")
        if b"content-encoding" in headers or not size.isdigit() or len(size) > 9:
            return math.inf
        return self.service.running.pipeline.most_work(int(size))
