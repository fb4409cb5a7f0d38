"""The routes of recorded sessions: rLLM's, and those of the graph, of exports and of rewards."""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import caller_of
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.query_params import number_of, one_of, time_of
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.trajectories.bodies import NewSession, RewardBody
from tokenwire.coordinator.api.trajectories.export import FORMATS, encode
from tokenwire.coordinator.api.trajectories.session_paths import path_of
from tokenwire.coordinator.api.trajectories.sessions import (
    MOST_LISTED,
    RecordedSessions,
    info_of,
    page_of_nodes,
    within_size,
)
from tokenwire.coordinator.api.trajectories.shapes import node_object, prompt_length, trace_object
from tokenwire.coordinator.trajectories.graph import SessionGraph
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.rows import rows_of
from tokenwire.errors import NotFound
from tokenwire.protocol.weight_limits import WeightLimits

_SESSIONS = "/sessions"
_SESSION = f"{_SESSIONS}/{{session_id}}"
_PAGE, _SINCE = "`limit` and `after`", "`limit` and `since`"


def unrecorded_routes() -> ApiRouter:
    """Return the routes of a server that records no sessions."""
    router = ApiRouter()

    async def find_session(request: Request) -> Response:
        raise NotFound("Sessions are not recorded here, see --enable-trajectories.")

    for path in (_SESSIONS, f"{_SESSIONS}/{{rest:path}}"):
        router.add(path, find_session, ["GET", "POST", "PUT", "DELETE"], documented=False)
    return router


def trajectory_routes(recorder: TrajectoryRecorder) -> ApiRouter:
    """Return the routes of sessions."""
    sessions = RecordedSessions(recorder)
    router = ApiRouter()
    router.include(_session_routes(sessions))
    router.include(_node_routes(sessions))
    router.include(_export_routes(sessions))
    return router


def _session_routes(sessions: RecordedSessions) -> ApiRouter:
    router = ApiRouter()

    @router.post(_SESSIONS, NewSession, body_required=False)
    async def create_session(body: NewSession, request: Request) -> Response:
        session_id = await sessions.create(caller_of(request), body.session_id, body.metadata)
        limits = WeightLimits(body.min_weight_version, body.max_weight_lag)
        return JSONResponse({"session_id": session_id, "url": path_of(session_id, limits)})

    @router.get(_SESSIONS)
    async def list_sessions(request: Request) -> Response:
        since, limit = time_of(request.query_params, "since"), number_of(request.query_params, "limit", MOST_LISTED)
        return _json(await sessions.listed(caller_of(request), since, limit))

    @router.get(_SESSION)
    async def show_session(request: Request) -> Response:
        return _json(info_of(*await _found(sessions, request)))

    @router.delete(_SESSION)
    async def delete_session(request: Request) -> Response:
        return _json({"deleted": await sessions.delete(caller_of(request), request.path_params["session_id"])})

    @router.post(f"{_SESSION}/rewards", RewardBody, method="PUT")
    @router.post(f"{_SESSION}/rewards", RewardBody)
    @router.post(f"{_SESSION}/nodes/{{node_id}}/rewards", RewardBody, method="PUT")
    @router.post(f"{_SESSION}/nodes/{{node_id}}/rewards", RewardBody)
    async def put_reward(body: RewardBody, request: Request) -> Response:
        given = request.path_params
        await sessions.reward(caller_of(request), given["session_id"], given.get("node_id"), body.name, body.value)
        return _json({"name": body.name, "value": body.value})

    @router.post("/admin/flush")
    async def flush(request: Request) -> Response:
        await sessions.flush()
        return JSONResponse({"status": "flushed"})

    return router


async def _found(sessions: RecordedSessions, request: Request) -> tuple[str, SessionGraph]:
    session_id = request.path_params["session_id"]
    return session_id, await sessions.find(caller_of(request), session_id)


def _node_routes(sessions: RecordedSessions) -> ApiRouter:
    router = ApiRouter()

    @router.get(f"{_SESSION}/trajectory")
    async def show_trajectory(request: Request) -> Response:
        limit, after = number_of(request.query_params, "limit"), request.query_params.get("after")
        session_id, graph = await _found(sessions, request)
        page = page_of_nodes(graph, after, limit)

        def encoded() -> bytes:
            nodes = [*within_size(page, lambda node: len(node.prompt_ids) + 2 * len(node.choice.token_ids), _PAGE)]
            more = bool(nodes) and nodes[-1].id != next(reversed(graph.nodes))
            shown = [node_object(node) for node in nodes]
            return json_bytes({**info_of(session_id, graph), "nodes": shown, "has_more": more})

        return await _encoded(encoded)

    @router.get(f"{_SESSION}/traces")
    async def list_traces(request: Request) -> Response:
        since, limit = time_of(request.query_params, "since"), number_of(request.query_params, "limit")
        session_id, graph = await _found(sessions, request)
        nodes = [node for node in graph.nodes.values() if since is None or node.turn.ended >= since][:limit]

        def encoded() -> bytes:
            page = within_size(nodes, lambda node: prompt_length(node) + 2 * len(node.choice.token_ids), _SINCE)
            return json_bytes([trace_object(session_id, node) for node in [*page]])

        return await _encoded(encoded)

    @router.get("/traces/{trace_id}")
    async def show_trace(request: Request) -> Response:
        session_id, _, node_id = request.path_params["trace_id"].rpartition(":")
        graph = await sessions.find(caller_of(request), session_id)
        if node_id not in graph.nodes:
            raise NotFound(f"There is no trace {request.path_params['trace_id'][:200]!r}.", param="trace_id")
        return _json(trace_object(session_id, graph.nodes[node_id]))

    return router


def _export_routes(sessions: RecordedSessions) -> ApiRouter:
    router = ApiRouter()

    @router.get(f"{_SESSION}/export")
    async def export_session(request: Request) -> Response:
        query = request.query_params
        form, by = one_of(query, "format", tuple(FORMATS)), one_of(query, "by", ("path", "node"))
        limit, offset = number_of(query, "limit"), number_of(query, "offset", least=0) or 0
        session_id, graph = await _found(sessions, request)
        rows = rows_of(session_id, graph, "node" if by == "node" else "path", offset, limit)
        page = within_size(rows, lambda row: len(row.prompt_ids) + 2 * len(row.completion_ids), "`limit` and `offset`")
        return await _encoded(lambda: encode([*page], form), FORMATS[form])

    return router


def _json(value: Any) -> Response:
    return Response(json_bytes(value), media_type="application/json")


async def _encoded(encode: Callable[[], bytes], media_type: str = "application/json") -> Response:
    """Return a response that takes long to encode, which others need not wait for."""
    return Response(await asyncio.to_thread(encode), media_type=media_type)
