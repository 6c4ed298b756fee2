"""The Open Inference Protocol, spoken by a client that others wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.serving import LABELS, TEXT, Served, serving

client = pytest.importorskip("tritonclient.http", exc_type=ImportError)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.fixture
def triton(served: Served) -> Iterator[Any]:
    connection = client.InferenceServerClient(f"127.0.0.1:{served.port}")
    yield connection
    connection.close()


def test_health_and_metadata(triton: Any) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("fake-linear")
    assert not triton.is_model_ready("another")
    assert triton.get_server_metadata()["name"] == "longdoc"
    metadata = triton.get_model_metadata("fake-linear")
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert metadata["outputs"][1]["shape"] == [-1, len(LABELS)]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_infer(served: Served, triton: Any, binary: bool, shape: tuple[int, ...]) -> None:
    texts = [TEXT, "naïve 🧬 text"]
    tensor = client.InferInput("text", list(shape), "BYTES")
    values = np.array([text.encode() for text in texts], dtype=object).reshape(shape)
    tensor.set_data_from_numpy(values, binary_data=binary)
    answer = triton.infer("fake-linear", [tensor], request_id="mine")
    expected = served.post("/classify", json={"input": texts, "top_k": None}).json()["results"]
    labels = [
        label if isinstance(label, str) else label.decode() for label in answer.as_numpy("label")
    ]
    assert labels == [result["label"] for result in expected]
    assert answer.get_response()["id"] == "mine"
    scores = answer.as_numpy("scores")
    assert scores.shape == (2, len(LABELS))
    for row, result in zip(scores, expected, strict=True):
        by_label = {score["label"]: score["score"] for score in result["scores"]}
        np.testing.assert_allclose(row, [by_label[label] for label in LABELS], atol=1e-6)


def test_only_the_outputs_asked_for(triton: Any) -> None:
    tensor = client.InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"text"], dtype=object))
    wanted = [client.InferRequestedOutput("scores", binary_data=False)]
    outputs = triton.infer("fake-linear", [tensor], outputs=wanted).get_response()["outputs"]
    assert [output["name"] for output in outputs] == ["scores"]


def test_gzip_from_the_client(triton: Any) -> None:
    tensor = client.InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([TEXT.encode()], dtype=object))
    answer = triton.infer("fake-linear", [tensor], request_compression_algorithm="gzip")
    assert answer.as_numpy("scores").shape == (1, len(LABELS))


def test_the_client_understands_our_errors(triton: Any) -> None:
    tensor = client.InferInput("text", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([b"  "], dtype=object))
    with pytest.raises(Exception, match="empty"):
        triton.infer("fake-linear", [tensor])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"inputs": []}, 422),
        ({"inputs": [{"name": "text", "shape": [1], "datatype": "FP32", "data": [1]}]}, 422),
        ({"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}, 422),
        ({"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a"]}]}, 422),
        ({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [7]}]}, 422),
        ({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES"}]}, 422),
        ([], 422),
    ],
)
def test_errors_are_an_error_object(served: Served, body: object, status: int) -> None:
    response = served.post("/v2/models/fake-linear/infer", json=body)
    assert response.status_code == status
    assert set(response.json()) == {"error"}


@pytest.mark.parametrize("tail", [b"\x01", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00\xff\xfe"])
def test_a_broken_binary_tensor(served: Served, tail: bytes) -> None:
    head = json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES"}]}).encode()
    for length in (len(head), len(head) + 1000, "x", -1):
        response = served.post(
            "/v2/models/fake-linear/infer",
            content=head + tail,
            headers={"inference-header-content-length": str(length)},
        )
        assert response.status_code == 400
        assert set(response.json()) == {"error"}


def test_an_unknown_model(served: Served) -> None:
    response = served.get("/v2/models/other")
    assert response.status_code == 404
    assert "fake-linear" in response.json()["error"]
