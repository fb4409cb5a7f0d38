"""`python -m benchmarks.counts`: what a request and a token take of the coordinator, in counts that no machine changes.

Calls of Python functions and of built-in ones, blocks of memory that a request holds while it waits for its tokens,
and system calls: writes to clients, and messages to the worker. The server's own event loop is not counted, because
uvloop is not written in Python.
"""

import gc
import io
import math
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import click

from benchmarks.lockstep import ADDRESS, Lockstep, SteppedPooler, request_bytes, run_timeless, running
from benchmarks.streaming import STOP_STRINGS
from tokenwire.coordinator.parsing.batching import ParserBudget
from tokenwire.coordinator.parsing.settings import ParserSettings
from tokenwire.coordinator.settings import CoordinatorSettings
from tokenwire.coordinator.trajectories.settings import TrajectorySettings
from tokenwire.process.logs import configure_logging

BASELINE = Path(__file__).parent / "results" / "counts.tsv"
TOLERANCE = 0.03
"""How far a count may be from the baseline's."""
PYTHON = "3.11"
"""Counts are compared under this minor version: others call some functions more or less often."""
_WARM_UP, _REQUESTS = 5, 9
_STREAMS, _STEPS = 16, 50
_LOOP = tuple(f"asyncio/{name}.py" for name in ("base_events", "events", "selector_events", "runners"))
_NOT_COUNTED = ("/benchmarks/", "/selectors.py")
_CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hello, please."}], "max_tokens": 1}
_TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
REQUESTS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "chat, streamed": ("/v1/chat/completions", {**_CHAT, "stream": True}),
    "chat, whole": ("/v1/chat/completions", _CHAT),
    "completion of ids, whole": ("/v1/completions", {"prompt": list(range(65, 105)), "max_tokens": 1}),
    "GET /v1/models": ("/v1/models", None),
}
"""Requests for one token by what they are: a path, and a body unless it is a GET."""
NEW_CONNECTION = "chat, streamed, on a new connection"
TOKENS: dict[str, dict[str, Any]] = {
    "token": {},
    "token, top-5 log-probabilities": {"logprobs": True, "top_logprobs": 5},
    "token, 4 stop strings": {"stop": STOP_STRINGS},
}
"""Streamed chats by what is counted for each of their tokens."""
PARSED = "token, parsed for tools"
SESSION, RECORDED = "token of a session", "token of a recorded session"
RECORDED_CHAT = "chat of a recorded session, streamed"
_SESSION = {"session_id": "one"}

_INPUTS = 16
EMBEDDING = f"embeddings of {_INPUTS} texts"

Counts = dict[str, float]
"""Counts by what is counted."""


class Counter:
    """Counts calls, while `counting`."""

    def __init__(self) -> None:
        self.python = self.builtin = 0
        self._ours: dict[CodeType, bool] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Count a call: a profile function for sys.setprofile."""
        code = frame.f_code
        ours = self._ours.get(code)
        if ours is None:
            name = code.co_filename
            ours = self._ours[code] = not (name.endswith(_LOOP) or any(part in name for part in _NOT_COUNTED))
        if ours:
            self.python += event == "call"
            self.builtin += event == "c_call"

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count until the end."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)


async def count_all(parsed: bool) -> dict[str, Counts]:
    """Return all counts by case; `parsed`: those of vLLM's parser, whose import takes many seconds."""
    if parsed:
        parsers = ParserSettings(tool_call_parser="hermes", enable_auto_tool_choice=True)
        async with running(CoordinatorSettings((ADDRESS,), parsers=parsers)) as server:
            _parse_each_token(server)
            return {PARSED: await count_token(server, {"tools": [_TOOL]})}
    async with running(CoordinatorSettings((ADDRESS,), trajectories=TrajectorySettings(enabled=True))) as server:
        path, body = REQUESTS["chat, streamed"]
        recorded = {
            RECORDED_CHAT: await count_request(server, path, {**(body or {}), **_SESSION}),
            RECORDED: await count_token(server, _SESSION),
        }
    async with running(kind=SteppedPooler) as server:
        body = {"input": ["A text to embed."] * _INPUTS, "encoding_format": "base64"}
        recorded[EMBEDDING] = await count_request(server, "/v1/embeddings", body, sequences=_INPUTS)
    async with running() as server:
        counts = {name: await count_request(server, *request) for name, request in REQUESTS.items()}
        counts[NEW_CONNECTION] = await count_request(server, *REQUESTS["chat, streamed"], keeps_alive=False)
        counts[SESSION] = await count_token(server, _SESSION)
        counts |= {name: await count_token(server, fields) for name, fields in TOKENS.items()}
        return counts | recorded


def _parse_each_token(server: Lockstep) -> None:
    """Let no parser wait for its budget of CPU time."""
    from tokenwire.coordinator.parsing.vllm_parsers import VllmParsers

    for model in server.core.models.list():
        assert isinstance(model.parsers, VllmParsers)
        model.parsers.budget = ParserBudget(per_token_s=math.inf)


