"""Text of a sequence in parts, between which only a window is kept."""

import pytest

from tests.coordinator.text.tiny import byte_fallback, byte_level, token_id
from tokenwire.coordinator.text.text_window import TextWindow, WindowDecoder
from tokenwire.coordinator.text.tokenizer import ModelTokenizer

TEXT = "one two, 你好 – Zürich 👩‍👩‍👧.<tool>three"


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback(strip=True), byte_fallback(strip=False)])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_parts_of_any_size_are_the_whole_text(tokenizer: ModelTokenizer, size: int) -> None:
    """Never with a part of a character; the window stays short."""
    token_ids = tokenizer.encode(TEXT, add_special_tokens=False)
    decoder, texts = WindowDecoder(tokenizer, skip_special_tokens=True), []
    window = decoder.after(tokenizer.encode("one", add_special_tokens=False))
    for start in range(0, len(token_ids), size):
        text, window = decoder.decode(window, token_ids[start : start + size])
        texts.append(text)
        assert len(window.tokens) < 24

    assert "".join(texts) == tokenizer.decode(token_ids, skip_special_tokens=True)
    assert not any("\ufffd" in text for text in texts)


def test_the_window_stays_short_if_no_character_is_ever_complete() -> None:
    """Else each token costs as much as all before it."""
    tokenizer = byte_level()
    part = next(i for i in range(256) if tokenizer.decode([i]) == "\ufffd")
    text, window = WindowDecoder(tokenizer, True).decode(TextWindow(), [part] * 1000)

    assert len(window.tokens) < 2 * 64
    assert set(text) == {"\ufffd"}


def test_special_tokens_are_skipped_if_requested() -> None:
    """Like in whole texts."""
    tokenizer = byte_level()
    end = token_id(tokenizer, "<end>")

    assert WindowDecoder(tokenizer, True).decode(TextWindow(), [end])[0] == ""
    assert WindowDecoder(tokenizer, False).decode(TextWindow(), [end])[0] == "<end>"


def test_a_blank_after_the_prompt_is_kept() -> None:
    """A decoder that strips the first blank of a text strips none of a continued one."""
    tokenizer = byte_fallback(strip=True)
    decoder = WindowDecoder(tokenizer, True)
    one, two = (token_id(tokenizer, token) for token in ("▁one", "▁two"))

    assert decoder.decode(decoder.after([one]), [two])[0] == " two"
    assert decoder.decode(decoder.after(None), [two])[0] == "two"
