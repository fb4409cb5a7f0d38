"""What a request costs the coordinator beside its tokens: streamed chats of one token, over connections kept alive.

`python -m benchmarks.per_request OTHER_TREE` compares with another checkout, in alternating rounds.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from benchmarks.load import http_request
from benchmarks.processes import Measured, simulated_pair

_CONNECTIONS = 32
_WARM_UP, _REQUESTS = 640, 4800
_BODY = {"messages": [{"role": "user", "content": "Say hello, please."}], "max_tokens": 1, "stream": True}
_END = b"0\r\n\r\n"


def measure() -> dict[str, Any]:
    """Return the CPU time of the coordinator's process per request, in µs."""
    with simulated_pair("--sim-step-ms", "5", "--sim-prefill-rate", "0") as (_, coordinator, url, _):
        return asyncio.run(_measure(coordinator, url))


async def _measure(coordinator: Measured, url: str) -> dict[str, Any]:
    await _send(url, _WARM_UP)
    before = coordinator.cpu_seconds()
    await _send(url, _REQUESTS)
    used = coordinator.cpu_seconds() - before
    return {"connections": _CONNECTIONS, "requests": _REQUESTS, "coordinator_us_per_request": 1e6 * used / _REQUESTS}


async def _send(url: str, requests: int) -> None:
    await asyncio.gather(*(_one_connection(url, requests // _CONNECTIONS) for _ in range(_CONNECTIONS)))


async def _one_connection(url: str, requests: int) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    request = http_request(url, "/v1/chat/completions", _BODY)
    for _ in range(requests):
        writer.write(request)
        reply = await reader.readuntil(_END)
        if not reply.startswith(b"HTTP/1.1 200 ") or b"data: [DONE]" not in reply:
            raise RuntimeError(reply.decode(errors="replace"))
    writer.close()


def _elsewhere(tree: Path) -> float:
    """Measure the coordinator of another checkout, with this checkout's measurement."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, str(Path(__file__).resolve()), "--here"]
    done = subprocess.run(command, env=environment, cwd=tree, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout)["coordinator_us_per_request"])


def compare(other: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Measure this tree and another one alternately."""
    here = Path(__file__).resolve().parents[1]
    for number in range(rounds):
        order = (here, other) if number % 2 else (other, here)
        figures = {tree: _elsewhere(tree) for tree in order}
        yield {"here_us": figures[here], "other_us": figures[other], "ratio": figures[here] / figures[other]}


@click.command()
@click.argument("other", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--rounds", default=5, show_default=True, help="Rounds, each with both trees.")
@click.option("--here", is_flag=True, help="Measure the tree on the path only, and print JSON.")
def main(other: Path | None, rounds: int, here: bool) -> None:
    """Print the cost of a request of one token, here and in another tree."""
    if here or other is None:
        click.echo(json.dumps(measure()))
        return
    ratios = []
    for row in compare(other.resolve(), rounds):
        ratios.append(row["ratio"])
        click.echo("{here_us:8.0f} µs here {other_us:8.0f} µs there, ratio {ratio:.3f}".format(**row))
    click.echo(f"median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
