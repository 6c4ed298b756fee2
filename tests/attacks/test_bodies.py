"""Bodies made to be expensive: refused or answered, while everybody else is answered at once."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.attacks.bodies import BODIES, V2
from tests.attacks.target import Target, attacked

# The goal is 0.1 s, on a machine that does nothing else; where tests run side by side, a process
# may wait that long for a core. What is guarded against takes seconds.
_LONGEST_WAIT = 1.0
_SHORT = [
    "dots",
    "dots, stream",
    "emoji, 8 MB",
    "a key twice",
    "unknown keys, 7 MB",
    "empty lists, 8 MB",
    "wrong outputs, 6.5 MB",
    "small tensors, 8 MB",
    "gzip of newlines, stream",
    "gzip of empty members",
]


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with attacked(timeout_ms="1500", queue_seconds="600") as running:
        yield running
        assert running.serves()


@pytest.mark.parametrize("name", _SHORT)
def test_a_body_holds_up_nobody(target: Target, name: str) -> None:
    _send_watched(target, name)


@pytest.mark.attack
@pytest.mark.parametrize("name", [name for name in BODIES if name not in _SHORT])
def test_nor_does_any_of_the_others(target: Target, name: str) -> None:
    _send_watched(target, name)


def _send_watched(target: Target, name: str) -> None:
    body = BODIES[name]
    content = body.make()
    longest = _LONGEST_WAIT
    for _ in range(3):  # a busy machine has its moments
        with target.watched() as watched:
            answer = target.post(body.path, content, **body.headers)
        assert answer.status_code in (200, 400, 413, 422, 504)
        if answer.headers["content-type"] in ("application/json", "application/problem+json"):
            answer.json()
        assert watched.failures == 0
        longest = min(longest, watched.longest)
        if longest < _LONGEST_WAIT:
            return
    raise AssertionError(f"/healthz took {watched.longest:.1f} s")


def test_dots_are_answered(target: Target) -> None:
    body = json.dumps({"input": "." * 40_000, "evidence": 1, "timeout_ms": 60_000}).encode()
    assert target.post("/classify", body).status_code == 200


_V2_BODY = (
    b'{"inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}],"id":"\\ud800"}'
)


@pytest.mark.parametrize(
    "value", ["\xb2", "9" * 5000, "-1", "1e3", "0x10", "", "99999999999999999999"]
)
def test_a_length_that_is_none(target: Target, value: str) -> None:
    head = f"POST {V2} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {value}\r\n"
    sent = head.encode("latin-1") + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
    received = target.talk(sent)
    assert received.startswith(b"HTTP/1.1 400 "), received[:100]
    assert b'"error"' in received


def test_an_id_with_half_of_a_surrogate_pair(target: Target) -> None:
    answer = target.post(V2, _V2_BODY)
    assert answer.status_code == 422
    assert "surrogate" in answer.json()["error"]
