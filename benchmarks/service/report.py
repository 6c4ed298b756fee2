"""From stored results to the page docs/serving-figures.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from benchmarks.load.samples import Sample, to_samples
from benchmarks.markdown import busy_sentence, fill, mebibytes, milliseconds, table
from benchmarks.records import Figure, LoadTest, Run, percentile
from benchmarks.service.measures import BARE, COLD_START, FLOOD, MEASURES, MEMORY
from benchmarks.store import Loaded, Store

_BODY = Path(__file__).parent / "page.md"
_SHORT = 512  # tokens
_USUALLY_SLOW = 0.05  # share of requests above the 95th percentile


class Taken:
    """The records of the last finished run of a measure."""

    def __init__(self, store: Store, loaded: Loaded, run: Run, others: Sequence[Run] = ()) -> None:
        """`others` are runs of other bundles, of which the last of each is shown, too."""
        self.run = run
        known = {each.run for each in (*others, run)}
        figures = [figure for figure in loaded.figures if figure.run in known]
        last = {figure.subject: figure.run for figure in figures}
        self.figures = [figure for figure in figures if last[figure.subject] == figure.run]
        self.tests = [(n, test) for n, test in loaded.load_tests if test.run == run.run]
        self._store = store

    def named(self, scenario: str) -> list[LoadTest]:
        """The load tests of a scenario, by round."""
        return [test for _, test in self.tests if test.scenario == scenario]

    def samples(self, scenario: str) -> list[list[Sample]]:
        """Their raw samples."""
        found = (self._store.requests(n) for n, test in self.tests if test.scenario == scenario)
        return [to_samples(raw) for raw in found if raw is not None]

    @property
    def head(self) -> str:
        """When, where and of what it was measured."""
        run = self.run
        subjects = {test.bundle.name for _, test in self.tests if test.bundle}
        subjects |= {figure.subject for figure in self.figures}
        shares = [float(t.settings["cores"]["others"]) / run.environment.cores
                  for _, t in self.tests]  # fmt: skip
        plan = {test.settings["plan"] for _, test in self.tests}
        plan |= {figure.conditions["plan"] for figure in self.figures}
        quick = " **A quick look: it shows that all works.**" * ("quick" in plan)
        return (
            f"{run.environment.title}, Python {run.environment.versions['python']}, bundle "
            f"`{', '.join(sorted(subjects))}`, {run.started[:10]}, run `{run.run}`, commit "
            f"`{(run.environment.commit or 'unknown')[:12]}`.{quick} {busy_sentence(shares)}"
        ).strip()


def page_of(store: Store) -> str:
    """The page of the last finished run of each measure."""
    loaded = store.load()
    parts = {}
    for name in MEASURES:
        runs = [r for r in loaded.runs.values() if r.run.startswith(f"service-{name}-")]
        ended = [run for run in runs if run.finished]
        title = f"## {name.replace('_', ' ').capitalize()}"
        if ended:
            taken = Taken(store, loaded, ended[-1], ended if name == "memory" else ())
            parts[name.upper()] = f"{title}\n\n{_SECTIONS[name](taken)}\n\n{taken.head}"
        else:
            missing = f"Nothing is stored: `python -m benchmarks.service {name}` measures it."
            parts[name.upper()] = f"{title}\n\n{missing}"
    return fill(_BODY.read_text(encoding="utf-8"), parts)


def _overhead(taken: Taken) -> str:
    rows = []
    for scenario in dict.fromkeys(test.scenario for _, test in taken.tests):
        tests = taken.named(scenario)
        bare = {batched: _bare_rates(taken.figures, scenario, batched) for batched in (False, True)}
        best = max(bare, key=lambda batched: median(bare[batched]))
        rates = bare[best]
        shares = [
            test.answered_per_second / ((before + after) / 2)
            for test, before, after in zip(tests, rates, rates[1:], strict=False)
        ]
        served = median(test.answered_per_second for test in tests)
        rows.append(
            [scenario.removeprefix("overhead "), f"{median(rates):.1f}",
             "in batches" if best else "alone", f"{served:.1f}", f"{median(shares):.1%}",
             f"{min(shares):.1%} to {max(shares):.1%}", _verdict(median(shares) >= 0.9)]
        )  # fmt: skip
    text = (
        "Documents a second through HTTP (32 clients) against the graph alone: tokens ready, no "
        "server, one single-threaded session per core, longest first, each document by itself or "
        "the short ones in batches, whichever is faster. So the share also pays for tokenizing. "
        "Both take turns, the graph before and after the service; figures are medians over the "
        "rounds, and the spread is that of the rounds."
    )
    head = ["tokens", "graph", "its runs", "served", "share", "spread", "at least 90%"]
    return f"{text}\n\n{table(head, rows)}"


def _bare_rates(figures: Sequence[Figure], load: str, batched: bool) -> list[float]:
    """Documents a second of the graph alone, before the first round and after each."""
    found = [
        figure
        for figure in figures
        if figure.name == BARE
        and (figure.conditions["load"], figure.conditions["batched"]) == (load, batched)
    ]
    return [len(figure.values) / figure.conditions["seconds"] for figure in found]


def _overload(taken: Taken) -> str:
    floods = taken.named("overload: flood")
    peaks = [
        (before.answered_per_second + after.answered_per_second) / 2
        for before, after in zip(
            taken.named("overload: peak before"), taken.named("overload: peak after"), strict=True
        )
    ]
    samples = taken.samples("overload: flood")
    goodput = [t.answered_per_second / peak for t, peak in zip(floods, peaks, strict=True)]
    refusals = [s.seconds for some in samples for s in some if s.status in (429, 503)]
    statuses = [s.status for some in samples for s in some]
    usual = [_p95(some) for some in taken.samples("overload: calm before")]
    recovered = [
        recovered_after([s for s in some if s.tokens < _SHORT], 2 * bound)
        for some, bound in zip(taken.samples("overload: calm after"), usual, strict=True)
    ]
    counts = ", ".join(f"{statuses.count(s):,} x {s}" for s in sorted(set(statuses)))
    cores = {
        who: median(t.settings["cores"][who] for t in floods)
        for who in ("server", "generator", "others")
    }
    rows = [
        ["offered", f"{median(t.offered_per_second or 0 for t in floods):.0f} a second, "
         f"{FLOOD:g} times the peak before"],
        ["answered in time", f"{median(goodput):.1%} ({min(goodput):.1%} to {max(goodput):.1%}) "
         f"of the peak's documents, at least 90%: {_verdict(median(goodput) >= 0.9)}"],
        ["statuses", counts],
        ["a refusal, median", f"{milliseconds(median(refusals or [0.0]))} (below 50 ms)"],
        ["cores used", ", ".join(f"{who} {value:.2f}" for who, value in cores.items())],
        ["peak memory", mebibytes(max(t.service_memory_bytes or 0 for t in floods))],
        ["normal again after", f"{max(recovered):.1f} s (at most 5)"],
    ]  # fmt: skip
    text = (
        "Log-normal lengths; five times capacity arrives on schedule, sent from the same cores. "
        "The peak is the mean of what 16 clients got just before and just after. Under overload "
        "short documents are answered first, so more documents than at the peak can be. Normal "
        "again: from then on at most one short document in twenty took more than twice what 95% "
        f"took before. {len(floods)} round{'s' * (len(floods) > 1)}: medians; memory and recovery "
        "are the worst."
    )
    return f"{text}\n\n{table(['what', 'measured'], rows)}"


def recovered_after(samples: Sequence[Sample], bound: float) -> float:
    """Seconds from which on at most one request in twenty takes longer than the bound."""
    ordered = sorted(samples, key=lambda sample: sample.due)
    slow, recovered = 0, float("inf")
    for left, sample in enumerate(reversed(ordered), 1):
        slow += bool(sample.error) or sample.seconds > bound
        if slow / left <= _USUALLY_SLOW:
            recovered = 0.0 if left == len(ordered) else sample.due
    return recovered


def _cold_start(taken: Taken) -> str:
    (figure,) = (figure for figure in taken.figures if figure.name == COLD_START)
    text = "From process start to the first 200 on `/readyz`; the goal is 2.5 s."
    row = [f"{figure.median:.2f} s", f"{max(figure.values):.2f} s", str(len(figure.values))]
    return f"{text}\n\n{table(['median', 'most', 'starts'], [row])}"


def _memory(taken: Taken) -> str:
    figures = [figure for figure in taken.figures if figure.name == MEMORY]
    rows = [
        [
            f"`{figure.subject}`",
            f"{figure.conditions['tokens']:,}",
            *(mebibytes(value) for value in figure.values),
        ]
        for figure in figures
    ]
    seconds = figures[-1].conditions["after_seconds"]
    text = (
        "Resident memory of a fresh service before, at the peak and "
        f"{seconds:g} seconds after one document, shorter ones first; and what admission predicted "
        "that the document's run adds. Of each bundle, its last measurement."
    )
    return f"{text}\n\n{table(['bundle', 'tokens', 'before', 'predicted', 'peak', 'after'], rows)}"


_SECTIONS: dict[str, Callable[[Taken], str]] = {
    "overhead": _overhead,
    "overload": _overload,
    "cold_start": _cold_start,
    "memory": _memory,
}


def _p95(samples: Sequence[Sample]) -> float:
    return percentile([s.seconds for s in samples if not s.error] or [0.0], 95)


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"
