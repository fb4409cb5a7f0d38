"""Which tests run in one process."""

import re
from pathlib import Path

import pytest

from tests.scheduling import IMPORT_VLLM, SHARE_EMBEDDED, SHARE_SCRIPTED, SHARE_TINY, TAKE_LONG

ROOT = Path(__file__).parents[1]
PATHS = IMPORT_VLLM + SHARE_TINY + SHARE_EMBEDDED + SHARE_SCRIPTED + tuple(each for each in TAKE_LONG if "/" in each)


@pytest.mark.parametrize("beginning", PATHS)
def test_what_is_handed_to_one_process_is_there(beginning: str) -> None:
    """A path that moved would have two processes import vLLM, or start an engine."""
    assert list(ROOT.glob(f"{beginning}*"))


def test_all_that_share_the_scripted_service_run_in_one_process() -> None:
    """Another process would start its coordinator, with vLLM's parsers, once more."""
    users = [
        path for path in (ROOT / "tests/e2e").glob("test_*.py") if re.search(r"\bscripted\b[:,)\"]", path.read_text())
    ]

    assert {path.relative_to(ROOT).as_posix() for path in users} == set(SHARE_SCRIPTED)
