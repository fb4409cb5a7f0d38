"""The effect of arriving long prompts on running streams: inter-token latency with and without them."""

import asyncio
import json
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.load import StreamResult, http_request, percentile, stream
from benchmarks.processes import measured, simulated_pair

_SHORT, _LONG = "short", "long"
_STREAMS = 64
_STEP_MS = 20.0
_TOKENS = 100_000
_WARM_UP_S = 2.0
_WINDOW_S = 8.0
_ARRIVALS = 8

# As Llama 3 and its many relatives split text.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class LongPromptRow:
    """One window of the run."""

    case: str
    prompts: int
    itl_p50_ms: float
    itl_p99_ms: float
    itl_max_ms: float
    prompt_p50_ms: float
    """From a long prompt's first byte to the first byte of its reply."""


def run() -> Iterator[dict[str, Any]]:
    """Measure every kind of long prompt with the same streams."""
    sources = corpus()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = write_model(folder, sources)
        text = _of_length(tokenizer, sources)
        options = (name, "--sim-step-ms", str(_STEP_MS), "--sim-prefill-rate", "0", "--sim-max-model-len", "1000000")
        # Long prompts go to a worker of their own: how long a simulated engine takes over one is nobody's concern.
        with measured(
            ["worker", "--engine", "sim", "--listen", "127.0.0.1:0", "--served-model-name", _LONG, *options]
        ) as other:
            more = ("--worker", other.wait_for(r"ready: .* on (\S+)")[1])
            with simulated_pair("--served-model-name", _SHORT, *options, coordinator_options=more) as (_, _, url, _):
                wait_for_models(url, 2)
                for row in asyncio.run(_measure(url, text)):
                    yield asdict(row)


def wait_for_models(url: str, count: int) -> None:
    """Wait until a coordinator serves this number of models."""
    while len(httpx.get(f"{url}/v1/models").json()["data"]) < count:
        time.sleep(0.05)


async def _measure(url: str, text: str) -> list[LongPromptRow]:
    cases: dict[str, list[bytes]] = {
        "alone": [],
        "100k tokens, one message": [_chat(url, _messages(text, 1), n) for n in range(_ARRIVALS)],
        "100k tokens, 400 messages": [_chat(url, _messages(text, 400), n) for n in range(_ARRIVALS)],
        "the same, history seen": [_chat(url, _messages(text, 400), 0, n) for n in range(_ARRIVALS)],
        "100k tokens, raw text": [
            http_request(
                url, "/v1/completions", {"model": _LONG, "prompt": f"{n} {text}", "max_tokens": 1, "stream": True}
            )
            for n in range(_ARRIVALS)
        ],
    }
    tokens = int((_WARM_UP_S + (_WINDOW_S + 1.0) * len(cases) + 2.0) * 1000 / _STEP_MS)
    messages = [{"role": "user", "content": "Tell me a story."}]
    short = {"model": _SHORT, "messages": messages, "max_tokens": tokens, "stream": True}
    request = http_request(url, "/v1/chat/completions", short)
    running = [asyncio.create_task(stream(url, request)) for _ in range(_STREAMS)]
    await asyncio.sleep(_WARM_UP_S)
    windows = []
    for case, prompts in cases.items():
        started = time.monotonic()
        replies = await _arrive(url, prompts)
        await asyncio.sleep(max(0.0, started + _WINDOW_S - time.monotonic()))
        windows.append((case, started, time.monotonic(), replies))
        await asyncio.sleep(0.5)
    results = await asyncio.gather(*running)
    return [_row(case, gaps_within(results, started, ended), replies) for case, started, ended, replies in windows]


async def _arrive(url: str, prompts: Sequence[bytes]) -> list[StreamResult]:
    """Send prompts one by one, evenly over the window."""
    replies = []
    for request in prompts:
        due = time.monotonic() + _WINDOW_S / len(prompts)
        replies.append(await stream(url, request))
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    return replies


def gaps_within(results: Sequence[StreamResult], started: float, ended: float) -> list[float]:
    """Return the milliseconds between the arrivals of each stream within a window."""
    gaps = []
    for result in results:
        inside = [arrival for arrival in result.arrivals if started <= arrival <= ended]
        gaps += [1000 * (later - earlier) for earlier, later in pairwise(inside)]
    return gaps


def _row(case: str, gaps: Sequence[float], replies: Sequence[StreamResult]) -> LongPromptRow:
    if any(not reply.complete for reply in replies):
        raise RuntimeError(f"{case}: a long prompt did not complete: {replies}")
    first = [1000 * (reply.time_to_first_token or 0.0) for reply in replies]
    return LongPromptRow(
        case, len(replies), percentile(gaps, 50), percentile(gaps, 99), max(gaps), percentile(first, 50)
    )


def _messages(text: str, count: int) -> list[dict[str, str]]:
    size = len(text) // count
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text[i * size : (i + 1) * size]} for i in range(count)]


def _chat(url: str, messages: list[dict[str, str]], changed: int, turn: int = 0) -> bytes:
    """Render a request whose messages differ from those of other requests; with a turn, only the last one does."""
    fresh = [{**message, "content": f"{changed} {message['content']}"} for message in messages]
    fresh.append({"role": "user", "content": f"And {turn}?"})
    body = {"model": _LONG, "messages": fresh, "max_tokens": 1, "stream": True}
    return http_request(url, "/v1/chat/completions", body)


def corpus() -> str:
    """Return text of several megabytes: code and documentation."""
    library = Path(sysconfig.get_paths()["stdlib"])
    return "".join(path.read_text(errors="ignore") for path in sorted(library.glob("*.py"))[:80])


def _of_length(tokenizer: Tokenizer, corpus: str) -> str:
    offsets = tokenizer.encode(corpus, add_special_tokens=False).offsets
    return corpus[: offsets[min(_TOKENS, len(offsets)) - 1][1]]


def write_model(folder: Path, corpus: str) -> Tokenizer:
    """Train a tokenizer like those of large models, with a smaller vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=16_000,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([corpus], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return tokenizer
