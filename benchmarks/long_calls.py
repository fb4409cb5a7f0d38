"""Whom long tool calls hold up: the silences of a stream beside them, and the coordinator's part in those."""

import asyncio
import json
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Tokenizer

from benchmarks.load import http_request, stream
from benchmarks.processes import Measured, core_awaited_seconds_of, measured
from tests.adversary.background_client import BackgroundClient
from tests.coordinator.parsing.markups import TOOLS
from tests.processes import wait_models
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

_TOKENS = 30_000
_ROUNDS = 2
_STEP_MS = 1.0
_BESIDE_MS = 5.0
_TEXTS = {"mistral": "All work and no play makes Jack a dull boy. ", "qwen3_coder": "a < b ", "hermes": "a < b "}
"""What each parser's model writes: prose, and code in which many tokens may begin markup."""
_TEMPLATE = Path(__file__).parent.parent / "scripts" / "smollm2-tools.jinja"
_MODELS = ("writes", "beside")


@dataclass(frozen=True, slots=True)
class SilenceRow:
    """One parser: the worst of its replies."""

    parser: str
    streamed: bool
    characters: int
    silence_ms: float
    """The longest of the stream beside it, which has a token each 5 ms."""
    held_up_ms: float
    """The longest that the coordinator computed in, without the time that its event loop had no core."""


class _Sample(NamedTuple):
    when: float
    cpu_s: float
    awaited_s: float
    """How long the event loop had no core until then."""


_when = attrgetter("when")


def run() -> Iterator[dict[str, Any]]:
    """Measure each parser, streamed and not."""
    for name in _TEXTS:
        with tempfile.TemporaryDirectory(prefix="tokenwire-bench-") as folder:
            yield from (asdict(row) for row in _measure(name, Path(folder)))


def _measure(name: str, folder: Path) -> Iterator[SilenceRow]:
    tokenizer = _write_model(folder / "model", name)
    each = len(tokenizer.encode(_TEXTS[name] * 100, add_special_tokens=False).ids) / 100
    call = TOOLS[name].writes([("write", {"text": _TEXTS[name] * round(_TOKENS / each)})])
    script = [*tokenizer.encode(call, add_special_tokens=False).ids, tokenizer.token_to_id("<|im_end|>")]
    (folder / "script.json").write_text(json.dumps(script))
    with ExitStack() as stack:
        writes = ("--sim-step-ms", str(_STEP_MS), "--sim-script", str(folder / "script.json"))
        beside = ("--sim-step-ms", str(_BESIDE_MS))
        sockets = [_worker(stack, folder, *each) for each in zip(_MODELS, (writes, beside), strict=True)]
        named = [part for address in sockets for part in ("--worker", address)]
        parsers = ("--tool-call-parser", name, "--enable-auto-tool-choice", "--chat-template", str(_TEMPLATE))
        coordinator = stack.enter_context(measured(["coordinator", "--port", "0", *named, *parsers]))
        url = coordinator.wait_for(r"is ready: (http://\S+)")[1]
        wait_models(url, _MODELS)
        for streamed in (True, False):
            silences = [asyncio.run(_silence(url, coordinator, streamed)) for _ in range(_ROUNDS)]
            silence, held_up = map(max, zip(*silences, strict=True))
            yield SilenceRow(name, streamed, len(call), 1000 * silence, 1000 * held_up)


def _worker(stack: ExitStack, folder: Path, model: str, options: Sequence[str]) -> str:
    address = f"unix:{folder}/{model}.sock"
    own = ("--sim-prefill-rate", "0", "--sim-max-model-len", "100000", "--served-model-name", model)
    arguments = ["worker", str(folder / "model"), "--engine", "sim", "--listen", address, *own, *options]
    stack.enter_context(measured(arguments)).wait_for("ready: ")
    return address


async def _silence(url: str, coordinator: Measured, streamed: bool) -> tuple[float, float]:
    """Return the longest silence during one reply, and the longest for which the coordinator is to blame."""
    background, samples = BackgroundClient(url, _MODELS[1]), list[_Sample]()

    async def sample() -> None:
        while True:
            awaited = core_awaited_seconds_of(coordinator.pid)
            samples.append(_Sample(time.monotonic(), coordinator.cpu_seconds(), awaited))
            await asyncio.sleep(0.002)

    tasks = [asyncio.create_task(background.stream_forever()), asyncio.create_task(sample())]
    await asyncio.sleep(1)
    first = len(background.arrivals)
    tools = [{"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}]
    body = {"model": _MODELS[0], "messages": [{"role": "user", "content": "Write."}], "tools": tools}
    reply = await stream(url, http_request(url, "/v1/chat/completions", {**body, "stream": streamed}), keep_body=True)
    await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    if reply.body is None or b'"tool_calls"' not in reply.body:
        raise RuntimeError(f"no calls: {bytes(reply.body or b'')[-500:]!r}")
    silences = [*pairwise(background.arrivals[first:])]
    return max(later - earlier for earlier, later in silences), max(_held_up(*each, samples) for each in silences)


def _held_up(earlier: float, later: float, samples: Sequence[_Sample]) -> float:
    before, after = (samples[bisect_left(samples, moment, key=_when) - 1] for moment in (earlier, later))
    return min(later - earlier - (after.awaited_s - before.awaited_s), after.cpu_s - before.cpu_s)


def _write_model(folder: Path, parser: str) -> Tokenizer:
    """Write the tokenizer of a real model, with the tokens of a parser; return it."""
    source = prepare_embedded_model(default_cache_dir(), lambda _: None)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    marks = TOOLS[parser].tokens.split()
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in marks])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_bytes((source / "tokenizer_config.json").read_bytes())
    return tokenizer
