"""Builds the network that a configuration describes: our own classifier, or an encoder."""

from __future__ import annotations

from models.classifier import Classifier
from models.encoders.config import EncoderConfig, NetworkConfig
from models.encoders.network import EncoderClassifier

Network = Classifier | EncoderClassifier


def build_network(config: NetworkConfig) -> Network:
    """The network with untrained weights."""
    return EncoderClassifier(config) if isinstance(config, EncoderConfig) else Classifier(config)
