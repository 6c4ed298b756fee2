"""Bundles that somebody made to harm: each is refused in a sentence, soon, and in little memory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save

from tests.support.crafted_bundle import (
    change_json,
    change_manifest,
    craft,
    external,
    model,
    replace_graph,
    reseal,
    sha256,
    tensors,
    write_manifest,
)
from tests.support.stranger import Opener, opener

Harm = Callable[[Path], object]
DEEP = "[" * 200_000
SPARSE = 1 << 40

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stranger() -> Iterator[Opener]:
    with opener() as process:
        yield process


def in_manifest(**changes: Any) -> Harm:
    return lambda folder: change_manifest(folder, lambda manifest: manifest.update(changes))


def in_config(**changes: Any) -> Harm:
    return lambda folder: change_manifest(folder, lambda m: m["config"].update(changes))


def in_manifest_text(old: str, new: str) -> Harm:
    def harm(folder: Path) -> None:
        text = (folder / "manifest.json").read_text()
        assert old in text
        write_manifest(folder, text.replace(old, new))

    return harm


def in_tokenizer(**changes: Any) -> Harm:
    return lambda folder: change_json(folder, "tokenizer.json", lambda t: t.update(changes))


def in_vocabulary(**changes: Any) -> Harm:
    return lambda folder: change_json(
        folder, "tokenizer.json", lambda t: t["model"].update(changes)
    )


def in_reference(**changes: Any) -> Harm:
    def change(reference: dict[str, Any]) -> None:
        reference["documents"][0].update(changes)

    return lambda folder: change_json(folder, "reference.json", change)


def content(name: str, what: bytes) -> Harm:
    def harm(folder: Path) -> None:
        (folder / name).write_bytes(what)
        reseal(folder)

    return harm


def sparse(name: str) -> Harm:
    """A file that says it has a terabyte, and a manifest that says the same."""

    def harm(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.truncate(SPARSE)
        if name == "manifest.json":
            return
        change_manifest(folder, lambda m: m["files"].get(name, {}).update(bytes=SPARSE))

    return harm


def weights(change: Callable[[dict[str, Any]], object]) -> Harm:
    def harm(folder: Path) -> None:
        found = {n: v for n, v in tensors().items() if not n.startswith("embedding.")}
        change(found)
        (folder / "weights.safetensors").write_bytes(save(found))
        reseal(folder)

    return harm


def header(change: Callable[[dict[str, Any]], object], length: int | None = None) -> Harm:
    """Change what the header of the weights says, and leave the bytes behind it."""

    def harm(folder: Path) -> None:
        path = folder / "weights.safetensors"
        whole = path.read_bytes()
        size = int.from_bytes(whole[:8], "little")
        about = json.loads(whole[8 : 8 + size])
        change(about)
        text = json.dumps(about).encode()
        claimed = len(text) if length is None else length
        path.write_bytes(claimed.to_bytes(8, "little") + text + whole[8 + size :])
        reseal(folder)

    return harm


def graph(change: Callable[[onnx.ModelProto], object]) -> Harm:
    def harm(folder: Path) -> None:
        changed = model()
        change(changed)
        replace_graph(folder, changed.SerializeToString())

    return harm


def graph_bytes(change: Callable[[bytes], bytes]) -> Harm:
    return lambda folder: replace_graph(folder, change(model().SerializeToString()))


def weight_elsewhere(location: str) -> Harm:
    def change(changed: onnx.ModelProto) -> None:
        changed.graph.initializer.append(external("secret", (4,), location))
        changed.graph.node.append(helper.make_node("Identity", ["secret"], ["told"]))

    return graph(change)


def in_branch(changed: onnx.ModelProto) -> None:
    """A tensor of another file, hidden in the branch of an If."""
    inner = helper.make_graph(
        [helper.make_node("Identity", ["secret"], ["told"])],
        "branch",
        [],
        [helper.make_tensor_value_info("told", TensorProto.FLOAT, (4,))],
        [external("secret", (4,), "/etc/passwd")],
    )
    changed.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    changed.graph.node.append(
        helper.make_node("If", ["yes"], ["out"], then_branch=inner, else_branch=inner)
    )


def in_loop(changed: onnx.ModelProto) -> None:
    """A tensor of another file, hidden in the body of a Scan, where bodies are allowed."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["secret"], ["told"])],
        "body",
        [helper.make_tensor_value_info("each", TensorProto.FLOAT, (4,))],
        [helper.make_tensor_value_info("told", TensorProto.FLOAT, (4,))],
        [external("secret", (4,), "/etc/passwd")],
    )
    changed.graph.initializer.append(numpy_helper.from_array(np.zeros((3, 4), np.float32), "rows"))
    changed.graph.node.append(
        helper.make_node("Scan", ["rows"], ["out"], body=body, num_scan_inputs=1)
    )


