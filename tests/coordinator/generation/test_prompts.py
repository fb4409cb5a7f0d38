"""Prompts of every kind become ids."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.coordinator.fakes import ids, served_model
from tokenwire.coordinator.generation.prompts import prepare_prompt
from tokenwire.coordinator.types import ChatPrompt, Prompt, TextPrompt, TokenPrompt, Truncation
from tokenwire.errors import InvalidRequest

TEXT = "one two three four"


@dataclass
class CountingBackend:
    """A tokenizers.Tokenizer that counts the characters that it encodes."""

    backend: Any
    chars: list[int] = field(default_factory=list)

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        """Encode texts."""
        self.chars += map(len, texts)
        return self.backend.encode_batch_fast(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


@pytest.mark.parametrize(
    "prompt",
    [ChatPrompt([{"role": "user", "content": TEXT}]), TextPrompt(TEXT), TokenPrompt(list(ids(TEXT)))],
    ids=["chat", "text", "ids"],
)
@pytest.mark.parametrize(
    ("length", "side", "expected"),
    [(2, "left", "three four"), (2, "right", "one two"), (2, None, "three four"), (9, None, TEXT), (9, "left", TEXT)],
)
async def test_a_prompt_is_truncated_at_either_end(
    prompt: Prompt, length: int, side: str | None, expected: str
) -> None:
    """The end is kept unless the request says otherwise; a short one is not changed."""
    prepared = await prepare_prompt(prompt, served_model(), Truncation(length, side))  # type: ignore[arg-type]

    assert list(prepared.token_ids) == ids(expected)


async def test_text_is_kept_where_there_is_one() -> None:
    """For replies that echo it; ids have none."""
    chat = await prepare_prompt(ChatPrompt([{"role": "user", "content": TEXT}]), served_model())
    assert (chat.text or "").strip() == TEXT
    assert (await prepare_prompt(TextPrompt(TEXT), served_model())).text == TEXT
    assert (await prepare_prompt(TokenPrompt([1]), served_model())).text is None


async def test_a_text_that_cannot_fit_is_not_tokenized() -> None:
    """Its length alone says so."""
    with pytest.raises(InvalidRequest):
        await prepare_prompt(TextPrompt("one " * 10_000), served_model(max_model_len=20))


@pytest.mark.parametrize(
    ("side", "expected"), [("left", "three four"), ("right", "one two"), (None, "three four")], ids=str
)
async def test_of_a_long_text_only_the_end_that_stays_is_tokenized(side: str | None, expected: str) -> None:
    """Megabytes in front of it would take seconds and gigabytes."""
    model = served_model()
    counting = CountingBackend(model.tokenizer.backend)
    model.tokenizer.backend = counting  # type: ignore[assignment]

    prepared = await prepare_prompt(TextPrompt(f"{TEXT} " * 100_000), model, Truncation(2, side))  # type: ignore[arg-type]

    assert list(prepared.token_ids) == ids(expected)
    assert sum(counting.chars) == 2**16


@pytest.mark.parametrize("side", ["left", "right", None])
async def test_more_of_a_long_text_is_tokenized_until_it_has_enough_tokens(side: str | None) -> None:
    """One with few tokens at the side that is kept has the ids of the whole text."""
    text = "one " * 100_000 + " " * 300_000 + "two " * 70_000 + " " * 100_000
    model, truncation = served_model(max_model_len=100_000), Truncation(80_000, side)  # type: ignore[arg-type]
    whole = ids(text)

    prepared = await prepare_prompt(TextPrompt(text), model, truncation)

    assert list(prepared.token_ids) == (whole[:80_000] if side == "right" else whole[-80_000:])


async def test_a_long_text_is_tokenized_until_it_has_too_many_tokens() -> None:
    """The error says how many there are at least."""
    model = served_model(max_model_len=190_000)
    counting = CountingBackend(model.tokenizer.backend)
    model.tokenizer.backend = counting  # type: ignore[assignment]

    with pytest.raises(InvalidRequest, match=r"contains at least \d+ input tokens"):
        await prepare_prompt(TextPrompt("one " * 237_000), model, must_fit=True)

    assert sum(counting.chars) == 2**20 - 2**18


async def test_a_long_text_that_fits_is_tokenized() -> None:
    """However long, only its tokens count."""
    text = "three" + " " * 600_000 + "three"
    prepared = await prepare_prompt(TextPrompt(text), served_model(max_model_len=200_000), must_fit=True)
    assert list(prepared.token_ids) == ids("three three")


async def test_ids_after_the_last_reply_are_all_without_a_history() -> None:
    """Nothing of the conversation is reused."""
    prepared = await prepare_prompt(TokenPrompt([1, 2]), served_model())
    assert (list(prepared.new_ids), prepared.reused) == ([1, 2], 0)
