"""Which tests run in one process."""

from pathlib import Path

import pytest

from tests.scheduling import IMPORT_VLLM

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("beginning", IMPORT_VLLM)
def test_what_is_handed_to_one_process_is_there(beginning: str) -> None:
    """A path that moved would have two processes import vLLM."""
    assert list(ROOT.glob(f"{beginning}*"))
