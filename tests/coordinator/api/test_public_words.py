"""Words of the API that may be logged."""

import pytest

import tokenwire.coordinator.app  # noqa: F401 (has the models of all routes)
from tokenwire.coordinator.api.public_words import public_words


@pytest.mark.parametrize(
    "word", ["max_tokens", "response_format", "json_schema", "json_object", "image_url", "NoneType"]
)
def test_fields_and_their_values_are_public(word: str) -> None:
    """Of every route, nested ones too, and what error messages say of types."""
    assert word in public_words()


@pytest.mark.parametrize("word", ["", "my secret", "Paris", "sk-123"])
def test_a_clients_own_words_are_not(word: str) -> None:
    """They may be private."""
    assert word not in public_words()
