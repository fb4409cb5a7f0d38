"""Admin operations: a control call to all workers of a model, with a result for each. Not atomic.

One class beyond the usual length, since each operation is a method over the same sessions.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenwire.coordinator.fleet import operations
from tokenwire.coordinator.fleet.announcement_limits import check_ordered_adapters, check_ordered_name
from tokenwire.coordinator.fleet.capabilities import remedy_for
from tokenwire.coordinator.fleet.control_client import ControlCall, adopt_state, call_worker
from tokenwire.coordinator.fleet.desired_state import DesiredStates
from tokenwire.coordinator.fleet.pool import WorkerPool
from tokenwire.coordinator.fleet.session import WorkerSession
from tokenwire.errors import (
    EngineFailed,
    FleetFailed,
    InvalidRequest,
    NotFound,
    TokenwireError,
    Unavailable,
    Unsupported,
)
from tokenwire.v1 import control_pb2 as pb
from tokenwire.v1 import control_pb2_grpc, inference_pb2

log = logging.getLogger(__name__)

Method = Callable[[control_pb2_grpc.ControlStub], Callable[..., Awaitable[Any]]]

_MODES = {"abort": pb.PAUSE_MODE_ABORT, "wait": pb.PAUSE_MODE_WAIT, "keep": pb.PAUSE_MODE_KEEP}
_STAGES = {
    "init": pb.WEIGHT_UPDATE_STAGE_INIT,
    "start": pb.WEIGHT_UPDATE_STAGE_START,
    "start_draft": pb.WEIGHT_UPDATE_STAGE_START_DRAFT,
    "update": pb.WEIGHT_UPDATE_STAGE_UPDATE,
    "finish": pb.WEIGHT_UPDATE_STAGE_FINISH,
    "shutdown": pb.WEIGHT_UPDATE_STAGE_SHUTDOWN,
}
_PROBE_S = 5.0
_MOST_RANKS = 4096
"""Of one worker's engine."""


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """The result of a call to one worker."""

    address: str
    response: Any = None
    """The response message; None with an error."""
    error: TokenwireError | None = None

    def as_dict(self) -> dict[str, str]:
        """Return it as JSON for clients."""
        if self.error is None:
            return {"worker": self.address, "status": "ok"}
        return {"worker": self.address, "status": "error", "message": self.error.message}


WorkerResults = Sequence[WorkerResult]


