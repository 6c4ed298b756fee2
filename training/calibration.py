"""The end of a run: weights as they will be stored, scores calibrated, test documents read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from models.networks import Network
from models.weights import round_weights
from training.evaluation import Subject, evaluate, sample
from training.metrics import calibration_error, fit_temperature
from training.prediction import Predictor
from training.preparation import Data
from training.storage import Cache

_TEMPERATURE_TOKENS = 1_500_000  # validation documents read whole, to set the temperature


def calibrate_and_test(predict: Predictor, data: Data, seed: int, cache: Cache) -> dict[str, Any]:
    """Fold the temperature that valid asks for into the head, then report on test."""
    corpus, tokens, model = data.corpus, data.tokens, predict.model
    round_weights(model)
    valid, test = corpus.rows("valid"), corpus.rows("test")
    rows = sample(valid, tokens.lengths[valid], _TEMPERATURE_TOKENS, seed)
    subject = Subject(predict, rows, corpus.targets[rows], corpus.labels, cache, seed)
    temperature = fit_temperature(subject.logits("valid", rows), subject.targets)
    _soften(model, temperature)
    tested = Subject(predict, test, corpus.targets[test], corpus.labels, cache, seed)
    report = evaluate(tested, data.baseline.scores)
    uncalibrated = np.asarray(tested.logits("all", test)) * temperature
    report["baseline"] = data.baseline.record
    report["calibration"] = {
        "temperature": temperature,
        "documents": len(rows),
        "error_before": calibration_error(uncalibrated, tested.targets),
        "error_after": report.pop("calibration_error"),
    }
    return report


@torch.no_grad()
def _soften(model: Network, temperature: float) -> None:
    """Divide all logits by the temperature, for good."""
    for parameter in model.head.parameters():
        parameter.div_(temperature)
    round_weights(model)
