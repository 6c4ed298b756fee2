"""The benchmark measures in processes of its own, predicts, resumes and survives failures."""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from benchmarks.engine import command as bench_command
from benchmarks.engine.exporting import export_results
from benchmarks.engine.networks import Networks, bench_config
from benchmarks.engine.plan import QUICK, Configuration, Plan
from benchmarks.engine.prediction import Experience, predict
from benchmarks.engine.runner import Runner
from benchmarks.engine.table import summary_table
from benchmarks.records import UNFUSED, Bundled, Measurement
from benchmarks.store import Store
from models.bundle import Bundle, Precision
from models.errors import BundleError, ConfigError
from tests.support.results import a_measurement, fill
from tests.support.small_bundle import shared_bundle

PLAN = Plan(
    attentions=("linear", "softmax"), engines=("onnxruntime",), precisions=("fp32",),
    lengths=(16, 64), rounds=2, budget=0.01,
)  # fmt: skip


class OneNetwork(Networks):
    """The same small network for everything."""

    def __init__(self) -> None:
        self.asked = 0

    def find(self, series: str, length: int, precision: Precision) -> tuple[Bundle, Bundled]:  # noqa: ARG002
        """The shared bundle."""
        self.asked += 1
        if series == "missing":
            raise BundleError("there is none")
        bundle = shared_bundle()
        return bundle, Bundled(name="small-linear", digest=bundle.digest, weights="random")


def run_plan(
    plan: Plan, done: list[Measurement] | None = None, **options: Any
) -> list[Measurement]:
    records: list[Measurement] = []
    networks = OneNetwork()
    runner = Runner(
        plan, "run-1", networks, keep=records.append, progress=lambda _c: None, **options
    )
    runner.measure(done or [])
    return records


def test_it_measures_time_and_memory_in_fresh_processes() -> None:
    records = run_plan(PLAN)
    assert [(r.attention, r.length) for r in records] == [
        ("linear", 16), ("softmax", 16), ("linear", 64), ("softmax", 64),
    ]  # fmt: skip
    for record in records:
        assert record.status == "measured"
        assert len(record.samples_seconds) >= record.rounds == 2
        assert min(record.samples_seconds) > 0
        assert record.peak_bytes is not None
        assert record.baseline_bytes is not None
        assert record.baseline_bytes > 1 << 20
        assert record.bundle is not None
        assert record.bundle.digest == shared_bundle().digest
    assert "softmax" in summary_table(records)


def test_it_goes_on_where_it_was_interrupted() -> None:
    done = [a_measurement("linear", n, batch=1) for n in (16, 64)]
    records = run_plan(PLAN, done)
    assert {record.attention for record in records} == {"softmax"}


def test_what_would_not_fit_is_skipped_by_prediction() -> None:
    plan = Plan(attentions=("softmax",), engines=("onnxruntime",), precisions=("fp32",),
                lengths=(1024, 2048, 65_536))  # fmt: skip
    done = [a_measurement("softmax", n, peak_bytes=8 * n * n, seconds=1e-3) for n in (1024, 2048)]
    (record,) = run_plan(plan, done, free_memory=lambda: 4 << 30)
    assert record.status == "skipped"
    assert "predicted to need" in record.reason
    assert record.samples_seconds == ()


def test_what_would_take_too_long_is_skipped_by_prediction() -> None:
    plan = Plan(attentions=("softmax",), engines=("onnxruntime",), precisions=("fp32",),
                lengths=(1024, 2048, 65_536), max_seconds=5)  # fmt: skip
    done = [a_measurement("softmax", n, seconds=n / 1000) for n in (1024, 2048)]
    (record,) = run_plan(plan, done)
    assert record.status == "skipped"
    assert "predicted to take" in record.reason


def test_a_failure_is_recorded_and_the_rest_goes_on() -> None:
    plan = Plan(attentions=("missing", "linear"), engines=("onnxruntime",),
                precisions=("fp32", "int8"), lengths=(16,), rounds=1, budget=0.01)  # fmt: skip
    found = {(r.attention, r.precision): r for r in run_plan(plan)}
    assert found["missing", "fp32"].status == "failed"
    assert found["missing", "fp32"].reason == "there is none"
    assert found["linear", "fp32"].status == "measured"
    assert found["linear", "int8"].status == "skipped"
    assert "no valid int8 graph" in found["linear", "int8"].reason


def test_too_little_memory_fails_in_the_process_that_took_it() -> None:
    plan = Plan(attentions=("linear",), engines=("onnxruntime",), precisions=("fp32",),
                lengths=(2048,), batches=(512,), rounds=1)  # fmt: skip
    enough_to_start = 900 << 20  # and so 120 MB for the run, which needs more
    records = run_plan(plan, free_memory=lambda: enough_to_start)
    assert records[-1].batch == 512
    assert records[-1].status == "failed"
    assert records[-1].reason


@pytest.mark.parametrize(("power", "expected"), [(1, 1.3), (2, 2.0), (0, 1.0), (3, 2.0)])
def test_growth_is_predicted_with_caution(power: float, expected: float) -> None:
    known = {n: float(n) ** power for n in (512, 1024)}
    assert predict(known, 4096) == pytest.approx(known[1024] * 4**expected)
    assert predict(known, 1024) == known[1024]
    assert predict({512: 1.0}, 4096) is None


