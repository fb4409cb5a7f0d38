"""CPU of the coordinator for a request apart from its tokens: streamed chats of one token, over connections kept alive.

`python -m benchmarks.per_request OTHER_TREE` compares with another checkout, in alternating rounds.
"""

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from benchmarks.load import http_request
from benchmarks.processes import Measured, measured, simulated_pair

_CONNECTIONS = 32
_REQUESTS = 4800
_BODY = {"messages": [{"role": "user", "content": "Say hello, please."}], "max_tokens": 1, "stream": True}
_END = b"0\r\n\r\n"


def run(streams: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Measure the coordinator, and a bare uvicorn, with these numbers of concurrent requests."""
    for count in streams:
        for case, cost in (("coordinator", measure(count)), ("bare uvicorn", _floor(count))):
            yield {"case": case, "streams": count, "us_per_request": cost}


def measure(connections: int = _CONNECTIONS) -> float:
    """Return the CPU time of the coordinator's process per request, in µs."""
    options = ("--sim-step-ms", "5", "--sim-prefill-rate", "0", "--sim-max-num-seqs", str(connections))
    with simulated_pair(*options) as (_, coordinator, url, _):
        return asyncio.run(_measure(coordinator, url, connections))


def _floor(connections: int) -> float:
    """Return that of a server that responds with constants; see benchmarks.floor."""
    with measured(["uvicorn", "5"], module="benchmarks.floor") as server:
        url = server.wait_for(r"ready: (http://\S+)")[1]
        return asyncio.run(_measure(server, url, connections))


async def _measure(server: Measured, url: str, connections: int) -> float:
    each = max(4, min(_REQUESTS, 300 * connections) // connections)
    await _send(url, connections, max(1, each // 8))
    before = server.cpu_seconds()
    await _send(url, connections, each)
    return 1e6 * (server.cpu_seconds() - before) / (each * connections)


async def _send(url: str, connections: int, requests: int) -> None:
    await asyncio.gather(*(_one_connection(url, requests) for _ in range(connections)))


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
    return float(done.stdout)


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
@click.option("--here", is_flag=True, help="Measure only the tree on the path.")
def main(other: Path | None, rounds: int, here: bool) -> None:
    """Print the cost of a request of one token, here and in another tree."""
    if here or other is None:
        click.echo(measure())
        return
    ratios = []
    for row in compare(other.resolve(), rounds):
        ratios.append(row["ratio"])
        click.echo("{here_us:8.0f} µs here {other_us:8.0f} µs there, ratio {ratio:.3f}".format(**row))
    click.echo(f"median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
