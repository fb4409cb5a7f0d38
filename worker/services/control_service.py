"""The Control gRPC service: unary calls that inspect and administer one worker."""

import asyncio
import json
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError

from tokenwire.errors import InvalidRequest
from tokenwire.v1 import control_pb2 as pb
from tokenwire.v1 import control_pb2_grpc, inference_pb2
from tokenwire.worker.engine.interface import Engine, PauseMode
from tokenwire.worker.services.calls import answered
from tokenwire.worker.state.serving_state import ServingStateController

Json = TypeVar("Json", dict[str, Any], list[Any])
ControlContext = grpc.aio.ServicerContext[Any, Any]

_PAUSE_MODES = {
    pb.PAUSE_MODE_UNSPECIFIED: PauseMode.ABORT,
    pb.PAUSE_MODE_ABORT: PauseMode.ABORT,
    pb.PAUSE_MODE_WAIT: PauseMode.WAIT,
    pb.PAUSE_MODE_KEEP: PauseMode.KEEP,
}
_STAGES = {
    pb.WEIGHT_UPDATE_STAGE_INIT: "init",
    pb.WEIGHT_UPDATE_STAGE_START: "start",
    pb.WEIGHT_UPDATE_STAGE_START_DRAFT: "start_draft",
    pb.WEIGHT_UPDATE_STAGE_UPDATE: "update",
    pb.WEIGHT_UPDATE_STAGE_FINISH: "finish",
    pb.WEIGHT_UPDATE_STAGE_SHUTDOWN: "shutdown",
}


class ControlTarget(Protocol):
    """The server's side of control calls."""

    def welcome(self) -> inference_pb2.Welcome:
        """Describe the worker as it is now."""

    def server_info(self) -> pb.GetServerInfoResponse:
        """Return the welcome, the engine's configuration and counters."""

    async def metrics_text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""

    async def abort_requests(self, request_ids: set[str] | None) -> int:
        """Abort requests of any session, all for None; return the number of aborted slots."""

    async def drain(self, deadline_s: float | None) -> None:
        """Refuse new requests; return once no slot is open."""


