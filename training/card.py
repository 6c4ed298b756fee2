"""The model card: what a checkpoint's JSON says, for people to read."""

from __future__ import annotations

from typing import Any

from models.checkpoint import Checkpoint
from models.mechanisms import ATTENTIONS

_CHANCE = 0.05  # p of McNemar's test below which a difference is not put down to chance


def make_card(checkpoint: Checkpoint) -> str:
    """Markdown with the figures, the command that reproduces them, and what to beware of."""
    sections = [
        _head(checkpoint),
        _figures(checkpoint),
        report_tables(checkpoint.evaluation),
        _making(checkpoint),
        _limits(checkpoint),
    ]
    return "\n".join(sections)


def report_tables(evaluation: dict[str, Any]) -> str:
    """The tables of a report: by length, by how much is read, by class."""
    lines = ["## By length of the document", ""]
    with_baseline = all("baseline_accuracy" in row for row in evaluation["by_length"])
    lines += ["| tokens | documents | accuracy |" + (" baseline |" if with_baseline else "")]
    lines += ["|---|---|---|" + ("---|" if with_baseline else "")]
    for row in evaluation["by_length"]:
        span = f"{row['over']:,} to {row['up_to']:,}" if row["up_to"] else f"over {row['over']:,}"
        extra = f" {row['baseline_accuracy']:.3f} |" if with_baseline else ""
        lines.append(f"| {span} | {row['documents']} | {row['accuracy']:.3f} |{extra}")
    by_read = evaluation["by_read"]
    lines += [
        "",
        "## By how much of the document is read",
        "",
        f"On {by_read['documents']} of the {evaluation['documents']} documents.",
        "",
        "| first tokens | accuracy | macro-F1 |",
        "|---|---|---|",
    ]
    for row in by_read["rows"]:
        read = f"{row['tokens']:,}" if row["tokens"] else "all"
        lines.append(f"| {read} | {row['accuracy']:.3f} | {row['macro_f1']:.3f} |")
    lines += [
        "",
        "## By class",
        "",
        "| label | documents | precision | recall | F1 |",
        "|---|---|---|---|---|",
    ]
    for row in evaluation["per_class"]:
        lines.append(
            f"| {_cell(row['label'])} | {row['documents']} | {row['precision']:.3f} | "
            f"{row['recall']:.3f} | {row['f1']:.3f} |"
        )
    return "\n".join([*lines, ""])


def headline(evaluation: dict[str, Any], name: str) -> str:
    """The table of accuracies, with a row for the baseline if there is one."""
    low, high = evaluation["interval_95"]
    lines = [
        "| | accuracy | 95% interval | macro-F1 |",
        "|---|---|---|---|",
        f"| {name} | **{evaluation['accuracy']:.4f}** | {low:.3f} to {high:.3f} | "
        f"{evaluation['macro_f1']:.4f} |",
    ]
    baseline = evaluation.get("baseline")
    if baseline:
        lines.append(
            f"| {baseline['method']} ({baseline['features']}, C={baseline['C']:g}) | "
            f"{baseline['accuracy']:.4f} | | {baseline['macro_f1']:.4f} |"
        )
    pair = evaluation.get("against_baseline")
    if pair:
        lines += [
            "",
            f"Of the documents that only one of the two gets right, {name} gets "
            f"{pair['only_ours_right']} and the baseline {pair['only_theirs_right']} "
            f"(McNemar's exact test: p = {pair['p']:.2g}).",
        ]
    return "\n".join([*lines, ""])


def behind_baseline(evaluation: dict[str, Any]) -> str:
    """A warning when the baseline is better, beyond what chance explains; else nothing."""
    pair, baseline = evaluation.get("against_baseline"), evaluation.get("baseline")
    if not pair or not baseline or pair["p"] >= _CHANCE:
        return ""
    if pair["only_ours_right"] >= pair["only_theirs_right"]:
        return ""
    return (
        f"this network is worse than {baseline['method']}: {evaluation['accuracy']:.3f} of the "
        f"test documents are right, and {baseline['accuracy']:.3f} with the baseline. Do not "
        "serve it for its accuracy; more documents of each class, a larger --budget or a lower "
        "--rate may help"
    )


def _head(checkpoint: Checkpoint) -> str:
    config = checkpoint.config
    params = ", ".join(f"{k}={v}" for k, v in config.attention_params.items())
    attention = config.attention
    if attention in ATTENTIONS:
        attention = f"{ATTENTIONS[attention].title} ({ATTENTIONS[attention].paper})"
    return "\n".join(
        [
            f"# {checkpoint.name}",
            "",
            f"{checkpoint.task}",
            "",
            f"- attention: {attention}{'; ' + params if params else ''}",
            f"- network: {config.layers} layers, width {config.width}, hidden {config.hidden}, "
            f"{config.heads} heads, {checkpoint.training['parameters']:,} parameters",
            f"- vocabulary: {config.vocab_size:,} ({checkpoint.tokenizer})",
            f"- reads {checkpoint.max_tokens:,} tokens in one piece; longer documents in windows",
            f"- {len(checkpoint.labels)} labels: {', '.join(map(_cell, checkpoint.labels))}",
            "",
        ]
    )


def _figures(checkpoint: Checkpoint) -> str:
    evaluation = checkpoint.evaluation
    calibration = evaluation["calibration"]
    return "\n".join(
        [
            "## How well it does",
            "",
            f"On {evaluation['documents']} test documents that training has not seen, "
            "read once, whole:",
            "",
            headline(evaluation, checkpoint.name),
            f"Expected calibration error: {calibration['error_before']:.4f} before and "
            f"{calibration['error_after']:.4f} after temperature scaling (temperature "
            f"{calibration['temperature']:.3f}, from {calibration['documents']} validation "
            "documents). The scores served are the calibrated ones.",
            "",
            "![Confusion matrix](confusion.png)",
            "",
        ]
    )


def _making(checkpoint: Checkpoint) -> str:
    training = checkpoint.training
    files = [
        f"- {file['name']}" + (f" (SHA-256 {file['sha256']})" if "sha256" in file else "")
        for file in training["data"]
    ]
    counts = training["documents"]
    versions = ", ".join(f"{name} {number}" for name, number in training["versions"].items())
    return "\n".join(
        [
            "## How it was made",
            "",
            "```",
            training["command"],
            "```",
            "",
            *files,
            "",
            f"{counts['train']} documents to train on, {counts['valid']} to validate, "
            f"{counts['test']} to test. {training['steps']} steps, {training['tokens']:,} tokens, "
            f"{training['seconds'] / 60:.1f} minutes of processor time with "
            f"{training['threads']} thread(s) on {training['device']}. {versions}.",
            "",
        ]
    )


def _limits(checkpoint: Checkpoint) -> str:
    notes = [behind_baseline(checkpoint.evaluation), *checkpoint.training.get("notes", [])]
    origin = "trained from nothing"
    if "from" in checkpoint.training:
        origin = f"fine-tuned from {checkpoint.training['from']}"
    return "\n".join(
        [
            "## What to beware of",
            "",
            *(f"- {note[0].upper()}{note[1:]}." for note in notes if note),
            *([""] if any(notes) else []),
            f"It knows the {len(checkpoint.labels)} labels above and gives every text one of "
            "them, also a text of another kind or language than those it was trained on. It was "
            f"{origin} on the documents named above and carries their slant.",
            "",
        ]
    )


def _cell(text: str) -> str:
    """A label that cannot break out of its table cell."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("`", "'")
