"""Fakes shared by tests."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import Message
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from tokenwire.coordinator.auth.caller import ANYBODY, Caller
from tokenwire.coordinator.generation.context import RequestContext
from tokenwire.coordinator.history.store import MemoryStore
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.http.connection import AsgiConnection
from tokenwire.coordinator.observability.record import RequestRecord
from tokenwire.coordinator.text.logprobs import TokenTexts
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.coordinator.types import ServedModel

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def served_model(max_model_len: int = 20, defaults: dict[str, Any] | None = None) -> ServedModel:
    """Return a model whose ids are the digits of English."""
    backend = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="zero"))
    backend.pre_tokenizer = WhitespaceSplit()
    template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    tokenizer = ModelTokenizer.from_files({"tokenizer.json": json.dumps(json.loads(backend.to_str())).encode()})
    return ServedModel(
        names=("digits", "alias"),
        root="/models/digits",
        max_model_len=max_model_len,
        max_token_id=len(WORDS) - 1,
        default_sampling_params=defaults or {},
        tokenizer=tokenizer,
        template=ChatTemplate(template, {}),
        token_texts=TokenTexts(tokenizer),
        tokenizer_digest="d",
        parsers=None,
    )


def token_history() -> TokenHistory:
    """Return an empty history."""
    return TokenHistory(MemoryStore(1 << 20, 60.0))


def request_context(
    record: RequestRecord | None = None, caller: Caller = ANYBODY, clock: Callable[[], float] = time.monotonic
) -> RequestContext:
    """Return the context of a request without a client, which arrives now by the clock."""

    async def receive() -> Message:
        raise AssertionError("nothing is received")

    async def send(message: Message) -> None:
        raise AssertionError("nothing is sent")

    record = record or RequestRecord(began_at=clock())
    return RequestContext(AsgiConnection(receive, send), record, caller=caller, clock=clock)


def ids(text: str) -> Sequence[int]:
    """Return the ids of English digits."""
    return [WORDS.index(word) for word in text.split()]
