"""Requests and answers as bytes."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, cast

JSON = ("Content-Type", "application/json")


def request(
    method: str, path: str, *fields: tuple[str, str], body: bytes = b"", version: str = "1.1"
) -> bytes:
    """A request; its length is stated unless a field says otherwise."""
    lines = [f"{method} {path} HTTP/{version}", "Host: service"]
    lines += [f"{name}: {value}" for name, value in fields]
    stated = {name.lower() for name, _ in fields}
    if body and not stated & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def post(text: str, *fields: tuple[str, str], version: str = "1.1", **options: object) -> bytes:
    """A request to classify a text."""
    body = json.dumps({"input": text, **options}).encode()
    return request("POST", "/classify", JSON, *fields, body=body, version=version)


def chunked(*chunks: bytes) -> bytes:
    """A body in chunks, without what follows the last."""
    return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in chunks) + b"0\r\n"


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes
    version: int

    def json(self) -> Any:
        """Its body, as JSON."""
        return json.loads(self.body)


class _Received(io.BytesIO):
    """Bytes that several responses are read from, one after the other."""

    def makefile(self, _mode: str) -> _Received:
        return self

    def close(self) -> None:
        """Stay open for the next response."""


def answers(received: bytes, *methods: str) -> list[Answer]:
    """The responses in what was received; fails unless it is whole responses and nothing else.

    The methods are those of the requests, for an answer to HEAD has no body; GET if none is given.
    """
    source, found = _Received(received), list[Answer]()
    while source.tell() < len(received):
        method = methods[len(found)] if len(found) < len(methods) else "GET"
        response = HTTPResponse(cast("Any", source), method=method)
        response.begin()
        body = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
        assert len(headers) == len(response.getheaders()), "a field stands twice in an answer"
        if "content-length" in headers and method != "HEAD":
            assert len(body) == int(headers["content-length"]), "an answer was cut off"
        found.append(Answer(response.status, headers, body, response.version))
    return found
