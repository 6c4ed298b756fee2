"""What a caller may rely on, each as a check that either holds or does not."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from service.verify.client import Answer, Longdoc, Reply, Service, classify

_AT_ONCE = 32  # callers
_WAVES = 5
_LONG_AT_ONCE = 4
_UNNOTICED = 0.05  # seconds of waiting that say nothing
_MOST_WORDS = 100_000  # of the text that is longer than a service reads in one piece
_LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)  # words
_SENTENCES = (
    "The cells of a young plant turn to light while stars above it cool, and neurons near an old "
    "river carry salt, sugar and signals over long distances; nobody knows how far."
)


@dataclass(frozen=True)
class Finding:
    """What a check found: whether it held, None where the service does not offer it."""

    name: str
    held: bool | None
    seen: str


@dataclass(frozen=True)
class Plan:
    """How much is asked, and how exactly answers must agree."""

    tolerance: float
    long_words: int


def run_checks(service: Service, plan: Plan) -> Iterator[Finding]:
    """All findings, as they come."""
    texts = [make_text(words, seed) for seed, words in enumerate(_LENGTHS * 2)]
    alone = [classify(service, text) for text in texts]
    spread = max(max(answer.scores.values()) - min(answer.scores.values()) for answer in alone)
    yield Finding(
        "answers",
        len({tuple(answer.scores.values()) for answer in alone}) > 1 and spread > 0,
        f"{len(alone[0].scores)} numbers a text; {len(texts)} texts differ",
    )
    waves = [_together(service, texts * _WAVES)]
    yield _compared("five equal waves at once", _by_text(waves[0], len(texts)), plan)
    shuffled = _shuffled(service, texts)
    yield _compared("shuffled neighbours", list(zip(waves[0], shuffled, strict=False)), plan)
    yield _compared("alone against in company", list(zip(alone, waves[0], strict=False)), plan)
    yield _long_and_short(service, plan, texts[3], alone[3])
    yield _receipts(service)
    yield _deadlines(service, plan)
    yield from _refusals(service)
    yield _leavers(service, plan)
    afterwards = [classify(service, text) for text in texts]
    yield _compared("the same after all that", list(zip(alone, afterwards, strict=True)), plan)


def make_text(words: int, seed: int) -> str:
    """A text of so many words, always the same."""
    drawn = random.Random(seed)  # noqa: S311 - texts, not secrets
    choices = _SENTENCES.split()
    return " ".join(drawn.choice(choices) for _ in range(words))


def _together(service: Service, texts: Sequence[str]) -> list[Answer]:
    with ThreadPoolExecutor(_AT_ONCE) as callers:
        return list(callers.map(lambda text: classify(service, text), texts))


def _by_text(answers: Sequence[Answer], count: int) -> list[tuple[Answer, Answer]]:
    return [(answers[place % count], answer) for place, answer in enumerate(answers)]


def _shuffled(service: Service, texts: Sequence[str]) -> list[Answer]:
    order = list(range(len(texts)))
    random.Random(0).shuffle(order)  # noqa: S311 - an order, not a secret
    answers = _together(service, [texts[place] for place in order])
    found = dict(zip(order, answers, strict=True))
    return [found[place] for place in range(len(texts))]


def _compared(name: str, pairs: Sequence[tuple[Answer, Answer]], plan: Plan) -> Finding:
    largest = max(one.difference(other) for one, other in pairs)
    seen = f"{len(pairs)} pairs differ by at most {largest:.1e}"
    return Finding(name, largest <= plan.tolerance, seen)


def _timed(service: Service, text: str) -> tuple[float, Answer]:
    begin = time.monotonic()
    answer = classify(service, text)
    return time.monotonic() - begin, answer


def _long_and_short(service: Service, plan: Plan, short: str, expected: Answer) -> Finding:
    """A short text must not wait for a long one that came before it, nor differ beside it."""
    long = make_text(plan.long_words, 0)
    classify(service, long)
    long_alone = statistics.median(_timed(service, long)[0] for _ in range(3))
    alone = statistics.median(_timed(service, short)[0] for _ in range(9))
    enough = threading.Event()

    def go_on() -> None:
        while not enough.is_set():
            classify(service, long)

    with ThreadPoolExecutor(_LONG_AT_ONCE) as callers:
        under_way = [callers.submit(go_on) for _ in range(_LONG_AT_ONCE)]
        time.sleep(long_alone)
        try:
            timed = [_timed(service, short) for _ in range(30)]
        finally:
            enough.set()
    for each in under_way:
        each.result()
    beside = statistics.median(seconds for seconds, _ in timed)
    largest = max(expected.difference(answer) for _, answer in timed)
    seen = (
        f"a short text took {_ms(alone)} alone and {_ms(beside)} beside {_LONG_AT_ONCE} of "
        f"{plan.long_words} words, one of which takes {_ms(long_alone)}; "
        f"it differed by {largest:.1e}"
    )
    prompt = beside <= max(long_alone / 2, 3 * alone, _UNNOTICED)
    return Finding("long against short", largest <= plan.tolerance and prompt, seen)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _receipts(service: Service) -> Finding:
    """What is said to be read is read, and passages are of the text."""
    name = "receipts"
    if not isinstance(service, Longdoc):
        return Finding(name, None, "answers do not say what was read")
    limits = service.address.ask("GET", "/info").json()["limits"]
    text = make_text(min(limits["max_tokens"] + 1, _MOST_WORDS), 1)  # a word takes a token or more
    time_for_it = {"timeout_ms": limits["max_timeout_ms"]}
    whole = classify(service, text, evidence=3, **time_for_it)
    cut = classify(service, text, on_overflow="truncate", **time_for_it)
    erring = service.body(text, on_overflow="error", **time_for_it)
    refused = service.address.ask("POST", service.path, erring).status
    wrong = []
    if whole.receipt["used"] != whole.receipt["total"] or whole.receipt["truncated"]:
        wrong.append("not all is read")
    if whole.receipt["total"] > limits["max_tokens"]:
        if whole.receipt["windows"] < 2:
            wrong.append("more than the limit in one window")
        if cut.receipt["used"] >= cut.receipt["total"] or not cut.receipt["truncated"]:
            wrong.append("a cut is not told")
        if refused != 422:
            wrong.append(f"on_overflow error gives {refused}")
    if any(text[each["start"] : each["end"]] != each["text"] for each in whole.evidence):
        wrong.append("a passage is not at its place")
    tokens, windows = whole.receipt["total"], whole.receipt["windows"]
    seen = f"{tokens:,} tokens in {windows} windows, {len(whole.evidence)} passages; cut: "
    return Finding(name, not wrong, "; ".join(wrong) or f"{seen}{cut.receipt['used']:,}")


def _deadlines(service: Service, plan: Plan) -> Finding:
    """An answer that cannot come in time does not come late."""
    name = "deadlines"
    if not isinstance(service, Longdoc):
        return Finding(name, None, "requests cannot say how long they wait")
    text = make_text(plan.long_words * 4, 2)
    begin = time.monotonic()
    statuses = [
        service.address.ask("POST", service.path, service.body(text, timeout_ms=1)).status
        for _ in range(5)
    ]
    took = (time.monotonic() - begin) / len(statuses)
    seen = f"{sorted(set(statuses))} after {_ms(took)} for a deadline of 1 ms"
    return Finding(name, set(statuses) <= {429, 504} and took < 1.0, seen)


def _refusals(service: Service) -> Iterator[Finding]:
    """What is wrong is the caller's fault, by its status, and is never answered."""

    def sent(body: Any, path: str = service.path, **headers: str) -> Callable[[], Reply]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return lambda: service.address.ask("POST", path, body, named)

    good = service.body("a text")
    wrong: dict[str, Callable[[], Reply]] = {
        "no JSON": sent(b"{"),
        "not UTF-8": sent(b'{"input": "\xff"}'),
        "no object": sent(b"7"),
        "no text": sent(dict.fromkeys(good, 7)),
        "nothing": sent(b""),
        "deep nesting": sent(b"[" * 50_000),
        "a number of 5,000 digits": sent(b"9" * 5000),
        "no such path": sent(good, "/no/such/path"),
    }
    if isinstance(service, Longdoc):
        wrong |= {
            "an empty text": sent(service.body(" ")),
            "an unknown field": sent(service.body("a text", no_such_field=1)),
            "an unknown type": sent(b"<a/>", Content_Type="application/xml"),
        }
    for name, ask in wrong.items():
        status = ask().status
        yield Finding(f"refuses {name}", 400 <= status < 500, f"status {status}")


def _leavers(service: Service, plan: Plan) -> Finding:
    """Who hangs up costs the others nothing once it is noticed."""
    begin = time.monotonic()
    classify(service, make_text(plan.long_words, 5))
    long = time.monotonic() - begin
    for seed in range(32):
        service.address.leave(service.path, service.body(make_text(plan.long_words, seed)))
    time.sleep(1.0)
    took, _ = _timed(service, make_text(plan.long_words, 5))
    seen = f"{_ms(took)} after 32 callers who left, {_ms(long)} before"
    return Finding("callers who leave", took < 8 * long + 1.0, seen)