class ControlService(control_pb2_grpc.ControlServicer):
    """Maps calls to the engine's methods, and errors to gRPC status codes."""

    def __init__(
        self,
        engine: Engine,
        controller: ServingStateController,
        worker: ControlTarget,
        files: dict[str, bytes],
        digest: str,
    ) -> None:
        self._engine = engine
        self._controller = controller
        self._worker = worker
        self._tokenizer = pb.GetTokenizerResponse(digest=digest, files=files)
        self._background: set[asyncio.Task[None]] = set()

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: ControlContext
    ) -> pb.GetServerInfoResponse:
        return self._worker.server_info()

    async def GetMetrics(self, request: pb.GetMetricsRequest, context: ControlContext) -> pb.GetMetricsResponse:
        return pb.GetMetricsResponse(text=(await self._worker.metrics_text()).decode())

    async def GetTokenizer(self, request: pb.GetTokenizerRequest, context: ControlContext) -> pb.GetTokenizerResponse:
        return self._tokenizer

    async def Abort(self, request: pb.AbortRequest, context: ControlContext) -> pb.AbortResponse:
        request_ids = None if request.all else set(request.request_ids)
        return pb.AbortResponse(aborted_slots=await self._worker.abort_requests(request_ids))

    async def Drain(self, request: pb.DrainRequest, context: ControlContext) -> pb.DrainResponse:
        task = asyncio.create_task(self._worker.drain(request.deadline_ms / 1000 or None))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return pb.DrainResponse()

    async def PauseGeneration(
        self, request: pb.PauseGenerationRequest, context: ControlContext
    ) -> pb.PauseGenerationResponse:
        controller, epoch = self._controller, request.epoch
        await answered(
            context,
            lambda: controller.pause(epoch, _pause_mode(request.mode), request.clear_cache, _records(request)),
        )
        return pb.PauseGenerationResponse(serving=controller.state)

    async def ResumeGeneration(
        self, request: pb.ResumeGenerationRequest, context: ControlContext
    ) -> pb.ResumeGenerationResponse:
        await answered(context, lambda: self._controller.resume(request.epoch, _records(request)))
        return pb.ResumeGenerationResponse(serving=self._controller.state)

    async def IsPaused(self, request: pb.IsPausedRequest, context: ControlContext) -> pb.IsPausedResponse:
        return pb.IsPausedResponse(paused=await answered(context, self._engine.is_paused))

    async def Sleep(self, request: pb.SleepRequest, context: ControlContext) -> pb.SleepResponse:
        controller, epoch = self._controller, request.epoch
        await answered(
            context, lambda: controller.sleep(epoch, request.level, _pause_mode(request.mode), _records(request))
        )
        return pb.SleepResponse(serving=controller.state)

    async def WakeUp(self, request: pb.WakeUpRequest, context: ControlContext) -> pb.WakeUpResponse:
        tags = list(request.tags)
        await answered(context, lambda: self._controller.wake_up(request.epoch, tags, _records(request)))
        return pb.WakeUpResponse(serving=self._controller.state)

    async def IsSleeping(self, request: pb.IsSleepingRequest, context: ControlContext) -> pb.IsSleepingResponse:
        return pb.IsSleepingResponse(sleeping=await answered(context, self._engine.is_sleeping))

    async def ResetCache(self, request: pb.ResetCacheRequest, context: ControlContext) -> pb.ResetCacheResponse:
        reset = await answered(
            context, lambda: self._engine.reset_cache(request.reset_running_requests, request.reset_external)
        )
        return pb.ResetCacheResponse(success=reset)

    async def LoadLora(self, request: pb.LoadLoraRequest, context: ControlContext) -> pb.LoadLoraResponse:
        load = self._controller.load_lora
        loaded = await answered(context, lambda: load(request.epoch, request.adapter, _records(request)))
        return pb.LoadLoraResponse(loaded=loaded, serving=self._controller.state)

    async def UnloadLora(self, request: pb.UnloadLoraRequest, context: ControlContext) -> pb.UnloadLoraResponse:
        unload = self._controller.unload_lora
        unloaded = await answered(context, lambda: unload(request.epoch, request.id, _records(request)))
        return pb.UnloadLoraResponse(unloaded=unloaded, serving=self._controller.state)

    async def ListLoras(self, request: pb.ListLorasRequest, context: ControlContext) -> pb.ListLorasResponse:
        return pb.ListLorasResponse(ids=await answered(context, self._engine.list_loras))

    async def LoadWeights(self, request: pb.LoadWeightsRequest, context: ControlContext) -> pb.LoadWeightsResponse:
        path, version, reset = request.path, request.weight_version, request.reset_prefix_cache
        load = self._controller.load_weights
        await answered(context, lambda: load(request.epoch, path, version, reset, _records(request)))
        return pb.LoadWeightsResponse(serving=self._controller.state)

    async def UpdateWeights(
        self, request: pb.UpdateWeightsRequest, context: ControlContext
    ) -> pb.UpdateWeightsResponse:
        async def update() -> None:
            if request.stage not in _STAGES:
                raise InvalidRequest("stage must be set", param="stage")
            arguments = _json(request.arguments_json, dict)
            stage, records = _STAGES[request.stage], _records(request)
            await self._controller.update_weights(request.epoch, stage, arguments, records)

        await answered(context, update)
        return pb.UpdateWeightsResponse(serving=self._controller.state)

    async def GetWeightVersion(
        self, request: pb.GetWeightVersionRequest, context: ControlContext
    ) -> pb.GetWeightVersionResponse:
        return pb.GetWeightVersionResponse(weight_version=await answered(context, self._engine.get_weight_version))

    async def SetWeightVersion(
        self, request: pb.SetWeightVersionRequest, context: ControlContext
    ) -> pb.SetWeightVersionResponse:
        label = self._controller.set_weight_version
        await answered(context, lambda: label(request.epoch, request.weight_version, _records(request)))
        return pb.SetWeightVersionResponse(serving=self._controller.state)

    async def AdoptState(self, request: pb.AdoptStateRequest, context: ControlContext) -> pb.AdoptStateResponse:
        await answered(context, lambda: self._controller.adopt(request.target))
        return pb.AdoptStateResponse(serving=self._controller.state)

    async def CollectiveRpc(
        self, request: pb.CollectiveRpcRequest, context: ControlContext
    ) -> pb.CollectiveRpcResponse:
        async def call() -> list[Any]:
            args, kwargs = _json(request.args_json, list), _json(request.kwargs_json, dict)
            return await self._controller.collective_rpc(request.method, request.timeout_seconds or None, args, kwargs)

        results = await answered(context, call)
        return pb.CollectiveRpcResponse(results_json=json.dumps(results, default=repr))


def _pause_mode(mode: "pb.PauseMode") -> PauseMode:
    if mode not in _PAUSE_MODES:
        raise InvalidRequest(f"unknown pause mode {mode}", param="mode")
    return _PAUSE_MODES[mode]


def _records(request: Any) -> list[inference_pb2.OperationRecord]:
    """Return the record of a request in a list; none, of a coordinator before minor version 6."""
    if not request.HasField("record"):
        return []
    try:
        inference_pb2.Operation.FromString(request.record.operation)
    except DecodeError as error:
        raise InvalidRequest("the record has no operation that can be read", param="record") from error
    return [request.record]


def _json(text: str, kind: type[Json]) -> Json:
    """Parse a JSON object (`dict`) or array (`list`); the empty string is an empty one."""
    try:
        value = json.loads(text) if text else kind()
    except ValueError as error:
        raise InvalidRequest(f"not JSON: {error}") from error
    if not isinstance(value, kind):
        raise InvalidRequest(f"not a JSON {'object' if kind is dict else 'array'}: {text}")
    return value
