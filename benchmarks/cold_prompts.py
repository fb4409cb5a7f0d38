"""CPU time of prompts of 4,000 words that the coordinator has never seen, beside that of the tokenizer's library."""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer

from benchmarks.processes import Measured, simulated_pair
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

_WORDS = 4000
_PROMPTS = 40
_DOCUMENTS = Path(__file__).parents[1] / "docs"


def run() -> Iterator[dict[str, Any]]:
    """Measure the library alone, then the same texts in requests, less what a prompt of one word costs."""
    model = prepare_embedded_model(default_cache_dir(), lambda _: None)
    texts = _texts()
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokens = len(tokenizer.encode_batch_fast([texts[0]], add_special_tokens=False)[0].ids)
    alone = _mean_ms(time.process_time, texts, lambda text: tokenizer.encode_batch_fast([text]))
    yield {"case": "tokenizers alone", "tokens": tokens, "ms": alone, "beyond_one_word_ms": alone}
    options = [str(model), "--sim-prefill-rate", "0", "--sim-step-ms", "1", "--sim-max-model-len", "16384"]
    with simulated_pair(*options) as (_, coordinator, url, _), httpx.Client(base_url=url, timeout=60) as client:
        for case, path, body in (
            ("chat", "/v1/chat/completions", lambda text: {"messages": [{"role": "user", "content": text}]}),
            ("/tokenize", "/tokenize", lambda text: {"prompt": text}),
        ):
            one, many = (_requests_ms(coordinator, client, path, body, each) for each in (["word"] * _PROMPTS, texts))
            yield {"case": case, "tokens": tokens, "ms": many, "beyond_one_word_ms": many - one}


def _requests_ms(
    coordinator: Measured,
    client: httpx.Client,
    path: str,
    body: Callable[[str], dict[str, Any]],
    texts: Sequence[str],
) -> float:
    def send(text: str) -> None:
        client.post(path, json={**body(text), "max_tokens": 1}).raise_for_status()

    return _mean_ms(coordinator.cpu_seconds, texts, send)


def _mean_ms(clock: Callable[[], float], texts: Sequence[str], use: Callable[[str], object]) -> float:
    """Return the mean CPU time of all texts but the first few."""
    warm, timed = texts[:5], texts[5:]
    for text in warm:
        use(text)
    before = clock()
    for text in timed:
        use(text)
    return 1000 * (clock() - before) / len(timed)


def _texts() -> list[str]:
    """Return prompts of words of this project's documents, in an order that no cache has seen."""
    words = [word for path in sorted(_DOCUMENTS.glob("*/*.md")) for word in re.findall(r"\S+", path.read_text())]
    chance = random.Random(4)
    return [" ".join(chance.choices(words, k=_WORDS)) for _ in range(_PROMPTS)]
