"""A reply that must be one run is one, and is found where it is not."""

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

_LATER = """
    from tests.simulation import engines
    from tests.simulation.batch_noise import BatchNoiseSource
    from tests.simulation.run import run_script
    from tests.simulation.script import Script, ScriptedEvent, generate_script

    engines.BatchNoiseSource = lambda source, batch: BatchNoiseSource(source, (batch[0], batch[1] + 1))
    config = generate_script(0).config | {
        "coordinators": 1, "workers": 3, "seconds": 12.0, "keys": [], "attempts": 3, "max_queue": None, "skew_s": 0.0,
        "request_timeout_s": None, "queue_timeout_s": 60.0, "store": None, "adapters": [], "other_weights": [],
        "engine": {"step_ms": 40, "max_num_seqs": 1, "max_model_len": 512}, "batch_variant": [1], "resume": "exact",
        "signed": False, "crowd_s": None, "generators": [],
    }
    request = {
        "coordinator": 0, "route": "completions", "stream": True, "prompt": "HELLO", "max_tokens": 300,
        "sampling": "greedy", "seed": 7, "n": 1, "logprobs": None, "stop": None, "priority": 0, "key": None,
        "leave_s": None, "read_delay_s": 0.0, "follows": None, "model": None,
    }
    kill = {"coordinator": 0, "draw": 0.3, "subset": [], "adapter": "red"}

    def run():
        requests = [ScriptedEvent(2 + n / 100, "request", request | {"id": f"r{n}"}) for n in range(6)]
        first = ScriptedEvent(1.0, "kill", kill | {"worker": 1, "length": 3.0})
        second = ScriptedEvent(3.0, "kill", kill | {"worker": 0, "length": 60.0})
        return run_script(Script(1, config, (first, *requests, second)))
"""


def test_an_exact_reply_does_not_go_on_at_a_worker_that_came_later_and_differs() -> None:
    """All others were full; the one that takes it is not batch-invariant, and generates it again."""
    run_inside(
        _LATER
        + """
    result = run()
    assert not result.violations, result.violations
    assert result.reached["failed: a replay differs"] == 1, result.reached

    from tokenwire.coordinator.fleet.failover.failover import Failover
    Failover._on_placed = lambda self, sequence, replay, *sent: sequence.request.on_resumed(*sent)
    assert any("are not those of one run" in each for each in run().violations)
    """
    )


def test_a_policy_that_is_not_kept_is_found() -> None:
    """Whether it goes on where it must not, or ends where it must go on."""
    run_inside(
        """
        from tokenwire.coordinator.fleet.failover.failover import Failover
        from tests.simulation.run import run_script
        from tests.simulation.script import generate_script

        LOSSES = {"kill", "crash", "cut", "power_cut"}

        def found(is_exact, policy):
            # In fleets with this policy, losses, and engines that are not batch-invariant.
            Failover._is_exact = lambda self, request: is_exact
            scripts = (
                script for script in map(generate_script, range(1000))
                if script.config["resume"] == policy and script.config["batch_variant"]
                and LOSSES & {event.kind for event in script.events}
            )
            return next(each for script in scripts for each in run_script(script).violations)

        problem = found(False, "exact")
        assert "generates there" in problem or "of one run" in problem, problem
        problem = found(True, "plausible")
        assert "without a cause" in problem and "differs from the first" in problem, problem
        """
    )
