"""What runs a bundle's network: ONNX Runtime, PyTorch, and a fake for tests."""

from service.engines.choose import Opened, open_engine, open_with_factory

__all__ = ["Opened", "open_engine", "open_with_factory"]