class FleetAdmin:
    """Operations on all workers of a model, by any of its names; no name: the only model.

    Every operation raises NotFound or InvalidRequest for the model, Unavailable when no worker of it is connected,
    FleetFailed when it failed on some workers, and the workers' own error when all of them reported the same kind.
    """

    def __init__(
        self,
        pool: WorkerPool,
        desired: DesiredStates,
        timeout_s: float,
        on_abort: Callable[[str], None] = lambda model: None,
    ) -> None:
        """`on_abort` is called with a model before its workers abort all running requests."""
        self._on_abort = on_abort
        self._pool = pool
        self._desired = desired
        self._timeout_s = timeout_s

    # Operations that change the desired state. A worker that misses one is reconciled later and gets no requests
    # until it is in sync.

    async def pause(self, model: str | None, mode: str, clear_cache: bool) -> WorkerResults:
        """Hold new requests; "abort" running ones, "wait" for them to finish or "keep" them frozen."""
        request = pb.PauseGenerationRequest(mode=_mode(mode), clear_cache=clear_cache)
        self._record_abort(model, mode)
        operation = operations.pause(self._before(model))
        return await self._operate(model, "pause", lambda stub: stub.PauseGeneration, request, operation)

    async def resume(self, model: str | None) -> WorkerResults:
        """Resume generation."""
        request = pb.ResumeGenerationRequest()
        return await self._operate(model, "resume", lambda stub: stub.ResumeGeneration, request, operations.resume())

    async def sleep(self, model: str | None, level: int, mode: str) -> WorkerResults:
        """Free memory: level 0 only pauses, 1 offloads weights, 2 drops them."""
        request = pb.SleepRequest(level=level, mode=_mode(mode))
        needs = ("sleep",) if level > 0 else ()
        self._able_sessions(model, needs)
        self._record_abort(model, mode)
        return await self._operate(model, "sleep", lambda stub: stub.Sleep, request, operations.sleep(level), needs)

    async def wake_up(self, model: str | None, tags: Sequence[str]) -> WorkerResults:
        """Undo `sleep`, completely or by tags; responses are WakeUpResponse."""
        request, operation = pb.WakeUpRequest(tags=tags), operations.wake_up(self._before(model), tags)
        return await self._operate(model, "wake_up", lambda stub: stub.WakeUp, request, operation)

    async def load_weights(self, model: str | None, path: str, version: str, reset_prefix_cache: bool) -> WorkerResults:
        """Load weights from a directory on each worker."""
        check_ordered_name(version, "weight_version")
        request = pb.LoadWeightsRequest(path=path, weight_version=version, reset_prefix_cache=reset_prefix_cache)
        request.epoch = self._desired.next_epoch(self.model(model))
        operation = operations.load_weights(request.epoch, path, version)
        return await self._operate(model, "load_weights", lambda stub: stub.LoadWeights, request, operation)

    async def transfer(self, model: str | None, stage: str, arguments: Mapping[str, Any]) -> WorkerResults:
        """Run a stage of a weight transfer: init, start, start_draft, update, finish or shutdown."""
        check_ordered_name(str(arguments.get("weight_version") or ""), "weight_version")
        needs = () if _is_by_parameter(arguments) else ("weight_transfer", f"weight_transfer.{stage}")
        base = arguments.get("init_info", {}).get("rank_offset") if stage == "init" else None
        if isinstance(base, int):
            return await self._init_transfer(model, dict(arguments), base, needs)
        request = pb.UpdateWeightsRequest(stage=_STAGES[stage], arguments_json=json.dumps(arguments))
        request.epoch = self._desired.next_epoch(self.model(model))
        operation = operations.transfer(request.epoch, stage, arguments)
        method: Method = lambda stub: stub.UpdateWeights  # noqa: E731
        return await self._operate(model, f"{stage} of a transfer", method, request, operation, needs)

    async def set_weight_version(self, model: str | None, version: str) -> WorkerResults:
        """Set the weight version."""
        check_ordered_name(version, "new_version")
        request = pb.SetWeightVersionRequest(weight_version=version)
        operation = inference_pb2.Operation(weight_version=version)
        return await self._operate(model, "set_weight_version", lambda stub: stub.SetWeightVersion, request, operation)

    async def load_lora(
        self, model: str | None, name: str, path: str, replace: bool = False, is_3d: bool = False
    ) -> WorkerResults:
        """Load an adapter. Raises InvalidRequest for a name in use, unless it is to be replaced."""
        check_ordered_name(name, "lora_name")
        base = self.model(model)
        if any(name in session.model.names for session in self._pool.sessions if session.model is not None):
            raise InvalidRequest(f"The lora adapter '{name}' conflicts with a served base model.", param="lora_name")
        known = self._desired.adapter(name)
        if known is not None and (not replace or known.model != base):
            raise InvalidRequest(
                f"The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set "
                "'load_inplace' to True.",
                param="lora_name",
            )
        epoch = self._desired.next_epoch(base)
        number = self._desired.new_adapter_id(epoch)
        adapter = inference_pb2.LoraAdapter(name=name, id=number, path=path, is_3d_lora_weight=is_3d)
        check_ordered_adapters(self._before(base), adapter)
        request = pb.LoadLoraRequest(adapter=adapter, epoch=epoch)
        operation = inference_pb2.Operation(load_adapter=adapter)
        return await self._operate(base, "load_lora", lambda stub: stub.LoadLora, request, operation)

    async def unload_lora(self, name: str) -> WorkerResults:
        """Unload an adapter. Raises NotFound."""
        adapter = self._desired.adapter(name)
        if adapter is None:
            raise NotFound(f"The lora adapter '{name}' cannot be found.", param="lora_name")
        request, operation = pb.UnloadLoraRequest(id=adapter.lora.id), inference_pb2.Operation(unload_adapter=name)
        return await self._operate(adapter.model, "unload_lora", lambda stub: stub.UnloadLora, request, operation)

    # Calls that do not change the desired state.

    async def reset_cache(self, model: str | None, reset_running_requests: bool, reset_external: bool) -> WorkerResults:
        """Clear prefix caches; responses are ResetCacheResponse."""
        request = pb.ResetCacheRequest(reset_running_requests=reset_running_requests, reset_external=reset_external)
        return await self._call_all(model, "reset_cache", lambda stub: stub.ResetCache, request)

    async def collective_rpc(
        self, model: str | None, method: str, args: Sequence[Any], kwargs: Mapping[str, Any], timeout_s: float | None
    ) -> list[Any]:
        """Call a method of every engine process; return all results in the order of the workers."""
        arguments = {"args_json": json.dumps(args), "kwargs_json": json.dumps(kwargs)}
        request = pb.CollectiveRpcRequest(method=method, timeout_seconds=timeout_s or 0, **arguments)
        results = await self._call_all(model, "collective_rpc", lambda stub: stub.CollectiveRpc, request)
        return [value for result in results for value in json.loads(result.response.results_json)]

    async def configurations(self, model: str | None) -> list[dict[str, Any]]:
        """Return every engine's configuration, in the order of the workers."""
        return list((await self._configurations(self.sessions(model))).values())

    async def probe(self, model: str | None) -> WorkerResults:
        """Check that all engines respond. Raises FleetFailed if one does not."""
        request = pb.GetWeightVersionRequest()
        return await self._call_all(model, "liveness", lambda stub: stub.GetWeightVersion, request, _PROBE_S)

    # Workers.

    def model(self, name: str | None) -> str:
        """Return the first name of a model. Raises Unavailable, NotFound or InvalidRequest."""
        models = {
            session.model_name: session.model.names for session in self._pool.sessions if session.model is not None
        }
        if not models:
            raise Unavailable("No worker has connected yet.", retry_after_s=2)
        if name is None:
            if len(models) > 1:
                raise InvalidRequest(f"Name one of several models in `model`: {', '.join(models)}.", param="model")
            return next(iter(models))
        found = next((first for first, names in models.items() if name in names), None)
        if found is None:
            raise NotFound(f"The model `{name}` does not exist. Valid: {', '.join(models)}.", param="model")
        return found

    def sessions(self, model: str | None) -> list[WorkerSession]:
        """Return the sessions of a model's workers and of workers without a welcome yet, but for those whose welcome is
        refused: they get no requests either. Raises Unavailable if none is connected."""
        name = self.model(model)
        sessions = [session for session in self._pool.sessions if session.model_name in ("", name)]
        if any(session.control is not None for session in sessions):
            return [session for session in sessions if not session.is_refused]
        reasons = "; ".join(f"{session.address}: {session.last_error}" for session in sessions)
        raise Unavailable(f"No worker of {name} is connected: {reasons}", retry_after_s=2)

    # Calls.

    async def _configurations(self, sessions: Sequence[WorkerSession]) -> dict[str, dict[str, Any]]:
        request = pb.GetServerInfoRequest()
        results = await self._call_each(sessions, "server_info", lambda stub: stub.GetServerInfo, request)
        return {result.address: json.loads(result.response.engine_config_json or "{}") for result in results}

    async def _init_transfer(
        self, model: str | None, arguments: dict[str, Any], offset: int, needs: Sequence[str]
    ) -> WorkerResults:
        """Initialize a transfer, giving each worker the ranks after those of the workers before it."""
        requests = {}
        name = self.model(model)
        epoch = self._desired.next_epoch(name)
        record = self._record(name, epoch, operations.transfer(epoch, "init", arguments))
        sessions = self._able_sessions(name, needs)
        configurations = await self._configurations(sessions)
        for session in sessions:
            info = {**arguments["init_info"], "rank_offset": offset}
            init = json.dumps({**arguments, "init_info": info})
            requests[session] = pb.UpdateWeightsRequest(
                stage=_STAGES["init"], arguments_json=init, epoch=epoch, record=record
            )
            offset += _world_size(session, configurations[session.address])

        def call(session: WorkerSession) -> ControlCall[Any]:
            return lambda stub: stub.UpdateWeights(requests[session], timeout=self._timeout_s)

        return await _fan_out(list(requests), "init of a transfer", call)

    def _able_sessions(self, model: str | None, needs: Sequence[str]) -> list[WorkerSession]:
        """Return the sessions that an operation is for which needs something of each engine.

        Workers that announce that they lack it are left out, as long as more have it: what the others carry out sets
        them aside. Raises Unsupported, before any has done anything, if not.
        """
        sessions = self._believed_sessions(model)
        if not needs:
            return sessions
        lacking = {
            session: next(name for name in needs if name in session.capabilities.unsupported_operations)
            for session in sessions
            if not set(needs).isdisjoint(session.capabilities.unsupported_operations)
        }
        if not lacking:
            return sessions
        able = [session for session in sessions if session not in lacking]
        if len(lacking) >= sum(session.control is not None for session in able):
            session, name = next(iter(lacking.items()))
            engine = session.model.engine if session.model is not None else "its engine"
            raise Unsupported(
                f"{session.address} ({engine}) does not support {name} as it is configured: nothing was done."
                + remedy_for(name)
            )
        for session, name in lacking.items():
            log.warning("worker %s takes no part in an operation: it does not support %s", session.address, name)
        return able

    def _record_abort(self, model: str | None, mode: str) -> None:
        if mode == "abort" and self.sessions(model):
            self._on_abort(self.model(model))

    async def _operate(
        self,
        model: str | None,
        stage: str,
        method: Method,
        request: Any,
        operation: inference_pb2.Operation,
        needs: Sequence[str] = (),
    ) -> WorkerResults:
        name = self.model(model)
        request.epoch = request.epoch or self._desired.next_epoch(name)
        request.record.CopyFrom(self._record(name, request.epoch, operation))
        sessions = self._able_sessions(name, needs)
        adoptions = asyncio.gather(*map(self._adopt, sessions))  # they begin first
        results, _ = await asyncio.gather(self._call_each(sessions, stage, method, request), adoptions)
        return results

    def _before(self, model: str | None) -> inference_pb2.ServingState:
        """Return what is desired before an operation."""
        return self._desired.get(self.model(model)) or inference_pb2.ServingState()

    def _record(self, model: str, epoch: int, operation: inference_pb2.Operation) -> inference_pb2.OperationRecord:
        operation.model, operation.epoch = model, epoch
        if operation.HasField("weight_version"):
            operation.earlier_versions.extend(self._desired.versions(model).passed_on())
        return self._desired.sign(operation)

    def _believed_sessions(self, model: str | None) -> list[WorkerSession]:
        """Return the sessions that operations are for: a worker that is set aside fails none. Raises Unavailable."""
        sessions = self.sessions(model)
        asides = {each: self._desired.set_aside(each.model_name, each.serving) for each in sessions if each.control}
        believed = [session for session in sessions if not asides.get(session)]
        if not any(session.control for session in believed):
            reasons = "; ".join(f"{session.address}: {reason}" for session, reason in asides.items())
            raise Unavailable(f"Every worker is set aside: {reasons}", retry_after_s=2)
        return believed

    async def _adopt(self, session: WorkerSession) -> None:
        """Let a worker that has drifted catch up first, so that all carry out an operation on the same state."""
        if self._desired.has_drifted(session.model_name, session.serving):
            target = self._desired.target(session.model_name, session.serving)
            with contextlib.suppress(TokenwireError):  # reconciled again later
                await call_worker(session, adopt_state(target, self._timeout_s))

    async def _call_all(
        self, model: str | None, stage: str, method: Method, request: Any, timeout_s: float | None = None
    ) -> WorkerResults:
        return await self._call_each(self.sessions(model), stage, method, request, timeout_s)

    async def _call_each(
        self,
        sessions: Sequence[WorkerSession],
        stage: str,
        method: Method,
        request: Any,
        timeout_s: float | None = None,
    ) -> WorkerResults:
        timeout_s = timeout_s or self._timeout_s

        def call(session: WorkerSession) -> ControlCall[Any]:
            return lambda stub: method(stub)(request, timeout=timeout_s)

        return await _fan_out(sessions, stage, call)


