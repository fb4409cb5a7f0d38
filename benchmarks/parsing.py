"""The cost of parsers: coordinator CPU per streamed token of a long tool call, compared to plain text."""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from benchmarks.load import StreamResult, http_request, stream
from benchmarks.processes import simulated_pair
from tokenwire.worker.simulated_engine.model import load_model

STREAMS = 16
CALL_TOKENS = 1500
# How each parser's model writes a call whose one argument is a long text.
_CALLS = {
    "hermes": ('<tool_call>\n{"name": "write", "arguments": {"text": "', '"}}\n</tool_call>'),
    "qwen3_coder": ("<tool_call>\n<function=write>\n<parameter=text>\n", "\n</parameter>\n</function>\n</tool_call>"),
    "llama3_json": ('{"name": "write", "parameters": {"text": "', '"}}'),
    "pythonic": ('[write(text="', '")]'),
}
_MARKS = ("<tool_call>", "</tool_call>", "<|python_tag|>")
_TOOLS = [
    {
        "type": "function",
        "function": {"name": "write", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
    }
]


def run() -> Iterator[dict[str, Any]]:
    """Measure plain text first, then a tool call with each parser."""
    with tempfile.TemporaryDirectory(prefix="tokenwire-bench-") as folder:
        model = _write_model(Path(folder) / "model")
        for name, (before, after) in _CALLS.items():
            script = Path(folder) / f"{name}.json"
            script.write_text(json.dumps(_call_ids(model, before, after)))
            worker = (str(model), "--sim-script", str(script), "--sim-step-ms", "5", "--sim-prefill-rate", "0")
            if name == next(iter(_CALLS)):
                yield _measure("plain", worker, (), {})
            yield _measure(name, worker, ("--tool-call-parser", name, "--enable-auto-tool-choice"), {"tools": _TOOLS})


def _measure(case: str, worker: Sequence[str], coordinator: Sequence[str], extra: dict[str, Any]) -> dict[str, Any]:
    with simulated_pair(*worker, coordinator_options=coordinator) as (_, process, url, _address):
        body = {"messages": [{"role": "user", "content": "Write."}], "max_tokens": CALL_TOKENS, "stream": True, **extra}
        request = http_request(url, "/v1/chat/completions", body)

        async def round_of(streams: int) -> list[StreamResult]:
            return await asyncio.gather(*(stream(url, request) for _ in range(streams)))

        asyncio.run(round_of(2))
        before = process.cpu_seconds()
        results = asyncio.run(round_of(STREAMS))
        used = process.cpu_seconds() - before
        return {
            "case": case,
            "streams": STREAMS,
            "tokens": CALL_TOKENS,
            "coordinator_us_per_token": 1e6 * used / (STREAMS * CALL_TOKENS),
            "events_per_token": sum(result.events for result in results) / (STREAMS * CALL_TOKENS),
            "memory_mb": process.memory_mb(),
        }


def _call_ids(model: Path, before: str, after: str) -> list[int]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    text = "All work and no play makes Jack a dull boy. " * CALL_TOKENS
    room = CALL_TOKENS - len(before) - len(after)
    ids: list[int] = tokenizer.encode(before + text[:room] + after, add_special_tokens=False).ids
    return ids


def _write_model(folder: Path) -> Path:
    files = load_model(None, None).files
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in _MARKS])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_bytes(files["tokenizer_config.json"])
    return folder
