"""Routes that abort requests by id on any coordinator: vLLM's two and SGLang's /abort_request."""

from typing import Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.api.admin.authorization import AdminAuthorization
from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.errors import Forbidden, InvalidRequest


class Aborts(Protocol):
    """Aborts requests on all workers; see tokenwire.coordinator.fleet.aborts."""

    async def by_id(self, request_ids: list[str]) -> int:
        """Abort requests; return the number of sequences that ended. Raises Unavailable."""

    async def everything(self) -> int:
        """Abort all requests; return the number of sequences that ended. Raises Unavailable."""


class AbortRequests(RequestModel):
    """Requests, by the ids in their responses."""

    request_ids: list[str] | None = None


class SglangAbort(RequestModel):
    """One request, or all."""

    rid: str = ""
    abort_all: bool = False


def abort_routes(aborts: Aborts, api: ApiSettings, authorization: AdminAuthorization) -> ApiRouter:
    """Return the routes. An aborted request returns its output so far, with the finish_reason "abort"."""
    router = ApiRouter()

    @router.post("/inference/v1/abort_requests", AbortRequests)
    async def abort(body: AbortRequests, request: Request) -> Response:
        if body.request_ids is None:
            raise InvalidRequest("Missing 'request_ids' in request body", param="request_ids")
        await aborts.by_id(body.request_ids)
        return Response()

    @router.post("/abort_requests", AbortRequests, body_required=False)
    async def abort_some_or_all(body: AbortRequests, request: Request) -> Response:
        request_ids = body.request_ids if body else None
        if request_ids:
            return _aborted(await aborts.by_id(request_ids))
        return _aborted(await abort_everything(request, "Aborting without `request_ids`"))

    @router.post("/abort_request", SglangAbort)
    async def abort_one_or_all(body: SglangAbort, request: Request) -> Response:
        if body.abort_all:
            await abort_everything(request, "`abort_all`")
        elif body.rid:
            await aborts.by_id([body.rid])
        else:
            raise InvalidRequest("Either `rid` or `abort_all` must be provided.", param="rid")
        return Response()

    async def abort_everything(request: Request, what: str) -> int:
        if not api.abort_all:
            raise Forbidden(f"{what} aborts the requests of all clients, which is not enabled here.")
        await authorization(request)
        return await aborts.everything()

    return router


def _aborted(sequences: int) -> Response:
    return JSONResponse({"status": "aborted", "aborted": sequences})
