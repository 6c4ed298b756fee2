"""What a measurement stores: the records, their schema, and the figures computed from them.

Measurement   one attention, engine, precision, length and batch: raw times, peak memory
LoadTest      one load on a running server: by second, by length, errors; raw requests apart
Figure        raw values of any other quantity, with the conditions they were measured under
Run           what one command set out to measure, on which machine, and whether it finished

Every record names its run; a run holds the environment it was made in. Nothing heavy is
imported here: load tests and the dashboard read records too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

#: Grows when the meaning or form of a record changes.
SCHEMA: Final = 1

#: The name of softmax attention without a fused kernel; it is not a registered attention.
UNFUSED = "softmax_unfused"

#: The sweep of load tests that only choose the settings of a server under comparison.
TRIALS: Final = "settings"

Seconds = Annotated[float, Field(ge=0)]
Bytes = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Moment = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")]


class Record(BaseModel):
    """A frozen record, stored as JSON; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Environment(Record):
    """The machine and the software that a figure is true of."""

    cpu: str
    cores: Annotated[int, Field(ge=1)]
    memory_bytes: Bytes
    gpu: str | None
    container_cores: float | None
    container_memory_bytes: Bytes | None
    system: str
    versions: dict[str, str]
    commit: str | None

    @property
    def title(self) -> str:
        """The machine in a few words."""
        parts = [self.cpu, f"{self.cores} core" + "s" * (self.cores > 1)]
        parts.append(f"{self.memory_bytes / 2**30:.0f} GiB")
        return ", ".join(parts + ([self.gpu] if self.gpu else []))


class Run(Record):
    """What one command set out to measure; `finished` is None when it was interrupted.

    `load_before` is how many cores others kept busy just before the run.
    """

    kind: Literal["run"] = "run"
    run: Name
    started: Moment
    finished: Moment | None
    command: str
    plan: str
    environment: Environment
    load_before: Annotated[float, Field(ge=0)]

    @property
    def busy(self) -> bool:
        """Whether others kept the machine busy: times are then good for ratios only."""
        return self.load_before > 0.25 * self.environment.cores

    @property
    def title(self) -> str:
        """When and where, in a line."""
        busy = " (busy machine)" if self.busy else ""
        return f"{self.started[:16].replace('T', ' ')} · {self.environment.title}{busy}"


class Bundled(Record):
    """Which network was measured. Speed does not depend on the weights: random ones will do."""

    name: Name
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    weights: Literal["trained", "random"]


class Measurement(Record):
    """One configuration's raw values. What was not measured says why in `reason`.

    peak_bytes is the process's peak resident memory during a first run, above its baseline with
    the network loaded (on CUDA, the allocator's peak); predicted_bytes is what was expected.
    """

    kind: Literal["bench"] = "bench"
    run: Name
    created: Moment
    attention: Name
    engine: Literal["onnxruntime", "torch"]
    device: Literal["cpu", "cuda"]
    precision: Literal["fp32", "fp16", "int8"]
    threads: Annotated[int, Field(ge=1)]
    length: Annotated[int, Field(ge=1)]
    batch: Annotated[int, Field(ge=1)]
    status: Literal["measured", "skipped", "failed"]
    reason: str = ""
    bundle: Bundled | None = None
    samples_seconds: tuple[Seconds, ...] = ()
    rounds: Count = 0
    peak_bytes: Bytes | None = None
    baseline_bytes: Bytes | None = None
    predicted_bytes: Bytes | None = None

    @property
    def median(self) -> float:
        """Median seconds of a run."""
        return percentile(self.samples_seconds, 50)

    @property
    def p95(self) -> float:
        """95th percentile of the seconds of a run."""
        return percentile(self.samples_seconds, 95)

    @property
    def tokens_per_second(self) -> float:
        """Tokens read in a second, at the median."""
        return self.length * self.batch / self.median


class LengthBucket(Record):
    """Requests whose documents had from `low` to below `high` tokens."""

    low: Count
    high: Count
    requests: Count
    errors: Count
    p50: Seconds | None
    p95: Seconds | None
    p99: Seconds | None


