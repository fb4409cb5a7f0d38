"""What workers say about their serving state: those that tell the truth, and those that say what they like."""

import random

from tests.simulation.world import Node
from tokenwire.v1 import inference_pb2 as pb

_LAST_EPOCH = 2**64 - 1
_PATH = "/hostile"


class OrderedRecords:
    """The records of all operations that coordinators have ordered."""

    def __init__(self) -> None:
        self._operations: dict[bytes, None] = {}
        self._stored: dict[bytes, pb.OperationRecord] = {}
        """Those that a worker has repeated, so that it carried them out."""

    def on_control_call(self, request: object) -> None:
        """Take an operation as it leaves a coordinator."""
        record = getattr(request, "record", None)
        if record is not None:
            self._operations[record.operation] = None

    def on_serving_state(self, state: pb.ServingState) -> None:
        """Take a state that a worker has announced."""
        for record in state.records:
            self._stored.setdefault(record.operation, record)

    def includes(self, record: pb.OperationRecord) -> bool:
        """Return whether a coordinator has ordered an operation."""
        return record.operation in self._operations

    def lie(self, model: str, state: pb.ServingState, draw: float) -> pb.ServingState:
        """Return what a hostile worker announces in place of its state: nobody ordered it, or not any more."""
        chance = random.Random(draw)
        lie = pb.ServingState()
        lie.CopyFrom(state)
        lie.revision += 1
        epoch = chance.choice([min(lie.epoch + 1, _LAST_EPOCH), _LAST_EPOCH])
        match chance.choice(["state", "record", "replay", "truncated"]):
            case "state":
                lie.epoch, lie.paused, lie.weights_epoch, lie.weights_path = epoch, True, epoch, _PATH
                del lie.records[:]
            case "record":
                operation = pb.Operation(model=model, epoch=epoch, pause=pb.PauseState(paused=True))
                operation.weights.CopyFrom(pb.Weights(epoch=epoch, path=_PATH))
                lie.records.add(operation=operation.SerializeToString(), signatures=[b"made up"])
            case "replay":
                del lie.records[:]
                lie.records.extend(list(self._stored.values())[:1])
            case "truncated":
                for record in lie.records:
                    record.operation = record.operation[:-1]
        return lie


class PublishedStates:
    """The serving states that workers have published: their epochs only rise, and an operation leaves its own."""

    def __init__(self) -> None:
        self._newest: dict[Node, pb.ServingState] = {}

    def problem(self, process: Node, request: object, response: object) -> str:
        """Return what is wrong with the state in a message of a worker's process; empty if nothing."""
        state = _state_in(response)
        if state is None or process.lies:
            return ""
        ordered = getattr(request, "epoch", 0)
        if state.epoch < ordered:
            return f"{process.name} has confirmed operation {ordered}, and is at {state.epoch}"
        newest = self._newest.get(process, state)
        older, newer = (state, newest) if state.revision < newest.revision else (newest, state)
        self._newest[process] = newer
        return (
            f"{process.name} went back from epoch {older.epoch} to {newer.epoch}" if newer.epoch < older.epoch else ""
        )


def _state_in(message: object) -> pb.ServingState | None:
    if isinstance(message, pb.SessionResponse):
        kind = message.WhichOneof("event")
        return message.serving if kind == "serving" else message.welcome.serving if kind == "welcome" else None
    state = getattr(message, "serving", None)
    return state if isinstance(state, pb.ServingState) and state.revision else None
