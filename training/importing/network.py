"""The weights of a checked folder, put where ours stand."""

from __future__ import annotations

import torch

from models.encoders.network import EncoderClassifier
from training.importing.folder import Found
from training.importing.weights import StoredWeights


@torch.no_grad()
def build(found: Found, weights: StoredWeights) -> EncoderClassifier:
    """Our network with the folder's weights, in float32; one of theirs is in memory at a time."""
    model = EncoderClassifier(found.config).eval()
    state = model.state_dict()
    for part in found.parts:
        joined = part.join([weights.read(name) for name, _ in part.theirs])
        state.pop(part.ours).copy_(joined.reshape(model.get_parameter(part.ours).shape))
    if state:
        raise AssertionError(f"no weights for {', '.join(state)}")  # a gap in our own layout
    return model
