"""A few documents and the probabilities that the network in float32 gives them.

They travel with the bundle, so that a start can see whether this engine, in this precision, on
this processor, computes what was exported.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from models.description import Document
from models.errors import BundleError

FORMAT: Final = 1

_MAX_CHARACTERS = 1 << 20  # of a document
_OFF_BY = 1e-3  # that probabilities may add up to something else than one: they are rounded

Probability = Annotated[float, Field(ge=0, le=1)]


class ReferenceDocument(Document):
    """A text, said so many times over, the tokens it has, and a probability for each label."""

    text: Annotated[str, Field(min_length=1, max_length=50_000)]
    repeat: Annotated[int, Field(ge=1, le=10_000)] = 1
    tokens: Annotated[int, Field(ge=1, le=1 << 20)]
    probabilities: Annotated[tuple[Probability, ...], Field(min_length=1, max_length=10_000)]

    @property
    def whole(self) -> str:
        """The document."""
        return self.text * self.repeat


class Reference(Document):
    """The documents, the shortest first."""

    format: Literal[1] = FORMAT
    documents: Annotated[tuple[ReferenceDocument, ...], Field(min_length=1, max_length=20)]

    def check(self, labels: int, longest: int, name: str) -> None:
        """Refuse, in the name of this file, documents that the network cannot have answered."""
        for document in self.documents:
            if len(document.text) * document.repeat > _MAX_CHARACTERS:
                raise BundleError(f"{name} holds a document of over {_MAX_CHARACTERS} characters")
            if document.tokens > longest:
                raise BundleError(
                    f"{name} holds a document of {document.tokens} tokens; the network reads "
                    f"{longest}"
                )
            total = sum(document.probabilities)
            if len(document.probabilities) != labels or abs(total - 1) > _OFF_BY:
                raise BundleError(
                    f"{name} holds {len(document.probabilities)} probabilities that add up to "
                    f"{total:.4g}; there are {labels} labels"
                )
