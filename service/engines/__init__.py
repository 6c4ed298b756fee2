"""What runs a bundle's network: ONNX Runtime, PyTorch, and a fake for tests."""
