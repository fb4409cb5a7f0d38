"""How much text ids have, before it is made."""

import asyncio
from collections.abc import Sequence

from tokenwire.coordinator.text.tokenizer import ModelTokenizer

_IDS_BETWEEN_YIELDS = 4096


async def text_chars(tokenizer: ModelTokenizer, token_ids: Sequence[int], enough: int) -> int:
    """Return about how many characters the text of ids has, 0 if it cannot be more than `enough`."""
    if len(token_ids) * tokenizer.max_chars_per_token <= enough:
        return 0
    chars, token_of = 0, tokenizer.token_to_str
    for start in range(0, len(token_ids), _IDS_BETWEEN_YIELDS):
        chars += sum([len(token_of(each) or "") for each in token_ids[start : start + _IDS_BETWEEN_YIELDS]])
        await asyncio.sleep(0)
    return chars
