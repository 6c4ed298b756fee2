"""`check_engine`: every engine of ours passes it, and it finds each thing that it looks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.engines import open_engine
from service.engines.base import Engine, Floats, Ids, Output
from service.engines.check import check_engine
from service.engines.fake import FakeEngine
from tests.support.small_bundle import shared_bundle

VOCABULARY = 100
_FIRST: Floats = np.array([[1, 0, 0]], np.float32)


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_engines_of_bundles_keep_the_contract(engine: str) -> None:
    bundle = shared_bundle()
    config = bundle.manifest.config
    check_engine(
        lambda: open_engine(bundle, engine=engine, device="cpu"),
        vocab_size=config.vocab_size,
        max_length=config.max_length,
    )


def test_an_engine_that_takes_no_more_than_some_length_keeps_the_contract() -> None:
    bundle = shared_bundle("linformer", k=16, max_length=512)
    config = bundle.manifest.config
    check_engine(lambda: open_engine(bundle), vocab_size=config.vocab_size, max_length=512)


def test_the_fake_engine_keeps_the_contract() -> None:
    check_engine(lambda: FakeEngine(vocab_size=VOCABULARY), vocab_size=VOCABULARY)


class Faulty(FakeEngine):
    """A fake whose output or input something happens to."""

    def __init__(self, change: Callable[[Output, Ids, Ids, dict[str, Any]], Output]) -> None:
        super().__init__(labels=3, vocab_size=VOCABULARY)
        self.change = change

    def run(self, ids: Ids, lengths: Ids, **options: Any) -> Output:
        return self.change(super().run(ids, lengths, **options), ids, lengths, options)


def _depends_on_the_batch(output: Output, ids: Ids, _l: Ids, _o: dict[str, Any]) -> Output:
    return replace(output, logits=output.logits + len(ids) * _FIRST)


def _doubles(output: Output, _ids: Ids, _l: Ids, _o: dict[str, Any]) -> Output:
    return replace(output, logits=output.logits.astype(np.float64))


def _always_explains(output: Output, ids: Ids, _l: Ids, _o: dict[str, Any]) -> Output:
    return replace(output, contributions=np.zeros((*ids.shape, 3), np.float32))


def _never_explains(output: Output, _ids: Ids, _l: Ids, _o: dict[str, Any]) -> Output:
    return replace(output, contributions=None)


def _explains_wrongly(output: Output, _ids: Ids, _l: Ids, _o: dict[str, Any]) -> Output:
    shares = output.contributions
    return replace(output, contributions=None if shares is None else 2 * shares)


def _writes_to_its_input(output: Output, ids: Ids, _l: Ids, _o: dict[str, Any]) -> Output:
    ids[:] = 0
    return output


def _forgets_when_it_releases(output: Output, _i: Ids, _l: Ids, options: dict[str, Any]) -> Output:
    return replace(
        output, logits=output.logits + int(options.get("release_memory", False)) * _FIRST
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_depends_on_the_batch, "in company and alone"),
        (_doubles, "type of logits"),
        (_always_explains, "contributions that nobody asked for"),
        (_never_explains, "asked for and are missing"),
        (_explains_wrongly, "logits without contributions"),
        (_writes_to_its_input, "must belong to one run alone|in company"),
        (_forgets_when_it_releases, "memory was given back"),
    ],
)
def test_a_fault_is_found(change: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_engine(lambda: Faulty(change), vocab_size=VOCABULARY)


def test_an_output_that_the_next_run_overwrites_is_found() -> None:
    class Reusing(FakeEngine):
        memory: Floats = np.zeros((16, 2), np.float32)

        def run(self, ids: Ids, lengths: Ids, **options: Any) -> Output:
            output = super().run(ids, lengths, **options)
            self.memory[: len(ids)] = output.logits
            return replace(output, logits=self.memory[: len(ids)])

    with pytest.raises(AssertionError, match="must belong to one run alone"):
        check_engine(lambda: Reusing(vocab_size=VOCABULARY), vocab_size=VOCABULARY)


def test_an_engine_that_refuses_nothing_is_found() -> None:
    with pytest.raises(AssertionError, match="must be refused with ShapeError"):
        check_engine(FakeEngine, vocab_size=VOCABULARY)


def test_engines_that_are_one_are_found() -> None:
    class Fragile(FakeEngine):
        open = 0

        def run(self, ids: Ids, lengths: Ids, **options: Any) -> Output:
            if self.closed:
                raise RuntimeError("closed")
            return super().run(ids, lengths, **options)

    one: list[Engine] = []

    def maker() -> Engine:
        if len(one) < 2:
            one.append(Fragile(vocab_size=VOCABULARY))
        return one[-1]

    with pytest.raises(RuntimeError, match="closed"):
        check_engine(maker, vocab_size=VOCABULARY)
