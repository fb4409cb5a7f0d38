"""Special tokens of a tokenizer's files, as in transformers."""

import pytest

from tests.coordinator.text.tiny import byte_level_with
from tokenwire.coordinator.text.special_tokens import content


def test_special_tokens_are_texts_in_the_order_of_templates() -> None:
    """Tokens may be texts, objects or null; the model's own names are included."""
    config = {
        "image_token": "<tool>",
        "eos_token": {"__type": "AddedToken", "content": "<end>", "lstrip": False},
        "bos_token": "<tool>",
        "unk_token": None,
        "extra_special_tokens": {"audio_token": "<end>"},
        "add_bos_token": True,
    }
    special = byte_level_with(config).special_tokens
    assert list(special.items()) == [
        ("bos_token", "<tool>"),
        ("eos_token", "<end>"),
        ("image_token", "<tool>"),
        ("audio_token", "<end>"),
    ]


def test_the_legacy_map_counts_only_without_added_tokens() -> None:
    """special_tokens_map.json overrides an old config, and is ignored with a newer one, as in transformers."""
    legacy = '{"eos_token": {"content": "<end>"}}'
    assert byte_level_with({"eos_token": "<tool>"}, special_tokens_map__json=legacy).special_tokens == {
        "eos_token": "<end>"
    }
    newer = {"eos_token": "<tool>", "added_tokens_decoder": {}}
    assert byte_level_with(newer, special_tokens_map__json=legacy).special_tokens == {"eos_token": "<tool>"}


def test_tokens_only_in_the_config_are_added() -> None:
    """Tokens missing from tokenizer.json get the next ids, in the order of the config's, special ones skipped."""
    config = {
        "added_tokens_decoder": {
            "259": {"content": "<b>", "special": False},
            "258": {"content": "<a>", "special": True},
        },
        "additional_special_tokens": ["<c>", "<end>"],
        "eos_token": "<b>",
    }
    tokenizer = byte_level_with(config)
    assert [tokenizer.added_token_ids.get(i) for i in range(256, 262)] == ["<tool>", "<end>", "<a>", "<b>", "<c>", None]
    ids = tokenizer.encode("x<a><b><c><tool>", False)
    assert ids[1:] == [258, 259, 260, 256]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "x<tool>"


@pytest.mark.parametrize(
    ("token", "text"),
    [("<s>", "<s>"), ({"content": "<s>", "lstrip": True}, "<s>"), (None, None), ({}, None), (5, None)],
)
def test_a_token_is_text_or_an_object_with_text(token: object, text: str | None) -> None:
    """Anything else is no token."""
    assert content(token) == text
