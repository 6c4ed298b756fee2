"""A fine-tuning run from an encoder and labelled documents to a checkpoint."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from models.checkpoint import CHECKPOINT, Checkpoint, write_checkpoint
from models.description import WindowRecipe
from models.encoders.checkpoint import NOTICES
from models.encoders.config import EncoderConfig
from models.encoders.network import EncoderClassifier
from models.progress import duration
from models.weights import save_weights
from training.calibration import calibrate_and_test
from training.card import make_card
from training.corpus import SPLITS, read_corpus
from training.errors import DataError
from training.evaluation import sample
from training.finetuning.batches import Ints, sizes_up_to
from training.finetuning.estimate import bf16_pays, choose_frugal, measure_speed, peak_memory
from training.finetuning.loop import Check, Loop
from training.finetuning.recipe import FinePlan
from training.finetuning.start import Start, config_for, make_network, read_start
from training.log import Log
from training.metrics import fit_temperature, log_loss
from training.pictures import confusion_picture
from training.prediction import Predictor, predictor_for
from training.preparation import Data, read_data
from training.run import can_write
from training.storage import Cache, digest_of, storing

_CHECK_TOKENS = 400_000  # validation while training


def fine_tune(plan: FinePlan) -> Checkpoint | None:
    """Run all stages; None when `resume` finds that the run is finished."""
    work = plan.output.with_name(f".{plan.output.name}.run")
    state = work / "state.safetensors"
    if (plan.output / CHECKPOINT).is_file() and plan.resume:
        return None
    start = read_start(plan.start)
    can_write(plan.output, state, resume=plan.resume)
    torch.set_num_threads(plan.threads)
    torch.use_deterministic_algorithms(True)
    say = Log()
    say(f"from {start.name}: {start.config.family}, {start.config.layers} layers")
    corpus = read_corpus(plan.data)
    config = config_for(start, plan, corpus.labels)  # wrong labels are found before the work
    data = read_data(corpus, start.vocabulary(), plan.recipe.seed, Cache(plan.cache), say)
    if int(data.tokens.lengths.max()) == 0:
        raise DataError("the checkpoint's tokenizer finds no token in any document")
    model = make_network(
        start,
        config,
        seed=plan.recipe.seed,
        extension=plan.extension,
        new_head=plan.new_head,
    )
    window = min(plan.max_tokens or config.max_length, config.max_length)
    recipe = plan.recipe
    predict = predictor_for(
        model, data.tokens, data.vocabulary, window, recipe.overlap, recipe.merge
    )
    loop = _make_loop(model, predict, data, plan, _identity(plan, start, config, data), say)
    if state.exists():
        loop.restore()
        say(f"resumed at step {loop.progress.step}")
    progress = loop.run()
    loop.save()
    say(f"trained {progress.step} steps in {progress.seconds:.0f} s of processor time; evaluating")
    say(f"peak memory {peak_memory() / 2**30:.1f} GB")
    model.eval()
    model.frugal = False
    evaluation = calibrate_and_test(predict, data, plan.recipe.seed, Cache(work))
    checkpoint = Checkpoint(
        name=plan.name,
        task=plan.task,
        labels=corpus.labels,
        config=config,
        max_tokens=window,
        tokenizer=data.vocabulary.kind,
        windows=WindowRecipe(overlap=predict.overlap, merge=predict.merge),
        training=_provenance(plan, start, data, loop),
        evaluation=evaluation,
    )
    with storing(plan.output):
        write_checkpoint(
            plan.output,
            checkpoint,
            write_weights=lambda path: save_weights(model, path),
            tokenizer=data.vocabulary.text,
            card=make_card(checkpoint),
            pictures={
                "confusion.png": confusion_picture(corpus.labels, np.array(evaluation["confusion"]))
            },
            notices={
                name: (plan.start / name).read_bytes()
                for name in NOTICES
                if (plan.start / name).is_file()
            },
        )
    shutil.rmtree(work)
    return checkpoint


def _make_loop(
    model: EncoderClassifier,
    predict: Predictor,
    data: Data,
    plan: FinePlan,
    identity: dict[str, Any],
    say: Log,
) -> Loop:
    """The loop, after it was said what it will take."""
    recipe, config = plan.recipe, model.config
    parameters = sum(p.numel() for p in model.parameters())
    frugal, memory = choose_frugal(config, parameters, recipe.batch_tokens)
    model.frugal = frugal if recipe.frugal is None else recipe.frugal
    half = recipe.precision == "bf16" or (recipe.precision == "auto" and bf16_pays())
    rows = data.corpus.rows("train")
    windows = [predict.windows_of(int(row)) for row in rows]
    longest = max(end - start for cut in windows for start, end in cut)
    loop = Loop(
        model,
        data.tokens,
        rows,
        data.corpus.targets[rows],
        windows,
        sizes_up_to(max(1, longest)),
        recipe,
        half=half,
        check=_make_check(predict, data, recipe.seed),
        state=plan.output.with_name(f".{plan.output.name}.run") / "state.safetensors",
        identity={**identity, "bf16": half},
        say=say,
    )
    speed = measure_speed(loop)
    several = sum(len(cut) > 1 for cut in windows)
    say(
        f"{parameters:,} parameters in {'bfloat16' if half else 'float32'}"
        f"{', activations computed again' if model.frugal else ''}; {several:,} of "
        f"{len(windows):,} documents take more than one window"
    )
    say(
        f"estimate: {loop.budget:,} tokens at {speed:,.0f} a second take "
        f"{duration(loop.budget / speed)}, and about {memory / 2**30:.1f} GB of memory"
    )
    return loop


def _make_check(predict: Predictor, data: Data, seed: int) -> Check:
    """Validation while training: the loss at the best temperature, since calibration comes last."""
    valid = data.corpus.rows("valid")
    rows: Ints = sample(valid, data.tokens.lengths[valid], _CHECK_TOKENS, seed)

    def check(_model: EncoderClassifier) -> dict[str, float]:
        logits, targets = predict(rows), data.corpus.targets[rows]
        right = float(np.mean(logits.argmax(axis=1) == targets))
        loss = log_loss(logits / fit_temperature(logits, targets), targets)
        return {"loss": loss, "accuracy": right}

    return check


def _identity(plan: FinePlan, start: Start, config: EncoderConfig, data: Data) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    return {
        "data": data.corpus.digest,
        "tokenizer": digest_of(data.vocabulary.text),
        "network": config.to_dict(),
        "recipe": plan.recipe.to_dict(),
        "start": start.source.get("weights"),
        "max_tokens": plan.max_tokens,
        "threads": plan.threads,
        "torch": torch.__version__,
    }


def _provenance(plan: FinePlan, start: Start, data: Data, loop: Loop) -> dict[str, Any]:
    corpus, progress = data.corpus, loop.progress
    return {
        "command": plan.command,
        "from": start.name,
        "source": start.source,
        "data": corpus.files,
        "data_digest": corpus.digest,
        "documents": {s: len(corpus.rows(s)) for s in SPLITS},
        "notes": corpus.notes,
        "recipe": plan.recipe.to_dict(),
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 1),
        "peak_memory": peak_memory(),
        "checks": progress.checks,
        "parameters": sum(p.numel() for p in loop.model.parameters()),
        "device": "cpu",
        "precision": "bfloat16" if loop.half else "float32",
        "threads": plan.threads,
        "machine": platform.machine(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("longdoc", "torch", "tokenizers", "scikit-learn")},
        },
    }
