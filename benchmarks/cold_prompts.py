"""CPU time of prompts that the coordinator has never seen, beside that of the tokenizer's library."""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer

from benchmarks.processes import Measured, simulated_pair
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
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
    yield {"case": "tokenizers alone", "tokens": tokens, "ms": alone, "us_a_token": 1000 * alone / tokens}
    options = [str(model), "--sim-prefill-rate", "0", "--sim-step-ms", "1", "--sim-max-model-len", "16384"]
    with simulated_pair(*options) as (_, coordinator, url, _), httpx.Client(base_url=url, timeout=60) as client:
        for case, path, body in (
            ("chat", "/v1/chat/completions", lambda text: {"messages": [{"role": "user", "content": text}]}),
            ("/tokenize", "/tokenize", lambda text: {"prompt": text}),
        ):
            one, many = (_requests_ms(coordinator, client, path, body, each) for each in (["word"] * _PROMPTS, texts))
            yield {"case": case, "tokens": tokens, "ms": many - one, "us_a_token": 1000 * (many - one) / tokens}
    yield from _without_server(model)


def _without_server(model: Path) -> Iterator[dict[str, Any]]:
    """Measure both on texts whose words recur more or less, from the first text on, each text in turn."""
    for kind, texts in (("words in any order", _texts()), ("documents", _documents()), ("new words", _new_words())):
        ours = ModelTokenizer.from_directory(model)
        library = Tokenizer.from_file(str(model / "tokenizer.json"))
        tokens = sum(len(each.ids) for each in library.encode_batch_fast(texts, add_special_tokens=False))
        used = {"tokenizers": 0.0, "tokenwire": 0.0}
        for text in texts:
            used["tokenizers"] += _ms(_encode_alone, library, text)
            used["tokenwire"] += _ms(ours.encode, text, False)
        for case, ms in used.items():
            yield {"case": f"{kind}: {case}", "tokens": tokens, "ms": ms, "us_a_token": 1000 * ms / tokens}


def _encode_alone(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return ids


def _ms(encode: Callable[..., object], *arguments: object) -> float:
    before = time.process_time()
    encode(*arguments)
    return 1000 * (time.process_time() - before)


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


def _documents() -> list[str]:
    """Return this project's documents and code, a file at a time."""
    root = _DOCUMENTS.parent
    paths = sorted([*root.glob("docs/*/*.md"), *root.glob("coordinator/**/*.py"), *root.glob("worker/**/*.py")])
    texts = [path.read_text() for path in paths]
    random.Random(4).shuffle(texts)
    return texts


def _new_words() -> list[str]:
    """Return texts of words of which each comes once."""
    chance = random.Random(4)
    return [" ".join(f"{chance.randrange(16**8):x}" for _ in range(_WORDS // 8)) for _ in range(_PROMPTS)]


def _texts() -> list[str]:
    """Return prompts of words of this project's documents, in an order that no cache has seen."""
    words = [word for path in sorted(_DOCUMENTS.glob("*/*.md")) for word in re.findall(r"\S+", path.read_text())]
    chance = random.Random(4)
    return [" ".join(chance.choices(words, k=_WORDS)) for _ in range(_PROMPTS)]
