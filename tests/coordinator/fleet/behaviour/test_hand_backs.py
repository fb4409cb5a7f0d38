"""Workers that hand requests back and return at once keep no request from others."""

from pathlib import Path

from tests.coordinator.fleet.behaviour.cluster import greedy_submit
from tests.coordinator.fleet.sessions import Requests
from tests.coordinator.fleet.test_session import Impatient
from tests.workers import (
    Listener,
    SessionContext,
    accept,
    running_worker,
    scripted_worker,
    unix_address,
    until,
    welcome,
)
from tokenwire.coordinator.fleet.admission.queue import AdmissionQueue
from tokenwire.coordinator.fleet.admission.settings import AdmissionSettings
from tokenwire.coordinator.fleet.failover.failover import Failover
from tokenwire.coordinator.fleet.failover.settings import FailoverSettings
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session_listener import SessionState
from tokenwire.v1 import inference_pb2 as pb


class HandsBack:
    """Drains with its first request and hands it back; then it is there again, as another process."""

    def __init__(self) -> None:
        self.sessions = 0
        self.requests = 0

    async def session(self, requests: Requests, context: SessionContext) -> None:
        """Greet, and hand back."""
        await anext(requests)
        self.sessions += 1
        greeting = welcome(names=("simulated",))
        greeting.welcome.instance_id = f"{id(self)} {self.sessions}"
        await context.write(greeting)
        async for request in requests:
            if request.HasField("submit"):
                self.requests += 1
                slots = request.submit.slots
                finishes = [pb.Finish(slot=each, reason=pb.FINISH_REASON_ABORT, handed_back=True) for each in slots]
                await context.write(pb.SessionResponse(draining=pb.Draining()))
                await context.write(pb.SessionResponse(frame=pb.StepFrame(finishes=finishes)))
                return


async def test_a_request_is_handed_back_twice_by_an_address(tmp_path: Path) -> None:
    """Then it waits for another worker, though that one has no room yet; it is not lost."""
    bad, good = unix_address(tmp_path, "bad"), unix_address(tmp_path, "good")
    script = HandsBack()
    pool = WorkerPool("test", accept)
    failover = Failover(AdmissionQueue(pool, AdmissionSettings()), FailoverSettings(), pool)
    pool.subscribe(failover)
    async with scripted_worker(bad, script.session), running_worker(good, max_num_seqs=1, step_ms=4):
        pool.update([good])
        await until(pool.is_ready)
        others = [Listener() for _ in range(3)]
        for listener in others:
            failover.submit("simulated", greedy_submit(max_tokens=300), [listener])
        pool.update([good, bad])
        returning = pool.sessions[1]
        returning.breaker = Impatient()
        await until(lambda: returning.state is SessionState.READY)

        listener = Listener()
        failover.submit("simulated", greedy_submit(), [listener])
        await listener.ended.wait()

        assert (listener.error, len(listener.token_ids), script.requests) == (None, 120, 2)
        assert failover.stats.failed == 0
        failover.stop()
        await pool.stop()
