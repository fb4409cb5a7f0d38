"""GET /, its files and its data. The files hold no data: the page fetches it with its user's API key."""

import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from tokenwire.coordinator.api.router import ApiRouter
from tokenwire.coordinator.api.status_page.files import add_files
from tokenwire.coordinator.api.status_page.snapshot import Snapshot
from tokenwire.coordinator.api.status_page.traffic import FIRST_TOKEN_BOUNDS_S, PERIOD_S, TrafficSamples, steady_time
from tokenwire.coordinator.fleet.session_stats import TOKEN_GAP_BOUNDS_S
from tokenwire.coordinator.observability.siblings import Siblings
from tokenwire.errors import InvalidRequest

_FILES = {
    "/": ("index.html", "text/html"),
    "/page/style.css": ("style.css", "text/css"),
    "/page/charts.css": ("charts.css", "text/css"),
    "/page/uPlot.min.css": ("vendor/uplot/uPlot.min.css", "text/css"),
    "/page/uPlot.iife.min.js": ("vendor/uplot/uPlot.iife.min.js", "text/javascript"),
    **{
        f"/page/{name}.js": (f"{name}.js", "text/javascript")
        for name in (
            *("main", "theme", "locale", "elements", "server", "status", "fleet", "table", "traffic", "charts"),
            *("chat", "conversation", "pictures", "reply"),
        )
    },
}
PAGE_PATHS = frozenset(_FILES)
"""Paths that need no API key."""
_STATUS, _TRAFFIC = "status", "traffic"


def page_routes(snapshot: Snapshot, samples: TrafficSamples, siblings: Siblings) -> ApiRouter:
    """Return the routes of the status page. Its data are of all processes of the port."""
    router = ApiRouter()
    add_files(router, _FILES)
    process = json.dumps(snapshot.process)

    def traffic_since(period: str) -> bytes:
        return b'{"process":%b,"samples":%b}' % (process.encode(), samples.since(int(period)))

    siblings.provide(_STATUS, lambda _: snapshot.json())
    siblings.provide(_TRAFFIC, traffic_since)

    @router.get("/status.json")
    async def status(request: Request) -> Response:
        return _response("{", [snapshot.json(), *await siblings.fetch(_STATUS)])

    @router.get("/status/traffic.json")
    async def traffic(request: Request) -> Response:
        since = _number(request.query_params.get("since", "0"))
        about = {
            "period": int(steady_time() // PERIOD_S),
            "period_s": PERIOD_S,
            "first_token_bounds_s": FIRST_TOKEN_BOUNDS_S,
            "token_gap_bounds_s": TOKEN_GAP_BOUNDS_S,
        }
        own = traffic_since(str(since))
        return _response(json.dumps(about)[:-1] + ",", [own, *await siblings.fetch(_TRAFFIC, str(since))])

    return router


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest("`since` must be a whole number.", param="since") from None


def _response(beginning: str, processes: Sequence[bytes]) -> Response:
    """Add the JSON of each process to the beginning of an object."""
    content = beginning.encode() + b'"processes":[' + b",".join(processes) + b"]}"
    return Response(content, media_type="application/json", headers={"Cache-Control": "no-store"})
