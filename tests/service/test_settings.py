"""Settings: where they come from, what they refuse, and the table that documents them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from models.errors import ConfigError
from service.commands.configuration_table import markdown
from service.settings import PREFIX, Settings, read_settings, unknown_variables

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_flags_win_over_the_environment_and_that_over_defaults() -> None:
    environ = {"LONGDOC_PORT": "9000", "LONGDOC_WORKERS": "3"}
    settings = read_settings({"port": "9001", "workers": None}, environ)
    assert (settings.port, settings.workers, settings.max_batch_size) == (9001, 3, 8)


def test_auto_and_lists() -> None:
    settings = read_settings(
        {}, {"LONGDOC_WORKERS": "auto", "LONGDOC_API_KEYS": "key-number-1, key-2222"}
    )
    assert settings.workers is None
    assert settings.api_keys == ("key-number-1", "key-2222")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "70000"),
        ("port", "-1"),
        ("port", ""),
        ("port", "auto"),
        ("workers", "1.5"),
        ("queue_seconds", "nan"),
        ("queue_seconds", "inf"),
        ("queue_seconds", "0"),
        ("engine", "Torch"),
        ("bundle", ""),
        ("log_format", "xml"),
        ("api_keys", "tooshrt"),
        ("api_keys", "has a line\nbreak"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(name: str, value: str) -> None:
    variable = PREFIX + name.upper()
    with pytest.raises(ConfigError, match=f"{variable} must be ") as error:
        read_settings({}, {variable: value})
    if name == "api_keys":
        assert value not in str(error.value)


def test_a_wrong_value_from_code_is_told_too() -> None:
    with pytest.raises(ConfigError, match="workers must be a whole number from 1 to 1,024"):
        Settings(workers=0)
    with pytest.raises(ConfigError, match="port must be"):
        Settings(port=True)


def test_keys_are_not_shown() -> None:
    assert "secret-key" not in repr(Settings(api_keys=("secret-key",)))


def test_misspelt_variables_are_named() -> None:
    environ = {"LONGDOC_PROT": "1", "LONGDOC_PORT": "1", "OTHER": "x"}
    (sentence,) = unknown_variables(environ)
    assert "LONGDOC_PROT" in sentence
    assert "did you mean LONGDOC_PORT?" in sentence


def test_every_setting_is_documented_and_the_table_is_current() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert markdown() in page, "run `python -m service.commands.configuration_table`"
    for about in fields(Settings):
        assert PREFIX + about.name.upper() in page
        assert about.metadata["meaning"]
