"""Where labelled documents are and how they are read: what the commands' options say."""

from __future__ import annotations

from dataclasses import dataclass

#: How the name of a Hugging Face data set begins.
HUB = "hf:"


@dataclass(frozen=True)
class DataOptions:
    """Where the documents are, and how they are read.

    data              a file, a folder with a subfolder per class, or hf:NAME
    valid, test       further sources for these splits
    text, label       columns that hold them
    split             column that holds the split; left out where there is none
    label_names       names of labels that are numbers from 0
    drop_incomplete   leave out rows without text or label, and classes with one document
    drop_duplicates   leave out documents of train and valid that stand in test too
    seed              of the split, where none is given
    """

    data: str
    valid: str | None = None
    test: str | None = None
    text: str = "text"
    label: str = "label"
    split: str = "split"
    label_names: tuple[str, ...] = ()
    drop_incomplete: bool = False
    drop_duplicates: bool = False
    seed: int = 0
