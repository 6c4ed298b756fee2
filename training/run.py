"""A training run from labelled documents to a checkpoint, stage by stage."""

from __future__ import annotations

import platform
import shutil
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.checkpoint import CHECKPOINT, Checkpoint, write_checkpoint
from models.classifier import Classifier
from models.config import ModelConfig
from models.weights import round_weights, save_weights
from training.bag import make_bag
from training.baseline import Baseline, make_baseline
from training.card import make_card
from training.corpus import Corpus, DataOptions, read_corpus
from training.embeddings import make_embeddings
from training.errors import DataError, RunError
from training.evaluation import Subject, evaluate, sample
from training.loop import Check, Loop
from training.metrics import calibration_error, fit_temperature, log_loss
from training.pictures import confusion_picture
from training.prediction import predictor_for
from training.recipe import Recipe
from training.storage import Array, Cache, digest_of, storing
from training.tokenizing import Tokens, Vocabulary, make_vocabulary, tokenize

PASSES = 3  # over the training documents, each cut to a crop, when no budget is given
_CHECK_TOKENS, _CHECK_READ = 500_000, 2048  # validation while training
_TEMPERATURE_TOKENS = 4_000_000  # validation documents read whole, to set the temperature


@dataclass(frozen=True)
class Plan:
    """Everything a run is asked to do.

    name         what the classifier is called
    task         what it tells apart, in a line
    command      the command that reproduces it
    output       folder of the checkpoint
    cache        folder of what runs on the same data share
    tokenizer    the user's tokenizer.json; None learns one
    network      fields of the ModelConfig that do not depend on the data
    max_tokens   longest document read in one piece
    threads      of PyTorch; results depend on how many
    resume       go on with a run that was killed
    """

    name: str
    task: str
    command: str
    output: Path
    cache: Path
    data: DataOptions
    tokenizer: Path | None
    network: dict[str, Any]
    max_tokens: int
    recipe: Recipe
    device: str
    threads: int
    resume: bool


@dataclass(frozen=True)
class _Prepared:
    """What the attentions share: data, tokens, baseline and the bag that training starts from."""

    corpus: Corpus
    vocabulary: Vocabulary
    tokens: Tokens
    baseline: Baseline
    config: ModelConfig
    aims: Array
    bag: tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def train(plan: Plan) -> Checkpoint | None:
    """Run all stages; None when `resume` finds that the run is finished."""
    work = plan.output.with_name(f".{plan.output.name}.run")
    state = work / "state.safetensors"
    if (plan.output / CHECKPOINT).is_file() and plan.resume:
        return None
    _can_write(plan, state)
    torch.set_num_threads(plan.threads)
    torch.use_deterministic_algorithms(True, warn_only=plan.device != "cpu")
    torch.utils.deterministic.fill_uninitialized_memory = False  # a check for bugs, and slow
    prepared = _prepare(plan)
    say = _Log()
    model = _start(prepared, plan)
    loop = Loop(
        model,
        prepared.tokens,
        prepared.corpus.rows("train"),
        prepared.aims,
        _make_check(prepared, plan),
        plan.recipe,
        _budget(plan.recipe, prepared),
        state,
        _identity(plan, prepared),
    )
    if state.exists():
        loop.restore()
        say(f"resumed at step {loop.progress.step}")
    progress = loop.run()
    loop.save()
    for check in progress.checks:
        say(f"check at {check['tokens']:,} tokens: {check}")
    say(f"trained {progress.step} steps in {progress.seconds:.0f} s; evaluating")
    evaluation = _evaluate(model, prepared, plan, Cache(work))
    checkpoint = Checkpoint(
        name=plan.name,
        task=plan.task,
        labels=prepared.corpus.labels,
        config=prepared.config,
        max_tokens=plan.max_tokens,
        tokenizer=prepared.vocabulary.kind,
        training=_provenance(plan, prepared, loop, model),
        evaluation=evaluation,
    )
    picture = confusion_picture(prepared.corpus.labels, np.array(evaluation["confusion"]))
    with storing(plan.output):
        write_checkpoint(
            plan.output,
            checkpoint,
            write_weights=lambda path: save_weights(model, path),
            tokenizer=prepared.vocabulary.text,
            card=make_card(checkpoint),
            pictures={"confusion.png": picture},
        )
    shutil.rmtree(work)
    return checkpoint


