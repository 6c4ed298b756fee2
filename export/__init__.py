"""From a checkpoint to a bundle: the ONNX graph, its verification, its certificate."""
