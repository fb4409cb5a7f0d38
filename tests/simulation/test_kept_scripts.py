"""Shrunk scripts of seeds that have failed: what they once met stays mended, in the product or in a check.

Those that CHANGELOG.md names have failed when their faults were put back, with the simulation of today. What a
script's seed draws may change with the simulation, so that of 30138 was chosen anew: the events are its own.
"""

from pathlib import Path

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

_SCRIPTS = Path(__file__).parent / "scripts"


@pytest.mark.parametrize(
    ("name", "met"),
    [
        # One of two choices fails, and the other one has more for a client that reads slowly.
        ("seed-30138", "refused: an engine's backlog"),
        # The drain of a coordinator ends before a client has read what there is.
        ("seed-30168", "event terminate_coordinator"),
        # A worker before 1.4, which gives no seed to a reply that must be exact, is lost.
        ("seed-6488", "w restarted under the older minor"),
        # A reply moves while its first tokens wait behind a dispatch, and again later.
        ("seed-7387", "resumed after its worker began to drain"),
        # A worker before 1.4 gives no seed to a reply that may go on plausibly, and drains.
        ("seed-8294", "w restarted under the older minor"),
        # A worker before 1.4, which gives no seed to a reply that must be exact, drains.
        ("seed-8683", "w restarted under the older minor"),
        # A worker that starts between two aborts of a request knows of the second one only.
        ("seed-6391", "resumed at the same address, restarted"),
    ],
)
def test_a_script_that_has_failed_does_so_no_more(name: str, met: str) -> None:
    """The script still gets to where it failed."""
    run_inside(
        f"""
        from pathlib import Path
        from tests.simulation.run import run_script
        from tests.simulation.script import Script

        result = run_script(Script.from_json(Path({str(_SCRIPTS / name)!r} + ".json").read_text()))
        assert not result.violations, result.violations
        assert result.reached[{met!r}], result.reached
        """
    )
