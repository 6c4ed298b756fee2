"""The table of classifiers in the docs, from what their checkpoints or bundles say of themselves.

python -m training.results bundles > docs/classifiers.md
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from models.bundle import MANIFEST, load_bundle
from models.checkpoint import CHECKPOINT, read_checkpoint
from models.description import Description
from models.mechanisms import ATTENTIONS
from training.evaluation import READS

_INTRODUCTION = """\
# The bundled classifiers

One table per data set: every attention with the same network size and the same number of training
tokens, each tested once on documents that training had not seen. Those of a data set start from
the same bag of tokens and pairs; where "opening" has a number, so many first tokens have weights of
their own in it, which only helps a network that reads documents whole. The baseline is TF-IDF with
logistic regression on the same split. `p` is McNemar's exact test of the two on
the same documents: above 0.05, the test documents do not tell them apart. "First 512" and so on
are accuracies when only so many tokens are read; where they come from a sample of the test
documents, "sample" says how many, and its accuracy on whole documents stands beside them.
"Validation loss" is that of the bag of tokens and pairs that training started from, and of the
blocks that were kept: a loss that falls is what the attention added.

Each bundle's card has the command it was trained with. This page is written by
`python -m training.results bundles`.
"""


def read_results(root: Path) -> list[tuple[Description, dict[str, Any]]]:
    """Every classifier in the folder, with how it was trained."""
    found: list[tuple[Description, dict[str, Any]]] = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if (folder / MANIFEST).is_file():
            manifest = load_bundle(folder).manifest
            found.append((manifest, manifest.provenance["training"]))
        elif (folder / CHECKPOINT).is_file():
            checkpoint = read_checkpoint(folder)
            found.append((checkpoint, checkpoint.training))
    return found


def results_page(results: list[tuple[Description, dict[str, Any]]]) -> str:
    """Markdown with a table per data set, in the order of the registered attentions."""
    groups: dict[str, list[tuple[Description, dict[str, Any]]]] = defaultdict(list)
    for description, training in results:
        groups[description.name.partition("-")[0]].append((description, training))
    sections = [_section(name, group) for name, group in sorted(groups.items())]
    return "\n".join([_INTRODUCTION, *sections])


def _section(name: str, group: list[tuple[Description, dict[str, Any]]]) -> str:
    order = ATTENTIONS.names()
    group = sorted(group, key=lambda one: order.index(one[0].config.attention))
    first, training = group[0]
    baseline = first.evaluation["baseline"]
    counts = training["documents"]
    reads = " | ".join(f"first {read:,}" for read in READS)
    lines = [
        f"## {name}",
        "",
        f"{first.task}. {counts['train']:,} documents to train on, {counts['valid']:,} to "
        f"validate, {counts['test']:,} to test.",
        "",
        f"| attention | accuracy | macro-F1 | p | {reads} | sample, whole | "
        "validation loss | reads at once | opening | parameters | minutes |",
        "|---" * (10 + len(READS)) + "|",
        *(_row(description, made) for description, made in group),
        f"| TF-IDF + logistic regression | {baseline['accuracy']:.3f} | "
        f"{baseline['macro_f1']:.3f} |" + " |" * (7 + len(READS)),
        "",
    ]
    return "\n".join(lines)


def _row(description: Description, training: dict[str, Any]) -> str:
    evaluation = description.evaluation
    *reads, whole = (row["accuracy"] for row in evaluation["by_read"]["rows"])
    losses = [check["loss"] for check in training["checks"]]
    opening = getattr(description.config, "opening", 0)
    cells = [
        ATTENTIONS[description.config.attention].title,
        f"{evaluation['accuracy']:.3f}",
        f"{evaluation['macro_f1']:.3f}",
        f"{evaluation['against_baseline']['p']:.2g}",
        *(f"{accuracy:.3f}" for accuracy in reads),
        f"{whole:.3f} ({evaluation['by_read']['documents']:,})",
        f"{losses[0]:.3f} → {min(losses[1:]):.3f}",
        f"{description.max_tokens:,}",
        f"{opening:,}" if opening else "–",
        f"{training['parameters']:,}",
        f"{training['seconds'] / 60:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(results_page(read_results(Path(sys.argv[1]))))
