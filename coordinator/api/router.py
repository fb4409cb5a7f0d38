"""Routes: paths, what each reads before its handler is called, and who may use it.

Starlette's routes, plus validated bodies, and without its layers. FastAPI has bodies too, but takes longer to import
than all of the coordinator and solves dependencies anew for each request.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, overload

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from tokenwire.coordinator.api.api_request import ApiRequest, Body, Guard, TransferRequest, responder
from tokenwire.coordinator.api.middleware import PathDispatch

Handler = Callable[[Request], Awaitable[Response]]
BodyHandler = Callable[[Body, Request], Awaitable[Response]]


class ApiRoute(Route):
    """A path with its handler, and all that comes before the handler."""

    def __init__(
        self,
        path: str,
        handler: Callable[..., Awaitable[Response]],
        methods: Sequence[str],
        *,
        body: type[BaseModel] | None = None,
        body_required: bool = True,
        guards: Sequence[Guard] = (),
        reads: type[ApiRequest] = ApiRequest,
        documented: bool = True,
    ) -> None:
        super().__init__(path, handler, methods=methods, include_in_schema=documented)
        self.methods: set[str] = set(methods)  # Starlette adds HEAD; as in vLLM it is not allowed
        self.app = responder(handler, reads, guards, body, body_required)
        self.body = body
        self.body_required = body_required
        self.guards = guards


class ApiApplication(Starlette):
    """Starlette with its middleware around the routes, and no layer but that: the middleware responds to errors."""

    def build_middleware_stack(self) -> ASGIApp:
        """Return what serves requests, when the first one has come and all routes are known."""
        app: ASGIApp = PathDispatch(self.router, self.routes)
        for layer, arguments, options in reversed(self.user_middleware):
            app = layer(app, *arguments, **options)
        return app


class ApiRouter:
    """Collects routes that have something in common.

    accepts_transfers: they have `kv_transfer_params` and `ec_transfer_params`, which `GenerationService` checks. All
    others reject these fields even where they are allowed: fields that make engines read each other's memory are
    never ignored.
    """

    def __init__(
        self, guards: Sequence[Guard] = (), *, accepts_transfers: bool = False, documented: bool = True
    ) -> None:
        self.routes: list[ApiRoute] = []
        self._guards = tuple(guards)
        self._reads = TransferRequest if accepts_transfers else ApiRequest
        self._documented = documented

    def get(self, path: str) -> Callable[[Handler], Handler]:
        """Add a GET route."""
        return lambda handler: self.add(path, handler, ["GET"])

    def delete(self, path: str) -> Callable[[Handler], Handler]:
        """Add a DELETE route."""
        return lambda handler: self.add(path, handler, ["DELETE"])

    @overload
    def post(self, path: str, *, guards: Sequence[Guard] = ...) -> Callable[[Handler], Handler]: ...

    @overload
    def post(
        self, path: str, body: type[Body], *, body_required: bool = ..., method: str = ...
    ) -> Callable[[BodyHandler[Body]], BodyHandler[Body]]: ...

    def post(
        self,
        path: str,
        body: type[BaseModel] | None = None,
        *,
        guards: Sequence[Guard] = (),
        body_required: bool = True,
        method: str = "POST",
    ) -> Callable[[Any], Any]:
        """Add a POST route; with a model its handler takes the body, and without body_required none is an empty one."""
        return lambda handler: self.add(path, handler, [method], body=body, body_required=body_required, guards=guards)

    def add(
        self,
        path: str,
        handler: Any,
        methods: Sequence[str],
        *,
        body: type[BaseModel] | None = None,
        body_required: bool = True,
        guards: Sequence[Guard] = (),
        documented: bool = True,
    ) -> Any:
        """Add a route; return its handler."""
        self.routes.append(
            ApiRoute(
                path,
                handler,
                methods,
                body=body,
                body_required=body_required,
                guards=(*self._guards, *guards),
                reads=self._reads,
                documented=documented and self._documented,
            )
        )
        return handler

    def include(self, router: "ApiRouter") -> None:
        """Add the routes of another router."""
        self.routes += router.routes