async def count_request(
    server: Lockstep, path: str, body: Mapping[str, Any] | None, keeps_alive: bool = True, sequences: int = 1
) -> Counts:
    """Return what a request of so many sequences takes, the first ones on a connection apart."""
    request = request_bytes(path, body)
    connection = server.connect()
    taken = []
    for _ in range(_WARM_UP + _REQUESTS):
        gc.collect()
        counter, writes, commands = Counter(), server.writes, server.worker.commands
        with counter.counting():
            if not keeps_alive:
                connection = server.connect()
            before = sys.getallocatedblocks()
            connection.data_received(request)
            if body is not None:
                await server.worker.wait_for(sequences)
        held = sys.getallocatedblocks() - before
        with counter.counting():
            await (server.settle() if body is None else server.step(ends=True))
            if not keeps_alive:
                connection.connection_lost(None)
                await server.settle()
        assert server.worker.is_idle
        assert connection.cycle.response_complete
        counts: Counts = {"Python calls": counter.python, "built-in calls": counter.builtin}
        if body is not None:
            counts |= {"blocks held": held, "messages to the worker": server.worker.commands - commands}
        counts["objects left in cycles"] = gc.collect()
        taken.append({**counts, "writes": server.writes - writes})
    return {name: statistics.median(each[name] for each in taken[_WARM_UP:]) for name in taken[0]}


async def count_token(server: Lockstep, fields: Mapping[str, Any]) -> Counts:
    """Return what a token of one of many streams takes."""
    request = request_bytes("/v1/chat/completions", {**_CHAT, "stream": True, "max_tokens": 1000, **fields})
    for _ in range(_STREAMS):
        server.connect().data_received(request)
    await server.worker.wait_for(_STREAMS)
    for _ in range(_WARM_UP):
        await server.step()
    counter, writes = Counter(), server.writes
    with counter.counting():
        for _ in range(_STEPS):
            await server.step()
    writes = server.writes - writes
    await server.step(ends=True)
    tokens = _STREAMS * _STEPS
    return {
        "Python calls": counter.python / tokens,
        "built-in calls": counter.builtin / tokens,
        "writes": writes / tokens,
    }


def counted(parsed: bool) -> dict[str, Counts]:
    """Return all counts, with a request log that nobody reads."""
    with redirect_stderr(io.StringIO()):
        configure_logging("coordinator")
    return run_timeless(count_all(parsed))


@dataclass(slots=True)
class Figure:
    """A count of the baseline, and why it is what it is."""

    count: float
    why: str


Baseline = dict[tuple[str, str], Figure]
"""Figures by case and by what is counted."""


def read_baseline(path: Path = BASELINE) -> Baseline:
    """Return the baseline: one figure a line, between tabs."""
    rows = (line.split("\t") for line in path.read_text().splitlines())
    return {(case, name): Figure(float(count), why) for case, name, count, why in rows}


def write_baseline(baseline: Baseline, path: Path = BASELINE) -> None:
    """Write the baseline."""
    rows = [(*key, f"{figure.count:.6g}", figure.why) for key, figure in baseline.items()]
    path.write_text("".join("\t".join(row) + "\n" for row in rows))


def differences(baseline: Baseline, counts: Mapping[str, Counts]) -> list[str]:
    """Return which counts are beyond the tolerance, or not in the baseline."""
    found = []
    for case, name, count in _flat(counts):
        known = baseline.get((case, name))
        if known is None:
            found.append(f"{case}: {count:.6g} {name}, of which the baseline has none")
        elif abs(count - known.count) > TOLERANCE * known.count:
            change = "grew: say why" if count > known.count else "shrank: keep it"
            found.append(f"{case}: {count:.6g} {name} instead of {known.count:.6g}, which {change}")
    return found


def _flat(counts: Mapping[str, Counts]) -> Iterator[tuple[str, str, float]]:
    return ((case, name, count) for case, each in counts.items() for name, count in each.items())


@click.command()
@click.option("--parsed", is_flag=True, help="Count parsed tokens, which needs vLLM.")
@click.option("--why", help="Write counts that have changed to the baseline, with this reason.")
def main(parsed: bool, why: str | None) -> None:
    """Count, and compare with the baseline."""
    counts = counted(parsed)
    for case, name, count in _flat(counts):
        click.echo(f"{case:40} {name:24} {count:10.6g}")
    baseline = read_baseline()
    if why is not None:
        for case, name, count in _flat(counts):
            figure = baseline.setdefault((case, name), Figure(-1.0, ""))
            if f"{figure.count:.6g}" != f"{count:.6g}":
                figure.count, figure.why = count, why
        write_baseline(baseline)
    if found := differences(baseline, counts):
        advice = "python -m benchmarks.counts --why REASON writes what was counted to the baseline"
        raise click.ClickException("\n".join([*found, advice]))


if __name__ == "__main__":
    main()
