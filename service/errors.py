"""What can go wrong with a request, and what the caller is told.

ServiceError              anything that has a status and a problem document
├── MalformedRequest      400  not HTTP, or a field that stands once is given twice
├── MalformedBody         400  not JSON, not UTF-8, broken gzip
├── Unauthorized          401  API keys are configured; none or a wrong one came
├── UnknownPath           404  nothing is served there
├── WrongMethod           405  the path is served with another method
├── SlowClient            408  the body came too slowly
├── BodyTooLarge          413  the body, or what it unpacks to, is over the limit
├── UnsupportedMedia      415  a content type or encoding that is not served
├── InvalidRequest        422  a field is wrong, missing, unknown or given twice
│   ├── EmptyText         422  nothing to classify
│   └── TooManyTokens     422  over the model's limit, and `on_overflow` is "error"
├── HeadTooLarge          431  the request's head is over the limit
├── Overloaded            429  the queue is full by predicted work; has Retry-After
├── InternalFault         500  a fault of ours
├── NotReady              503  the model is still being checked; has Retry-After
├── TooManyConnections    503  there is no descriptor left for another; has Retry-After
├── OutOfMemory           503  a run needed more memory than there is; has Retry-After
├── Draining              503  the service is shutting down; has Retry-After
└── DeadlinePassed        504  the caller's time is over; its queued work was dropped

Routes raise these and never catch them; `problems.py` turns them into responses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from models.errors import LongdocError


class ServiceError(LongdocError):
    """Base of the errors that a caller gets as a problem document."""

    retry_after: float | None = None
    fields: Sequence[Mapping[str, str]] = ()
    headers: ClassVar[Mapping[str, str]] = {}

    def problem(self) -> dict[str, Any]:
        """The problem document (RFC 9457)."""
        status, slug, title = STATUSES[type(self)]
        document: dict[str, Any] = {
            "type": f"urn:longdoc:problem:{slug}",
            "title": title,
            "status": status,
            "detail": str(self),
        }
        if self.fields:
            document["errors"] = [dict(field) for field in self.fields]
        return document

    def response_headers(self) -> dict[str, str]:
        """Headers that go with it; Retry-After in whole seconds, rounded up."""
        headers = dict(self.headers)
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
        return headers


class MalformedRequest(ServiceError):
    """What came is not an HTTP request that has one meaning."""


class MalformedBody(ServiceError):
    """The body cannot be read as what it says it is."""


class Unauthorized(ServiceError):
    """No API key, or a wrong one."""

    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": "Bearer"}

    def __init__(self) -> None:
        super().__init__(
            "send a valid API key as 'Authorization: Bearer KEY' or as 'X-API-Key: KEY'"
        )


class UnknownPath(ServiceError):
    """Nothing is served there."""


class WrongMethod(ServiceError):
    """The path is served with another method."""

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not allowed here; allowed: {allowed}")
        self.allowed = allowed

    def response_headers(self) -> dict[str, str]:
        """The methods that are allowed."""
        return {"Allow": self.allowed}


class SlowClient(ServiceError):
    """The body came too slowly."""


class BodyTooLarge(ServiceError):
    """The body, or what it unpacks to, is over the limit."""


class UnsupportedMedia(ServiceError):
    """A content type or encoding that is not served."""


class InvalidRequest(ServiceError):
    """A field is wrong, missing, unknown or given twice."""

    def __init__(self, detail: str, fields: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(detail)
        self.fields = fields


class EmptyText(InvalidRequest):
    """Nothing to classify."""


class TooManyTokens(InvalidRequest):
    """Over the model's limit, and the caller asked for an error."""


class HeadTooLarge(ServiceError):
    """The request's head is over the limit."""


class Overloaded(ServiceError):
    """The queue is full by predicted work."""

    retry_after: float

    def __init__(self, retry_after: float) -> None:
        super().__init__("the queue is full; try again after the time that Retry-After gives")
        self.retry_after = retry_after


class InternalFault(ServiceError):
    """A fault of ours; the log has the details under the request's id."""

    def __init__(self) -> None:
        super().__init__("an internal fault; the service's log has it under this request's id")


class NotReady(ServiceError):
    """The model is still being checked, or a worker has died."""

    def __init__(self, detail: str, retry_after: float = 1.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class TooManyConnections(ServiceError):
    """The process can open no more descriptors."""

    retry_after = 1.0

    def __init__(self) -> None:
        super().__init__("there are too many connections; try again, or keep fewer open")


class OutOfMemory(ServiceError):
    """A run needed more memory than there is; other documents are still answered."""

    retry_after = 5.0

    def __init__(self) -> None:
        super().__init__("there is not enough memory for this document at the moment")


class Draining(ServiceError):
    """The service is shutting down."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("the service is shutting down and takes no new work")
        self.retry_after = retry_after


class DeadlinePassed(ServiceError):
    """The caller's time is over."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer within the {seconds * 1000:g} ms that the request allows")


#: error: (status, the last part of `type`, title). Every error stands here.
STATUSES: dict[type[ServiceError], tuple[int, str, str]] = {
    MalformedRequest: (400, "malformed-request", "The request cannot be read"),
    MalformedBody: (400, "malformed-body", "The body cannot be read"),
    Unauthorized: (401, "unauthorized", "A valid API key is needed"),
    UnknownPath: (404, "unknown-path", "Nothing is served here"),
    WrongMethod: (405, "wrong-method", "The method is not allowed here"),
    SlowClient: (408, "slow-client", "The body came too slowly"),
    BodyTooLarge: (413, "body-too-large", "The body is over the limit"),
    UnsupportedMedia: (415, "unsupported-media", "The content type is not served"),
    InvalidRequest: (422, "invalid-request", "The request is not valid"),
    EmptyText: (422, "empty-text", "There is no text to classify"),
    TooManyTokens: (422, "too-many-tokens", "The document is longer than the model reads"),
    HeadTooLarge: (431, "head-too-large", "The request's head is over the limit"),
    Overloaded: (429, "overloaded", "The queue is full"),
    InternalFault: (500, "internal-fault", "A fault of the service"),
    NotReady: (503, "not-ready", "The service is not ready"),
    TooManyConnections: (503, "too-many-connections", "There are too many connections"),
    OutOfMemory: (503, "out-of-memory", "There is not enough memory"),
    Draining: (503, "draining", "The service is shutting down"),
    DeadlinePassed: (504, "deadline-passed", "The deadline passed"),
}
