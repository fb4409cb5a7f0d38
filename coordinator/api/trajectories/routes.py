"""The routes of recorded sessions: rLLM's, and those of the graph, of exports and of rewards."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.api_request import caller_of, context_of
from tokenwire.coordinator.api.json_text import json_bytes
from tokenwire.coordinator.api.long_response import LongResponse
from tokenwire.coordinator.api.query_params import check_known, number_of, one_of, time_of
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.trajectories.bodies import NewSession, RewardBody
from tokenwire.coordinator.api.trajectories.export import FORMATS, encode
from tokenwire.coordinator.api.trajectories.session_paths import decoded, path_of
from tokenwire.coordinator.api.trajectories.sessions import (
    RecordedSessions,
    info_of,
    page_of_nodes,
    within_size,
)
from tokenwire.coordinator.api.trajectories.shapes import node_object, trace_object
from tokenwire.coordinator.http.backpressure import BodyMemory
from tokenwire.coordinator.trajectories.events import RewardGiven
from tokenwire.coordinator.trajectories.graph import SessionGraph
from tokenwire.coordinator.trajectories.recording import TrajectoryRecorder
from tokenwire.coordinator.trajectories.rows import rows_of
from tokenwire.coordinator.trajectories.store import MOST_LISTED
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
    router.include(_trace_routes(sessions))
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
        since, limit = _newest(request, MOST_LISTED)
        return LongResponse(await sessions.listed(caller_of(request), since, limit, _memory_of(request)))

    @router.get(_SESSION)
    async def show_session(request: Request) -> Response:
        session_id = _session_id(request)
        return _json(info_of(session_id, await sessions.summary(caller_of(request), session_id, _memory_of(request))))

    @router.delete(_SESSION)
    async def delete_session(request: Request) -> Response:
        session_id = _session_id(request)
        return _json({"deleted": await sessions.delete(caller_of(request), session_id, _memory_of(request))})

    @router.post(f"{_SESSION}/rewards", RewardBody, method="PUT")
    @router.post(f"{_SESSION}/rewards", RewardBody)
    @router.post(f"{_SESSION}/nodes/{{node_id}}/rewards", RewardBody, method="PUT")
    @router.post(f"{_SESSION}/nodes/{{node_id}}/rewards", RewardBody)
    async def put_reward(body: RewardBody, request: Request) -> Response:
        reward = RewardGiven(time.time(), body.name, body.value, request.path_params.get("node_id"))
        await sessions.reward(caller_of(request), _session_id(request), reward, _memory_of(request))
        return _json({"name": body.name, "value": body.value})

    @router.post("/admin/flush")
    async def flush(request: Request) -> Response:
        await sessions.flush()
        return JSONResponse({"status": "flushed"})

    return router


def _node_routes(sessions: RecordedSessions) -> ApiRouter:
    router = ApiRouter()

    @router.get(f"{_SESSION}/trajectory")
    async def show_trajectory(request: Request) -> Response:
        check_known(request.query_params, "limit", "after")
        limit, after = number_of(request.query_params, "limit"), request.query_params.get("after")

        def encoded(session_id: str, graph: SessionGraph) -> bytes:
            page = page_of_nodes(graph, after, limit)
            nodes = [*within_size((json_bytes(node_object(node)) for node in page), len, _PAGE)]
            more = bool(page) and page[-1].id != next(reversed(graph.nodes))
            head = json_bytes({**info_of(session_id, graph), "has_more": more, "nodes": []})
            return b"".join([head[:-2], b",".join(nodes), head[-2:]])

        return await _encoded(sessions, request, _session_id(request), encoded)

    return router


def _trace_routes(sessions: RecordedSessions) -> ApiRouter:
    router = ApiRouter()

    @router.get(f"{_SESSION}/traces")
    async def list_traces(request: Request) -> Response:
        since, limit = _newest(request)

        def encoded(session_id: str, graph: SessionGraph) -> bytes:
            nodes = [node for node in graph.nodes.values() if since is None or node.turn.ended >= since][:limit]
            traces = (json_bytes(trace_object(session_id, node)) for node in nodes)
            return b"[" + b",".join(within_size(traces, len, _SINCE)) + b"]"

        return await _encoded(sessions, request, _session_id(request), encoded)

    @router.get("/traces/{trace_id}")
    async def show_trace(request: Request) -> Response:
        trace_id = decoded(request.path_params["trace_id"])
        session_id, _, node_id = trace_id.rpartition(":")
        none = NotFound(f"There is no trace {trace_id[:200]!r}.", param="trace_id")
        if not session_id:
            raise none

        def encoded(session_id: str, graph: SessionGraph) -> bytes:
            if node_id not in graph.nodes:
                raise none
            return json_bytes(trace_object(session_id, graph.nodes[node_id]))

        return await _encoded(sessions, request, session_id, encoded)

    return router


def _export_routes(sessions: RecordedSessions) -> ApiRouter:
    router = ApiRouter()

    @router.get(f"{_SESSION}/export")
    async def export_session(request: Request) -> Response:
        query = request.query_params
        check_known(query, "format", "by", "limit", "offset")
        form, by = one_of(query, "format", tuple(FORMATS)), one_of(query, "by", ("path", "node"))
        limit, offset = number_of(query, "limit"), number_of(query, "offset", least=0) or 0

        def encoded(session_id: str, graph: SessionGraph) -> bytes:
            return encode(rows_of(session_id, graph, "node" if by == "node" else "path", offset, limit), form)

        return await _encoded(sessions, request, _session_id(request), encoded, FORMATS[form])

    return router


def _newest(request: Request, most: int | None = None) -> tuple[float | None, int | None]:
    """Return since when and how many of something are wanted. Raises InvalidRequest."""
    query = request.query_params
    check_known(query, "since", "limit")
    return time_of(query, "since"), number_of(query, "limit", most)


def _session_id(request: Request) -> str:
    return decoded(request.path_params["session_id"])


def _json(value: Any) -> Response:
    return Response(json_bytes(value), media_type="application/json")


async def _encoded(
    sessions: RecordedSessions,
    request: Request,
    session_id: str,
    encode: Callable[[str, SessionGraph], bytes],
    media_type: str = "application/json",
) -> Response:
    """Return what is made of a session."""
    made = await sessions.encoded(caller_of(request), session_id, _memory_of(request), partial(encode, session_id))
    return LongResponse([made], media_type)


def _memory_of(request: Request) -> BodyMemory:
    return context_of(request.scope).body
