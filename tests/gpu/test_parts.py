"""Parts of a step keep their own results."""

import json
from pathlib import Path

from gpu.parts import Parts
from gpu.runner import FAILED, PARTS, PASSED, SKIPPED
from gpu.step import Skipped


def test_a_part_that_fails_or_is_skipped_does_not_hide_the_others(tmp_path: Path) -> None:
    """Each has a status and a reason, and what it found before."""
    parts = Parts(tmp_path)

    with parts.part("first") as found:
        found["rate"] = 7
    with parts.part("second") as found:
        found["tried"] = True
        raise ValueError("no such device")
    with parts.part("third"):
        raise Skipped("needs a second GPU")

    seen = {name: (each["status"], each["reason"]) for name, each in parts.results.items()}
    assert seen == {
        "first": (PASSED, ""),
        "second": (FAILED, "ValueError: no such device"),
        "third": (SKIPPED, "needs a second GPU"),
    }
    assert parts.results["first"]["rate"] == 7
    assert parts.results["second"]["tried"]
    assert json.loads((tmp_path / PARTS).read_text()) == parts.results
