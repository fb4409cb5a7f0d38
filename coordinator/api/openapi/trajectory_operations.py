"""Metadata of the routes of recorded sessions in the OpenAPI document, by path."""

from tokenwire.coordinator.api.openapi import trajectory_schemas as recorded
from tokenwire.coordinator.api.openapi.operation import Group, Operation
from tokenwire.coordinator.api.trajectories.export import FORMATS

_GROUP: Group = "Trajectories"
_REWARD = Operation(
    _GROUP,
    "Put a reward on a session or one of its nodes",
    recorded.RewardReply,
    description="It takes the place of an earlier one with its name.",
    finds=True,
)

TRAJECTORY_OPERATIONS = {
    "/sessions": Operation(
        _GROUP,
        "Create a session, or list those that were recorded",
        recorded.CreatedSession | list[recorded.SessionInfo],
        description="A session is also created by its first request. Limits on the age of weights are in the `url` "
        "that is returned, and hold for requests that come by it. Parameters of the list: `since`, `limit`.",
    ),
    "/sessions/{session_id}": Operation(
        _GROUP, "Show or delete a session", recorded.SessionInfo | recorded.DeletedSession, finds=True
    ),
    "/sessions/{session_id}/trajectory": Operation(
        _GROUP,
        "Return the graph of a session",
        recorded.Trajectory,
        description="Parameters: `limit`, and `after` with the id of the last node of the page before.",
        finds=True,
    ),
    "/sessions/{session_id}/traces": Operation(
        _GROUP,
        "Return the nodes of a session in rLLM's format",
        list[recorded.RllmTrace],
        description="Parameters: `limit`, and `since` with a time in seconds.",
        finds=True,
    ),
    "/sessions/{session_id}/export": Operation(
        _GROUP,
        "Export a session as rows for trainers",
        media_types=tuple(FORMATS.values()),
        description="Parameters: `format` (jsonl, arrow, parquet), `by` (path, node), `limit`, `offset`.",
        finds=True,
    ),
    "/sessions/{session_id}/rewards": _REWARD,
    "/sessions/{session_id}/nodes/{node_id}/rewards": _REWARD,
    "/traces/{trace_id}": Operation(_GROUP, "Return one node in rLLM's format", recorded.RllmTrace, finds=True),
    "/admin/workers": Operation(
        _GROUP,
        "List the workers in rLLM's format; registering one is a 400",
        list[recorded.GatewayWorker],
        description="A coordinator finds its workers itself.",
    ),
    "/admin/workers/{worker_id}": Operation(
        _GROUP, "Refuse to remove a worker, with a 400", description="A coordinator finds its workers itself."
    ),
    "/admin/flush": Operation(_GROUP, "Wait until everything is stored", recorded.Flushed),
}
