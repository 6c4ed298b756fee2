"""Small random checkpoints of every architecture, written by `transformers`, and what it says."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor

_SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
VOCABULARY = {f"w{i}": i + 5 for i in range(90)} | {
    "<pad>": 0, "<unk>": 1, "<cls>": 2, "<sep>": 3, "<mask>": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """An architecture: its class name in `transformers`, its configuration, lengths to compare."""

    prefix: str
    config: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = (1, 2, 63, 64, 65, 511, 512)
    labels: int = 3

    def save(self, folder: Path, *, head: bool = True, seed: int = 0, **changes: Any) -> Any:
        """Write a checkpoint as `save_pretrained` does, with a tokenizer; return the model."""
        torch.manual_seed(seed)
        config_class = getattr(transformers, f"{self.prefix}Config")
        values = {**_SMALL, **self.config, **changes, "num_labels": self.labels}
        config = config_class(**values)
        kind = "ForSequenceClassification" if head else "Model"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = getattr(transformers, f"{self.prefix}{kind}")(config).eval()
            _enlarge(model)
            model.save_pretrained(folder)
        write_tokenizer(folder)
        return model


def _enlarge(model: torch.nn.Module) -> None:
    """Weights large enough that every part of the network shows in its answers."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.lower():
                parameter.add_(0.1 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.15 * torch.randn_like(parameter))


def write_tokenizer(folder: Path, *, post: bool = True) -> None:
    """A tokenizer of single words with special tokens around a text."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if post:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<cls> $A <sep>", special_tokens=[("<cls>", 2), ("<sep>", 3)]
        )
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(length=128, pad_token="<pad>")  # noqa: S106
    tokenizer.save(str(folder / "tokenizer.json"))


def edit_config(folder: Path, **changes: Any) -> None:
    """Change entries of config.json; None takes one out."""
    path = folder / "config.json"
    raw = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    kept = {name: value for name, value in raw.items() if value is not None}
    path.write_text(json.dumps(kept), encoding="utf-8")


def reference_states(model: Any, ids: Tensor) -> tuple[list[Tensor], Tensor]:
    """Hidden states of the embeddings and of every layer, and the logits, of one document."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model(ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    n = ids.shape[1]
    return [state[:, :n] for state in out.hidden_states], out.logits


#: Every architecture that can be imported, with its edges.
REFERENCES: dict[str, Reference] = {
    "bert": Reference("Bert", {"max_position_embeddings": 512}),
    "roberta": Reference("Roberta", {"max_position_embeddings": 514, "pad_token_id": 1}),
    "xlm-roberta": Reference("XLMRoberta", {"max_position_embeddings": 514, "pad_token_id": 1}),
    "distilbert": Reference(
        "DistilBert",
        {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 512},
    ),
    "mpnet": Reference("MPNet", {"max_position_embeddings": 514}),
    "longformer": Reference(
        "Longformer",
        {"max_position_embeddings": 4610, "attention_window": [8, 16, 64], "pad_token_id": 1},
        (1, 2, 63, 64, 65, 127, 128, 129, 511, 512, 4097),
    ),
    "big_bird": Reference(
        "BigBird",
        {"max_position_embeddings": 5120, "block_size": 16, "num_random_blocks": 3},
        (1, 2, 63, 64, 65, 175, 176, 177, 191, 192, 193, 511, 512, 1024, 4096, 4097),
    ),
    "nystromformer": Reference(
        "Nystromformer",
        {"max_position_embeddings": 4608, "conv_kernel_size": 33},
        (1, 2, 63, 64, 65, 511, 512, 4097),
    ),
    "nystromformer-landmarks": Reference(
        "Nystromformer",
        {
            "max_position_embeddings": 512,
            "num_landmarks": 16,
            "segment_means_seq_len": 512,
            "conv_kernel_size": 9,
        },
        (512,),  # the only length that the reference takes
    ),
    "modernbert": Reference(
        "ModernBert",
        {"max_position_embeddings": 8192, "local_attention": 16, "pad_token_id": 0,
         "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3},
        (1, 2, 7, 8, 9, 63, 64, 65, 511, 512, 4097),
    ),
    "modernbert-mean": Reference(
        "ModernBert",
        {"max_position_embeddings": 8192, "local_attention": 128, "pad_token_id": 0,
         "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3,
         "classifier_pooling": "mean", "norm_bias": True, "attention_bias": True,
         "mlp_bias": True, "classifier_bias": True},
        (1, 2, 127, 128, 129, 512),
    ),
}  # fmt: skip
