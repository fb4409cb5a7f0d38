"""Decoded chunked bodies."""

import pytest

from tests.chunked import unchunk

FULL = b"5\r\nHello\r\nc\r\n, you there!\r\n0\r\n\r\n"


def test_a_whole_body_is_complete() -> None:
    """Its content is that of all chunks."""
    assert unchunk(FULL) == (b"Hello, you there!", True)


@pytest.mark.parametrize("length", range(len(FULL)))
def test_a_body_that_breaks_off_anywhere_is_incomplete(length: int) -> None:
    """What came of its content is kept."""
    content, complete = unchunk(FULL[:length])

    assert not complete
    assert b"Hello, you there!".startswith(content)


@pytest.mark.parametrize("wrong", [FULL + b"x", FULL.replace(b"o\r\n", b"oo\r\n")])
def test_other_bytes_between_or_after_chunks_are_not_complete(wrong: bytes) -> None:
    """Neither after the last chunk nor in place of a chunk's end."""
    assert not unchunk(wrong)[1]