class Second(Record):
    """What happened in one second of a load test, counted from the end of the warm-up."""

    at: Count
    sent: Count
    answered: Count
    errors: Count
    p50: Seconds | None
    p99: Seconds | None
    memory_bytes: Bytes | None = None


class RequestKind(Record):
    """The requests of one kind of caller: interactive, batch, bulk, evidence, v2."""

    request: Name
    requests: Count
    documents: Count
    errors: Count
    p50: Seconds | None
    p95: Seconds | None
    p99: Seconds | None


class Generator(Record):
    """What the load generator itself needed, so that its own limits are not the service's.

    cpu_share: of one core, of its busiest process; late: by how much requests left after they
    were due (in a closed load, by how much its clock overslept).
    """

    processes: Annotated[int, Field(ge=1)]
    cpu_share: Annotated[float, Field(ge=0)]
    late_mean: Seconds
    late_p99: Seconds
    late_most: Seconds


class LoadTest(Record):
    """A load on a server, warm-up excluded. Times count from when a request was due.

    `server` names what answered: longdoc or a peer. `sweep` joins the tests of one sweep or
    comparison, such as one server at several rates. The raw requests are stored apart, as
    `Requests`. `length` is that of every document, when all have the same. Metrics are read
    before the warm-up and after the last answer; the warm-up's requests are counted apart.
    Memory is that before the load (idle), its peak, and that some seconds after the last answer.
    """

    kind: Literal["load"] = "load"
    run: Name
    created: Moment
    server: Name
    sweep: str
    scenario: str
    attention: str | None
    engine: str | None
    precision: str | None
    bundle: Bundled | None = None
    model: Literal["open", "closed"]
    offered_per_second: Annotated[float, Field(ge=0)] | None
    users: Count | None
    seconds: Seconds
    warm_up_seconds: Seconds
    requests: Count
    documents: Count
    tokens: Count
    p50: Seconds | None
    p90: Seconds | None
    p95: Seconds | None
    p99: Seconds | None
    answered_per_second: Annotated[float, Field(ge=0)]
    errors: dict[str, Count]
    by_length: tuple[LengthBucket, ...]
    by_second: tuple[Second, ...]
    service_memory_bytes: Bytes | None
    metrics_before: dict[str, float]
    metrics_after: dict[str, float]
    generator_bottleneck: bool
    note: str = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    length: Count | None = None
    documents_per_second: Annotated[float, Field(ge=0)] | None = None
    by_request: tuple[RequestKind, ...] = ()
    service_idle_bytes: Bytes | None = None
    service_after_bytes: Bytes | None = None
    warm_up_requests: Count = 0
    warm_up_errors: dict[str, Count] = Field(default_factory=dict)
    generator: Generator | None = None


class Requests(Record):
    """A load test's raw requests, one entry of each column per request.

    due: seconds after the warm-up's end, before 0 in the warm-up; seconds: from due to answered;
    status: HTTP status, or 0 when no answer came; late: from due to sent; error: what went
    wrong, or empty. The last three columns may be missing in older records.
    """

    due: tuple[float, ...]
    seconds: tuple[float, ...]
    tokens: tuple[int, ...]
    status: tuple[int, ...]
    request: tuple[str, ...]
    documents: tuple[int, ...] = ()
    late: tuple[float, ...] = ()
    error: tuple[str, ...] = ()


class Figure(Record):
    """Raw values of one quantity, in `unit`; `subject` and `conditions` say of what.

    name: which measurement, such as `fidelity`, `cold start`, `bare engine`.
    """

    kind: Literal["figure"] = "figure"
    run: Name
    created: Moment
    name: Name
    subject: Name
    unit: str
    values: tuple[float, ...]
    conditions: dict[str, Any] = Field(default_factory=dict)

    @property
    def median(self) -> float:
        """The median of the values."""
        return percentile(self.values, 50)


AnyRecord = Run | Measurement | LoadTest | Figure

KINDS: Final[dict[str, type[AnyRecord]]] = {
    "run": Run,
    "bench": Measurement,
    "load": LoadTest,
    "figure": Figure,
}


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` percent lie, interpolated between neighbours."""
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    place = (len(ordered) - 1) * share / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
