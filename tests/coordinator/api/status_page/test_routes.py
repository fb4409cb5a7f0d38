"""The routes of the status page: contents, policy and access."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

from tests.coordinator.api.applications import client_of, with_api_key
from tests.workers import unix_address
from tokenwire.coordinator.api.openapi.routes import DOCUMENTATION_PATHS
from tokenwire.coordinator.api.status_page.routes import PAGE_PATHS
from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.observability.siblings import Siblings
from tokenwire.coordinator.settings import CoordinatorSettings

DATA = ("/status.json", "/status/traffic.json")
PAGE = Path(__file__).parents[4] / "coordinator" / "api" / "status_page"


async def test_it_has_the_data_of_every_process(tmp_path: Path) -> None:
    """Siblings get the same question; what a sibling responds is passed on as it is."""
    app = build_app(replace(CoordinatorSettings(("127.0.0.1:1",)), siblings_dir=tmp_path))
    sibling = Siblings(tmp_path)
    sibling.provide("status", lambda _: b'{"process": "other"}')
    sibling.provide("traffic", lambda since: json.dumps({"process": "other", "since": since}).encode())
    await sibling.start()
    (tmp_path / f"{os.getpid()}.sock").rename(tmp_path / "other.sock")
    try:
        async with client_of(app) as client:
            status = (await client.get("/status.json")).json()
            traffic = (await client.get("/status/traffic.json?since=9")).json()
    finally:
        await sibling.stop()

    assert status["processes"][0]["workers"][0]["worker"] == "127.0.0.1:1"
    assert status["processes"][1:] == [{"process": "other"}]
    assert traffic["processes"][0]["samples"] == []
    assert traffic["processes"][1:] == [{"process": "other", "since": "9"}]


async def test_its_files_follow_a_strict_policy() -> None:
    """Nothing inline, no other origin, no markup from texts; every file is served."""
    app = build_app(CoordinatorSettings(("127.0.0.1:1",)))
    served = set()
    async with client_of(app) as client:
        for path in PAGE_PATHS | DOCUMENTATION_PATHS - {"/openapi.json"}:
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert answer.status_code == 200
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
            text = answer.text.removeprefix("/*! https://github.com/leeoniya/uPlot (v1.6.32) */")
            assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacent|document\.write|style=", text)
            served.add({"/": "index.html", "/docs": "docs.html"}.get(path, path.rpartition("/")[2]))
    assert served == {path.name for path in PAGE.rglob("*") if path.suffix in (".html", ".css", ".js")}


async def test_the_page_needs_no_key_and_its_data_does(tmp_path: Path) -> None:
    """With API keys, the page itself has no data and needs none."""
    async with client_of(build_app(with_api_key(CoordinatorSettings((unix_address(tmp_path),)), tmp_path))) as client:
        for path in PAGE_PATHS:
            assert (await client.get(path)).status_code == 200
        for path in DATA:
            assert (await client.get(path)).status_code == 401
        answer = await client.get("/status.json", headers={"Authorization": "Bearer sesame"})

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


async def test_it_can_be_disabled() -> None:
    """Then neither the page nor its data is served."""
    async with client_of(build_app(CoordinatorSettings(("127.0.0.1:1",), status_page=False))) as client:
        for path in (*PAGE_PATHS, *DATA):
            assert (await client.get(path)).status_code == 404
