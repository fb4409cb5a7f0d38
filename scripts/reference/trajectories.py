"""docs/reference/trajectories.md: the fields of a session's graph, of their schemas."""

from pydantic import BaseModel

from scripts.reference.markdown import page as joined
from scripts.reference.markdown import table
from tokenwire.coordinator.api.openapi.trajectory_schemas import SessionInfo, Trajectory, TrajectoryNode

_INTRODUCTION = """# Trajectories

*For those who write a trainer.* The graph of a session, as `GET /sessions/{id}/trajectory` returns it; [the
guide](../guides/trajectories.md) says how to use it. `make reference` generates the tables from the schemas."""


def page() -> str:
    """Return the page."""
    own = {name: field for name, field in Trajectory.model_fields.items() if name not in SessionInfo.model_fields}
    assert own.keys() == {"nodes", "has_more"}
    return joined(_INTRODUCTION, "## Session", _fields(Trajectory), "## Node", _fields(TrajectoryNode))


def _fields(model: type[BaseModel]) -> str:
    rows = [(f"`{name}`", field.description or _PLAIN[name]) for name, field in model.model_fields.items()]
    return table(("field", "contents"), rows)


_PLAIN = {
    "session_id": "The id of the session.",
    "metadata": "As its clients gave it.",
    "has_more": "Whether there are nodes after these.",
    "first_token": "When the first token came.",
    "ended": "When the reply ended, or its client left.",
}
"""Of fields whose names say enough in the document for programs."""
