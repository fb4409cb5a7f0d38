"""How much text ids have."""

import asyncio

from tests.coordinator.text import tiny
from tokenwire.coordinator.text.text_length import text_chars


async def test_text_is_counted_only_if_it_may_be_long() -> None:
    """A long one with turns for others in between: each token is looked up."""
    tokenizer = tiny.byte_fallback(strip=False)
    ids = [tiny.token_id(tokenizer, "▁three"), tiny.token_id(tokenizer, "o")] * 10_000
    assert await text_chars(tokenizer, ids, len(ids) * tokenizer.max_chars_per_token) == 0

    counting = asyncio.create_task(text_chars(tokenizer, ids, 70_000))
    turns = 0
    while not counting.done():
        turns += 1
        await asyncio.sleep(0)

    assert counting.result() == 70_000
    assert turns > 3