def test_a_batch_is_predicted_from_single_documents() -> None:
    experience = Experience()
    for n in (1024, 2048):
        experience.learn(a_measurement("linear", n, peak_bytes=n * 100))
    series = ("linear", "onnxruntime", "fp32")
    single = experience.predict_bytes(series, 1, 4096)
    assert single is not None
    assert experience.predict_bytes(series, 8, 4096) == pytest.approx(8 * single, rel=1e-3)
    assert experience.predict_bytes(("softmax", "onnxruntime", "fp32"), 1, 4096) is None


def test_a_plan_measures_what_predicts_first_and_torch_in_fp32_only() -> None:
    groups = list(Plan(lengths=(65_536,), precisions=("fp32", "int8")).groups())
    assert [group[0].length for group in groups] == [1024, 2048, 65_536]
    assert {(c.engine, c.precision) for c in groups[0]} == {
        ("onnxruntime", "fp32"), ("onnxruntime", "int8"), ("torch", "fp32"),
    }  # fmt: skip
    assert Plan().fingerprint() == Plan().fingerprint() != QUICK.fingerprint()
    record = a_measurement("linear", 64)
    assert Configuration.of(record).series == ("linear", "onnxruntime", "fp32")


def test_runs_per_round_keep_to_the_budget() -> None:
    plan = Plan(rounds=5, budget=1.0, most=20)
    assert plan.runs_per_round(1e-6) == 20
    assert plan.runs_per_round(0.05) == 4
    assert plan.runs_per_round(100.0) == 1


def test_very_long_runs_have_fewer_rounds() -> None:
    assert Plan(rounds=5).rounds_for(1.0) == 5
    assert Plan(rounds=5).rounds_for(60.0) == 3
    assert Plan(rounds=1).rounds_for(60.0) == 1


def test_the_command_measures_bundles_and_goes_on_with_an_interrupted_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.sqlite"
    options = _parse(
        *("--attention", "linear", "--engine", "onnxruntime", "--precision", "fp32"),
        *("--lengths", "16,32", "--rounds", "1", "--dataset", "small", "--store", str(path)),
        *("--bundles", str(shared_bundle().path.parent), "--made", str(tmp_path / "made")),
    )
    assert bench_command.run(options) == 0
    first = Store(path).load()
    (run,) = first.runs.values()
    assert run.finished is not None
    assert [m.length for m in first.measurements] == [16, 32]
    assert first.measurements[0].bundle is not None
    assert first.measurements[0].bundle.weights == "trained"  # not made here for speed alone
    assert not (tmp_path / "made").exists()

    interrupted = run.model_copy(update={"run": "interrupted", "finished": None})
    Store(path).append(interrupted)
    done = first.measurements[0].model_copy(update={"run": "interrupted"})
    Store(path).append(done)
    assert bench_command.run(options) == 0
    assert "going on with run interrupted: 1 records" in capsys.readouterr().err
    after = Store(path).load()
    assert after.runs["interrupted"].finished is not None
    assert [m.length for m in after.measurements if m.run == "interrupted"] == [16, 32]


def test_networks_have_the_shipped_sizes_and_read_the_longest() -> None:
    assert bench_config("linformer").max_length == 65_536
    assert bench_config(UNFUSED).attention_params["fused"] is False
    assert bench_config("softmax").attention_params["fused"] is True


def test_options_become_a_plan() -> None:
    plan = bench_command.make_plan(_parse("--attention", "linear,softmax", "--lengths", "64,128"))
    assert plan.attentions == ("linear", "softmax")
    assert plan.lengths == (64, 128)
    assert bench_command.make_plan(_parse("--quick")).engines == ("onnxruntime",)


@pytest.mark.parametrize(
    "options",
    [
        ("--attention", "linaer"),
        ("--lengths", "0"),
        ("--lengths", "many"),
        ("--batch", "-1"),
        ("--rounds", "0"),
        ("--precision", "fp8"),
    ],
)
def test_wrong_options_are_told(options: tuple[str, str]) -> None:
    with pytest.raises(ConfigError):
        bench_command.make_plan(_parse(*options))


def test_results_are_exported(tmp_path: Path) -> None:
    store = fill(tmp_path / "results.sqlite")
    count = len(store.load().measurements)
    for form in ("csv", "json", "parquet"):
        assert export_results(store, form, tmp_path / f"out.{form}") == 0
    rows = json.loads((tmp_path / "out.json").read_text())
    assert len(rows) == count
    assert rows[0]["machine"] == "Test CPU, 2 cores, 8 GiB"
    with (tmp_path / "out.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == count
    assert float(table[0]["median_seconds"]) == rows[0]["median_seconds"]
    columns = parquet.read_table(tmp_path / "out.parquet")
    assert columns.num_rows == count
    assert columns["samples_seconds"][0].as_py() == rows[0]["samples_seconds"]


def _parse(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench_command.configure(parser)
    return parser.parse_args(options)
