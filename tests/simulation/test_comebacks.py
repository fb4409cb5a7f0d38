"""A tenant that comes back gets its share from then on, and nothing for the time in which it was idle."""

from tests.simulation.inside import run_inside


def test_a_tenant_that_comes_back_gets_no_more_than_those_that_waited() -> None:
    """A rival may be ahead of it by its own last request; what was left to the rival before counts nothing."""
    run_inside(
        """
        from tests.simulation.comebacks import Comebacks

        comebacks, late, early = Comebacks(), (0, "late"), (0, "early")
        comebacks.on_wait(early, 0)
        comebacks.on_start(early, 600)
        comebacks.on_wait(late, 50)
        assert comebacks.has_come_back(late, "early") and not comebacks.has_come_back(early, "late")
        assert comebacks.excess(late, 50, "early", 900) == -300
        assert comebacks.excess(late, 350, "early", 900) == 0
        assert comebacks.excess(late, 360, "early", 900) == 10
        assert comebacks.excess(early, 9000, "late", 50) < 0
        comebacks.on_start(early, 900)  # after it came back: what is allowed is still counted from the start before
        assert comebacks.excess(late, 660, "early", 1200) == 10

        comebacks.on_start(early, 1500, 256)  # what ran may end early, and give that back
        comebacks.on_wait(late, 700)
        assert comebacks.excess(late, 956, "early", 1500) == 0

        comebacks.forget(0)
        comebacks.on_wait(early, 20)
        comebacks.on_wait(late, 0)
        assert comebacks.excess(late, 10, "early", 20) == 10
        assert not comebacks.has_come_back(late, "early")
        """
    )
