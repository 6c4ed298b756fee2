"""Load tests that repeat one another as one row, ours first. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from benchmarks.records import LoadTest
from dashboard.costs import Row
from dashboard.load_charts import load_of, service_of, test_rows

OURS = "longdoc"
#: The mix of a comparison that short and long documents share.
_MIXED = "mixed"
_UNLOADED = "limit"  # not a server: what the machine does without one


def grouped_rows(tests: Iterable[LoadTest]) -> list[Row]:
    """A row for each service, documents and load of a run or comparison: medians over repeats."""
    groups: dict[tuple[str, ...], list[LoadTest]] = {}
    for test in tests:
        if test.server != _UNLOADED:
            key = (service_of(test), test.scenario, load_of(test), test.sweep or test.created[:10])
            groups.setdefault(key, []).append(test)
    ordered = sorted(groups.values(), key=_newest_of_ours_first, reverse=True)
    return [_row(group) for group in ordered]


def newest_first(tests: Iterable[LoadTest]) -> list[LoadTest]:
    """Load tests of ours, then of others, each from the newest on."""
    return sorted(tests, key=lambda test: (test.server == OURS, test.created), reverse=True)


def _newest_of_ours_first(group: Sequence[LoadTest]) -> tuple[bool, str]:
    return group[0].server == OURS, max(test.created for test in group)


def _row(group: Sequence[LoadTest]) -> Row:
    rows = test_rows(group)
    if len(rows) == 1:
        return {**rows[0], "runs": 1}
    first = rows[0]
    merged = {
        name: _median(row[name] for row in rows)
        if isinstance(value, float) or value is None
        else value
        for name, value in first.items()
    }
    merged["errors"] = sum(row["errors"] for row in rows)
    merged["requests"] = sum(row["requests"] for row in rows)
    merged["note"] = first["note"]
    return merged | {"runs": len(rows)}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def beside_other_servers(tests: Iterable[LoadTest], scenario: str = _MIXED) -> list[Row]:
    """Each server of the newest comparison under one load: medians over its rounds."""
    joint = [test for test in tests if test.sweep and test.scenario == scenario]
    sweeps = {
        sweep: [test for test in joint if test.sweep == sweep]
        for sweep in dict.fromkeys(test.sweep for test in joint)
    }
    several = [group for group in sweeps.values() if len({test.server for test in group}) > 1]
    if not several:
        return []
    newest = max(several, key=lambda group: max(test.created for test in group))
    rows = []
    for server in dict.fromkeys(test.server for test in newest):
        own = [test for test in newest if test.server == server and test.p99]
        if server == _UNLOADED or not own:
            continue

        def middle(
            figure: Callable[[LoadTest], float | None], own: Sequence[LoadTest] = own
        ) -> float | None:
            return _median(figure(test) for test in own)

        rows.append(
            {
                "server": server,
                "documents/s": middle(lambda test: test.documents_per_second),
                "median ms": middle(lambda test: test.p50 and test.p50 * 1e3),
                "p99 ms": middle(lambda test: test.p99 and test.p99 * 1e3),
                "memory MB": middle(
                    lambda test: test.service_memory_bytes and test.service_memory_bytes / 1e6
                ),
                "rounds": len(own),
            }
        )
    return sorted(rows, key=lambda row: -(row["documents/s"] or 0.0))