async def _fan_out(
    sessions: Sequence[WorkerSession], stage: str, call: Callable[[WorkerSession], ControlCall[Any]]
) -> WorkerResults:
    results = await asyncio.gather(*(_one(session, call(session)) for session in sessions))
    errors = [result.error for result in results if result.error is not None]
    if not errors:
        return results
    first = errors[0]
    alike = len(errors) == len(results) and all(type(error) is type(first) for error in errors)
    if alike and isinstance(first, InvalidRequest | Unsupported):
        raise first
    failed = "; ".join(f"{result.address}: {result.error.message}" for result in results if result.error is not None)
    message = f"{stage} failed on {len(errors)} of {len(results)} workers: {failed}"
    raise FleetFailed(message, [result.as_dict() for result in results], stage)


async def _one(session: WorkerSession, call: ControlCall[Any]) -> WorkerResult:
    try:
        response = await call_worker(session, call)
    except TokenwireError as error:
        return WorkerResult(session.address, error=error)
    if hasattr(response, "serving"):
        # The response may arrive before the session's own event.
        session.on_serving_state(response.serving)
    return WorkerResult(session.address, response)


def _world_size(session: WorkerSession, configuration: Mapping[str, Any]) -> int:
    """Return how many ranks a worker has. Raises EngineFailed if it does not say."""
    size = (configuration.get("parallel_config") or {}).get("world_size_across_dp")
    if not isinstance(size, int) or not 0 < size <= _MOST_RANKS:
        raise EngineFailed(f"{session.address} does not say how many processes its engine has: {str(size)[:100]!r}")
    return size


def _is_by_parameter(arguments: Mapping[str, Any]) -> bool:
    """Return whether a stage is of a transfer parameter by parameter, which needs no transfer engine."""
    info = arguments.get("init_info") or arguments.get("update_info") or {}
    return bool(arguments.get("communicator")) or "communicator" in info or "named_param" in info


def _mode(mode: str) -> "pb.PauseMode":
    if mode not in _MODES:
        raise InvalidRequest(f"mode must be one of {', '.join(_MODES)}, not {mode!r}.", param="mode")
    return _MODES[mode]
