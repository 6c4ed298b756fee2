"""The faster tokenizer gives the same ids, or is not used."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from models.bundle import ROOT, load_bundle
from service.text.fast_bpe import fast_encoder
from service.text.tokenizer import Reader
from tests.support.serving import tokenizer

BUNDLED = {
    data_set: load_bundle(ROOT / f"{data_set}-nystromformer").tokenizer()
    for data_set in ("elife", "imdb")
}
SMALL = tokenizer()
ANY_TEXT = st.text(min_size=1)
WORDY_TEXT = st.text(alphabet="aeé't s\n\t.1한🧬\u00a0", min_size=1, max_size=200)


ENCODERS = {id(known): fast_encoder(known) for known in (*BUNDLED.values(), SMALL)}


def assert_same_ids(known: Tokenizer, text: str) -> None:
    fast = ENCODERS[id(known)]
    assert fast is not None
    expected = known.encode_batch_fast([text], add_special_tokens=False)[0].ids
    spaced = fast.adds_space and not text.startswith(" ")
    assert fast.encode(" " + text if spaced else text) == expected


def test_every_character_of_the_basic_plane_and_many_above() -> None:
    letters = [
        chr(c) for c in (*range(0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x110000, 37))
    ]
    for start in range(0, len(letters), 4000):
        some = letters[start : start + 4000]
        assert_same_ids(BUNDLED["elife"], "".join(f"a{c}b {c} 1{c}2 " for c in some))


@settings(max_examples=300, deadline=None)
@given(st.one_of(ANY_TEXT, WORDY_TEXT), st.booleans())
@example(" they'll\n\n \n 'S", True)
@example("\u2003", False)
def test_any_text(text: str, small: bool) -> None:
    assert_same_ids(SMALL if small else BUNDLED["elife"], text)


@pytest.mark.parametrize("alphabet", ["a", "abcdefgh", " ", "\n", "7", "=-", "漢字", " \n\tx"])
def test_words_of_any_length(alphabet: str) -> None:
    source = random.Random(alphabet)
    assert_same_ids(BUNDLED["imdb"], "".join(source.choices(alphabet, k=100_000)))


def without_regex(known: Tokenizer) -> None:
    known.pre_tokenizer = pre_tokenizers.ByteLevel(use_regex=False)


def with_normalizer(known: Tokenizer) -> None:
    known.normalizer = normalizers.Lowercase()


def with_added_token(known: Tokenizer) -> None:
    known.add_tokens(["larvae"])


@pytest.mark.parametrize("change", [without_regex, with_normalizer, with_added_token])
def test_another_kind_of_tokenizer_is_left_alone(change: Callable[[Tokenizer], None]) -> None:
    known = tokenizer()
    change(known)
    assert fast_encoder(known) is None


def test_a_vocabulary_that_was_not_learnt_by_merging_is_left_alone() -> None:
    words = Tokenizer(models.WordLevel())
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(["some words"], trainers.WordLevelTrainer())
    assert fast_encoder(words) is None
    about = json.loads(tokenizer().to_str())
    about["model"]["merges"].reverse()
    assert fast_encoder(Tokenizer.from_str(json.dumps(about))) is None


def test_short_texts_are_quick_to_read_where_it_can_be_used() -> None:
    known = tokenizer()
    reader = Reader(known, limit=64, overlap=8)
    before = reader.read("some words").ids
    assert reader.quick == 0
    reader.speed_up()
    assert len("some words") <= reader.quick < len("some words " * 1000)
    assert reader.read("some words").ids.tolist() == before.tolist()
    with_normalizer(known)
    reader.speed_up()
    assert reader.quick == 0
