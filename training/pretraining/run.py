"""Runs of learning without labels: masked tokens (pretrain), or another network (convert)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from models.checkpoint import CHECKPOINT
from models.encoders.checkpoint import ENCODER
from models.encoders.config import EncoderConfig
from models.encoders.network import EncoderClassifier
from training.errors import RunError
from training.finetuning.estimate import bf16_pays, choose_frugal
from training.finetuning.recipe import Extension
from training.finetuning.start import Start, changed, make_network, read_start
from training.importing.write import describe, write_encoder
from training.log import Log
from training.pretraining.loop import Loop, Recipe
from training.pretraining.masking import Tokens
from training.pretraining.objectives import Imitation, MaskedTokens, Objective
from training.pretraining.texts import Texts, prepare_texts, read_lines
from training.state import Progress
from training.storage import Cache, digest_of, storing
from training.tokenizing import Vocabulary, learn_vocabulary

#: Sizes of an encoder that starts from nothing.
PRESETS: Mapping[str, Mapping[str, int]] = {
    "tiny": {"layers": 2, "width": 128, "hidden": 512, "heads": 2},
    "small": {"layers": 4, "width": 256, "hidden": 1024, "heads": 4},
    "mini": {"layers": 6, "width": 384, "hidden": 1536, "heads": 12},
}
_MASKS = ("[MASK]", "<mask>")
_OWN = 3  # ids behind a learnt vocabulary: before a text, after a segment, and the mask


@dataclass(frozen=True)
class Plan:
    """What a run is asked to do.

    start       folder of the encoder to start from; None: from nothing, with `preset` and a
                vocabulary that is learnt
    max_tokens  most tokens at once; None: what the start has, or the pieces' length
    """

    name: str
    texts: str | None
    column: str
    output: Path
    cache: Path
    start: Path | None
    attention: str | None
    attention_params: dict[str, Any]
    preset: str
    vocabulary: int
    max_tokens: int | None
    extension: Extension
    recipe: Recipe
    threads: int
    resume: bool


def pretrain(plan: Plan) -> list[dict[str, float]] | None:
    """Learn from masked tokens and sentence order; the figures, or None if it is finished."""
    state = _state(plan)
    if _finished(plan):
        return None
    say = _begin(plan, state)
    cache = Cache(plan.cache)
    lines = read_lines(str(plan.texts), plan.column)
    start = read_start(plan.start) if plan.start else None
    if start is None:
        vocabulary = learn_vocabulary(lines, plan.vocabulary, cache)
        config = _from_nothing(plan, vocabulary)
        torch.manual_seed(plan.recipe.seed)
        model = EncoderClassifier(config)
        tokens = Tokens(vocabulary.size + 2, vocabulary.size + 1, vocabulary.size)
    else:
        vocabulary = start.vocabulary()
        config = replace(
            changed(start.config, plan.attention, plan.attention_params, plan.max_tokens),
            num_labels=0, head_activation=None, head_norm=False,
        )  # fmt: skip
        model = make_network(
            start, config, seed=plan.recipe.seed, extension=plan.extension, new_head=True
        )
        tokens = _special_tokens(start, vocabulary)
    recipe = replace(plan.recipe, length=min(plan.recipe.length, config.max_length))
    texts = prepare_texts(lines, vocabulary, cache)
    _describe_texts(texts, say)
    objective = MaskedTokens(texts, recipe.length, tokens, model, recipe.seed)
    progress = _learn(plan, recipe, model, objective, texts, state, say)
    about = {**_about(plan, recipe, texts, start, progress), "learnt": "masked tokens, order"}
    _write(plan, model, vocabulary, about, start, ())
    return progress.checks


def convert(plan: Plan) -> list[dict[str, float]] | None:
    """Replace the attention, and teach the network to give what it gave before."""
    state = _state(plan)
    if _finished(plan):
        return None
    if plan.start is None:
        raise RunError("there is nothing to convert; name an encoder")
    start = read_start(plan.start)
    config = changed(start.config, plan.attention, plan.attention_params, plan.max_tokens)
    model = make_network(start, config, seed=plan.recipe.seed, extension=plan.extension)
    vocabulary = start.vocabulary()
    if plan.texts is None:
        about = {"from": start.name, "source": start.source, "learnt": "nothing yet"}
        _write(plan, model, vocabulary, about, start, start.labels)
        return []
    say = _begin(plan, state)
    longest = min(plan.recipe.length, start.config.max_length, config.max_length)
    recipe = replace(plan.recipe, length=longest)
    teacher = make_network(
        start, start.config, seed=plan.recipe.seed, extension=plan.extension
    ).requires_grad_(requires_grad=False)
    texts = prepare_texts(read_lines(plan.texts, plan.column), vocabulary, Cache(plan.cache))
    _describe_texts(texts, say)
    objective = Imitation(texts, recipe.length, teacher)
    progress = _learn(plan, recipe, model, objective, texts, state, say)
    about = {**_about(plan, recipe, texts, start, progress), "learnt": "what it gave before"}
    _write(plan, model, vocabulary, about, start, start.labels)
    return progress.checks


def _state(plan: Plan) -> Path:
    return plan.output.with_name(f".{plan.output.name}.run") / "state.safetensors"


def _finished(plan: Plan) -> bool:
    there = any((plan.output / marker).is_file() for marker in (ENCODER, CHECKPOINT))
    return there and plan.resume and not _state(plan).exists()


def _begin(plan: Plan, state: Path) -> Log:
    if state.exists() and not plan.resume:
        raise RunError(f"{state.parent} holds an unfinished run; go on with --resume, or remove it")
    with storing(state):
        state.parent.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(plan.threads)
    torch.use_deterministic_algorithms(True)
    return Log()


def _from_nothing(plan: Plan, vocabulary: Vocabulary) -> EncoderConfig:
    size = vocabulary.size
    fields: dict[str, Any] = {
        **PRESETS[plan.preset],
        "family": "longdoc",
        "vocab_size": size + _OWN,
        "num_labels": 0,
        "attention": plan.attention or "softmax",
        "attention_params": plan.attention_params,
        "positions": (plan.max_tokens or plan.recipe.length) + 2,
        "blocks": "pre_norm",
        "norm_eps": 1e-5,
        "prefix": (size,),
        "suffix": (size + 1,),
    }
    return EncoderConfig(**fields)


def _special_tokens(start: Start, vocabulary: Vocabulary) -> Tokens:
    tokenizer, config = vocabulary.tokenizer, start.config
    masks = [tokenizer.token_to_id(name) for name in _MASKS]
    mask = next((one for one in masks if one is not None), None)
    if config.family == "longdoc":
        mask = config.vocab_size - 1  # behind the vocabulary: no text can spell it
    if mask is None or not config.suffix:
        raise RunError(
            f"{start.folder}: its tokenizer has no mask ({' or '.join(_MASKS)}) or puts nothing "
            "after a text; masked tokens cannot be learnt with it"
        )
    return Tokens(int(mask), config.suffix[-1], vocabulary.size)


def _describe_texts(texts: Texts, say: Log) -> None:
    say(
        f"{texts.tokens(held_out=False):,} tokens to learn from, "
        f"{texts.tokens(held_out=True):,} held out"
    )


def _learn(
    plan: Plan,
    recipe: Recipe,
    model: EncoderClassifier,
    objective: Objective,
    texts: Texts,
    state: Path,
    say: Log,
) -> Progress:
    parameters = sum(p.numel() for p in model.parameters())
    model.frugal, memory = choose_frugal(model.config, parameters, recipe.batch_tokens)
    say(
        f"{parameters:,} parameters, {recipe.rows} pieces of {recipe.length} tokens a step, about "
        f"{memory / 2**30:.1f} GB of memory, at most {recipe.minutes:g} minutes"
    )
    identity = {
        "texts": texts.digest,
        "network": model.config.to_dict(),
        "recipe": recipe.to_dict(),
        "start": digest_of(str(plan.start)) if plan.start else None,
        "torch": torch.__version__,
    }
    loop = Loop(model, objective, recipe, half=bf16_pays(), state=state, identity=identity, say=say)
    if state.exists():
        loop.restore()
        say(f"resumed at step {loop.progress.step}")
    progress = loop.run()
    loop.save()
    model.eval()
    return progress


def _about(
    plan: Plan, recipe: Recipe, texts: Texts, start: Start | None, progress: Progress
) -> dict[str, Any]:
    return {
        "from": start.name if start else None,
        "source": start.source if start else {},
        "texts": Path(str(plan.texts)).name,
        "texts_digest": texts.digest,
        "recipe": recipe.to_dict(),
        "steps": progress.step,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 1),
        "curve": progress.checks,
    }


def _write(
    plan: Plan,
    model: EncoderClassifier,
    vocabulary: Vocabulary,
    about: dict[str, Any],
    start: Start | None,
    labels: tuple[str, ...],
) -> None:
    task = f"The labels of {start.name}, with another attention" if start else ""
    lines = [f"# {plan.name}", "", f"Learnt: {about['learnt']}.", ""]
    lines += [
        "- " + ", ".join(f"{name} {value:,.5g}" for name, value in check.items())
        for check in about.get("curve", [])
    ]
    write_encoder(
        plan.output,
        describe(model, plan.name, labels, task, about),
        model,
        vocabulary.text,
        "\n".join(lines) + "\n",
        plan.start,
    )
    shutil.rmtree(_state(plan).parent, ignore_errors=True)
