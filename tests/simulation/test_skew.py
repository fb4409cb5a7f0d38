"""Processes of other minor versions send and read what protobuf would have it, and runs fail when that matters."""

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow

_PROCESS = """
    from tests.simulation.skew import SINCE, as_read, as_sent, has_call
    from tests.simulation.world import World
    from tokenwire.protocol.version import MINOR, protocol_version
    from tokenwire.v1 import inference_pb2 as pb

    def process(minor):
        node = World(0).node("process")
        node.minor = minor
        return node

    capabilities = pb.EngineCapabilities(seeds=True)
    welcome = pb.SessionResponse(
        welcome=pb.Welcome(protocol=protocol_version(), heartbeat_ms=500, capabilities=capabilities)
    )
"""


def test_an_older_process_has_no_newer_fields_and_calls() -> None:
    """Those that the comments of the protocol say were added later."""
    run_inside(
        _PROCESS
        + """
    assert SINCE["tokenwire.v1.Welcome.capabilities"] == 4
    assert SINCE["tokenwire.v1.Submit.resumed_after_ms"] == 5
    assert SINCE["tokenwire.v1.SessionResponse.heartbeat"] == 2
    assert has_call(process(3), "/tokenwire.v1.Control/GetMetrics")
    assert not has_call(process(2), "/tokenwire.v1.Control/GetMetrics")

    older = as_sent(process(3), welcome).welcome
    assert (older.protocol.minor, older.heartbeat_ms, older.HasField("capabilities")) == (3, 500, False)
    assert welcome.welcome.HasField("capabilities")  # only the copy on the wire is changed
    assert not as_sent(process(1), welcome).welcome.heartbeat_ms

    command = pb.SessionRequest(submit=pb.Submit(request_id="r", resumed_after_ms=7))
    submit = as_read(process(4), command).submit
    assert (submit.request_id, submit.HasField("resumed_after_ms")) == ("r", False)
    """
    )


def test_a_newer_process_sends_fields_that_others_do_not_know() -> None:
    """And reads them itself."""
    run_inside(
        _PROCESS
        + """
    assert as_sent(process(MINOR), welcome) is welcome
    newer = as_sent(process(MINOR + 1), welcome)
    assert newer.welcome.protocol.minor == MINOR + 1
    newer.welcome.protocol.minor = MINOR
    assert newer != welcome
    assert as_read(process(MINOR + 1), newer) == welcome
    """
    )


def test_a_reply_lost_in_a_rolling_restart_is_found() -> None:
    """With nothing but rolling restarts, every reply has to continue, whatever the minors are."""
    run_inside(
        """
        from tests.simulation.run import run_script
        from tests.simulation.script import Script, ScriptedEvent, generate_script
        from tokenwire.coordinator.fleet.failover import sequence
        from tokenwire.coordinator.fleet.failover.recovery import Recovery
        from tokenwire.worker.server import WorkerServer

        config = generate_script(0).config | {
            "coordinators": 1, "workers": 2, "seconds": 16.0, "keys": [], "attempts": 3, "max_queue": None,
            "request_timeout_s": None, "queue_timeout_s": 60.0, "store": None, "adapters": [], "signed": False,
            "engine": {"step_ms": 40, "max_num_seqs": 16, "max_model_len": 512}, "batch_variant": [], "generators": [],
        }
        request = {
            "coordinator": 0, "id": "r0", "route": "chat", "stream": True, "prompt": "HELLO", "max_tokens": 200,
            "sampling": "seeded", "seed": 7, "n": 1, "logprobs": None, "stop": None, "priority": 0, "key": None,
            "leave_s": None, "read_delay_s": 0.0, "follows": None, "model": None,
        }

        def run(draw):
            roll = ScriptedEvent(3.0, "roll_workers", {"draw": draw, "length": 1.0})
            events = [ScriptedEvent(1.0, "request", request | {"id": f"r{number}"}) for number in range(8)]
            return run_script(Script(1, config, (*events, roll)))

        for draw, age in ((0.0, "older"), (0.002, "newer")):
            result = run(draw)
            assert not result.violations, result.violations
            assert result.reached[f"w restarted under the {age} minor"] == 2
            assert result.reached["resumed"] > 0
            assert result.endings == {"length": 8}, result.endings

        sequence.recovery_of = lambda *_: Recovery.NONE
        assert any("though nothing aborted it" in each for each in run(0.0).violations)

        async def serve_without_drain(self, shutdown):
            await shutdown.wait()

        WorkerServer.serve = serve_without_drain
        assert any("lost in a rolling restart" in each for each in run(0.0).violations)
        """
    )
