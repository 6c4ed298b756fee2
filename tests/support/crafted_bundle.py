"""A tiny bundle made without training or exporting, to be changed as a stranger would change it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from safetensors.numpy import save

from models.bundle import Graph, seal_bundle
from models.checkpoint import Checkpoint
from models.config import ModelConfig

WORDS = ("[UNK]", "rain", "sun", "soup", "salt", "beans", "roses", "frost")
LABELS = ("weather", "kitchen", "garden")
WIDTH = 4
TEXT = "rain sun soup salt beans roses frost nothing"
CONFIG = ModelConfig(
    vocab_size=len(WORDS), num_labels=len(LABELS), attention="linear",
    layers=1, width=WIDTH, hidden=6, heads=2,
)  # fmt: skip
CHECKPOINT = Checkpoint(
    name="crafted-linear",
    task="what a few words are about",
    labels=LABELS,
    config=CONFIG,
    max_tokens=4096,
    tokenizer="words",
    training={"seed": 7},
    evaluation={"accuracy": 0.5},
)
GRAPH = Graph(
    file="model.onnx", certificate="certificate.fp32.json", valid=True, reason="within bounds"
)

Tensors = dict[str, np.ndarray[Any, Any]]


def craft(folder: Path) -> Path:
    """Write the bundle; return its folder."""
    folder.mkdir(parents=True)
    weights = tensors()
    tables = {name: weights.pop(name) for name in list(weights) if name.startswith("embedding.")}
    graph = model().SerializeToString()
    files = {
        "weights.safetensors": save(weights),
        "tables.safetensors": save(tables),
        "model.onnx": graph,
        "tokenizer.json": json.dumps(tokenizer()).encode(),
        "reference.json": json.dumps(reference()).encode(),
        "card.md": b"# A card\n",
    }
    certificate = {"format": 2, "graph_sha256": sha256(graph), "valid": True, "reason": "made up"}
    files["certificate.fp32.json"] = json.dumps(certificate).encode()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    seal_bundle(
        folder, CHECKPOINT, version="1", provenance={"training": {}}, graphs={"fp32": GRAPH}
    )
    return folder


def tensors() -> Tensors:
    """All weights."""
    random = np.random.default_rng(0)
    shapes = {
        "embedding.weight": (len(WORDS), WIDTH),
        "head.weight": (len(LABELS), WIDTH),
        "head.bias": (len(LABELS),),
        "blocks.0.qkv.weight": (3 * WIDTH, WIDTH),
    }
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def model() -> onnx.ModelProto:
    """A bag of words: the mean of their vectors, times the head."""
    nodes = [
        helper.make_node("Gather", ["embedding.weight", "ids"], ["vectors"]),
        helper.make_node("Shape", ["ids"], ["size"]),
        helper.make_node("Gather", ["size", "one"], ["n"]),
        helper.make_node("Range", ["zero", "n", "step"], ["places"]),
        helper.make_node("Unsqueeze", ["lengths", "last"], ["ends"]),
        helper.make_node("Less", ["places", "ends"], ["real"]),
        helper.make_node("Cast", ["real"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "end"], ["wide"]),
        helper.make_node("Mul", ["vectors", "wide"], ["states"]),
        helper.make_node("ReduceSum", ["states", "last"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["lengths"], ["counts"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["counts", "last"], ["count"]),
        helper.make_node("Div", ["sum", "count"], ["mean"]),
        helper.make_node("Gemm", ["mean", "head.weight", "head.bias"], ["logits"], transB=1),
    ]
    value, whole = helper.make_tensor_value_info, TensorProto.INT64
    constants = [
        helper.make_tensor("one", whole, (), (1,)),
        helper.make_tensor("zero", whole, (), (0,)),
        helper.make_tensor("step", whole, (), (1,)),
        helper.make_tensor("last", whole, (1,), (1,)),
        helper.make_tensor("end", whole, (1,), (2,)),
    ]
    outside = [external(name, tensors()[name].shape) for name in
               ("embedding.weight", "head.weight", "head.bias")]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "bag",
        [value("ids", whole, ("batch", "tokens")), value("lengths", whole, ("batch",))],
        [
            value("logits", TensorProto.FLOAT, ("batch", len(LABELS))),
            value("states", TensorProto.FLOAT, ("batch", "tokens", WIDTH)),
            value("counts", TensorProto.FLOAT, ("batch",)),
        ],
        [*constants, *outside],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def external(name: str, shape: tuple[int, ...], location: str = "x") -> TensorProto:
    """A tensor whose values lie elsewhere."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def tokenizer() -> dict[str, Any]:
    """One token for each word."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate(WORDS)},
            "unk_token": WORDS[0],
        },
    }


def reference() -> dict[str, Any]:
    """What the network says of a text."""
    ids = [WORDS.index(word) if word in WORDS else 0 for word in TEXT.split()]
    weights = tensors()
    mean = weights["embedding.weight"][ids].mean(axis=0)
    logits = weights["head.weight"] @ mean + weights["head.bias"]
    shares = np.exp(logits) / np.exp(logits).sum()
    document = {"text": TEXT, "tokens": len(ids), "probabilities": shares.tolist()}
    return {"format": 1, "documents": [document]}


def reseal(folder: Path) -> None:
    """Give the manifest the digests and sizes of the files as they are, and seal it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        if (folder / name).is_file():
            entry["sha256"] = sha256((folder / name).read_bytes())
            entry["bytes"] = (folder / name).stat().st_size
    write_manifest(folder, json.dumps(manifest))


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and seal it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    write_manifest(folder, json.dumps(manifest))


def change_json(folder: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file of the bundle and seal it all."""
    about = json.loads((folder / name).read_text())
    change(about)
    (folder / name).write_text(json.dumps(about))
    reseal(folder)


def replace_graph(folder: Path, content: bytes) -> None:
    """Put another graph in, with a certificate that names it."""
    (folder / "model.onnx").write_bytes(content)
    change_json(folder, "certificate.fp32.json", lambda c: c.update(graph_sha256=sha256(content)))


def write_manifest(folder: Path, text: str) -> None:
    """Write this manifest and its seal."""
    (folder / "manifest.json").write_text(text)
    (folder / "manifest.sha256").write_text(f"{sha256(text.encode())}  manifest.json\n")


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()
