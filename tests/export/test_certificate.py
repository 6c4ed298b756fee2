"""What a certificate measures, and what follows from its figures."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from export.agreement import compare, label_changes, speed_ratios
from export.certificate import find_faults
from export.documents import Documents, read_documents
from models.config import ModelConfig
from models.errors import ConfigError
from service.engines.base import Ids, Output
from service.engines.fake import FakeEngine
from tests.support.small_bundle import shared_bundle

CONFIG = ModelConfig(vocab_size=50, num_labels=2, attention="linear")
DOCUMENTS = Documents("a test", tuple(np.arange(1, n) % 50 for n in (5, 40, 300)))

GOOD: dict[str, Any] = {
    "precision": "fp32",
    "largest_difference": {"probability": 9e-5},
    "batch_invariance": {"onnxruntime": 9e-5},
    "held_out": {"label_changes": 0.0},
    "speed_ratio": {"smallest": 0.5},
}


class WrongFrom(FakeEngine):
    """Answers as the fake does, but wrongly from some length on, or for documents in company."""

    def __init__(self, length: int = 1 << 30, error: float = 0.0, company: float = 0.0) -> None:
        super().__init__()
        self.length = length
        self.error = error
        self.company = company

    def run(self, ids: Ids, lengths: Ids, **options: bool) -> Output:
        output = super().run(ids, lengths, **options)
        wrong = self.error if ids.shape[1] >= self.length else 0.0
        wrong += self.company * (len(ids) > 1)
        shift = np.array([wrong, 0], np.float32)
        return Output(output.logits + shift, output.contributions)


def test_engines_that_agree_show_no_difference() -> None:
    found = compare(FakeEngine(), FakeEngine(), CONFIG, DOCUMENTS, 200)
    assert (found.probability, found.logit, found.contribution) == (0, 0, 0)
    assert found.batch_invariance < 1e-6
    lengths = sorted({case["length"] for case in found.cases})
    assert lengths == [1, 2, 3, 17, 64, 100, 200]
    assert len(found.cases) == len(lengths) * 2 * 2 * 2
    assert found.left_out == []


def test_other_precisions_are_compared_on_text_alone() -> None:
    found = compare(FakeEngine(), FakeEngine(), CONFIG, DOCUMENTS, 64, every_case=False)
    kinds = {(case["tokens"], case["batch"], case["padded"]) for case in found.cases}
    assert kinds == {("text", 1, False), ("text", 3, True)}


def test_a_difference_at_one_length_is_found_there() -> None:
    found = compare(FakeEngine(), WrongFrom(100, error=0.1), CONFIG, DOCUMENTS, 200)
    assert found.logit == pytest.approx(0.1, abs=1e-6)
    assert 0.001 < found.probability < 0.1
    assert all((case["logit"] > 0.05) == (case["length"] >= 100) or case["padded"]
               for case in found.cases)  # fmt: skip


def test_an_answer_that_is_no_number_is_the_largest_difference() -> None:
    found = compare(FakeEngine(), WrongFrom(100, error=float("nan")), CONFIG, DOCUMENTS, 200)
    assert found.probability > 1


def test_an_answer_that_depends_on_company_is_found() -> None:
    found = compare(FakeEngine(), WrongFrom(company=0.5), CONFIG, DOCUMENTS, 64)
    assert found.batch_invariance > 0.01
    assert found.reference_batch_invariance < 1e-6


def test_what_does_not_fit_into_memory_is_left_out_and_told() -> None:
    quadratic = ModelConfig(vocab_size=50, num_labels=2, attention="kernelized", heads=64)
    found = compare(FakeEngine(), FakeEngine(), quadratic, DOCUMENTS, 4099)
    assert {(case["length"], case["batch"]) for case in found.left_out} == {(4099, 1), (4099, 3)}
    assert "GiB" in found.left_out[0]["reason"]


def test_label_changes_are_counted() -> None:
    assert label_changes(FakeEngine(), FakeEngine(), DOCUMENTS) == (0.0, 0.0)
    share, largest = label_changes(FakeEngine(), WrongFrom(1, error=100.0), DOCUMENTS)
    assert share in {1 / 3, 2 / 3, 1.0}
    assert largest > 0.1


def test_a_slower_engine_has_a_ratio_below_one() -> None:
    def busy(_batch: int, _n: int) -> float:
        sum(range(300_000))
        return 0.0

    ratios = speed_ratios(FakeEngine(), FakeEngine(seconds=busy), CONFIG, 512)
    assert set(ratios) == {"128", "512"}
    assert max(ratios.values()) < 1


def test_good_figures_have_no_fault() -> None:
    assert find_faults(GOOD) == []
    assert find_faults(GOOD | {"precision": "int8", "speed_ratio": {"smallest": 1.2}}) == []


@pytest.mark.parametrize(
    ("precision", "path", "value", "fault"),
    [
        ("fp32", "largest_difference.probability", 1.1e-4, "differ from PyTorch's by 0.00011"),
        ("fp32", "batch_invariance.onnxruntime", 2e-4, "alone and in a batch differ by 0.0002"),
        ("fp16", "largest_difference.probability", 0.02, "more than 0.01"),
        ("fp16", "held_out.label_changes", 0.005, "0.5% of the labels change"),
        ("int8", "speed_ratio.smallest", 1.0, "only 1.00 times as fast as fp32"),
    ],
)
def test_each_bad_figure_is_a_fault(precision: str, path: str, value: float, fault: str) -> None:
    figures = deepcopy(GOOD) | {"precision": precision}
    figures["speed_ratio"]["smallest"] = 1.2
    group, name = path.split(".")
    figures[group][name] = value
    (found,) = find_faults(figures)
    assert fault in found


def test_labels_of_foreign_documents_are_not_judged() -> None:
    changed = GOOD | {"held_out": {"label_changes": 0.2}}
    assert find_faults(changed, judge_labels=True)
    assert not find_faults(changed, judge_labels=False)


def test_held_out_documents_are_read_and_cut(tmp_path: Path) -> None:
    tokenizer = shared_bundle().tokenizer()
    path = tmp_path / "held_out.jsonl"
    path.write_text('{"text": "rain on the hills"}\n{"text": ""}\n{"text": "beans", "label": 1}\n')
    documents = read_documents(path, tokenizer, max_tokens=3)
    assert [len(ids) <= 3 for ids in documents.ids] == [True, True]
    assert documents.source.startswith("held_out.jsonl, SHA-256 ")
    own = read_documents(None, tokenizer, max_tokens=512)
    assert own.source == "built-in sentences"
    assert len(own.ids) == 400


def test_a_stream_goes_round_and_round() -> None:
    documents = Documents("a test", (np.array([1, 2]), np.array([3])))
    assert documents.stream(7, start=1).tolist() == [2, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        ("plain text\n", "line 1: each line must be an object"),
        ('{"text": "a"}\n{"words": "b"}\n', "line 2: each line must be an object"),
        ('["text"]\n', "line 1: each line must be an object"),
        ('{"text": ""}\n', "holds no text"),
    ],
)
def test_a_file_of_something_else_is_explained(
    tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "held_out.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        read_documents(path, shared_bundle().tokenizer(), max_tokens=10)
