"""Which attention suits labelled documents, for those who name none."""

from __future__ import annotations

from itertools import islice

from training.corpus import check_columns
from training.data_options import DataOptions
from training.readers import read_rows

_LOOKED_AT = 1000  # documents
_TOKENS_PER_WORD = 1.4
#: On two cores Nyströmformer overtakes fused softmax at 440 tokens with ONNX Runtime and at 620
#: with PyTorch (`longdoc bench`); softmax is exact.
_SHORT = 512


def choose_attention(options: DataOptions) -> tuple[str, str]:
    """An attention's name, and why, in a sentence."""
    lengths = []
    for where, row in islice(read_rows(options.data), _LOOKED_AT):
        check_columns(row, options, where)
        text = row[options.text]
        if isinstance(text, str):
            lengths.append(round(_TOKENS_PER_WORD * len(text.split())))
        elif isinstance(text, list):
            lengths.append(len(text))
    lengths.sort()
    long = lengths[int(0.95 * (len(lengths) - 1))] if lengths else 0
    if long <= _SHORT:
        return "softmax", (
            f"exact, and the fastest on documents this short (95% of those looked at have at "
            f"most {long:,} tokens)"
        )
    return "nystromformer", (
        f"its cost grows with the length, not with the length's square (95% of the documents "
        f"looked at have at most {long:,} tokens)"
    )
