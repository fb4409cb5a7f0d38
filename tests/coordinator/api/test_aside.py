"""Long work is done in a thread, and short work is not."""

import threading

import pytest

from tokenwire.coordinator.api.aside import INLINE_TOKENS, aside


def refuse_to_parse() -> None:
    """Fail."""
    raise ValueError("no")


async def test_work_on_many_tokens_is_done_in_a_thread() -> None:
    """That on a few is done here, since a thread would cost more."""
    here = threading.get_ident()

    assert await aside(INLINE_TOKENS, threading.get_ident) == here
    assert await aside(INLINE_TOKENS + 1, threading.get_ident) != here


@pytest.mark.parametrize("tokens", [1, INLINE_TOKENS + 1])
async def test_its_error_is_raised(tokens: int) -> None:
    """Wherever it was done."""
    with pytest.raises(ValueError, match="no"):
        await aside(tokens, refuse_to_parse)