def loop_in_a_loop(changed: onnx.ModelProto) -> None:
    """A body in the body of a Scan."""
    value = helper.make_tensor_value_info("each", TensorProto.FLOAT, (4,))
    inner = helper.make_graph([helper.make_node("Identity", ["each"], ["on"])], "b", [value], [])
    scan = helper.make_node("Scan", ["each"], ["told"], body=inner, num_scan_inputs=1)
    body = helper.make_graph([scan], "body", [value], [])
    changed.graph.node.append(
        helper.make_node("Scan", ["rows"], ["out"], body=body, num_scan_inputs=1)
    )


def in_constant(changed: onnx.ModelProto) -> None:
    """A tensor of another file as a node's attribute."""
    node = helper.make_node("Constant", [], ["secret"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(
        external("", (4,), "../../etc/passwd")
    )
    changed.graph.node.append(node)


def in_tensor_list(changed: onnx.ModelProto) -> None:
    node = helper.make_node("Constant", [], ["secret"])
    attribute = node.attribute.add(name="values", type=onnx.AttributeProto.TENSORS)
    attribute.tensors.append(external("", (4,), "/etc/passwd"))
    changed.graph.node.append(node)


def endless(changed: onnx.ModelProto) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, ())],
    )
    changed.graph.node.append(helper.make_node("Loop", ["", ""], [], body=body))


def foreign_operator(changed: onnx.ModelProto) -> None:
    changed.graph.node[0].domain = "ai.onnx.ml"
    changed.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))


def function(changed: onnx.ModelProto) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    opset = [helper.make_opsetid("", 20)]
    changed.functions.append(helper.make_function("", "Mine", ["x"], ["y"], [node], opset))


def no_number(changed: onnx.ModelProto) -> None:
    """The logits come out as zero by zero."""
    changed.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "nothing"))
    changed.graph.node[-1].output[0] = "finite"
    changed.graph.node.append(helper.make_node("Mul", ["finite", "nothing"], ["zero_each"]))
    changed.graph.node.append(helper.make_node("Div", ["zero_each", "zero_each"], ["logits"]))


def other_answers(changed: onnx.ModelProto) -> None:
    changed.graph.initializer.append(
        numpy_helper.from_array(np.array([5, 0, 0], np.float32), "bias")
    )
    changed.graph.node[-1].output[0] = "right"
    changed.graph.node.append(helper.make_node("Add", ["right", "bias"], ["logits"]))


def huge_constant(changed: onnx.ModelProto) -> None:
    """A tensor of 2^40 entries, made when the session opens."""
    changed.graph.initializer.append(numpy_helper.from_array(np.array([1 << 20, 1 << 20]), "size"))
    changed.graph.node.append(helper.make_node("ConstantOfShape", ["size"], ["huge"]))
    changed.graph.node.append(helper.make_node("ReduceSum", ["huge"], ["sum_of_all"]))
    changed.graph.output.append(helper.make_tensor_value_info("sum_of_all", TensorProto.FLOAT, ()))


def doubling(times: int) -> dict[str, Any]:
    """A normalizer that makes each letter two, so many times over."""
    once = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [once] * times}


def pipe(folder: Path) -> None:
    (folder / "card.md").unlink()
    os.mkfifo(folder / "card.md")


def loop_of_links(folder: Path) -> None:
    (folder / "card.md").unlink()
    (folder / "card.md").symlink_to("card.md")


