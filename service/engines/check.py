"""What any engine must keep: for the tests of ours, and of yours.

    from service.engines.check import check_engine

    def test_my_engine() -> None:
        check_engine(lambda: MyEngine(...), vocab_size=8192)

Each check raises AssertionError with what was wrong. They take a few seconds with a small network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from models.errors import ShapeError
from service.engines.base import Engine, Floats, Ids, Output

_LENGTHS = (1, 2, 13, 67, 128, 251)  # odd, prime, and around blocks
_OUTSIDE = 1 << 40  # an id that no vocabulary has


def check_engine(
    maker: Callable[[], Engine],
    *,
    vocab_size: int,
    max_length: int | None = None,
    tolerance: float = 1e-4,
) -> None:
    """Check an engine against its contract.

    maker       opens a fresh engine each time
    max_length  the longest document that its network takes; None where any length does
    tolerance   largest difference of a probability between a document alone and in company
    """
    lengths = [n for n in _LENGTHS if max_length is None or n <= max_length]
    engine = maker()
    try:
        _check_info(engine)
        _check_shapes(engine, vocab_size, lengths)
        _check_independence(engine, vocab_size, lengths, tolerance)
        _check_contributions(engine, vocab_size, lengths)
        _check_arrays(engine, vocab_size, lengths)
        _check_release(engine, vocab_size, lengths)
        _check_refusals(engine, vocab_size, max_length)
        _check_threads(engine, vocab_size, lengths)
    finally:
        engine.close()
    _check_fresh(maker, vocab_size)


def _check_info(engine: Engine) -> None:
    info = engine.info
    words = (info.engine, info.device, info.provider, info.precision, info.reason)
    _require(all(words), f"each of info's words must say something; got {words}")
    _require(info.threads >= 1, f"info.threads must be at least 1; got {info.threads}")


def _check_shapes(engine: Engine, vocab_size: int, lengths: list[int]) -> None:
    labels = None
    for n in lengths:
        for batch in ([n], [n, max(1, n // 2), 1]):
            output = _run(engine, vocab_size, batch, contributions=True)
            labels = output.logits.shape[-1] if labels is None else labels
            _same(output.logits.shape, (len(batch), labels), "shape of logits")
            _same(output.logits.dtype, np.dtype(np.float32), "type of logits")
            _require(bool(np.isfinite(output.logits).all()), "logits must be finite")
            _same(_shares(output).shape, (len(batch), n, labels), "shape of contributions")
            plain = _run(engine, vocab_size, batch)
            _require(plain.contributions is None, "contributions that nobody asked for")
            _close(plain.logits, output.logits, 1e-4, "logits with and without contributions")


def _check_independence(
    engine: Engine, vocab_size: int, lengths: list[int], tolerance: float
) -> None:
    ids, each = _documents(vocab_size, lengths)
    together = _probabilities(engine.run(ids, each).logits)
    for row, n in enumerate(lengths):
        alone = engine.run(ids[row : row + 1, :n].copy(), each[row : row + 1])
        padded = engine.run(ids[row : row + 1], each[row : row + 1])
        for name, output in (("alone", alone), ("padded", padded)):
            found = _probabilities(output.logits)[0]
            _close(found, together[row], tolerance, f"{n} tokens in company and {name}")


def _check_contributions(engine: Engine, vocab_size: int, lengths: list[int]) -> None:
    output = _run(engine, vocab_size, lengths, contributions=True)
    shares = _shares(output)
    for row, n in enumerate(lengths):
        _require(not shares[row, n:].any(), "padding contributes nothing")
    biases = output.logits - shares.sum(axis=1)
    _close(biases, np.broadcast_to(biases[:1], biases.shape), 1e-3, "logits without contributions")


def _check_arrays(engine: Engine, vocab_size: int, lengths: list[int]) -> None:
    """What goes in is not written to, what comes out is not overwritten by the next run."""
    ids, each = _documents(vocab_size, lengths)
    given = ids.copy(), each.copy()
    first = engine.run(ids, each, contributions=True)
    kept = first.logits.copy(), _shares(first).copy()
    _run(engine, vocab_size, lengths, seed=1, contributions=True)
    for before, after in zip(
        (*given, *kept), (ids, each, first.logits, _shares(first)), strict=True
    ):
        np.testing.assert_array_equal(after, before, "arrays must belong to one run alone")
    ids.flags.writeable = each.flags.writeable = False
    engine.run(ids, each)


def _check_release(engine: Engine, vocab_size: int, lengths: list[int]) -> None:
    ids, each = _documents(vocab_size, lengths)
    before = engine.run(ids, each).logits
    for released in (True, False):
        found = engine.run(ids, each, release_memory=released).logits
        _close(found, before, 1e-5, "logits before and after memory was given back")


def _check_refusals(engine: Engine, vocab_size: int, max_length: int | None) -> None:
    ids, each = _documents(vocab_size, [5, 3])
    wrong = {
        "ids of 32 bits": (ids.astype(np.int32), each),
        "ids of one dimension": (ids[0], each),
        "a length for each of other documents": (ids, each[:1]),
        "a length of 0": (ids, np.array([5, 0])),
        "a length over n": (ids, np.array([5, 6])),
        "no documents": (ids[:0], each[:0]),
        "an id that the vocabulary has not": (np.full((1, 3), vocab_size), np.array([3])),
        "a negative id": (np.full((1, 3), -1), np.array([3])),
    }
    if max_length is not None:
        wrong["more tokens than it takes"] = _documents(vocab_size, [max_length + 1])
    for name, batch in wrong.items():
        try:
            engine.run(*batch)
        except ShapeError:
            continue
        raise AssertionError(f"{name} must be refused with ShapeError")
    engine.run(ids, each)  # a refused batch leaves nothing behind


def _check_threads(engine: Engine, vocab_size: int, lengths: list[int]) -> None:
    """Runs of four threads at once give what they give one after another."""
    batches = [_documents(vocab_size, [n, 1 + n // 3], seed=n) for n in lengths]
    expected = [engine.run(*batch).logits for batch in batches]
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                for batch, wanted in zip(batches, expected, strict=True):
                    _close(engine.run(*batch).logits, wanted, 1e-5, "logits of runs at once")
        except BaseException as error:  # it is raised below, in the test's own thread
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def _check_fresh(maker: Callable[[], Engine], vocab_size: int) -> None:
    """Two engines live side by side, and one outlives the other."""
    one, other = maker(), maker()
    batch = _documents(vocab_size, [7, 3])
    before = one.run(*batch).logits
    other.run(*batch)
    other.close()
    _close(one.run(*batch).logits, before, 1e-5, "logits before and after another was closed")
    one.close()


def _documents(vocab_size: int, lengths: list[int], seed: int = 0) -> tuple[Ids, Ids]:
    """Random tokens, with ids in the padding that no vocabulary has."""
    each = np.array(lengths)
    ids = np.random.default_rng(seed).integers(0, vocab_size, (len(lengths), max(lengths)))
    ids[np.arange(max(lengths)) >= each[:, None]] = _OUTSIDE
    return ids, each


def _run(
    engine: Engine,
    vocab_size: int,
    lengths: list[int],
    *,
    seed: int = 0,
    contributions: bool = False,
) -> Output:
    return engine.run(*_documents(vocab_size, lengths, seed), contributions=contributions)


def _shares(output: Output) -> Floats:
    if output.contributions is None:
        raise AssertionError("contributions were asked for and are missing")
    return output.contributions


def _probabilities(logits: Floats) -> Floats:
    scores: Floats = np.exp(logits - logits.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def _require(kept: bool, rule: str) -> None:
    if not kept:
        raise AssertionError(rule)


def _same(found: object, wanted: object, what: str) -> None:
    _require(found == wanted, f"{what}: {found} instead of {wanted}")


def _close(found: Floats, wanted: Floats, tolerance: float, what: str) -> None:
    difference = float(np.abs(found - wanted).max())
    _require(
        difference <= tolerance,
        f"{what} differ by {difference:.1e}, more than {tolerance:.0e}",
    )
