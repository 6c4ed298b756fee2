"""The same job spread over a Ray cluster by Ray Data: read, classify on actors, write.

Ray keeps the checkpoints: a job that was killed classifies only the rows whose results are not
written yet. Input and output must be places that every node reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray
from pyarrow.dataset import dataset
from ray.data import ActorPoolStrategy, DataContext
from ray.data.checkpoint import CheckpointConfig

from models.errors import ConfigError
from service.bulk.classify import classify_rows
from service.bulk.parquet import to_table
from service.bulk.source import PARQUET_SUFFIX, Source
from service.cluster.connect import ClusterError, connect, first_line

if TYPE_CHECKING:
    from service.pipeline import Pipeline

#: Opens a pipeline on an actor, with so many workers.
OpenPipeline = Callable[[int], "Pipeline"]
Classify = Callable[["Pipeline", str], Awaitable[dict[str, Any]]]

_BATCH_ROWS = 256
_BLOCK_BYTES = 4 << 20  # of text: small enough for every actor to get some, and lost at most
_BATCHES_AT_ONCE = 2  # so that workers have documents while one batch waits for its longest
_INPUT_CPUS = 0.1  # of a core for each task that reads or writes: the actors need the cores


@dataclass(frozen=True)
class RayJob:
    """Which rows to classify and where to; `workers` are the cores of each actor."""

    source: Source
    output: Path
    address: str | None
    workers: int
    open_pipeline: OpenPipeline
    classify: Classify

    def __post_init__(self) -> None:
        if self.source.id is None:
            raise ConfigError("--ray needs --id, a column that no two rows share")
        if not all(path.suffix.lower() == PARQUET_SUFFIX for path in self.source.paths):
            raise ConfigError("--ray reads Parquet files only")
        if self.output.is_file():
            raise ConfigError(f"--out must be a folder for --ray; {self.output} is a file")

    def run(self) -> int:
        """Classify what is not written yet; return how many rows have an error."""
        connect(self.address)
        source = self.source
        id_field = pa.field(source.id_name, pa.int64() if source.has_integer_ids() else pa.string())
        context = DataContext.get_current()
        checkpoints = self.output.with_name(self.output.name + ".checkpoints").resolve()
        context.target_max_block_size = _BLOCK_BYTES
        context.checkpoint_config = CheckpointConfig(source.id_name, str(checkpoints))
        cores = int(ray.cluster_resources().get("CPU", 1))
        rows = ray.data.read_parquet(
            [str(path.resolve()) for path in source.paths],
            columns=[source.id_name, source.text],
            ray_remote_args={"num_cpus": _INPUT_CPUS},
        )
        results = rows.map_batches(
            _Actor,
            fn_constructor_args=(self, id_field),
            batch_size=_BATCH_ROWS,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(min_size=1, max_size=max(1, cores // self.workers)),
            num_cpus=self.workers,
            max_concurrency=_BATCHES_AT_ONCE,
        )
        try:
            results.write_parquet(
                str(self.output.resolve()), ray_remote_args={"num_cpus": _INPUT_CPUS}
            )
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"the cluster could not finish: {first_line(error)}; run it again to go on"
            ) from None
        return _count_errors(self.output)


def _count_errors(output: Path) -> int:
    errors = 0
    for batch in dataset(output, format="parquet").to_batches(columns=["error"]):
        errors += len(batch) - batch["error"].null_count
    return errors


class _Actor:
    """A pipeline on a node, which classifies tables of rows."""

    def __init__(self, job: RayJob, id_field: pa.Field) -> None:
        self._job, self._id_field = job, id_field
        self._pipeline = job.open_pipeline(job.workers)

    def __call__(self, table: pa.Table) -> pa.Table:
        """The rows' results, with the rows' ids."""
        return to_table(asyncio.run(self._classify(table)), self._id_field)

    async def _classify(self, table: pa.Table) -> list[dict[str, Any]]:
        rows = (self._job.source.row(0, columns, None, 0) for columns in table.to_pylist())
        records = []
        answers = classify_rows(rows, lambda text: self._job.classify(self._pipeline, text))
        async with aclosing(answers):
            async for row, answer in answers:
                records.append({self._id_field.name: row.id, **answer})
        return records
