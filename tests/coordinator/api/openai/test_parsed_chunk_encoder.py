"""Streamed chunks of chats whose text a parser reads."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from threading import get_ident
from typing import Any

from tests.coordinator.api.openai.chunks import chunks_of, prepared_digits
from tests.coordinator.api.replies import ScriptedMessageParser, tool_call
from tokenwire.coordinator.api.fields.logprobs import LogprobStyle
from tokenwire.coordinator.api.openai.chunk_encoder import ChunkOptions
from tokenwire.coordinator.api.openai.parsed_chunk_encoder import ParsedChatChunks
from tokenwire.coordinator.parsing.message import MOST_INLINE, MessageDelta
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.types import Finish, TokenPrompt, Usage

STOP = Finish("stop")
LOGPROBS = [ScoredPosition.of(ScoredToken(5, "x", -0.5, 1))]


class ToolParser(ScriptedMessageParser):
    """Ends with tool calls."""

    def finish_reason(self, reason: str) -> str:
        """Return that of calls."""
        return "tool_calls"


def parsed(
    *deltas: MessageDelta | None,
    parser: Callable[[Sequence[MessageDelta | None]], ScriptedMessageParser] = ScriptedMessageParser,
    hides_tokens: bool = False,
    kept: list[tuple[int, Sequence[ChatMessage]]] | None = None,
    **options: Any,
) -> ParsedChatChunks:
    """Return the chunks of one choice with these deltas."""
    return ParsedChatChunks(
        prepared_digits(TokenPrompt([1, 2])),
        7,
        ChunkOptions(**options),
        role="assistant",
        echo="",
        new_parser=lambda: parser(deltas),
        hides_tokens=hides_tokens,
        counts_reasoning=True,
        keep=None if kept is None else lambda index, messages: kept.append((index, messages)),
    )


def test_deltas_are_the_parsers() -> None:
    """Reasoning and calls in place of the text, and the parser's finish reason."""
    writer = parsed(MessageDelta(reasoning="hm"), tool_call(0, "{}", "f"), parser=ToolParser)

    (first,) = chunks_of(writer.delta(0, "<think>hm", [5], None))
    (last,) = chunks_of(writer.delta(0, "</think>", [6], STOP))

    assert first["choices"][0]["delta"] == {"reasoning": "hm"}
    (call,) = last["choices"][0]["delta"]["tool_calls"]
    assert (call["function"], last["choices"][0]["finish_reason"]) == ({"name": "f", "arguments": "{}"}, "tool_calls")


async def test_the_end_of_a_long_choice_is_parsed_in_a_thread() -> None:
    """It is parsed again as a whole, which would hold up all other streams; a short one's is parsed at once."""
    kept: list[tuple[int, Sequence[ChatMessage]]] = []
    threads: list[int] = []
    parser = partial(ScriptedMessageParser, on_delta=lambda: threads.append(get_ident()))
    long, short = (parsed(MessageDelta("a"), MessageDelta("b"), parser=parser, kept=each) for each in (kept, None))
    long.delta(0, "a", [5] * (MOST_INLINE), None)
    short.delta(0, "a", [5] * (MOST_INLINE - 1), None)

    late, at_once = long.delta(0, "b", [6], STOP), short.delta(0, "b", [6], STOP)

    assert not kept
    assert isinstance(late, Coroutine)
    assert await late == at_once
    assert [message["content"] for _, (message,) in kept] == ["ab"]
    assert [thread == get_ident() for thread in threads] == [True, True, True, False]


async def test_many_tokens_are_parsed_in_a_thread() -> None:
    """Whether they come at once, or the last of them waited for this one."""
    threads: list[int] = []
    scripted = ScriptedMessageParser([MessageDelta("a"), MessageDelta("b")], lambda: threads.append(get_ident()))
    writer = parsed(parser=lambda _: scripted)

    many = writer.delta(0, "a", [5] * (MOST_INLINE + 1), None)
    assert isinstance(many, Coroutine)
    assert chunks_of(await many)[0]["choices"][0]["delta"] == {"content": "a"}
    scripted.waiting = MOST_INLINE
    last = writer.delta(0, "b", [5], None)
    assert isinstance(last, Coroutine)
    assert chunks_of(await last)[0]["choices"][0]["delta"] == {"content": "b"}
    assert get_ident() not in threads


def test_steps_without_a_delta_have_no_chunk() -> None:
    """Unless their ids or log-probabilities are requested; their tokens count all the same."""
    quiet = parsed(None, MessageDelta("x"), include_usage=True, continuous_usage=True)
    with_ids = parsed(None, return_token_ids=True)

    assert quiet.delta(0, "<think>", [5, 6], None) == b""
    (counted,) = chunks_of(quiet.delta(0, "x", [7], STOP))
    (empty,) = chunks_of(with_ids.delta(0, "<think>", [5], None))

    assert counted["usage"]["completion_tokens"] == 3
    assert (empty["choices"][0]["delta"], empty["choices"][0]["token_ids"]) == ({}, [5])


def test_hidden_reasoning_hides_its_tokens() -> None:
    """Neither ids nor log-probabilities reveal it."""
    writer = parsed(None, MessageDelta("x"), hides_tokens=True, return_token_ids=True, logprobs=LogprobStyle(1))

    assert writer.delta(0, "hm", [5], None, LOGPROBS) == b""
    (shown,) = chunks_of(writer.delta(0, "x", [6], STOP, LOGPROBS))

    assert (shown["choices"][0]["token_ids"], shown["choices"][0]["logprobs"]) == (None, None)


def test_reasoning_tokens_are_counted_in_the_usage() -> None:
    """At the end, and continuously."""
    writer = parsed(MessageDelta(reasoning="hm"), MessageDelta("x"), include_usage=True, continuous_usage=True)

    (first,) = chunks_of(writer.delta(0, "hm", [1, 2], None))
    writer.delta(0, "x", [3, 4], STOP)
    (usage,) = chunks_of(writer.closing(Usage(2, 4)))

    assert first["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}


async def test_reasoning_tokens_of_a_long_reply_are_not_counted_anew_at_each_step() -> None:
    """A chunk's figure is behind by less than a hundredth; the last one's is exact."""
    steps = 4096
    scripted = ScriptedMessageParser([MessageDelta("a")] * steps)
    writer = parsed(parser=lambda _: scripted, include_usage=True, continuous_usage=True)

    counts = [
        chunks_of(writer.delta(0, "a", [5], None))[0]["usage"]["completion_tokens_details"]["reasoning_tokens"]
        for _ in range(steps - 1)
    ]
    counted = scripted.counted
    last = writer.delta(0, "a", [5, 6], Finish("length"))

    assert isinstance(last, Coroutine)
    assert counts[:255] == [total // 2 for total in range(1, 256)]
    assert all(0.99 * total // 2 <= count <= total // 2 for total, count in enumerate(counts, start=1))
    assert counted < steps * 300
    assert chunks_of(await last)[0]["usage"]["completion_tokens_details"] == {"reasoning_tokens": (steps + 1) // 2}


def test_a_finished_choice_is_kept_as_one_message() -> None:
    """As clients send it back, joined from its deltas."""
    kept: list[tuple[int, Sequence[ChatMessage]]] = []
    writer = parsed(MessageDelta("a", "hm"), MessageDelta("b"), kept=kept)

    writer.delta(0, "a", [5], None)
    assert not kept
    writer.delta(0, "b", [6], STOP)

    ((index, (message,)),) = kept
    assert index == 0
    assert (message["content"], message["reasoning"]) == ("ab", "hm")
