"""Every field of every route gets edge-case values of its type, and no response is an internal error."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

import httpx
import pytest

from tests.awkward import AwkwardRequest, awkward_requests
from tests.processes import Service, simulated_service
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.auth.admin_key import AdminKey
from tokenwire.coordinator.auth.settings import AdminSettings
from tokenwire.coordinator.output.settings import ApiSettings
from tokenwire.coordinator.settings import CoordinatorSettings

ADMIN = AdminSettings(rl_routes=True, admin_key=AdminKey("open"))
CASES = awkward_requests(
    build_app(CoordinatorSettings(("127.0.0.1:1",), api=ApiSettings(render_route=True), admin=ADMIN)), "sim"
)
HEADERS = {"content-type": "application/json", "authorization": "Bearer open"}
AT_A_TIME = 8
BROKEN = ('"code": 500', '"code":500', '"code":503', '"api_error"')
"""What errors of ours look like inside a stream."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A coordinator with all routes, in front of a worker with a short context."""
    folder = tmp_path_factory.mktemp("awkward")
    (key := folder / "admin").write_text("open")
    options = ("--sim-step-ms", "0", "--sim-max-model-len", "32", "--served-model-name", "sim")
    ours = ("--enable-rl", "--enable-render-route", "--admin-key-file", str(key), "--queue-timeout", "2")
    with simulated_service(folder, *options, coordinator_options=ours) as started:
        yield started


async def _problem_of(client: httpx.AsyncClient, case: AwkwardRequest) -> str | None:
    """Send a case; return what is wrong with the response."""
    response = await client.request(case.method, case.path, content=case.body, headers=HEADERS)
    # A version of weights that does not exist yet is waited for.
    bad = (500,) if case.field == "min_weight_version" else (500, 503)
    fine = response.status_code not in bad and not any(sign in response.text for sign in BROKEN)
    return None if fine else f"{case.body[-200:]}: {response.status_code} {response.text[-300:]}"


async def _send_all(url: str, sent: Sequence[AwkwardRequest]) -> list[str]:
    gate = asyncio.Semaphore(AT_A_TIME)

    async def send(case: AwkwardRequest) -> str | None:
        async with gate:
            return await _problem_of(client, case)

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return [problem for problem in await asyncio.gather(*map(send, sent)) if problem is not None]


def _check(service: Service, path: str, sent: Sequence[AwkwardRequest]) -> None:
    problems = asyncio.run(_send_all(service.url, sent))

    assert not problems, f"{len(problems)} of {len(sent)}: " + "\n".join(problems[:10])
    for restore in ("/resume", "/wake_up"):
        httpx.post(service.url + restore, headers=HEADERS, json={})
    assert httpx.post(f"{service.url}/v1/completions", json={"prompt": "Hi", "max_tokens": 2}).status_code == 200
    service.wait_slots(0)
    for process in (service.coordinator, *service.workers):
        assert "Traceback" not in process.log, process.log[-3000:]


@pytest.mark.parametrize("path", CASES)
def test_some_values_of_all_fields_cause_no_internal_error(service: Service, path: str) -> None:
    """Never a 500, a 503 or a hang, streamed or not; and the next request is served."""
    _check(service, path, _streamed_by_turns(CASES[path])[::13])


@pytest.mark.long
@pytest.mark.parametrize("path", CASES)
def test_no_value_of_any_field_causes_an_internal_error(service: Service, path: str) -> None:
    """The same with all values."""
    _check(service, path, _streamed_by_turns(CASES[path]))


def _streamed_by_turns(sent: Sequence[AwkwardRequest]) -> list[AwkwardRequest]:
    """Stream every other case, if the route has streams."""
    return [
        replace(case, body=f'{{"stream": true, {case.body[1:]}') if i % 2 and case.field != "stream" else case
        for i, case in enumerate(sent)
    ]
