"""The coordinator's cost of a turn with a stored history, and the memory of many conversations."""

import asyncio
import gc
import tempfile
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psutil

from benchmarks.long_prompts import corpus, write_model
from tokenwire.coordinator.generation.prompts import prepare_prompt
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.history.turns import Turn
from tokenwire.coordinator.text.logprobs import TokenTexts
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, ServedModel

_LENGTHS = (2_000, 16_000, 64_000)
_MESSAGE_TOKENS = (200, 800)
_REPEATS = 30
_NEW = {"role": "user", "content": "And then?"}


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One history; times are CPU times from messages to ids, the minimum of many."""

    history_tokens: int
    messages: int
    exact_ms: float
    template_ms: float
    """The same prompt by the template, its pieces tokenized before."""
    first_ms: float
    """The same where nothing was seen before."""


def turns() -> Iterator[dict[str, Any]]:
    """Yield a row for each length of history, with messages of two sizes."""
    text = corpus()
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), text)
        for length in _LENGTHS:
            for size in _MESSAGE_TOKENS:
                yield asdict(asyncio.run(_row(_model(Path(folder)), text, length, size)))


def flood(max_mb: int = 64, conversations: int = 100_000) -> dict[str, Any]:
    """Return the memory of unique conversations of 600 tokens, many more than fit."""
    # In a process of its own: memory that other measurements left would hide what this one takes.
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        return alone.submit(_flood, max_mb, conversations).result()


def _flood(max_mb: int, conversations: int) -> dict[str, Any]:
    store = MemoryStore(max_mb << 20, 3600.0)
    process = psutil.Process()
    gc.collect()
    before, most = process.memory_info().rss, 0
    for number in range(conversations):
        prompt = Turn(array("I", bytes(4 * 300)))
        store.put([number.to_bytes(16, "big")], Turn(array("I", bytes(4 * 300)), prompt, "token"))
        if number % 1000 == 0:
            most = max(most, process.memory_info().rss - before)
    return {"bound_mb": max_mb, "conversations": conversations, "kept": len(store), "resident_mb": most / (1 << 20)}


async def _row(model: ServedModel, text: str, length: int, size: int) -> TurnRow:
    history = TokenHistory(MemoryStore(1 << 28, 3600.0))
    messages: list[dict[str, Any]] = []
    exact, known = ExactHistory(), 0
    chars = size * 100_000 // len(model.tokenizer.encode(text[:100_000]))
    while known < length:
        place = 2 * chars * len(messages) % (len(text) - 2 * chars)
        messages.append({"role": "user", "content": text[place : place + chars]})
        prompt = await prepare_prompt(ChatPrompt(list(messages), history=exact), model, history=history)
        reply = text[place + chars : place + 2 * chars]
        ids = model.tokenizer.encode(reply + "<|im_end|>", add_special_tokens=False)
        assert prompt.history is not None
        messages.append({"role": "assistant", "content": reply})
        prompt.history.store(prompt.token_ids, messages[-1:], ids, "token")
        known = len(prompt.token_ids) + len(ids)
    messages.append(_NEW)
    return TurnRow(
        known,
        len(messages),
        await _least_ms(ChatPrompt(messages, history=exact), model, history),
        await _least_ms(ChatPrompt(messages), model, history),
        await _first_ms(ChatPrompt(messages), model),
    )


async def _least_ms(prompt: ChatPrompt, model: ServedModel, history: TokenHistory) -> float:
    times = []
    for _ in range(_REPEATS):
        used = time.process_time()
        await prepare_prompt(prompt, model, history=history)
        times.append(time.process_time() - used)
    return 1000 * min(times)


async def _first_ms(prompt: ChatPrompt, model: ServedModel) -> float:
    fresh = ModelTokenizer(model.tokenizer.backend, {"chat_template": model.tokenizer.chat_template})
    used = time.process_time()
    text = await model.template.render_messages_async(prompt.messages, prompt.options)
    await fresh.encode_async(text, add_special_tokens=False)
    return 1000 * (time.process_time() - used)


def _model(folder: Path) -> ServedModel:
    tokenizer = ModelTokenizer.from_directory(folder)
    return ServedModel(
        names=("model",),
        root="model",
        max_model_len=1_000_000,
        max_token_id=tokenizer.backend.get_vocab_size() - 1,
        tokenizer_digest="digest",
        default_sampling_params={},
        tokenizer=tokenizer,
        template=ChatTemplate(tokenizer.chat_template, tokenizer.special_tokens),
        token_texts=TokenTexts(tokenizer),
        parsers=None,
    )
