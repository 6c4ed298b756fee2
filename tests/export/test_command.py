"""`longdoc export`, `verify` and `bundles`, as a user runs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from longdoc import main
from models.bundle import load_bundle
from models.description import WEIGHTS
from service.engines import open_engine
from tests.support.small_bundle import shared_bundle, small_bundle, small_checkpoint


def test_export_then_verify_then_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = small_checkpoint(tmp_path / "runs")
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text('{"text": "Unmistakable words about rain"}\n{"text": "Soup again"}\n')
    target = tmp_path / "bundles" / "mine"
    arguments = ["export", str(checkpoint), "--out", str(target), "--text", str(held_out)]
    assert main([*arguments, "--precision", "fp32", "--bundle-version", "2.1"]) == 0
    assert "valid: fp32" in capsys.readouterr().out

    bundle = load_bundle(target)
    assert bundle.manifest.version == "2.1"
    assert bundle.manifest.provenance["training"] == {"note": "random weights"}
    certificate = bundle.certificate("fp32")
    assert certificate["valid"] is True
    assert certificate["documents"]["count"] == 2
    assert certificate["dimensions"]["ids"] == ["batch", "tokens"]
    assert certificate["graph_sha256"] == bundle.manifest.files["model.onnx"].sha256
    assert certificate["largest_difference"]["probability"] <= 1e-4
    for file in target.iterdir():
        assert b"Unmistakable" not in file.read_bytes(), file

    assert main(["verify", str(target)]) == 0
    assert "fp32: holds: within all bounds" in capsys.readouterr().out
    assert main(["bundles", "--root", str(target.parent)]) == 0
    assert "small-linear  linear     3       512     0.250     fp32" in capsys.readouterr().out


def test_verify_names_a_damaged_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copytree(shared_bundle().path, tmp_path / "copy"))
    content = bytearray((path / WEIGHTS).read_bytes())
    content[-1] ^= 1
    (path / WEIGHTS).write_bytes(content)
    assert main(["verify", str(path)]) == 2
    assert f"{WEIGHTS} is damaged" in capsys.readouterr().err
    assert main(["bundles", "--root", str(tmp_path)]) == 1
    assert f"{WEIGHTS} is damaged" in capsys.readouterr().out


def test_verify_gives_certificates_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(shared_bundle().path), "--json"]) == 0
    (certificate,) = json.loads(capsys.readouterr().out)
    assert certificate["precision"] == "fp32"
    assert certificate["valid"] is True


def test_a_graph_out_of_bounds_is_not_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.certificate.PROBABILITY_BOUND", {"fp32": -1.0})
    bundle = small_bundle(tmp_path)
    graph = bundle.manifest.graphs["fp32"]
    assert (graph.valid, graph.file) == (False, None)
    assert "probabilities differ from PyTorch's" in graph.reason
    assert not (bundle.path / "model.onnx").exists()
    assert bundle.certificate("fp32")["valid"] is False
    engine = open_engine(bundle)
    assert engine.info.engine == "torch"
    assert "probabilities differ" in engine.info.reason


def test_a_network_that_cannot_be_exported_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_such_operator(*_args: object, **_options: object) -> None:
        raise NotImplementedError("there is no such operator")

    attention = torch.ops.aten.scaled_dot_product_attention.default
    monkeypatch.setattr("export.trace.TRANSLATIONS", {attention: no_such_operator})
    bundle = small_bundle(tmp_path, "softmax", precisions=("fp32", "int8"))
    assert bundle.manifest.graphs["fp32"].valid is False
    assert bundle.certificate("fp32")["reason"].startswith("PyTorch's exporter failed")
    assert bundle.manifest.graphs["int8"].reason == "the fp32 graph is not valid"
    assert open_engine(bundle).info.engine == "torch"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "a", "b", "--out", "c"], "use --into FOLDER for several"),
        (["export", "nowhere", "--out", "c"], "nowhere is not a checkpoint"),
        (["verify", "nowhere"], "nowhere is not a bundle"),
    ],
)
def test_a_users_mistake_is_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_an_export_does_not_replace_another_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = small_checkpoint(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    assert main(["export", str(checkpoint), "--out", str(tmp_path / "home")]) == 2
    assert "holds no manifest.json" in capsys.readouterr().err
    assert (tmp_path / "home" / "thesis.txt").exists()


def test_there_may_be_no_bundles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundles", "--root", str(tmp_path)]) == 0
    assert "there are no bundles" in capsys.readouterr().out


def test_listing_loads_no_engine() -> None:
    script = """
import sys
from longdoc import main
assert main(["bundles", "--root", sys.argv[1]]) == 0
loaded = {"torch", "onnx", "onnxruntime", "safetensors"} & set(sys.modules)
assert not loaded, loaded
"""
    root = shared_bundle().path.parent
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)], check=True, capture_output=True, text=True
    )
    assert "small-linear" in done.stdout
