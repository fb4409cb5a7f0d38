"""Conversations move between coordinators that share a store, and runs fail when they lose what was stored."""

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

_SCRIPT = """
    from tests.simulation.run import run_script
    from tests.simulation.script import Script, ScriptedEvent, generate_script
    from tokenwire.coordinator import shared_redis
    from tokenwire.coordinator.history import open_store, redis_store

    calm = generate_script(0).config | {
        "coordinators": 2, "workers": 2, "seconds": 9.0, "keys": [], "lateness_s": 0.0, "latency_s": 0.002,
        "history_ttl_s": 3600.0, "store": {"sharers": [0, 1], "latency_s": 0.005}, "max_queue": None,
        "request_timeout_s": None, "intake_s": 0.0, "window": 4000, "attempts": 3,
        "engine": {"step_ms": 10, "max_num_seqs": 4, "max_model_len": 512}, "batch_variant": [], "generators": [],
    }
    request = {
        "coordinator": 0, "id": "r0", "route": "chat", "stream": True, "prompt": "HELLO", "max_tokens": 20,
        "sampling": "seeded", "seed": 7, "n": 1, "logprobs": None, "stop": None, "priority": 0, "key": None,
        "model": None, "leave_s": None, "read_delay_s": 0.0, "follows": None,
    }

    def run(*faults, **config):
        first = ScriptedEvent(1.0, "request", request)
        turn = ScriptedEvent(7.0, "turn_elsewhere", {"coordinator": 0, "draw": 0.0})
        return run_script(Script(1, calm | config, (first, *faults, turn)))

    def stall(at, length):
        return ScriptedEvent(at, "store_stalls", {"coordinator": 0, "draw": 0.9, "length": length})
"""


def test_a_conversation_moves_to_another_coordinator_with_its_exact_ids() -> None:
    """The other one finds them in the store, unless it stalls, or loses them; then the template's prompt will do."""
    run_inside(
        _SCRIPT
        + """
    moved = "chat continued by another coordinator by exact ids"
    due = "exact turn due through the store"

    result = run()
    assert not result.violations, result.violations
    assert result.reached[moved] == result.reached[due] == 1

    before, between_the_turn_and_its_lookup = (ScriptedEvent(at, "store_evicts", {"draw": 1.0}) for at in (6.0, 7.001))
    for fault in (stall(6.9, 2.0), before, between_the_turn_and_its_lookup):
        result = run(fault)
        assert not result.violations, result.violations
        assert result.endings.total() == 2
        assert result.reached[moved] == result.reached[due] == 0
    """
    )


def test_a_run_fails_that_loses_stored_turns_or_waits_for_the_store() -> None:
    """Otherwise nothing would be shown by those that do not fail."""
    run_inside(
        _SCRIPT
        + """
    async def find_own(self, keys, share):
        return await self._own.find(keys)

    find, open_store.SharedStore.find = open_store.SharedStore.find, find_own
    assert any("reused ids, though" in each for each in run().violations)
    open_store.SharedStore.find = find

    redis_store.open_redis = lambda url, password: shared_redis.open_redis(url, password, 1.0)
    redis_store._LOOKUP_S = 2.0
    assert any("for an answer of the shared store" in each for each in run(stall(6.9, 2.0)).violations)
    """
    )


def test_a_store_that_stays_unused_after_it_has_healed_is_found() -> None:
    """It is treated as empty for two seconds, not for good."""
    run_inside(
        _SCRIPT
        + """
    assert not run(stall(6.9, 1.0)).violations
    shared_redis.PAUSE_S = 1000.0
    assert any("does not find in the shared store" in each for each in run(stall(6.9, 1.0)).violations)
    """
    )
