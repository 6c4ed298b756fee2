"""What runs a bundle's network: ONNX Runtime, PyTorch, and a fake for tests."""

from service.engines.choose import open_engine

__all__ = ["open_engine"]
