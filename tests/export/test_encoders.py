"""Imported encoders become graphs that ONNX Runtime runs as `transformers` computes them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.exporter import export
from longdoc import main
from models.bundle import load_bundle
from models.errors import ExportError
from service.pipeline import Options
from service.settings import Settings
from service.startup.deployment import Deployment, load_deployment
from tests.support.references import REFERENCES, edit_config, reference_states

#: Small ones of every architecture.
CASES: dict[str, dict[str, Any]] = {
    "bert": {"max_position_embeddings": 130},
    "roberta": {"max_position_embeddings": 130},
    "distilbert": {"max_position_embeddings": 130},
    "mpnet": {"max_position_embeddings": 130},
    "longformer": {"max_position_embeddings": 300},
    "big_bird": {"max_position_embeddings": 260},
    "nystromformer": {"max_position_embeddings": 200},
    "nystromformer-landmarks": {"max_position_embeddings": 512},
    "modernbert": {"max_position_embeddings": 200},
}
_SLOW = pytest.mark.slow


def exported(name: str, folder: Path) -> object:
    """Import and export a small checkpoint; the reference."""
    reference = REFERENCES[name].save(folder / "theirs", **CASES[name])
    (folder / "theirs/NOTICE").write_text("keep this", encoding="utf-8")
    assert main(["import", str(folder / "theirs"), "--out", str(folder / "ours")]) == 0
    export(
        folder / "ours",
        folder / "bundle",
        bundle_version="1",
        precisions=["fp32"],
        report=lambda _: None,
    )
    return reference


def deployed(folder: Path) -> Deployment:
    bundle = str(folder / "bundle")
    return load_deployment(Settings(bundle=bundle, engine="onnxruntime", device="cpu"))


@pytest.mark.parametrize(
    "name", ["bert", *(pytest.param(name, marks=_SLOW) for name in CASES if name != "bert")]
)
def test_the_graph_gives_the_reference_s_logits(name: str, tmp_path: Path) -> None:
    reference = exported(name, tmp_path)
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.manifest.graphs["fp32"].valid, bundle.manifest.graphs["fp32"].reason
    assert bundle.certificate("fp32")["batch_invariance"]["onnxruntime"] <= 1e-5
    assert bundle.file("NOTICE").read_text(encoding="utf-8") == "keep this"
    deployment = deployed(tmp_path)
    lengths = (510,) if "landmarks" in name else (1, 62, min(126, bundle.manifest.max_tokens))
    for n in lengths:
        words = torch.randint(5, 95, (1, n), generator=torch.Generator().manual_seed(n))
        whole = torch.cat([torch.tensor([[2]]), words, torch.tensor([[3]])], dim=1)
        _, expected = reference_states(reference, whole)
        found = deployment.engine.run(words.numpy(), np.array([n])).logits
        # weights of 10,000 numbers and more are stored in 16 bits
        assert np.abs(found - expected.numpy()).max() <= 2e-3 * expected.abs().max(), n


def test_a_head_that_is_no_sum_over_tokens_gives_no_evidence(tmp_path: Path) -> None:
    exported("bert", tmp_path)
    deployment = deployed(tmp_path)
    running = deployment.start(Settings(), lambda _: None)
    text = "w1 w2 w3. " * 90
    try:
        options = Options(on_overflow="head_tail", evidence=3)
        answer = asyncio.run(running.pipeline.classify([text], options))
    finally:
        running.close()
    (result,) = answer.results
    assert result.evidence == []
    assert (result.tokens.used, result.tokens.windows, result.tokens.truncated) == (128, 1, True)


def test_heads_of_several_labels_are_not_exported_as_if_they_had_one(tmp_path: Path) -> None:
    REFERENCES["bert"].save(tmp_path / "theirs")
    edit_config(tmp_path / "theirs", problem_type="multi_label_classification")
    assert main(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours")]) == 0
    with pytest.raises(ExportError, match="several labels"):
        export(tmp_path / "ours", tmp_path / "bundle", bundle_version="1", report=lambda _: None)
