"""Past faults can be put back into the source of today."""

import ast
import shutil
from pathlib import Path

import pytest

from tests.simulation.put_back import FAULTS, ROOT, PastFault, put_back


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.story)
def test_a_past_fault_can_be_put_back(fault: PastFault, tmp_path: Path) -> None:
    """The source has what it replaces exactly once, and is Python afterwards, and another."""
    copy = tmp_path / fault.path
    copy.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / fault.path, copy)
    before = ast.dump(ast.parse(copy.read_text()))

    put_back(fault, tmp_path)

    assert ast.dump(ast.parse(copy.read_text())) != before
