"""Results as CSV, Parquet or JSON, one row per measurement, with its run and machine."""

from __future__ import annotations

import csv
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.records import Measurement, Run
from benchmarks.store import Store
from models.errors import EngineError


def export_results(store: Store, form: str, out: Path) -> int:
    """Write every measurement that can be read; 1 when some could not."""
    loaded = store.load()
    rows = [flat_row(record, loaded.runs.get(record.run)) for record in loaded.measurements]
    if form == "parquet":
        _write_parquet(rows, out)
    elif form == "json":
        text = json.dumps(rows, indent=1, ensure_ascii=False)
        out.write_text(text + "\n", encoding="utf-8")
    else:
        _write_csv(rows, out)
    for problem in loaded.problems:
        print(f"passed over: {problem}")
    print(f"{len(rows)} measurements in {out}")
    return 1 if loaded.problems else 0


def flat_row(record: Measurement, run: Run | None) -> dict[str, Any]:
    """A record as plain columns: its values, the figures drawn from them, its machine."""
    measured = record.status == "measured"
    row = record.model_dump(exclude={"kind", "bundle", "samples_seconds"})
    bundle = record.bundle
    return row | {
        "median_seconds": record.median if measured else None,
        "p95_seconds": record.p95 if measured else None,
        "tokens_per_second": record.tokens_per_second if measured else None,
        "samples_seconds": list(record.samples_seconds),
        "bundle": bundle.name if bundle else None,
        "bundle_digest": bundle.digest if bundle else None,
        "weights": bundle.weights if bundle else None,
        "machine": run.environment.title if run else None,
        "busy": run.busy if run else None,
        "commit": run.environment.commit if run else None,
        "versions": json.dumps(run.environment.versions) if run else None,
    }


def _write_csv(rows: list[dict[str, Any]], out: Path) -> None:
    with out.open("w", newline="", encoding="utf-8") as file:
        if rows:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(_joined(row) for row in rows)


def _joined(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "samples_seconds": " ".join(map(repr, row["samples_seconds"]))}


def _write_parquet(rows: list[dict[str, Any]], out: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise EngineError("Parquet needs pyarrow: pip install 'longdoc[torch]'")
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    parquet.write_table(pa.Table.from_pylist(rows), out)
