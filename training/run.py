"""A training run from labelled documents to a checkpoint, stage by stage."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.checkpoint import CHECKPOINT, Checkpoint, write_checkpoint
from models.classifier import Classifier
from models.config import ModelConfig
from models.weights import save_weights
from training.bag import Bag, Tables
from training.calibration import calibrate_and_test
from training.card import make_card
from training.corpus import SPLITS
from training.errors import RunError
from training.evaluation import sample
from training.log import Log
from training.loop import Check, Loop
from training.metrics import fit_temperature, log_loss
from training.pictures import confusion_picture
from training.plan import Plan
from training.prediction import predictor_for
from training.preparation import Prepared, prepare
from training.recipe import Recipe
from training.storage import Cache, digest_of, storing

PASSES = 3  # over the training documents, each cut to a crop, when no budget is given
_CHECK_TOKENS, _CHECK_READ = 500_000, 4096  # validation while training


def train(plan: Plan) -> Checkpoint | None:
    """Run all stages; None when `resume` finds that the run is finished."""
    work = plan.output.with_name(f".{plan.output.name}.run")
    state = work / "state.safetensors"
    if (plan.output / CHECKPOINT).is_file() and plan.resume:
        return None
    can_write(plan.output, state, resume=plan.resume)
    torch.set_num_threads(plan.threads)
    torch.use_deterministic_algorithms(True, warn_only=plan.device != "cpu")
    say = Log()
    prepared = prepare(plan, say)
    bag = prepared.bag
    model, trained = _networks(prepared, plan)
    loop = Loop(
        trained,
        prepared.tokens,
        prepared.corpus.rows("train"),
        bag.folds if bag else None,
        bag.logits if bag else None,
        prepared.aims,
        _make_check(model, prepared, plan),
        plan.recipe,
        _budget(plan.recipe, prepared),
        state,
        _identity(plan, prepared),
        say,
    )
    if state.exists():
        loop.restore()
        say(f"resumed at step {loop.progress.step}")
    progress = loop.run()
    loop.save()
    _take_over(model, trained, blank=plan.blank)
    say(f"trained {progress.step} steps in {progress.seconds:.0f} s of processor time; evaluating")
    predict = predictor_for(model, prepared.tokens, prepared.vocabulary, plan.max_tokens)
    evaluation = calibrate_and_test(predict, prepared, plan.recipe.seed, Cache(work))
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


def can_write(target: Path, state: Path, *, resume: bool) -> None:
    """Refuse now what would be refused after hours."""
    ours = target.is_dir() and ((target / CHECKPOINT).is_file() or not any(target.iterdir()))
    if target.exists() and not ours:
        raise RunError(f"{target} exists and is no checkpoint; name another --output")
    if state.exists() and not resume:
        raise RunError(f"{state.parent} holds an unfinished run; go on with --resume, or remove it")
    with storing(state):
        state.parent.mkdir(parents=True, exist_ok=True)


def _networks(prepared: Prepared, plan: Plan) -> tuple[Classifier, Classifier]:
    """The network that is kept and the one that is trained: a bag's differ in their vectors."""
    bag = prepared.bag
    if bag is not None:
        return _start(prepared.config, plan, bag, bag.whole), _start(
            prepared.config, plan, bag, bag.folded
        )
    models = []
    for _ in range(2):
        torch.manual_seed(plan.recipe.seed)
        model = Classifier(prepared.config)
        model.start_blank()
        models.append(model.to(plan.device))
    return models[0], models[1]


def _start(config: ModelConfig, plan: Plan, bag: Bag, tables: Tables) -> Classifier:
    """A network that is exactly the bag with these vectors; they and the head stay."""
    torch.manual_seed(plan.recipe.seed)
    model = Classifier(config)
    model.embedding.set_tables(*tables)
    with torch.no_grad():
        model.head.weight.copy_(bag.weight)
        model.head.bias.copy_(bag.bias)
    for part in (model.embedding, model.head):
        part.requires_grad_(requires_grad=False)
    return model.to(plan.device)


@torch.no_grad()
def _take_over(model: Classifier, trained: Classifier, *, blank: bool) -> None:
    """Copy everything; of what started from a bag, all but the embeddings."""
    learnt = trained.state_dict()
    for name, tensor in model.state_dict().items():
        if blank or not name.startswith("embedding."):
            tensor.copy_(learnt[name])


def _make_check(model: Classifier, prepared: Prepared, plan: Plan) -> Check:
    """Validation of what is trained, with the embeddings that will be kept.

    The loss is that at the best temperature, since calibration comes at the end.
    """
    corpus, tokens = prepared.corpus, prepared.tokens
    valid = corpus.rows("valid")
    costs = np.minimum(tokens.lengths[valid], _CHECK_READ)
    rows = sample(valid, costs, _CHECK_TOKENS, plan.recipe.seed)

    def check(trained: Classifier) -> dict[str, float]:
        _take_over(model, trained, blank=plan.blank)
        predict = predictor_for(model, tokens, prepared.vocabulary, plan.max_tokens)
        logits, targets = predict(rows, _CHECK_READ), corpus.targets[rows]
        right = float(np.mean(logits.argmax(axis=1) == targets))
        loss = log_loss(logits / fit_temperature(logits, targets), targets)
        return {"loss": loss, "accuracy": right}

    return check


def _budget(recipe: Recipe, prepared: Prepared) -> int:
    if recipe.budget is not None:
        return round(recipe.budget * 1e6)
    lengths = prepared.tokens.lengths[prepared.corpus.rows("train")]
    return max(1, PASSES * int(np.minimum(lengths, recipe.crop).sum()))


def _identity(plan: Plan, prepared: Prepared) -> dict[str, Any]:
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


def _provenance(plan: Plan, prepared: Prepared, loop: Loop, model: Classifier) -> dict[str, Any]:
    corpus, progress = prepared.corpus, loop.progress
    return {
        "command": plan.command,
        "data": corpus.files,
        "data_digest": corpus.digest,
        "documents": {s: len(corpus.rows(s)) for s in SPLITS},
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
