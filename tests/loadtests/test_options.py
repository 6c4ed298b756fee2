"""What the options of `longdoc loadtest` mean together, and what is said of wrong ones."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

import longdoc
from benchmarks.documents.lengths import AsTheyAre, Fixed, LogNormal
from loadtests.options import Request, configure, read_request
from loadtests.runner import Load
from models.mechanisms import ATTENTIONS
from tests.support.results import fill_bundles

ADDRESS = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill_bundles(tmp_path_factory.mktemp("bundles"))


def request(*arguments: str) -> Request:
    """What a command line asks for."""
    parser = argparse.ArgumentParser()
    configure(parser)
    return read_request(parser.parse_args(arguments))


def test_alone_an_address_gets_half_of_what_it_can_do() -> None:
    found = request(ADDRESS + "/")
    assert found.address == ADDRESS
    assert found.loads == [Load("open")]
    assert found.lengths == [LogNormal()]
    assert found.deployments == []
    assert found.points == 1


def test_a_sweep_starts_a_service_for_each_attention_and_length(bundles: Path) -> None:
    found = request("--bundles", str(bundles), "--attention", "all", "--lengths", "512,4096,16384",
                    "--quick")  # fmt: skip
    assert [d.attention for d in found.deployments] == list(ATTENTIONS.names())
    assert all("elife-" in d.settings["bundle"] for d in found.deployments)
    assert found.lengths == [Fixed(512), Fixed(4096), Fixed(16384)]
    assert found.loads == [Load("closed")]
    assert found.points == 3 * len(ATTENTIONS.names())
    assert found.options.timeout > 60


def test_engines_precisions_and_rates_multiply(bundles: Path) -> None:
    found = request("--bundles", str(bundles), "--attention", "linear,performer", "--dataset",
                    "imdb", "--engine", "onnxruntime,torch", "--precision", "fp32,int8",
                    "--rate", "5,10,20", "--set", "workers=1")  # fmt: skip
    assert found.points == 2 * 2 * 2 * 3
    assert found.deployments[0].settings["workers"] == "1"
    assert "queue_seconds" not in found.deployments[0].settings
    assert {d.title for d in found.deployments} >= {"linear onnxruntime", "performer torch int8"}


def test_own_documents_are_sent_as_they_are_unless_lengths_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    assert request(ADDRESS, "--documents", str(tmp_path)).lengths == [AsTheyAre()]
    cut = request(ADDRESS, "--documents", str(tmp_path), "--lengths", "3")
    assert cut.lengths == [Fixed(3)]
    assert cut.options.own == ["a text"]


def test_a_key_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret-key\n")
    assert request(ADDRESS, "--api-key-file", str(tmp_path / "key")).options.key == "secret-key"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["127.0.0.1:8000"], "no address of a service"),
        (["http://127.0.0.1:99999"], "no address of a service"),
        ([ADDRESS], "nothing answers at"),
        ([ADDRESS, "--rate", "fast"], "--rate must be"),
        ([ADDRESS, "--rate", "1,-2"], "--rate must be"),
        ([ADDRESS, "--rate", "nan"], "--rate must be"),
        ([ADDRESS, "--users", "1.5"], "--users must be"),
        ([ADDRESS, "--users", "1", "--rate", "1"], "not both"),
        ([ADDRESS, "--lengths", "512,"], "is no length"),
        ([ADDRESS, "--lengths", "histogram:nowhere"], "cannot be read"),
        ([ADDRESS, "--lengths", "documents"], "needs --documents"),
        ([ADDRESS, "--documents", "nowhere"], "does not exist"),
        ([ADDRESS, "--mix", "bulk=x"], "the weight of bulk"),
        ([ADDRESS, "--seconds", "0"], "--seconds must be"),
        ([ADDRESS, "--timeout", "nan"], "--timeout must be"),
        ([ADDRESS, "--attention", "linear"], "an address names one"),
        ([ADDRESS, "--fail-above", "p99=1"], "is no limit"),
        ([ADDRESS, "--find-peak", "fast"], "--find-peak"),
        ([ADDRESS, "--find-peak", "p99=1s", "--users", "3"], "--find-peak chooses"),
        ([ADDRESS, "--web", "--rate", "1,2"], "--web takes one"),
        ([ADDRESS, "--html", "nowhere/report.html"], "no folder"),
        ([ADDRESS, "--api-key-file", "nowhere"], "cannot be read"),
        (["--attention", "mamba"], "unknown 'mamba'"),
        (["--engine", "jax"], "unknown 'jax'"),
        (["--bundle", "nowhere"], "no bundle 'nowhere'"),
        (["--bundles", "nowhere"], "no bundles in"),
        (["--dataset", "nowhere"], "no bundle of 'nowhere'"),
        (["--set", "workers"], "is no setting"),
        (["--set", "port=1"], "an option of its own"),
        (["--worker-of", "host:x"], "HOST:PORT"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, bundles: Path,
) -> None:  # fmt: skip
    if not arguments[0].startswith("http") and "--bundles" not in arguments:
        arguments = ["--bundles", str(bundles), *arguments]
    monkeypatch.chdir(tmp_path)
    assert longdoc.main(["loadtest", *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.startswith("longdoc loadtest: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_only_locusts_own_processes_import_it() -> None:
    code = (
        "import sys, loadtests.loadtest_command as c; "
        "sys.exit(bool({'locust', 'gevent', 'torch', 'onnxruntime'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