class _Log:
    """Lines for whoever watches, with the time since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._started:7.1f} s] {line}", flush=True)


def _can_write(plan: Plan, state: Path) -> None:
    """Refuse now what would be refused after hours."""
    if plan.output.exists() and not (plan.output / CHECKPOINT).is_file():
        if not plan.output.is_dir() or any(plan.output.iterdir()):
            raise RunError(f"{plan.output} exists and is no checkpoint; name another --output")
    if state.exists() and not plan.resume:
        raise RunError(f"{state.parent} holds an unfinished run; go on with --resume, or remove it")
    with storing(state):
        state.parent.mkdir(parents=True, exist_ok=True)


def _prepare(plan: Plan) -> _Prepared:
    """The stages before the network: each is cached by the digest of what it is made from."""
    say = _Log()
    recipe, cache = plan.recipe, Cache(plan.cache)
    corpus = read_corpus(plan.data)
    counts = ", ".join(f"{len(corpus.rows(s))} {s}" for s in ("train", "valid", "test"))
    say(f"{len(corpus.labels)} labels; documents: {counts}")
    for note in corpus.notes:
        say(f"note: {note}")
    vocabulary = make_vocabulary(corpus, recipe.vocabulary, plan.tokenizer, cache)
    config = ModelConfig(vocab_size=vocabulary.size, num_labels=len(corpus.labels), **plan.network)
    Classifier(config)  # a wrong parameter is found before anything takes time
    tokens = tokenize(corpus, vocabulary, cache)
    lengths = tokens.lengths
    if int(lengths.max()) == 0:
        raise DataError("the tokenizer finds no token in any document")
    say(f"{vocabulary.size} tokens in the vocabulary, {int(lengths.sum()):,} in the documents")
    baseline = make_baseline(corpus, recipe.seed, cache)
    say(f"baseline on test: accuracy {baseline.record['accuracy']:.4f}")
    key = (corpus.digest, digest_of(vocabulary.text))
    train_rows = corpus.rows("train")
    embeddings = make_embeddings(
        tokens, train_rows, vocabulary.size, config.width, recipe.seed, cache, key
    )
    aims = _aims(corpus, baseline, recipe.distillation)
    bag = make_bag(
        tokens,
        train_rows,
        aims,
        embeddings,
        recipe.bag,
        recipe.seed,
        cache,
        (*key, config.width, recipe.distillation),
    )
    say("bag of tokens is trained")
    return _Prepared(corpus, vocabulary, tokens, baseline, config, aims, bag)


def _aims(corpus: Corpus, baseline: Baseline, distillation: float) -> Array:
    """What the network is to say of each training document: its label, and the teacher's view."""
    rows = corpus.rows("train")
    labels = np.eye(len(corpus.labels), dtype=np.float32)[corpus.targets[rows]]
    if baseline.teacher is None:
        return labels
    return np.asarray((1 - distillation) * labels + distillation * baseline.teacher, np.float32)


def _start(prepared: _Prepared, plan: Plan) -> Classifier:
    """A network that is exactly the bag."""
    torch.manual_seed(plan.recipe.seed)
    model = Classifier(prepared.config)
    words, head, bias = prepared.bag
    with torch.no_grad():
        model.embedding.weight.copy_(words)
        model.head.weight.copy_(head)
        model.head.bias.copy_(bias)
    return model.to(plan.device)


def _make_check(prepared: _Prepared, plan: Plan) -> Check:
    corpus, tokens = prepared.corpus, prepared.tokens
    valid = corpus.rows("valid")
    costs = np.minimum(tokens.lengths[valid], _CHECK_READ)
    rows = sample(valid, costs, _CHECK_TOKENS, plan.recipe.seed)
    read = min(_CHECK_READ, plan.max_tokens)

    def check(model: Classifier) -> dict[str, float]:
        predict = predictor_for(model, tokens, prepared.vocabulary, plan.max_tokens)
        logits, targets = predict(rows, read), corpus.targets[rows]
        right = float(np.mean(logits.argmax(axis=1) == targets))
        return {"loss": log_loss(logits, targets), "accuracy": right}

    return check


def _budget(recipe: Recipe, prepared: _Prepared) -> int:
    if recipe.budget is not None:
        return round(recipe.budget * 1e6)
    lengths = prepared.tokens.lengths[prepared.corpus.rows("train")]
    return max(1, PASSES * int(np.minimum(lengths, recipe.crop).sum()))


def _identity(plan: Plan, prepared: _Prepared) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    return {
        "data": prepared.corpus.digest,
        "tokenizer": digest_of(prepared.vocabulary.text),
        "network": prepared.config.to_dict(),
        "recipe": plan.recipe.to_dict(),
        "max_tokens": plan.max_tokens,
        "threads": plan.threads,
        "device": plan.device,
        "torch": torch.__version__,
    }


def _evaluate(model: Classifier, prepared: _Prepared, plan: Plan, cache: Cache) -> dict[str, Any]:
    """Calibrate on valid, then read the test documents, once."""
    corpus, tokens = prepared.corpus, prepared.tokens
    round_weights(model)
    predict = predictor_for(model, tokens, prepared.vocabulary, plan.max_tokens)
    valid = corpus.rows("valid")
    rows = sample(valid, tokens.lengths[valid], _TEMPERATURE_TOKENS, plan.recipe.seed)
    subject = Subject(predict, rows, corpus.targets[rows], corpus.labels, cache, plan.recipe.seed)
    temperature = fit_temperature(subject.logits("valid", rows), subject.targets)
    with torch.no_grad():
        model.head.weight /= temperature
        model.head.bias /= temperature
    round_weights(model)
    test = corpus.rows("test")
    tested = Subject(predict, test, corpus.targets[test], corpus.labels, cache, plan.recipe.seed)
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


def _provenance(plan: Plan, prepared: _Prepared, loop: Loop, model: Classifier) -> dict[str, Any]:
    corpus, progress = prepared.corpus, loop.progress
    return {
        "command": plan.command,
        "data": corpus.files,
        "data_digest": corpus.digest,
        "documents": {s: len(corpus.rows(s)) for s in ("train", "valid", "test")},
        "notes": corpus.notes,
        "recipe": plan.recipe.to_dict(),
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 1),
        "checks": progress.checks,
        "parameters": sum(p.numel() for p in model.parameters()),
        "device": plan.device,
        "threads": plan.threads,
        "machine": platform.machine(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("longdoc", "torch", "tokenizers", "scikit-learn")},
        },
    }