def elsewhere(folder: Path) -> None:
    """A shared file whose digest is that of a file outside."""
    change_manifest(folder, lambda m: m["files"]["tokenizer.json"].update(shared=True))
    (folder.parent / "shared").mkdir()
    (folder / "tokenizer.json").unlink()
    digest = json.loads((folder / "manifest.json").read_text())["files"]["tokenizer.json"]["sha256"]
    (folder.parent / "shared" / digest).symlink_to("/etc/passwd")


def many_files(folder: Path) -> None:
    entry = {"sha256": "0" * 64, "bytes": 0}
    change_manifest(folder, lambda m: m["files"].update({f"f{i}": entry for i in range(10_000)}))


HARMS: dict[str, tuple[Harm, str]] = {
    # the manifest
    "manifest of a terabyte": (sparse("manifest.json"), "at most"),
    "manifest nested deep": (lambda folder: write_manifest(folder, DEEP), "manifest.json"),
    "manifest of a huge number": (
        in_manifest_text('"max_tokens": 4096', '"max_tokens": ' + "9" * 5000), "out of range"),
    "manifest with a score of NaN": (
        in_manifest_text('"accuracy": 0.5', '"accuracy": NaN'), "evaluation"),
    "manifest with an infinite score": (
        in_manifest_text('"accuracy": 0.5', '"accuracy": 1e999'), "evaluation"),
    "a score nested deep": (
        in_manifest_text('"accuracy": 0.5', '"accuracy": ' + "[" * 900 + "]" * 900), "manifest"),
    "an escape code in a label": (
        in_manifest(labels=["sun", "\x1b[2J\x1b]0;owned\x07", "c"]), "labels"),
    "a label written from right to left": (in_manifest(labels=["sun", "\u202egpj", "c"]), "labels"),
    "an escape code in the task": (in_manifest(task="\x9b31m red"), "task"),
    "an escape code in a reason": (
        lambda f: change_manifest(f, lambda m: m["graphs"]["fp32"].update(reason="\x1b[8m")),
        "reason"),
    "an escape code in a file's name": (
        lambda f: change_manifest(
            f, lambda m: m["files"].update({"\x1b[2J": {"sha256": "0" * 64, "bytes": 0}})),
        "could leave the folder"),
    "half a surrogate pair in a label": (
        in_manifest_text('"weather"', '"\\ud800"'), "manifest.json"),
    "a million layers": (in_config(layers=1_000_000), "layers"),
    "layers that are not there": (in_config(layers=200), "layers"),
    "a vocabulary of 2^40": (in_config(vocab_size=1 << 40), "vocab_size"),
    "a vocabulary larger than its table": (in_config(vocab_size=1 << 20), "embedding.weight"),
    "a million wide": (in_config(width=1 << 20, hidden=1 << 22), "width"),
    "a million labels": (in_config(num_labels=1_000_000), "num_labels|labels"),
    "an attention that is a list": (in_config(attention=[]), "config"),
    "an attention that is not there": (in_config(attention="x" * 100_000), "config"),
    "parameters nested deep": (in_config(attention_params={"a": [[[[]]] * 100]}), "config"),
    "a heap of pairs": (in_config(pairs=1 << 60, pair_width=1), "pairs"),
    "ten thousand files": (many_files, "files"),
    "a file outside": (
        lambda f: change_manifest(
            f, lambda m: m["files"].update({"../../etc/passwd": {"sha256": "0" * 64, "bytes": 0}})),
        "could leave the folder"),
    # files
    "weights of a terabyte": (sparse("weights.safetensors"), "at most"),
    "tokenizer of a terabyte": (sparse("tokenizer.json"), "at most"),
    "card of a terabyte": (sparse("card.md"), "at most"),
    "a pipe": (pipe, "not a regular file"),
    "a link to itself": (loop_of_links, "not a regular file"),
    "a shared file that leads outside": (elsewhere, "leads out|damaged"),
    # the tokenizer
    "a text grown 2^40 times": (in_tokenizer(normalizer=doubling(40)), "normalizers"),
    "a text grown 2^16 times": (in_tokenizer(normalizer=doubling(16)), "times as long"),
    "a pattern that takes for ever": (
        in_tokenizer(pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a+)+$"},
                                    "behavior": "Isolated", "invert": False}), "pattern"),
    "a replacement that takes for ever": (
        in_tokenizer(normalizer={"type": "Replace", "pattern": {"Regex": "(a|a)*$"},
                                 "content": ""}), "pattern"),
    "a table of replacements that is none": (
        in_tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), "table"),
    "an unknown normalizer": (in_tokenizer(normalizer={"type": "Shell"}), "normalizer"),
    "ids that the network lacks": (in_vocabulary(vocab={"[UNK]": 0, "rain": 1 << 31}), "id"),
    "a negative id": (in_vocabulary(vocab={"[UNK]": -1}), "id"),
    "a vocabulary that is a number": (in_vocabulary(vocab=7), "tokenizer.json"),
    "no token for what is unknown": (in_vocabulary(unk_token="gone"), "unknown"),  # noqa: S106
    "a model that is none": (in_vocabulary(type="Python"), "model"),
    "merges of what is not there": (
        in_tokenizer(model={"type": "BPE", "vocab": {"a": 0}, "merges": [["x", "y"]]}),
        "tokenizer.json"),
    "merges left out at random": (
        in_tokenizer(model={"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.5}),
        "random"),
    "a tokenizer nested deep": (content("tokenizer.json", DEEP.encode()), "tokenizer.json"),
    "a tokenizer of bytes": (content("tokenizer.json", bytes(range(256))), "tokenizer.json"),
    "padding to 2^40": (
        in_tokenizer(padding={"strategy": {"Fixed": 1 << 40}, "direction": "Right", "pad_id": 0,
                              "pad_to_multiple_of": None, "pad_type_id": 0, "pad_token": "x"},
                     post_processor={"type": "Shell"}), "tokenizer.json"),
    "words of 2^40 letters": (
        in_tokenizer(model={"type": "WordPiece", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]",
                            "continuing_subword_prefix": "##",
                            "max_input_chars_per_word": 1 << 40}), "characters"),
    # the graph
    "a graph cut short": (graph_bytes(lambda b: b[:-7]), "ONNX"),
    "a graph of one byte": (graph_bytes(lambda _: b"\x08"), "ONNX"),
    "no graph at all": (graph_bytes(lambda _: b""), "ONNX"),
    "random bytes": (graph_bytes(lambda b: np.random.default_rng(0).bytes(len(b))), "ONNX"),
    "random bytes within": (
        graph_bytes(lambda b: b[:200] + np.random.default_rng(1).bytes(100) + b[300:]), "ONNX"),
    "two graphs": (graph_bytes(lambda b: b + b), "ONNX|twice|2 graphs"),
    "a weight from /etc/passwd": (weight_elsewhere("/etc/passwd"), "asks for the weight secret"),
    "a weight from a folder above": (weight_elsewhere("../../x"), "asks for the weight secret"),
    "a weight from memory": (
        weight_elsewhere("*/_ORT_MEM_ADDR_/*"), "asks for the weight secret"),
    "a weight of another file in a branch": (graph(in_branch), "branch"),
    "a weight of another file in a loop": (graph(in_loop), "body of a loop"),
    "a loop in a loop": (graph(loop_in_a_loop), "branch"),
    "a weight of another file in an attribute": (graph(in_constant), "another file"),
    "a weight of another file in a list": (graph(in_tensor_list), "another file"),
    "an endless loop": (graph(endless), "branch"),
    "an operator of another domain": (graph(foreign_operator), "domain"),
    "a function of its own": (graph(function), "functions"),
    "a graph to train": (graph(lambda m: m.training_info.add()), "functions"),
    "an unknown operator": (
        graph(lambda m: setattr(m.graph.node[0], "op_type", "Rm")), "ONNX Runtime cannot open"),
    "an opset of tomorrow": (
        graph(lambda m: setattr(m.opset_import[0], "version", 9999)), "ONNX Runtime cannot open"),
    "a graph of other outputs": (
        graph(lambda m: setattr(m.graph.output[0], "name", "states2")), "must compute"),
    "a weight of another shape": (
        graph(lambda m: m.graph.initializer[-1].dims.append(7)), "asks for the weight"),
    "an operator of other inputs": (
        graph(lambda m: m.graph.node[-1].input.pop()), "other answers|cannot open"),
    "a constant of 2^40 entries": (graph(huge_constant), "must compute|cannot"),
    "answers that are no numbers": (graph(no_number), "no finite numbers"),
    "answers of another network": (graph(other_answers), "other answers"),
    # the weights
    "a header of 2^60 bytes": (header(lambda _: None, length=1 << 60), "header"),
    "a header that is no JSON": (
        content("weights.safetensors", (5).to_bytes(8, "little") + b"{{{{{"), "safetensors"),
    "a header nested deep": (
        content("weights.safetensors", (100_000).to_bytes(8, "little") + b"[" * 100_000),
        "safetensors"),
    "tensors that overlap": (
        header(lambda h: h["head.bias"].update(data_offsets=[0, 12])), "overlap|gaps"),
    "a tensor of 2^63 entries": (
        header(lambda h: h["head.weight"].update(shape=[1 << 62, 2])), "size"),
    "a tensor of a foreign type": (header(lambda h: h["head.weight"].update(dtype="X")), "type"),
    "a tensor's name with escape codes": (
        header(lambda h: h.update({"\x1b[2J": h.pop("head.bias")})), "name"),
    "weights that are no numbers": (
        weights(lambda w: w.update({"head.bias": np.array([np.nan, 0, 0], np.float32)})), "finite"),
    "infinite weights": (
        weights(lambda w: w.update({"head.bias": np.array([np.inf, 0, 0], np.float32)})), "finite"),
    "weights of another width": (
        weights(lambda w: w.update({"head.weight": np.ones((3, 5), np.float32)})), "head.weight"),
    "weights without a head": (weights(lambda w: w.pop("head.weight")), "head.weight"),
    "weights of another network": (
        weights(lambda w: w.update({"head.weight": w["head.weight"] * 3})), "other answers"),
    # results and certificates
    "a result that is no number": (
        lambda f: content("reference.json", (f / "reference.json").read_bytes().replace(
            b'"probabilities": [0.', b'"probabilities": [NaN, 0.'))(f), "reference.json"),
    "results of other answers": (in_reference(probabilities=[1.0, 0.0, 0.0]), "other answers"),
    "results for other labels": (in_reference(probabilities=[1.0]), "labels"),
    "results that are no probabilities": (
        in_reference(probabilities=[0.9, 0.9, 0.9]), "add up"),
    "a result of other tokens": (in_reference(tokens=3), "tokens"),
    "a document of 2^30 letters": (in_reference(repeat=1 << 30), "repeat"),
    "a document of a gigabyte": (in_reference(text="a" * 50_000, repeat=10_000), "characters"),
    "a certificate that is no object": (content("certificate.fp32.json", b"[]"), "object"),
    "a certificate of NaN": (content("certificate.fp32.json", b'{"valid": NaN}'), "JSON"),
    "a certificate nested deep": (content("certificate.fp32.json", DEEP.encode()), "JSON"),
    "a certificate of another graph": (
        lambda f: change_json(f, "certificate.fp32.json",
                              lambda c: c.update(graph_sha256=sha256(b"another"))), "of another"),
}  # fmt: skip


def test_the_bundle_that_they_are_made_from_is_served(tmp_path: Path, stranger: Opener) -> None:
    found = stranger.open(craft(tmp_path / "good"))
    assert (found.outcome, found.message) == ("served", "garden")


@pytest.mark.parametrize("kind", HARMS)
def test_it_is_refused_in_a_sentence(kind: str, tmp_path: Path, stranger: Opener) -> None:
    harm, expected = HARMS[kind]
    folder = craft(tmp_path / "bundle")
    harm(folder)
    found = stranger.open(folder)
    assert found.outcome == "refused", found
    assert 20 <= len(found.message) <= 1500, found.message
    assert found.message.isprintable(), found.message

    assert re.search(expected, found.message), found.message
    assert found.seconds < 10
