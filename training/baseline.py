"""TF-IDF with logistic regression: the figure to beat, and the teacher that training leans on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import StratifiedKFold

from models.progress import ProgressBar
from training.corpus import Corpus
from training.metrics import accuracy, macro_f1
from training.regression import fit_regression
from training.storage import Array, Cache

Floats = NDArray[np.float32]

_STRENGTHS = (10.0, 30.0, 100.0)  # C, the inverse of the regularisation; valid chooses
_FOLDS = 5
_SHORT = 1000  # words; documents below this by the median are counted in pairs too
_FEW = 1000  # documents; below this, rare words are kept


@dataclass(frozen=True)
class Baseline:
    """What the baseline reaches, and what it would have said of documents it had not seen.

    record    settings and figures, as the checkpoint shows them
    scores    probabilities for each test document, in the order of the corpus
    teacher   probabilities for each training document, by a fit without it; None when there
              are too few documents to leave some out
    """

    record: dict[str, Any]
    scores: Array  # (test documents, labels)
    teacher: Array | None  # (training documents, labels)


def make_baseline(corpus: Corpus, seed: int, cache: Cache) -> Baseline:
    """Fit on train, choose on valid, measure on test; from the cache where it was done before."""
    key = (corpus.digest, seed, _STRENGTHS, _FOLDS, "words of two letters or more")
    fitted: list[_Fit] = []

    def fit() -> _Fit:
        if not fitted:
            fitted.append(_Fit(corpus, seed))
        return fitted[0]

    record = cache.json("baseline", key, lambda: fit().record)
    scores = cache.array("baseline-scores", key, lambda: fit().scores)
    teacher = cache.array("teacher", key, lambda: fit().teacher)
    return Baseline(record, scores, teacher if len(teacher) else None)


class _Fit:
    """The fits themselves."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        train, valid, test = (corpus.rows(split) for split in ("train", "valid", "test"))
        targets, labels = corpus.targets, len(corpus.labels)
        pairs = not corpus.words and _median_words(corpus, train) < _SHORT
        vectorizer = TfidfVectorizer(
            sublinear_tf=True,
            min_df=3 if len(train) >= _FEW else 1,
            max_df=0.9 if len(train) >= _FEW else 1.0,
            ngram_range=(1, 2 if pairs else 1),
            dtype=np.float32,
            **({"analyzer": str.split} if corpus.words else {}),
        )
        features = vectorizer.fit_transform(corpus.texts[i] for i in train)
        valid_features = vectorizer.transform(corpus.texts[i] for i in valid)
        folds = min(_FOLDS, int(np.bincount(targets[train]).min()))
        self._bar = ProgressBar("fitting the baseline", len(_STRENGTHS) + folds, "fit")
        fits = {c: self._fit(features, targets[train], c, seed) for c in _STRENGTHS}
        reached = {c: m.score(valid_features, targets[valid]) for c, m in fits.items()}
        strength = max(_STRENGTHS, key=lambda c: reached[c])
        test_features = vectorizer.transform(corpus.texts[i] for i in test)
        self.scores = _spread(fits[strength], test_features, labels)
        self.teacher = self._out_of_fold(features, targets[train], labels, strength, seed, folds)
        self._bar.close()
        predicted = self.scores.argmax(axis=1)
        self.record = {
            "method": "TF-IDF and logistic regression",
            "features": f"{'words and pairs of words' if pairs else 'words'}, sublinear counts",
            "C": strength,
            "valid_accuracy": reached[strength],
            "accuracy": accuracy(targets[test], predicted),
            "macro_f1": macro_f1(targets[test], predicted, labels),
        }

    def _fit(self, features: Any, targets: NDArray[np.int64], strength: float, seed: int) -> Any:
        model = fit_regression(features, targets, strength, seed)
        self._bar.add(1)
        return model

    def _out_of_fold(
        self,
        features: Any,
        targets: NDArray[np.int64],
        labels: int,
        strength: float,
        seed: int,
        folds: int,
    ) -> Floats:
        """Each document's probabilities from a fit on the other folds."""
        if folds < 2:
            return np.zeros((0, labels), np.float32)
        teacher = np.zeros((len(targets), labels), np.float32)
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
        for rest, fold in splitter.split(features, targets):
            model = self._fit(features[rest], targets[rest], strength, seed)
            teacher[fold] = _spread(model, features[fold], labels)
        return teacher


def _spread(model: Any, features: Any, labels: int) -> Floats:
    """Probabilities of all labels; 0 for labels that the fit has not seen."""
    scores = np.zeros((features.shape[0], labels), np.float32)
    scores[:, model.classes_] = model.predict_proba(features)
    return scores


def _median_words(corpus: Corpus, rows: NDArray[np.int64]) -> float:
    return float(np.median([len(corpus.texts[i].split()) for i in rows]))
