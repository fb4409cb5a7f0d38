"""Control calls on a real socket: what reaches the engine, and how errors are returned.

One file, since all calls reach the same recording engine through the same socket.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from tests.worker.peers import Peer, in_session
from tests.workers import running_worker, submit_message, unix_address, until
from tokenwire.protocol.tokenizer_digest import tokenizer_digest
from tokenwire.v1 import control_pb2 as control
from tokenwire.v1 import inference_pb2 as pb
from tokenwire.worker.engine.interface import PauseMode
from tokenwire.worker.server import WorkerServer
from tokenwire.worker.simulated_engine.engine import SimulatedEngine
from tokenwire.worker.simulated_engine.settings import SimulationSettings

LONG = 20_000
INIT = control.WEIGHT_UPDATE_STAGE_INIT
UNKNOWN_MODE = cast("control.PauseMode", 99)  # a later version's


class RecordingEngine(SimulatedEngine):
    """Records calls whose arguments a simulation ignores."""

    def __init__(self) -> None:
        super().__init__(SimulationSettings(step_ms=1))
        self.calls: list[tuple[Any, ...]] = []

    async def pause(self, mode: PauseMode, clear_cache: bool) -> None:
        """Record the call, and pause."""
        self.calls.append(("pause", mode, clear_cache))
        await super().pause(mode, clear_cache)

    async def reset_cache(self, reset_running_requests: bool, reset_external: bool) -> bool:
        """Record the call; the cache is in use."""
        self.calls.append(("reset_cache", reset_running_requests, reset_external))
        return False

    async def update_weights(self, stage: str, arguments: dict[str, Any]) -> None:
        """Record the call."""
        self.calls.append(("update_weights", stage, arguments))

    async def collective_rpc(
        self, method: str, timeout_s: float | None, args: list[Any], kwargs: dict[str, Any]
    ) -> list[Any]:
        """Record the call; one of the two results is not JSON."""
        self.calls.append(("collective_rpc", method, timeout_s, args, kwargs))
        return [{"rank": 0}, 1j]


async def test_a_record_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """Before anything is done; one that can be read is announced."""
    record = pb.OperationRecord(operation=pb.Operation(model="simulated", epoch=5).SerializeToString())
    address = unix_address(tmp_path)
    async with running_worker(address), in_session(address) as peer:
        refused = control.PauseGenerationRequest(epoch=5, record=pb.OperationRecord(operation=b"\xff"))
        with pytest.raises(grpc.aio.AioRpcError, match="no operation that can be read"):
            await peer.control.PauseGeneration(refused)
        response = await peer.control.PauseGeneration(control.PauseGenerationRequest(epoch=5, record=record))

    assert list(response.serving.records) == [record]


async def test_no_path_outside_the_roots_reaches_the_engine(tmp_path: Path) -> None:
    """Neither as weights, as an adapter, as an argument of a call, nor with a request."""
    engine, root, outside = RecordingEngine(), tmp_path / "root", str(tmp_path)
    root.mkdir()
    address = unix_address(tmp_path)
    async with running_worker(address, engine, weights_roots=(root.resolve(),)), in_session(address) as peer:
        adapter = pb.LoraAdapter(name="red", id=7, path=outside)
        rpc = control.CollectiveRpcRequest(
            method="reload_weights",
            kwargs_json=json.dumps({"weights_path": outside, "is_checkpoint_format": True}),
        )
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: peer.control.LoadWeights(control.LoadWeightsRequest(path=outside)),
            lambda: peer.control.LoadLora(control.LoadLoraRequest(adapter=adapter)),
            lambda: peer.control.CollectiveRpc(rpc),
        ]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError, match="reads weights only from") as caught:
                await call()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

        adapted = submit_message(1, slots=[0])
        adapted.lora.CopyFrom(adapter)
        await peer.send(submit=adapted)
        await peer.read_until_ended(0)
        await peer.control.CollectiveRpc(control.CollectiveRpcRequest(method="profile"))

    assert "reads weights only from" in peer.refusals[0].message
    assert engine.calls == [("collective_rpc", "profile", None, [], {})]


@pytest.fixture
def engine() -> RecordingEngine:
    """The engine behind the worker."""
    return RecordingEngine()


@pytest.fixture
async def worker(tmp_path: Path, engine: RecordingEngine) -> AsyncIterator[WorkerServer]:
    """A worker."""
    async with running_worker(unix_address(tmp_path), engine) as server:
        yield server


@pytest.fixture
async def peer(worker: WorkerServer) -> AsyncIterator[Peer]:
    """A coordinator with a session at the worker."""
    async with in_session(worker.address) as peer:
        yield peer


async def failure(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """Return the status code and details of a failed call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_server_info_has_the_workers_counters(worker: WorkerServer, peer: Peer) -> None:
    """It has the instance id and the current numbers of sessions, open slots, steps and tokens."""
    await peer.send(submit=submit_message(10, slots=[0, 1]))
    await peer.read_until_ended(0, 1)
    await peer.send(submit=submit_message(LONG, slots=[2]))
    await until(lambda: worker.server_info().open_slots == 1)

    info = await peer.control.GetServerInfo(control.GetServerInfoRequest())

    assert info.welcome.instance_id == worker.welcome().instance_id
    assert (info.sessions, info.open_slots) == (1, 1)
    assert info.steps >= 10
    assert info.generated_tokens >= 20


