"""A place is taken back only for a tenant that has less where it may go."""

from tests.simulation.inside import run_inside


def test_a_rival_is_judged_by_the_workers_to_which_it_may_go() -> None:
    """It may have more than others at workers of another revision: seed 6046 met such a one."""
    run_inside(
        """
        from dataclasses import replace
        from tests.simulation.preempted import is_for_another
        from tokenwire.coordinator.fleet.failover.preemption import MOST_AT_ONCE
        from tokenwire.coordinator.fleet.request_handle import NEW

        taken, rival = replace(NEW, tenant="a", weight=1), replace(NEW, tenant="b", weight=1)
        places = [("a", "old")] * 4 + [("b", "new")] * (5 + MOST_AT_ONCE)
        assert is_for_another(taken, places, [(rival, ["old"])])
        assert not is_for_another(taken, places, [(rival, ["old", "new"])])
        assert is_for_another(taken, places, [(replace(rival, weight=2), ["old", "new"])])
        assert not is_for_another(taken, places, [(taken, ["old"])])
        assert not is_for_another(taken, places, [])
        """
    )
