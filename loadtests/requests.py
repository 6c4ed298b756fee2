"""The requests that each kind of caller sends, and whether an answer to one is right."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from benchmarks.load.samples import name_status
from loadtests.plan import Plan

_PASSAGES = 3


@dataclass(frozen=True)
class Prepared:
    """A request that is ready to be sent."""

    kind: str
    path: str
    media_type: str
    body: bytes
    tokens: int
    documents: int


class Requests:
    """Makes requests of a plan's documents; each text is encoded once."""

    def __init__(self, plan: Plan, source: random.Random) -> None:
        self._plan = plan
        self._random = source
        self._texts = [(json.dumps(d.text).encode(), d.tokens) for d in plan.documents]
        self._infer = f"/v2/models/{quote(plan.service_model, safe='')}/infer"
        self._options = b', "timeout_ms": %d' % max(1, round(plan.timeout * 1000))

    def any_kind(self) -> Prepared:
        """A request of a kind drawn by the plan's weights."""
        mix = self._plan.mix
        return self.of_kind(self._random.choices(list(mix), list(mix.values()))[0])

    def of_kind(self, kind: str) -> Prepared:
        """A request of one kind, with documents drawn at random."""
        sizes = {"batch": self._plan.batch_size, "bulk": self._plan.bulk_size}
        drawn = self._random.choices(self._texts, k=sizes.get(kind, 1))
        texts = [text for text, _ in drawn]
        tokens = sum(count for _, count in drawn)
        path, media_type = "/classify", "application/json"
        if kind == "batch":
            body = b'{"input": [' + b", ".join(texts) + b"]" + self._options + b"}"
        elif kind == "bulk":
            path, media_type = "/classify/stream", "application/x-ndjson"
            body = b"".join(self._line(number, text) for number, text in enumerate(texts))
        elif kind == "v2":
            path = self._infer
            tensor = b'{"name": "text", "shape": [1], "datatype": "BYTES", "data": [%s]}'
            body = b'{"inputs": [' + tensor % texts[0] + b"]}"
        else:
            extra = b', "evidence": %d' % _PASSAGES if kind == "evidence" else b""
            body = b'{"input": ' + texts[0] + extra + self._options + b"}"
        return Prepared(kind, path, media_type, body, tokens, len(texts))

    def _line(self, number: int, text: bytes) -> bytes:
        return b'{"id": %d, "input": ' % number + text + self._options + b"}\n"


def check_answer(request: Prepared, status: int, content: bytes) -> tuple[int, str]:
    """The status that counts and what was wrong, or an empty text, of an answer.

    An answer with status 200 that lacks results is wrong; in a stream, the first line with an
    error gives its status.
    """
    if status != 200:
        return status, name_status(status)
    try:
        if request.kind == "bulk":
            return _check_lines(request, content)
        answer = json.loads(content)
        if request.kind == "v2":
            found = answer["outputs"][0]["data"]
        else:
            found = [result["label"] for result in answer["results"]]
        right = len(found) == request.documents
    except (ValueError, KeyError, IndexError, TypeError):
        right = False
    return status, "" if right else "wrong answer"


def _check_lines(request: Prepared, content: bytes) -> tuple[int, str]:
    lines: Sequence[dict[str, object]] = [json.loads(line) for line in content.splitlines()]
    for line in lines:
        problem = line.get("error")
        if isinstance(problem, dict):
            status = int(problem["status"])
            return status, f"line: {name_status(status)}"
    right = [line["id"] for line in lines] == list(range(request.documents))
    return 200, "" if right else "wrong answer"