async def test_tokenizer_files_have_the_digest_of_the_welcome(
    engine: RecordingEngine, worker: WorkerServer, peer: Peer
) -> None:
    """The engine's files are returned unchanged, with the digest that sessions receive."""
    answer = await peer.control.GetTokenizer(control.GetTokenizerRequest())

    assert dict(answer.files) == engine.tokenizer_files()
    assert "tokenizer.json" in answer.files
    assert answer.digest == tokenizer_digest(answer.files) == worker.welcome().model.tokenizer_digest


async def test_requests_are_aborted_by_id(worker: WorkerServer, peer: Peer) -> None:
    """Every slot of these requests ends, in any session; others continue, unknown ids are ignored."""
    async with in_session(worker.address) as other:
        await peer.send(submit=submit_message(LONG, "red", [0, 1]))
        await peer.send(submit=submit_message(100, "green", [2]))
        await other.send(submit=submit_message(LONG, "red", [0]))
        await until(lambda: worker.server_info().open_slots == 4)

        answer = await peer.control.Abort(control.AbortRequest(request_ids=["red", "unknown"]))
        await peer.read_until_ended(0, 1, 2)
        await other.read_until_ended(0)

    assert answer.aborted_slots == 3
    reasons = [peer.finishes[0].reason, peer.finishes[1].reason, other.finishes[0].reason]
    assert reasons == [pb.FINISH_REASON_ABORT] * 3
    assert peer.finishes[2].reason == pb.FINISH_REASON_LENGTH


@pytest.mark.parametrize(("deadline_ms", "announced_ms"), [(5_000, 5_000), (0, 30_000)])
async def test_a_drain_call_returns_immediately(
    worker: WorkerServer, peer: Peer, deadline_ms: int, announced_ms: int
) -> None:
    """It returns while sequences run; sessions receive the deadline, the configured one by default."""
    await peer.send(submit=submit_message(LONG, slots=[0]))
    await until(lambda: worker.server_info().open_slots == 1)

    await peer.control.Drain(control.DrainRequest(deadline_ms=deadline_ms))
    while not peer.draining:
        await peer.read()

    assert worker.welcome().draining
    assert worker.server_info().open_slots == 1
    assert peer.draining[0].deadline_ms == announced_ms
    await peer.send(abort=pb.Abort(slots=[0]))
    await peer.read_until_ended(0)


