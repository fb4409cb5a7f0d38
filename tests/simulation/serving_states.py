"""What workers say about their serving state."""

from tests.simulation.world import Node
from tokenwire.v1 import inference_pb2 as pb


class PublishedStates:
    """The serving states that workers have published: their epochs only rise, and an operation leaves its own."""

    def __init__(self) -> None:
        self._newest: dict[Node, pb.ServingState] = {}

    def problem(self, process: Node, request: object, response: object) -> str:
        """Return what is wrong with the state in a message of a worker's process; empty if nothing."""
        state = _state_in(response)
        if state is None:
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
