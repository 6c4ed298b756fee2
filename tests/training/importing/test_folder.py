"""What cannot be imported is refused in a sentence, before memory is spent; the rest is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertForSequenceClassification

import training.importing.folder
from longdoc import main
from models.checkpoint import read_checkpoint
from models.encoders.checkpoint import read_encoder
from tests.support.references import REFERENCES, edit_config, write_tokenizer

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    REFERENCES["bert"].save(folder)
    (folder / "LICENSE").write_text("do as you like", encoding="utf-8")
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "small-bert"))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def announce_20_gb(folder: Path) -> None:
    """A file whose header is of a huge network; a hole on disk takes its weights' place."""
    edit_config(folder, vocab_size=1 << 21, hidden_size=2560)
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        tensors = BertForSequenceClassification(config).state_dict()
    header = {}
    end = 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        place = [end, end + size]
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": place}
        end += size
    assert end > 20e9
    text = json.dumps(header).encode()
    with (folder / WEIGHTS).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)


def pickle_only(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")


def shards(folder: Path, *, drop: bool) -> None:
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = sorted(tensors)
    parts = {
        f"model-0000{number + 1}-of-00002.safetensors": names[number::2] for number in range(2)
    }
    for file, keys in parts.items():
        save_file({key: tensors[key] for key in keys}, folder / file)
    index = {"weight_map": {key: file for file, keys in parts.items() for key in keys}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index), encoding="utf-8")
    if drop:
        (folder / "model-00002-of-00002.safetensors").unlink()


def damage(folder: Path) -> None:
    with (folder / WEIGHTS).open("r+b") as file:
        file.truncate(4000)


