"""Run a coordinator inside your own program, with a route of your own beside OpenAI's.

The worker is simulated, so that no model is needed; the address of any worker does.
"""

import asyncio
import subprocess
import sys
import tempfile

import httpx
import uvicorn
from openai import AsyncOpenAI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tokenwire.coordinator.app import build_app
from tokenwire.coordinator.settings import CoordinatorSettings


async def main(worker: str) -> None:
    """Serve until a question has been answered."""
    app = build_app(CoordinatorSettings(workers=(worker,)))

    async def hello(request: Request) -> Response:
        """Return a greeting; routes that are added are protected by the same keys and limits."""
        return JSONResponse("hello")

    app.add_route("/hello", hello)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    await app.state.pool.wait_ready()
    while not server.started:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    url = "http://{}:{}".format(*server.servers[0].sockets[0].getsockname())

    async with httpx.AsyncClient(base_url=url) as http, AsyncOpenAI(base_url=url + "/v1", api_key="none") as client:
        print("/hello:", (await http.get("/hello")).json())
        answer = await client.completions.create(model="simulated", prompt="Say something", max_tokens=8)
        print("/v1/completions:", answer.choices[0].text)

    server.should_exit = True
    await serving


with tempfile.TemporaryDirectory() as folder:
    address = f"unix:{folder}/worker"
    worker = subprocess.Popen(
        [sys.executable, "-m", "tokenwire", "worker", "--engine", "sim", "--log-level", "warning", "--listen", address]
    )
    try:
        asyncio.run(main(address))
    finally:
        worker.terminate()
        worker.wait()
