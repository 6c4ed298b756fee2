"""A real server on loopback around a fake engine, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from service.engines.base import Engine
from service.engines.fake import FakeEngine
from service.http.listening import bind
from service.http.server import Server
from service.service import Service
from service.settings import Settings
from service.startup.deployment import Deployment, Model

LABELS = ("cells", "plants", "stars")
MAX_TOKENS = 256
TEXT = "The larvae were fed on sugar. Their neurons were imaged under a microscope."


@cache
def _tokenizer_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return str(tokenizer.to_str())


def tokenizer() -> Tokenizer:
    """A small byte-level tokenizer."""
    return Tokenizer.from_str(_tokenizer_json())


def fake_deployment(engine: Engine | None = None, max_tokens: int = MAX_TOKENS) -> Deployment:
    """A deployment whose engine is a fake."""
    model = Model(
        name="fake-linear",
        version="1",
        task="Tells nothing apart",
        labels=LABELS,
        attention="linear",
        attention_params={},
        max_tokens=max_tokens,
        vocab_size=400,
        digest="0" * 64,
        accuracy={"accuracy": 0.5},
        certificate={"valid": True},
    )
    return Deployment(model, engine or FakeEngine(len(LABELS)), tokenizer())


@dataclass(frozen=True)
class Served:
    """A running server and ways to reach it."""

    service: Service
    port: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def post(self, path: str, **request: Any) -> httpx.Response:
        """Send a POST."""
        return httpx.post(self.url + path, timeout=30, **request)

    def get(self, path: str, **request: Any) -> httpx.Response:
        """Send a GET."""
        return httpx.get(self.url + path, timeout=30, **request)

    def classify(self, text: str = TEXT, **options: Any) -> httpx.Response:
        """Classify one text."""
        return self.post("/classify", json={"input": text, **options})


@contextmanager
def serving(
    deployment: Deployment | None = None, *, wait: bool = True, **settings: Any
) -> Iterator[Served]:
    """A server in a thread, ready unless told not to wait; closed whatever happens."""
    service = Service(Settings(**settings), deployment or fake_deployment())
    with bind("127.0.0.1", 0) as listening:
        server = Server(service)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        server.capture_signals = _no_signals  # type: ignore[method-assign]
        thread.start()
        served = Served(service, listening.getsockname()[1])
        try:
            wait_until(lambda: server.started)
            if wait:
                wait_until(lambda: served.get("/readyz").status_code == 200)
                assert service.settled.wait(20)
            yield served
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server did not end"


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


def wait_until(true: Any, seconds: float = 20.0) -> None:
    """Wait for another thread to get there."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)
