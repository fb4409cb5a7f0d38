"""Which tests run in one process."""

from pathlib import Path

import pytest

from tests.scheduling import IMPORT_VLLM, SHARE_EMBEDDED, SHARE_TINY

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("beginning", IMPORT_VLLM + SHARE_TINY + SHARE_EMBEDDED)
def test_what_is_handed_to_one_process_is_there(beginning: str) -> None:
    """A path that moved would have two processes import vLLM, or start an engine."""
    assert list(ROOT.glob(f"{beginning}*"))
