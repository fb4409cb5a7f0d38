"""Attacks by a worker: on the others of its model, by what it announces though nobody ordered it; on its clients."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from tests.adversary.hostile_worker import HEARTBEAT_S, HostileWorker
from tokenwire.peer_auth.operation_keys import OperationKeys
from tokenwire.v1 import inference_pb2 as pb

KEY = "the key of all of the coordinators"
PATH = "/hostile"
LAST_EPOCH = 2**64 - 1


@dataclass(frozen=True)
class Honest:
    """What an honest worker announces: now, and after each operation before."""

    state: pb.ServingState
    history: tuple[pb.ServingState, ...]


Lie = Callable[[Honest], pb.ServingState]


class LyingWorker(HostileWorker):
    """Announces a state, in its welcome and after it."""

    lie = pb.ServingState()

    def welcome(self) -> pb.Welcome:
        """Return a welcome with the lie."""
        welcome = super().welcome()
        welcome.serving.CopyFrom(self.lie)
        return welcome

    async def announcements(self) -> AsyncIterator[pb.SessionResponse]:
        """Yield the lie before anything else."""
        again = pb.ServingState()
        again.CopyFrom(self.lie)
        again.revision += 1
        yield pb.SessionResponse(serving=again)
        async for event in super().announcements():
            yield event


class StarvingWorker(HostileWorker):
    """Answers every second request, and never the others, while its engine makes steps by its own account."""

    async def announcements(self) -> AsyncIterator[pb.SessionResponse]:
        """Yield heartbeats of an engine that works."""
        for steps in itertools.count(1):
            load = pb.Load(running=1)
            yield pb.SessionResponse(heartbeat=pb.Heartbeat(load=load, steps=steps))
            await asyncio.sleep(HEARTBEAT_S)

    def answer(self, submit: pb.Submit) -> Iterator[pb.SessionResponse]:
        """Return a token and the end, or nothing."""
        if self.submits % 2:
            slots = submit.slots
            finishes = [pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP) for slot in slots]
            frame = pb.StepFrame(slots=slots, token_ids=[65] * len(slots), finishes=finishes, load=pb.Load(running=1))
            yield pb.SessionResponse(frame=frame)


class CaptorWorker(HostileWorker):
    """Takes requests, then says that it is paused, which nobody ordered, and never answers."""

    async def announcements(self) -> AsyncIterator[pb.SessionResponse]:
        """Yield heartbeats, and the pause once it has requests."""
        load, paused = pb.Load(running=1), False
        while True:
            if self.submits and not paused:
                paused = True
                state = pb.ServingState()
                state.CopyFrom(self.honest.serving)
                state.revision, state.paused = state.revision + 1, True
                yield pb.SessionResponse(serving=state)
            yield pb.SessionResponse(heartbeat=pb.Heartbeat(load=load))
            await asyncio.sleep(HEARTBEAT_S)


class OneTokenWorker(HostileWorker):
    """Serves text, with a model of its own."""

    def answer(self, submit: pb.Submit) -> Iterator[pb.SessionResponse]:
        """Return a token and the end."""
        slots = submit.slots
        finishes = [pb.Finish(slot=slot, reason=pb.FINISH_REASON_STOP) for slot in slots]
        yield pb.SessionResponse(frame=pb.StepFrame(slots=slots, token_ids=[65] * len(slots), finishes=finishes))


class NamelessWorker(OneTokenWorker):
    """Leaves out what its tokens depend on, so that nothing tells it from others."""

    def welcome(self) -> pb.Welcome:
        """Return a welcome without its identity."""
        welcome = super().welcome()
        for field in ("architecture", "tokenizer_digest", "weights_digest", "dtype", "quantization", "root"):
            welcome.model.ClearField(field)
        return welcome


class BlindWorker(OneTokenWorker):
    """Serves text, and never says what pictures are; it has nothing to do, so that it is asked first."""

    async def expand(self, request: pb.ExpandRequest) -> pb.ExpandResponse:
        """Answer nothing, ever."""
        await asyncio.Event().wait()
        return pb.ExpandResponse()


@dataclass(frozen=True)
class WorkerAttack:
    """One lie."""

    name: str
    lie: Lie
    reason: str
    """What the reason says why the worker gets no requests, from a coordinator with a key."""


def _of(honest: Honest, **fields: object) -> pb.ServingState:
    """Return an honest state with other fields."""
    state = pb.ServingState()
    state.CopyFrom(honest.state)
    state.MergeFrom(pb.ServingState(**fields))  # type: ignore[arg-type]
    return state


def _without_records(honest: Honest, **fields: object) -> pb.ServingState:
    state = _of(honest, **fields)
    del state.records[:]
    return state


def _with_record(honest: Honest, operation: pb.Operation, *signatures: bytes) -> pb.ServingState:
    record = pb.OperationRecord(operation=operation.SerializeToString(), signatures=signatures)
    return _of(honest, epoch=operation.epoch, paused=True, records=[record])


def _pause(honest: Honest, model: str = "simulated", later: int = 1 << 16) -> pb.Operation:
    return pb.Operation(model=model, epoch=honest.state.epoch + later, pause=pb.PauseState(paused=True))


def _of_another_model(honest: Honest) -> pb.ServingState:
    record = OperationKeys(KEY).sign(_pause(honest, "another").SerializeToString())
    return _of(honest, epoch=honest.state.epoch + (1 << 16), paused=True, records=[record])


def _truncated(honest: Honest) -> pb.ServingState:
    state = _of(honest)
    for record in state.records:
        record.operation = record.operation[:-1]
    return state


_SIGNATURE = "no key of ours signed"
_RED = pb.LoraAdapter(name="red", id=7, path=PATH)
WORKER_ATTACKS = (
    WorkerAttack("a pause", lambda honest: _of(honest, paused=True), "paused"),
    WorkerAttack(
        "a newer pause without a record",
        lambda honest: _without_records(honest, epoch=honest.state.epoch + (5 << 16), paused=True),
        "no record",
    ),
    WorkerAttack(
        "a newer pause with a made-up record", lambda honest: _with_record(honest, _pause(honest), b"x"), _SIGNATURE
    ),
    WorkerAttack(
        "weights",
        lambda honest: _of(honest, weights_epoch=honest.state.epoch, weights_path=PATH, weight_version="theirs"),
        "the weights theirs",
    ),
    WorkerAttack(
        "newer weights without a record",
        lambda honest: _without_records(
            honest, epoch=honest.state.epoch + (5 << 16), weights_epoch=5, weights_path=PATH, weight_version="theirs"
        ),
        "no record",
    ),
    WorkerAttack("the last epoch", lambda honest: _of(honest, epoch=LAST_EPOCH), "day ahead"),
    WorkerAttack(
        "the last epoch with a made-up record",
        lambda honest: _with_record(honest, _pause(honest, later=LAST_EPOCH - honest.state.epoch), b"x"),
        _SIGNATURE,
    ),
    WorkerAttack("an operation on another model", _of_another_model, "another model"),
    WorkerAttack("truncated records", _truncated, _SIGNATURE),
    WorkerAttack("an old state", lambda honest: honest.history[0], ""),
    WorkerAttack("an adapter", lambda honest: _of(honest, adapters=[_RED]), ""),
)
"""Add those of other kinds with a HostileWorker of their own."""
