"""Three ways to ask a service for a document's classes, and one form of what it answers."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from models.errors import LongdocError

_SECONDS = 600.0  # for one answer: a long document on a busy machine
_TRIES = 30  # of a request that is refused for now
_LONGEST_WAIT = 10.0  # seconds between two of them


class ServiceUnreachableError(LongdocError):
    """Nothing answers there, or nothing that is known."""


@dataclass(frozen=True)
class Reply:
    """One HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Its body as JSON; None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass(frozen=True)
class Answer:
    """What a service says of a text: numbers by name, and what it says was read."""

    scores: Mapping[str, float]
    receipt: Mapping[str, Any] = field(default_factory=dict)
    evidence: Sequence[Mapping[str, Any]] = ()

    def difference(self, other: Answer) -> float:
        """The largest between two answers' numbers; infinite when they are not of the same."""
        if self.scores.keys() != other.scores.keys():
            return float("inf")
        return max(abs(self.scores[name] - other.scores[name]) for name in self.scores)


class Address:
    """Where a service is, and what it wants to know of its caller."""

    def __init__(self, url: str, api_key: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ServiceUnreachableError(f"{url} is not the address of a service")
        self.url, self._path = url, parts.path.rstrip("/")
        secure = parts.scheme == "https"
        self._connection = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers |= {"X-API-Key": api_key, "Authorization": f"Bearer {api_key}"}

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request on a connection of its own; a body that is not bytes is sent as JSON."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = self._connection(self._host, self._port, timeout=_SECONDS)
        try:
            named = {**self._headers, **(headers or {})}
            connection.request(method, self._path + path, sent, named)
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, fields, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise ServiceUnreachableError(f"{self.url}: {error}") from None
        finally:
            connection.close()

    def leave(self, path: str, body: Any) -> None:
        """Send a request and hang up before its answer."""
        connection = self._connection(self._host, self._port, timeout=_SECONDS)
        try:
            headers = self._headers
            connection.request("POST", self._path + path, json.dumps(body).encode(), headers)
        except OSError as error:
            raise ServiceUnreachableError(f"{self.url}: {error}") from None
        finally:
            connection.close()


class Service(Protocol):
    """A kind of service."""

    @property
    def kind(self) -> str:
        """What it is called."""

    @property
    def path(self) -> str:
        """Where texts are sent."""

    @property
    def address(self) -> Address:
        """Where it is."""

    def body(self, text: str, **options: Any) -> dict[str, Any]:
        """What to send to have a text classified."""

    def read(self, content: Any) -> Answer:
        """What the JSON that came back says."""


def classify(service: Service, text: str, **options: Any) -> Answer:
    """A text's answer; a service that is full is asked again, as it wishes."""
    for _ in range(_TRIES):
        reply = service.address.ask("POST", service.path, service.body(text, **options))
        if reply.status == 200:
            return service.read(reply.json())
        if reply.status not in (429, 503):
            break
        wait = reply.headers.get("retry-after", "1")
        time.sleep(min(float(wait) if wait.isdecimal() else 1.0, _LONGEST_WAIT))
    raise ServiceUnreachableError(
        f"{service.address.url}{service.path} answers a text with status {reply.status}: "
        f"{reply.body[:200].decode('utf-8', 'replace')!r}"
    )


@dataclass(frozen=True)
class Longdoc:
    """`POST /classify`."""

    address: Address
    kind: str = "Longdoc"
    path: str = "/classify"

    def body(self, text: str, **options: Any) -> dict[str, Any]:
        """All labels, so that all can be compared."""
        return {"input": text, "top_k": None, **options}

    def read(self, content: Any) -> Answer:
        """The only result."""
        (result,) = content["results"]
        scores = {each["label"]: float(each["score"]) for each in result["scores"]}
        return Answer(scores, result["tokens"], result["evidence"])


@dataclass(frozen=True)
class TextEmbeddingsInference:
    """`POST /predict` of a classifier that text-embeddings-inference serves."""

    address: Address
    kind: str = "text-embeddings-inference"
    path: str = "/predict"

    def body(self, text: str, **options: Any) -> dict[str, Any]:
        """Cut where it is too long: else it is refused."""
        return {"inputs": text, "truncate": True, **options}

    def read(self, content: Any) -> Answer:
        """Scores by label."""
        return Answer({each["label"]: float(each["score"]) for each in content})


@dataclass(frozen=True)
class OpenInference:
    """The Open Inference Protocol, version 2, of a model with one input of texts."""

    address: Address
    path: str
    input_name: str
    batched: bool  # whether a text is a row of a matrix
    kind: str = "Open Inference Protocol v2"

    def body(self, text: str, **options: Any) -> dict[str, Any]:
        """A tensor of one text."""
        shape = [1, 1] if self.batched else [1]
        tensor = {"name": self.input_name, "shape": shape, "datatype": "BYTES", "data": [text]}
        return {"inputs": [tensor], **options}

    def read(self, content: Any) -> Answer:
        """All numbers of all outputs by their place; a word counts as 1."""
        found: dict[str, float] = {}
        for output in content["outputs"]:
            for place, value in enumerate(output["data"]):
                word = value if isinstance(value, str) else ""
                found[f"{output['name']}[{place}]{word}"] = 1.0 if word else float(value)
        return Answer(found)


def recognise(address: Address, model: str | None) -> Service:
    """What answers there."""
    about = address.ask("GET", "/info")
    if about.status in (401, 403):
        raise ServiceUnreachableError(f"{address.url} wants a key: give --api-key")
    content = about.json()
    if about.status == 200 and isinstance(content, dict) and model is None:
        if "bundle_digest" in content:
            return Longdoc(address)
        if "model_type" in content:
            return TextEmbeddingsInference(address)
    if model is None:
        index = address.ask("POST", "/v2/repository/index", {}).json()
        names = [each.get("name") for each in index] if isinstance(index, list) else []
        if len(names) != 1:
            raise ServiceUnreachableError(
                f"{address.url} is neither Longdoc nor a text-embeddings-inference; name the model "
                "of an Open Inference Protocol server with --model"
            )
        model = str(names[0])
    path = f"/v2/models/{model}"
    declared = address.ask("GET", path).json()
    inputs = declared.get("inputs", []) if isinstance(declared, dict) else []
    texts = [each for each in inputs if each.get("datatype") == "BYTES"]
    if len(texts) != 1:
        raise ServiceUnreachableError(f"{address.url}{path} has no single input of texts")
    batched = len(texts[0].get("shape", [])) == 2
    return OpenInference(address, f"{path}/infer", str(texts[0]["name"]), batched)
