"""The end of a run: weights as they will be stored, scores calibrated, test documents read once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from models.classifier import Classifier
from models.weights import round_weights
from training.evaluation import Subject, evaluate, sample
from training.metrics import calibration_error, fit_temperature
from training.plan import Plan
from training.prediction import predictor_for
from training.preparation import Prepared
from training.storage import Cache

_TEMPERATURE_TOKENS = 1_500_000  # validation documents read whole, to set the temperature


def calibrate_and_test(
    model: Classifier, prepared: Prepared, plan: Plan, cache: Cache
) -> dict[str, Any]:
    """Fold the temperature that valid asks for into the head, then report on test."""
    corpus, tokens, seed = prepared.corpus, prepared.tokens, plan.recipe.seed
    round_weights(model)
    predict = predictor_for(model, tokens, prepared.vocabulary, plan.max_tokens)
    valid, test = corpus.rows("valid"), corpus.rows("test")
    rows = sample(valid, tokens.lengths[valid], _TEMPERATURE_TOKENS, seed)
    subject = Subject(predict, rows, corpus.targets[rows], corpus.labels, cache, seed)
    temperature = fit_temperature(subject.logits("valid", rows), subject.targets)
    _soften(model, temperature)
    tested = Subject(predict, test, corpus.targets[test], corpus.labels, cache, seed)
    report = evaluate(tested, prepared.baseline.scores)
    uncalibrated = np.asarray(tested.logits("all", test)) * temperature
    report["baseline"] = prepared.baseline.record
    report["calibration"] = {
        "temperature": temperature,
        "documents": len(rows),
        "error_before": calibration_error(uncalibrated, tested.targets),
        "error_after": report.pop("calibration_error"),
    }
    return report


@torch.no_grad()
def _soften(model: Classifier, temperature: float) -> None:
    """Divide all logits by the temperature, for good."""
    model.head.weight.div_(temperature)
    model.head.bias.div_(temperature)
    round_weights(model)
