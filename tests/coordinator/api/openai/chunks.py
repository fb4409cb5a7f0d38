"""Streamed chunks of requests for digits."""

import json
from collections.abc import Iterator
from typing import Any

from tests.coordinator.api.replies import ScriptedMessageParser
from tests.coordinator.fakes import served_model
from tokenwire.coordinator.api.openai.chunk_encoder import ChatChunks, ChunkOptions
from tokenwire.coordinator.api.openai.completion_chunks import CompletionChunks
from tokenwire.coordinator.api.openai.parsed_chunk_encoder import ParsedChatChunks
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.output.sse import ChunkOutput
from tokenwire.coordinator.parsing.message import MessageDelta
from tokenwire.coordinator.types import GenerationRequest, Prompt, TokenPrompt
from tokenwire.v1 import inference_pb2 as pb


def prepared_digits(*prompts: Prompt, n: int = 1) -> PreparedRequest:
    """Return a request for digits."""
    made = [PreparedPrompt([1, 2], "one two"), PreparedPrompt([3, 4], None)][: len(prompts)]
    sampling = pb.SamplingParams()
    return PreparedRequest(
        GenerationRequest("r-1", "digits", prompts, sampling, n=n), served_model(), sampling, made, [9]
    )


def chat_chunks(echo: str = "", **options: Any) -> ChatChunks:
    """Return chat chunks of two choices."""
    request = prepared_digits(TokenPrompt([1, 2]), n=2)
    return ChatChunks(request, 7, ChunkOptions(**options), role="assistant", echo=echo)


def parsed_chat_chunks(**options: Any) -> ParsedChatChunks:
    """Return chat chunks of one choice with a parser."""
    parser = ScriptedMessageParser([MessageDelta("x"), MessageDelta("y")])
    return ParsedChatChunks(
        prepared_digits(TokenPrompt([1, 2])),
        7,
        ChunkOptions(**options),
        role="assistant",
        echo="",
        new_parser=lambda: parser,
        hides_tokens=False,
        counts_reasoning=False,
    )


def completion_chunks(**options: Any) -> CompletionChunks:
    """Return completion chunks of two prompts with one choice each."""
    return CompletionChunks(prepared_digits(TokenPrompt([1, 2]), TokenPrompt([3, 4])), 7, ChunkOptions(**options))


def chunks_of(data: ChunkOutput) -> list[Any]:
    """Return the objects of server-sent events, which may come in pieces."""
    assert isinstance(data, bytes | Iterator)
    events = b"".join([data] if isinstance(data, bytes) else data).decode().split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]
