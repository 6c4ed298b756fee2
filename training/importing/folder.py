"""A Hugging Face or sentence-transformers folder: what is in it, checked before it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from models.encoders.config import EncoderConfig
from models.errors import BundleError, ConfigError
from models.files import read_text
from training.errors import CheckpointError
from training.importing.families import DIFFERENCES, FAMILIES, Raw
from training.importing.layouts import NAMES, UNUSED, Part, parts_of
from training.importing.weights import StoredWeights
from training.memory import available_memory

_MAX_JSON, _MAX_TOKENIZER = 4 << 20, 256 << 20
_SLOW = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_POOLINGS = {"cls": "first", "mean": "mean", "max": "max"}
_SHARE = 2.2  # of the weights' bytes in float32: ours, one of theirs at a time, and the file
_SHOWN = 3


@dataclass
class Found:
    """What a folder holds and what will be made of it; nothing large is in memory yet."""

    folder: Path
    config: EncoderConfig
    labels: tuple[str, ...]
    tokenizer: str
    parts: list[Part]
    found: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@contextmanager
def opened(folder: Path, *, without_head: bool = False) -> Iterator[tuple[Found, StoredWeights]]:
    """Check a folder; give what was found and its weights, which are read from when asked for."""
    raw = _read_json(folder, "config.json")
    family = raw.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise CheckpointError(
            f"{folder / 'config.json'}: model_type is {family!r}; known: {', '.join(FAMILIES)}"
        )
    with StoredWeights(folder) as weights:
        yield _inspect(folder, raw, family, weights, without_head=without_head), weights


def _inspect(
    folder: Path, raw: Raw, family: str, weights: StoredWeights, *, without_head: bool
) -> Found:
    fields = FAMILIES[family](raw)
    shapes = weights.shapes()
    tokenizer, prefix, suffix, notes = _read_tokenizer(folder, fields["vocab_size"])
    ignored: list[str] = []
    labels = () if without_head else _read_head(raw, family, shapes, ignored)
    if without_head:
        ignored.append("labels and head, if there are any, as asked")
    if not labels:
        fields |= {"head_activation": None, "head_norm": False}
        fields["pooling"] = _pooling(folder, notes)
    try:
        config = EncoderConfig(
            family=family,
            num_labels=len(labels),
            prefix=prefix,
            suffix=suffix,
            multi_label=raw.get("problem_type") == "multi_label_classification",
            **fields,
        )
    except ConfigError as error:
        raise CheckpointError(f"{folder / 'config.json'}: {error}") from None
    base = NAMES[family].base + "."
    start = base if any(name.startswith(base) for name in shapes) else ""
    parts = parts_of(config, raw, prefix=start, optional=_absent_biases(config, shapes, start))
    _check_shapes(parts, shapes, ignored)
    _check_memory(parts, folder)
    if family in DIFFERENCES:
        notes.append(f"differs from transformers: {DIFFERENCES[family]}")
    limit = _sentence_limit(folder)
    if limit is not None and limit < config.positions:
        notes.append(
            f"sentence_bert_config.json cuts at {limit} tokens; the network has positions for "
            f"{config.positions}, and windows use them all"
        )
    found = _describe(config, labels, shapes, weights)
    return Found(folder, config, labels, tokenizer, parts, found, ignored, notes)


def _read_json(folder: Path, name: str) -> Raw:
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; give the folder of a checkpoint")
    if not (folder / name).is_file():
        raise CheckpointError(
            f"{folder} holds no {name}; give a folder as `save_pretrained` writes it"
        )
    try:
        value = json.loads(read_text(folder, name, _MAX_JSON))
    except (json.JSONDecodeError, RecursionError, BundleError) as error:
        raise CheckpointError(f"{folder / name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{folder / name} must be an object")
    return value


def _read_tokenizer(
    folder: Path, vocab_size: int
) -> tuple[str, tuple[int, ...], tuple[int, ...], list[str]]:
    """tokenizer.json without truncation and padding, special tokens around a text, and notes."""
    if not (folder / "tokenizer.json").is_file():
        slow = [name for name in _SLOW if (folder / name).is_file()]
        what = f"only {', '.join(slow)}, a slow tokenizer's files" if slow else "no tokenizer"
        raise CheckpointError(
            f"{folder} holds {what}, and no tokenizer.json. Write one: AutoTokenizer."
            "from_pretrained(folder, use_fast=True).save_pretrained(folder)"
        )
    try:
        tokenizer = Tokenizer.from_str(read_text(folder, "tokenizer.json", _MAX_TOKENIZER))
    except BundleError as error:
        raise CheckpointError(str(error)) from None
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(
            f"{folder / 'tokenizer.json'} is not a tokenizer of the `tokenizers` library: {error}"
        ) from None
    notes = [
        f"tokenizer.json has {what} built in ({size}); removed, so that nothing is cut unseen"
        for what, setting, key in (
            ("truncation", tokenizer.truncation, "max_length"),
            ("padding", tokenizer.padding, "length"),
        )
        if setting is not None
        for size in [setting.get(key) or "longest of the batch"]
    ]
    tokenizer.no_truncation()
    tokenizer.no_padding()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest < 0 or largest >= vocab_size:
        raise CheckpointError(
            f"{folder / 'tokenizer.json'} has ids up to {largest}, but the network has "
            f"{vocab_size} embeddings; they belong to different checkpoints"
        )
    prefix, suffix = _specials(tokenizer)
    return tokenizer.to_str(), prefix, suffix, notes


def _specials(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The special tokens that the tokenizer puts before and after a text."""
    encoding = tokenizer.encode("a", add_special_tokens=True)
    mask, ids = encoding.special_tokens_mask, encoding.ids
    own = [i for i, special in enumerate(mask) if not special]
    if not own:
        return tuple(ids[: len(ids) // 2]), tuple(ids[len(ids) // 2 :])
    return tuple(ids[: own[0]]), tuple(ids[own[-1] + 1 :])


def _read_head(
    raw: Raw, family: str, shapes: Mapping[str, tuple[int, ...]], ignored: list[str]
) -> tuple[str, ...]:
    """The labels of a head for classification; none where there is no such head."""
    name = f"{NAMES[family].head_out}.weight"
    if name not in shapes:
        return ()
    architectures = [str(one) for one in raw.get("architectures") or ()]
    if architectures and not any("SequenceClassification" in one for one in architectures):
        ignored.append(f"the head of {architectures[0]}: it does not classify documents")
        return ()
    if raw.get("problem_type") == "regression" or shapes[name][0] == 1:
        raise CheckpointError(
            "this head gives one number, not labels; import the encoder with --without-head"
        )
    names = raw.get("id2label")
    count = shapes[name][0]
    if names is None and count == 2:
        return "LABEL_0", "LABEL_1"
    if not isinstance(names, dict) or sorted(names) != sorted(str(i) for i in range(count)):
        raise CheckpointError(
            f"config.json: id2label must name the labels 0 to {count - 1} of the head; got "
            f"{str(names)[:100]}. Mend it, or import with --without-head"
        )
    labels = tuple(str(names[str(i)]) for i in range(count))
    if len(set(labels)) != count or not all(0 < len(label) <= 200 for label in labels):
        raise CheckpointError(
            "config.json: id2label must give every label a name of its own, of 1 to 200 characters"
        )
    return labels


def _pooling(folder: Path, notes: list[str]) -> str:
    """How sentence-transformers pools, where the folder says so; else the mean."""
    if not (folder / "modules.json").is_file():
        notes.append("no head and no pooling: a classifier trained from it takes the mean")
        return "mean"
    try:
        modules = json.loads(read_text(folder, "modules.json", _MAX_JSON))
        kinds = {str(one["type"]).rsplit(".", 1)[-1]: str(one["path"]) for one in modules}
    except (json.JSONDecodeError, BundleError, TypeError, KeyError) as error:
        raise CheckpointError(f"{folder / 'modules.json'} cannot be read: {error}") from None
    if "Pooling" not in kinds:
        return "mean"
    pooling = _read_json(folder / kinds["Pooling"].replace("..", ""), "config.json")
    chosen = [
        name for name in pooling if name.startswith("pooling_mode_") and pooling[name] is True
    ]
    mode = pooling.get("pooling_mode") or ",".join(chosen).removeprefix("pooling_mode_")
    mode = str(mode).removesuffix("_tokens").removesuffix("_token")
    if mode not in _POOLINGS:
        raise CheckpointError(
            f"{folder / kinds['Pooling']}: pooling {mode!r} is not supported; known: "
            f"{', '.join(_POOLINGS)}"
        )
    dropped = sorted(set(kinds) - {"Transformer", "Pooling"})
    if dropped:
        notes.append(f"left out what follows the pooling, a classifier needs none: {dropped[0]}")
    return _POOLINGS[mode]


def _sentence_limit(folder: Path) -> int | None:
    name = "sentence_bert_config.json"
    limit = _read_json(folder, name).get("max_seq_length") if (folder / name).is_file() else None
    return limit if isinstance(limit, int) else None


def _absent_biases(
    config: EncoderConfig, shapes: Mapping[str, tuple[int, ...]], prefix: str
) -> set[str]:
    """Biases that these architectures may be made without, and are."""
    if config.family not in ("modernbert", "big_bird"):
        return set()
    weights = [name for name in shapes if name.endswith(".weight")]
    biases = {name.removesuffix("weight") + "bias" for name in weights}
    if config.family == "big_bird":
        biases = {one for one in biases if ".self." in one and one.startswith(prefix)}
    return biases - set(shapes)


def _check_shapes(
    parts: list[Part], shapes: Mapping[str, tuple[int, ...]], ignored: list[str]
) -> None:
    wanted = {name: shape for part in parts for name, shape in part.theirs}
    missing = sorted(set(wanted) - set(shapes))
    if missing:
        raise CheckpointError(
            f"the weights lack {_some(missing)}; the folder is incomplete, or config.json is "
            "another checkpoint's"
        )
    wrong = [name for name, shape in wanted.items() if shapes[name] != shape]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{name} is {list(shapes[name])}, but config.json asks for {list(wanted[name])}; the "
            "weights and config.json belong to different checkpoints"
        )
    left = sorted(set(shapes) - set(wanted))
    strange = [name for name in left if not UNUSED.fullmatch(name)]
    if strange:
        raise CheckpointError(
            f"the weights hold {_some(strange)}, which this architecture does not have; if these "
            "are adapters, merge them first"
        )
    if left:
        ignored.append(f"{len(left)} weights that no classifier needs: {_some(left)}")


def _check_memory(parts: list[Part], folder: Path) -> None:
    numbers = sum(_size(shape) for part in parts for _, shape in part.theirs)
    needed, free = int(4 * numbers * _SHARE), available_memory()
    if needed > free:
        raise CheckpointError(
            f"{folder} has {numbers / 1e6:,.0f} million parameters: importing it takes about "
            f"{needed / 2**30:.1f} GB of memory, and {free / 2**30:.1f} GB are free. Import it on "
            "a larger machine, or take a smaller checkpoint"
        )


def _describe(
    config: EncoderConfig,
    labels: tuple[str, ...],
    shapes: Mapping[str, tuple[int, ...]],
    weights: StoredWeights,
) -> list[str]:
    millions = sum(_size(shape) for shape in shapes.values()) / 1e6
    kinds = sorted({stored.dtype for stored in weights.tensors.values()})
    head = "no head"
    if labels:
        kind = "several labels a document" if config.multi_label else "one label a document"
        head = f"a head of {len(labels)} labels ({', '.join(labels[:5])}"
        head += f"{', …' if len(labels) > 5 else ''}), {kind}"
    return [
        f"{config.family}: {config.layers} layers, width {config.width}, {config.heads} heads, "
        f"vocabulary {config.vocab_size:,}, {millions:,.1f} million numbers as {'/'.join(kinds)}",
        f"attention {config.attention}, {config.positions:,} positions, special tokens "
        f"{list(config.prefix)} before and {list(config.suffix)} after each window",
        f"pooling {config.pooling}, {head}",
    ]


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for dim in shape:
        size *= dim
    return size


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