@pytest.mark.parametrize(
    ("mode", "taken"),
    [
        (control.PAUSE_MODE_UNSPECIFIED, PauseMode.ABORT),
        (control.PAUSE_MODE_ABORT, PauseMode.ABORT),
        (control.PAUSE_MODE_WAIT, PauseMode.WAIT),
        (control.PAUSE_MODE_KEEP, PauseMode.KEEP),
    ],
)
async def test_generation_is_paused_and_resumed(
    engine: RecordingEngine, peer: Peer, mode: "control.PauseMode", taken: PauseMode
) -> None:
    """The engine gets its own mode, the state can be read, and requests continue afterwards."""
    await peer.control.PauseGeneration(control.PauseGenerationRequest(mode=mode, clear_cache=True))
    assert engine.calls == [("pause", taken, True)]
    assert (await peer.control.IsPaused(control.IsPausedRequest())).paused

    await peer.send(submit=submit_message(3, slots=[0]))
    await peer.control.ResumeGeneration(control.ResumeGenerationRequest())
    await peer.read_until_ended(0)

    assert not (await peer.control.IsPaused(control.IsPausedRequest())).paused
    assert len(peer.tokens[0]) == 3


async def test_an_engine_sleeps_and_wakes_up(peer: Peer) -> None:
    """Sleep lasts until every tag is awake; an unknown tag is INVALID_ARGUMENT and the error lists the known ones."""
    await peer.control.Sleep(control.SleepRequest(level=1))
    code, details = await failure(peer.control.WakeUp(control.WakeUpRequest(tags=["toes"])))
    await peer.control.WakeUp(control.WakeUpRequest(tags=["weights"]))
    assert (await peer.control.IsSleeping(control.IsSleepingRequest())).sleeping

    await peer.control.WakeUp(control.WakeUpRequest(tags=["kv_cache"]))

    assert not (await peer.control.IsSleeping(control.IsSleepingRequest())).sleeping
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "kv_cache" in details


async def test_adapters_are_loaded_and_unloaded(peer: Peer) -> None:
    """Adapters are loaded, listed and unloaded by id; a missing one cannot be unloaded."""
    stub = peer.control
    for number in (3, 2):
        adapter = pb.LoraAdapter(name=f"a{number}", id=number, path="/a")
        assert (await stub.LoadLora(control.LoadLoraRequest(adapter=adapter))).loaded
    assert list((await stub.ListLoras(control.ListLorasRequest())).ids) == [2, 3]

    assert (await stub.UnloadLora(control.UnloadLoraRequest(id=2))).unloaded
    assert not (await stub.UnloadLora(control.UnloadLoraRequest(id=2))).unloaded

    assert list((await stub.ListLoras(control.ListLorasRequest())).ids) == [3]


async def test_a_weight_version_is_returned_and_announced(worker: WorkerServer, peer: Peer) -> None:
    """A new label is returned at once, and is in welcomes after the next step."""
    await peer.control.SetWeightVersion(control.SetWeightVersionRequest(weight_version="v7"))
    answer = await peer.control.GetWeightVersion(control.GetWeightVersionRequest())
    await peer.send(submit=submit_message(1, slots=[0]))
    await peer.read_until_ended(0)

    assert answer.weight_version == "v7"
    assert worker.welcome().weight_version == "v7"


