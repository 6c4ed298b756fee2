"""Documents with the probabilities that PyTorch gives them, for the start's self-test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from export.agreement import probabilities
from export.candidate import Candidate
from export.documents import compose
from models.reference import Reference, ReferenceDocument

#: Sentences of a document, and how often they are said: some 15, 170, 900, 4,500 and 16,000 tokens.
_SIZES = ((1, 1), (12, 1), (60, 1), (60, 5), (60, 17))
_DIGITS = 8


def write_reference(candidate: Candidate, tokenizer: Tokenizer, path: Path) -> None:
    """Classify documents of several lengths that the network reads, and store the answers."""
    limit = candidate.network.max_tokens
    documents = []
    for seed, (sentences, repeat) in enumerate(_SIZES):
        text = compose(sentences, seed) + " "
        ids = tokenizer.encode(text * repeat, add_special_tokens=False).ids
        if 1 <= len(ids) <= limit:
            run = candidate.reference.run(np.array([ids]), np.array([len(ids)]))
            shares = probabilities(run.logits)[0].tolist()
            documents.append(
                ReferenceDocument(
                    text=text,
                    repeat=repeat,
                    tokens=len(ids),
                    probabilities=tuple(round(share, _DIGITS) for share in shares),
                )
            )
    reference = Reference(documents=tuple(documents))
    path.write_text(reference.model_dump_json(indent=1) + "\n", encoding="utf-8")
