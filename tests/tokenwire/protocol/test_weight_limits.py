"""Limits of a request go before those of its session, one by one."""

from tokenwire.protocol.weight_limits import WeightLimits


def test_each_limit_has_its_own_default() -> None:
    """A request that sets one limit keeps the session's other one."""
    session = WeightLimits("step_1", 3)

    assert WeightLimits(max_lag=0).over(session) == WeightLimits("step_1", 0)
    assert WeightLimits("step_2").over(session) == WeightLimits("step_2", 3)
    assert WeightLimits("step_2").over(None) == WeightLimits("step_2")