async def test_arguments_reach_the_engine_unchanged(engine: RecordingEngine, peer: Peer) -> None:
    """JSON and flags are passed on; results are returned as JSON, or as their repr."""
    stub = peer.control
    reset = await stub.ResetCache(control.ResetCacheRequest(reset_external=True))
    stage = control.WEIGHT_UPDATE_STAGE_START_DRAFT
    await stub.UpdateWeights(control.UpdateWeightsRequest(stage=stage, arguments_json='{"a": [1]}'))
    await stub.UpdateWeights(control.UpdateWeightsRequest(stage=control.WEIGHT_UPDATE_STAGE_FINISH))
    request = control.CollectiveRpcRequest(method="m", args_json="[1]", kwargs_json='{"k": 2}', timeout_seconds=1.5)
    results = await stub.CollectiveRpc(request)
    await stub.CollectiveRpc(control.CollectiveRpcRequest(method="n"))

    assert engine.calls == [
        ("reset_cache", False, True),
        ("update_weights", "start_draft", {"a": [1]}),
        ("update_weights", "finish", {}),
        ("collective_rpc", "m", 1.5, [1], {"k": 2}),
        ("collective_rpc", "n", None, [], {}),
    ]
    assert not reset.success
    assert results.results_json == '[{"rank": 0}, "1j"]'


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda stub: stub.UpdateWeights(control.UpdateWeightsRequest()), "stage must be set"),
        (lambda stub: stub.UpdateWeights(control.UpdateWeightsRequest(stage=INIT, arguments_json="{")), "not JSON"),
        (lambda stub: stub.UpdateWeights(control.UpdateWeightsRequest(stage=INIT, arguments_json="[]")), "JSON object"),
        (lambda stub: stub.CollectiveRpc(control.CollectiveRpcRequest(args_json="{}")), "JSON array"),
        (lambda stub: stub.CollectiveRpc(control.CollectiveRpcRequest(kwargs_json="[]")), "JSON object"),
        (lambda stub: stub.PauseGeneration(control.PauseGenerationRequest(mode=UNKNOWN_MODE)), "unknown pause mode 99"),
        (lambda stub: stub.Sleep(control.SleepRequest(mode=UNKNOWN_MODE)), "unknown pause mode 99"),
    ],
)
async def test_invalid_arguments_are_reported(
    engine: RecordingEngine, peer: Peer, call: Callable[[Any], Awaitable[object]], message: str
) -> None:
    """They are INVALID_ARGUMENT with a reason, and do not reach the engine."""
    code, details = await failure(call(peer.control))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert message in details
    assert not engine.calls


async def test_an_unsupported_operation_is_unimplemented(tmp_path: Path) -> None:
    """It is UNIMPLEMENTED with the engine's own message; the worker continues."""
    async with running_worker(unix_address(tmp_path)) as worker, in_session(worker.address) as peer:
        code, details = await failure(peer.control.CollectiveRpc(control.CollectiveRpcRequest(method="profile")))

        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert "no method 'profile'" in details
        assert await peer.health() == "SERVING"


async def test_sessions_receive_the_state_after_control_calls(worker: WorkerServer, peer: Peer, tmp_path: Path) -> None:
    """Every session receives the state of the call's response, and so does the next welcome."""
    async with in_session(worker.address) as other:
        request = control.LoadWeightsRequest(path=str(tmp_path), weight_version="v3", epoch=3)
        answer = await peer.control.LoadWeights(request)
        for each in (peer, other):
            await each.read()

    assert answer.serving.weight_version == "v3"
    assert peer.serving == other.serving == [answer.serving]
    assert worker.welcome().serving == answer.serving


async def test_an_older_operation_is_aborted(peer: Peer) -> None:
    """A call whose epoch is older than the worker's is ABORTED."""
    await peer.control.PauseGeneration(control.PauseGenerationRequest(epoch=3))
    code, details = await failure(peer.control.ResumeGeneration(control.ResumeGenerationRequest(epoch=2)))

    assert code is grpc.StatusCode.ABORTED
    assert "operation 3" in details


async def test_a_state_that_cannot_be_adopted_is_a_failed_precondition(peer: Peer) -> None:
    """Transferred weights cannot be adopted."""
    target = pb.ServingState(epoch=2, weights_epoch=2, weight_version="v2")

    code, _ = await failure(peer.control.AdoptState(control.AdoptStateRequest(target=target)))
    target.weights_epoch = 0
    answer = await peer.control.AdoptState(control.AdoptStateRequest(target=target))

    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert (answer.serving.epoch, answer.serving.weight_version) == (2, "v2")
