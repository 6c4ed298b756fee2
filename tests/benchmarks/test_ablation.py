"""Each arm takes out what it says, and the table compares round by round."""

from __future__ import annotations

import importlib
from dataclasses import fields
from functools import reduce
from pathlib import Path

import pytest

from benchmarks.ablation import ARMS, AS_SHIPPED, SWEEP, Arm, write_table
from benchmarks.environment import begin_run
from benchmarks.load.samples import Sample
from benchmarks.load.summary import About, Outcome, summarize
from benchmarks.store import Store
from models.errors import ConfigError
from service.scheduling.policy import Policy
from service.settings import Settings
from service.startup import deployment
from tests.support.serving import fake_deployment

REPLACING = [pytest.param(arm, id=arm.without) for arm in ARMS if arm.name]


def test_arms_have_names_of_their_own_and_the_first_is_the_service_as_shipped() -> None:
    assert len({arm.without for arm in ARMS}) == len(ARMS)
    assert ARMS[0] == Arm(AS_SHIPPED)


@pytest.mark.parametrize("arm", REPLACING)
def test_what_an_arm_replaces_is_there(arm: Arm) -> None:
    module, _, path = arm.name.partition(":")
    found = reduce(getattr, path.split("."), importlib.import_module(module))
    assert found is not None
    compile(arm.program, arm.without, "exec")


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.policy], ids=lambda arm: arm.without)
def test_an_arm_changes_the_policy(arm: Arm, monkeypatch: pytest.MonkeyPatch) -> None:
    assert arm.policy is not None
    assert set(arm.policy) <= {about.name for about in fields(Policy)}
    monkeypatch.setattr(deployment, "choose_policy", deployment.choose_policy)
    exec(arm.program.replace("sys.exit(longdoc.main())", ""), {})  # noqa: S102 - our own
    policy = deployment.choose_policy(Settings(), fake_deployment(), batching=True)
    assert {name: getattr(policy, name) for name in arm.policy} == dict(arm.policy)


def test_the_table_is_the_median_of_each_rounds_gain(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.sqlite")
    run = begin_run(SWEEP, "a test", "a test", load_before=0.0)
    store.append(run)
    info = {
        "model": "m",
        "bundle_digest": "0" * 64,
        "attention": {"name": "linear"},
        "engine": {"name": "onnxruntime", "device": "cpu", "precision": "fp32"},
    }
    seconds = {(AS_SHIPPED, 1): 0.1, ("x", 1): 0.2, (AS_SHIPPED, 2): 1.0, ("x", 2): 2.0}
    for (arm, number), each in seconds.items():
        samples = [Sample(0.0, each, 0.0, 100, 1, 200, "interactive", "")] * 20
        outcome = Outcome(samples, seconds=10 * each, model="closed", users=1, memory_peak=1 << 20)
        settings = {"arm": arm, "round": number}
        about = About(run.run, "fixed", info, settings, sweep=SWEEP)
        store.append(*summarize(outcome, about))
    last = write_table(store, None).splitlines()[-1]
    assert last == "| x | +100%, +50%, +50%, +50%, · |"


def test_a_store_without_an_ablation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no ablation"):
        write_table(Store(tmp_path / "empty.sqlite"), None)