def slow_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "holds no config.json"),
    "config no text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe{"), "cannot be read"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "must be an object"),
    "unknown type": (lambda f: edit_config(f, model_type="gpt2"), "model_type is 'gpt2'; known"),
    "no type": (lambda f: edit_config(f, model_type=None), "model_type is None; known"),
    "no width": (lambda f: edit_config(f, hidden_size=None), "hidden_size must be a whole number"),
    "negative layers": (lambda f: edit_config(f, num_hidden_layers=-1), "num_hidden_layers must"),
    "endless layers": (lambda f: edit_config(f, num_hidden_layers=10**9), "layers must be"),
    "heads": (lambda f: edit_config(f, num_attention_heads=5), "heads must divide width"),
    "relative": (
        lambda f: edit_config(f, position_embedding_type="relative_key"),
        "only absolute positions",
    ),
    "activation": (lambda f: edit_config(f, hidden_act="mish"), "hidden_act is 'mish'"),
    "decoder": (lambda f: edit_config(f, is_decoder=True), "only encoders"),
    "shapes": (lambda f: edit_config(f, intermediate_size=64), "belong to different checkpoints"),
    "missing": (
        lambda f: change_weights(f, lambda t: t.pop("bert.encoder.layer.1.output.dense.bias")),
        "the weights lack bert.encoder.layer.1.output.dense.bias",
    ),
    "extra": (
        lambda f: change_weights(f, lambda t: t.update({"lora_A.weight": torch.ones(2)})),
        "merge them first",
    ),
    "not a number": (
        lambda f: change_weights(f, lambda t: t["classifier.weight"].fill_(torch.nan)),
        "no finite numbers",
    ),
    "quantised": (
        lambda f: change_weights(
            f, lambda t: t.update({"classifier.weight": torch.ones(3, 32, dtype=torch.int8)})
        ),
        "quantised",
    ),
    "pickle": (pickle_only, "save_pretrained(folder) writes model.safetensors"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), f"holds no {WEIGHTS}"),
    "damaged": (damage, "is damaged"),
    "shard missing": (lambda f: shards(f, drop=True), "lacks model-00002-of-00002.safetensors"),
    "slow tokenizer": (slow_tokenizer, "use_fast=True"),
    "tokenizer broken": (
        lambda f: (f / "tokenizer.json").write_text('{"a": 1}'), "is not a tokenizer"
    ),
    "tokenizer too large": (
        lambda f: edit_config(f, vocab_size=50),
        "has ids up to 94, but the network has 50",
    ),
    "labels": (lambda f: edit_config(f, id2label={"0": "a", "1": "b"}), "id2label must name"),
    "same labels": (
        lambda f: edit_config(f, id2label={"0": "a", "1": "a", "2": "b"}), "a name of its own"
    ),
    "regression": (lambda f: edit_config(f, problem_type="regression"), "--without-head"),
    "20 GB": (announce_20_gb, "GB are free"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_imported_is_refused_in_a_sentence(
    case: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    spoil, expected = BAD[case]
    spoil(folder)
    monkeypatch.setattr(training.importing.folder, "available_memory", lambda: 16 << 30)
    assert main(["import", str(folder), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert expected in message
    assert "Traceback" not in message
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(tmp_path / "nothing")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_head_becomes_a_checkpoint_with_its_labels_and_notices(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_config(folder, id2label={"0": "x", "1": "y", "2": "z"})
    out = tmp_path / "out"
    assert main(["import", str(folder), "--out", str(out)]) == 0
    checkpoint = read_checkpoint(out)
    assert checkpoint.labels == ("x", "y", "z")
    assert checkpoint.max_tokens == 510
    assert (out / "LICENSE").read_text(encoding="utf-8") == "do as you like"
    said = capsys.readouterr().out
    assert "truncation built in (128); removed" in said
    assert '"truncation":null' in (out / "tokenizer.json").read_text(encoding="utf-8").replace(
        " ", ""
    )


def test_shards_and_old_names_are_read_like_one_file(folder: Path, tmp_path: Path) -> None:
    assert main(["import", str(folder), "--out", str(tmp_path / "one")]) == 0

    def rename(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            old = name.replace(".weight", ".gamma").replace(".bias", ".beta")
            tensors[old] = tensors.pop(name)

    change_weights(folder, rename)
    shards(folder, drop=False)
    assert main(["import", str(folder), "--out", str(tmp_path / "two")]) == 0
    one, two = (load_file(tmp_path / name / "weights.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_without_head_leaves_an_encoder_to_train(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["import", str(folder), "--out", str(out), "--without-head"]) == 0
    encoder = read_encoder(out)
    assert encoder.config.num_labels == 0
    assert encoder.config.pooling == "mean"
    assert any("head" in line for line in encoder.source["ignored"])


def test_multi_label_heads_are_told_by_problem_type(folder: Path, tmp_path: Path) -> None:
    edit_config(folder, problem_type="multi_label_classification")
    assert main(["import", str(folder), "--out", str(tmp_path / "out")]) == 0
    config = read_checkpoint(tmp_path / "out").config
    assert getattr(config, "multi_label", None) is True


def test_sentence_transformers_folders_pool_as_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sentences"
    REFERENCES["bert"].save(folder, head=False)
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 128}', encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    pooling = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling), encoding="utf-8")
    assert main(["import", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert read_encoder(tmp_path / "out").config.pooling == "first"
    assert "cuts at 128 tokens" in capsys.readouterr().out
    pooling["pooling_mode_mean_sqrt_len_tokens"] = True
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling), encoding="utf-8")
    assert main(["import", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert "is not supported" in capsys.readouterr().err


def test_a_tokenizer_without_special_tokens_adds_none(folder: Path, tmp_path: Path) -> None:
    write_tokenizer(folder, post=False)
    assert main(["import", str(folder), "--out", str(tmp_path / "out")]) == 0
    config = read_checkpoint(tmp_path / "out").config
    assert config.max_length == 512


def test_a_dry_run_writes_nothing(folder: Path, tmp_path: Path) -> None:
    assert main(["import", str(folder), "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert not (tmp_path / "out").exists()


def test_an_import_never_replaces_a_folder_of_something_else(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/diary.txt").write_text("dear diary", encoding="utf-8")
    assert main(["import", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert (tmp_path / "out/diary.txt").exists()
