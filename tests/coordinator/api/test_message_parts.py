"""Parts of messages: one is open at a time, and streamed ones equal full ones."""

import threading
from collections.abc import Coroutine, Iterator

import pytest

from tests.coordinator.api.replies import STOP, ScriptedPlan, bytes_of, call_of, tool_call
from tokenwire.coordinator.api.message_parts import MessagePart, PartStream, abort_error, full_parts
from tokenwire.coordinator.parsing.message import MOST_INLINE, MessageDelta, ParsedMessage, ParserFailed
from tokenwire.coordinator.parsing.rules import ParsedToolCall
from tokenwire.coordinator.text.logprobs import ScoredPosition, ScoredToken
from tokenwire.coordinator.types import Finish, Prefill, Usage
from tokenwire.errors import TokenwireError, WorkerLost


class Notes:
    """Renders a part as one bracket and its texts."""

    def opening(self, usage: Usage) -> str:
        """Show the prompt."""
        return f"{usage.prompt_tokens}/{usage.cached_tokens} "

    def open_part(self, part: MessagePart) -> str:
        """Show the kind."""
        return f"{part.index}{part.kind}[{part.name}"

    def part_delta(self, part: MessagePart, text: str, logprobs: list[ScoredPosition]) -> str:
        """Show the text."""
        return f"<{text}{len(logprobs) or ''}>"

    def close_part(self, part: MessagePart, finish: Finish | None) -> str:
        """Show the end."""
        return f"{finish.reason if finish else ''}]"

    def closing(self, parts: list[MessagePart], finish: Finish, usage: Usage) -> str:
        """Show usage."""
        return f" {len(parts)} {usage.completion_tokens} {usage.cached_tokens} {usage.reasoning_tokens}"

    def keep_part(self, part: MessagePart, finish: Finish) -> None:
        """Do nothing."""

    def ending(self, part: MessagePart, finish: Finish, usage: Usage) -> Iterator[bytes]:
        """Show the end, and usage."""
        yield self.close_part(part, finish).encode()
        yield self.closing([part], finish, usage).encode()

    def error(self, error: TokenwireError, parts: list[MessagePart]) -> str:
        """Show the message."""
        return f"!{error.message}"

    def as_messages(self, parts: list[MessagePart]) -> list[dict[str, str]]:
        """Return the text of each part as a message."""
        return [{"role": "assistant", "content": part.text} for part in parts]


def rendered_parts(*deltas: MessageDelta | None, finish: Finish = STOP) -> str:
    """Return the rendered parts of a message with these deltas, one per step."""
    stream = PartStream(call_of(deltas), Notes())
    ends = [None] * (len(deltas) - 1) + [finish]
    return b"".join(bytes_of(stream.delta(0, "", [i], end)) for i, end in enumerate(ends)).decode()


def text_delta(content: str) -> MessageDelta:
    """Return a delta of text."""
    return MessageDelta(content=content)


def reasoning_delta(reasoning: str) -> MessageDelta:
    """Return a delta of reasoning."""
    return MessageDelta(reasoning=reasoning)


def test_parts_follow_each_other() -> None:
    """Reasoning, text and calls are opened, filled and closed in turn; the last one has the finish."""
    notes = rendered_parts(
        reasoning_delta("hm"), text_delta("a"), text_delta("b"), tool_call(0, name="f"), tool_call(0, "{}"), None
    )

    assert notes == "0reasoning[<hm>]1text[<a><b>]2tool_call[f<{}>stop]"


def test_one_step_may_have_everything() -> None:
    """A merged delta is rendered in order."""
    calls = (tool_call(0, "{}", "f").tool_calls[0], tool_call(1, "[]", "g").tool_calls[0])

    notes = rendered_parts(MessageDelta("a", "hm", calls))

    assert notes == "0reasoning[<hm>]1text[<a>]2tool_call[f<{}>]3tool_call[g<[]>stop]"


def test_whitespace_before_a_call_is_not_text() -> None:
    """Models put line breaks between reasoning and calls."""
    notes = rendered_parts(
        reasoning_delta("hm"),
        text_delta("\n"),
        text_delta("\n"),
        tool_call(0, "{}", "f"),
        text_delta("\n"),
        tool_call(1, "{}", "g"),
    )

    assert notes == "0reasoning[<hm>]1tool_call[f<{}>]2tool_call[g<{}>stop]"


def test_whitespace_before_text_is_kept() -> None:
    """Text is complete."""
    assert (
        rendered_parts(reasoning_delta("hm"), text_delta("\n"), text_delta("a"), None)
        == "0reasoning[<hm>]1text[<\na>stop]"
    )


def test_text_of_whitespace_alone_is_kept() -> None:
    """If there is no call."""
    assert rendered_parts(reasoning_delta("hm"), text_delta("\n"), None) == "0reasoning[<hm>]1text[<\n>stop]"


def test_text_within_a_call_comes_after_it() -> None:
    """Arguments stay in one piece."""
    notes = rendered_parts(tool_call(0, "{", "f"), text_delta("by the way"), tool_call(0, "}"), None)

    assert notes == "0tool_call[f<{><}>]1text[<by the way>stop]"


def test_a_message_without_anything_has_an_empty_text() -> None:
    """Clients expect a part."""
    assert rendered_parts(None) == "0text[stop]"
    assert [part.text for part in full_parts(ParsedMessage(None, None, (), "stop"))] == [""]


def test_arguments_of_a_closed_call_are_an_error() -> None:
    """They are not dropped silently."""
    with pytest.raises(ParserFailed):
        rendered_parts(tool_call(0, "{", "f"), tool_call(1, "{}", "g"), tool_call(0, "}"))


async def test_the_end_of_a_long_message_is_parsed_in_a_thread() -> None:
    """As all of it is then parsed again; the rest is the same."""
    call, threads = call_of([text_delta("a"), text_delta("b")]), list[int]()
    assert isinstance(call.plan, ScriptedPlan)
    call.plan.on_delta = lambda: threads.append(threading.get_ident())
    stream = PartStream(call, Notes())
    stream.delta(0, "", [1] * (MOST_INLINE), None)

    late = stream.delta(0, "", [2], STOP)

    assert isinstance(late, Coroutine)
    assert rendered_parts(text_delta("a"), text_delta("b")).encode().endswith(await late)
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


def test_full_messages_have_the_same_parts() -> None:
    """Reasoning, then text, then calls; the last part is marked."""
    calls = (ParsedToolCall("call_0", "f", "{}"), ParsedToolCall("call_1", "g", "[]"))

    parts = full_parts(ParsedMessage("a", "hm", calls, "tool_calls"))

    assert [(part.kind, part.index, part.text) for part in parts] == [
        ("reasoning", 0, "hm"),
        ("text", 1, "a"),
        ("tool_call", 2, "{}"),
        ("tool_call", 3, "[]"),
    ]
    assert [part.last for part in parts] == [False, False, False, True]


def test_whitespace_next_to_calls_is_not_text() -> None:
    """In full messages as in streamed ones; without calls it is text."""
    call = ParsedToolCall("call_0", "f", "{}")

    assert [part.kind for part in full_parts(ParsedMessage("\n", "hm", (call,), "stop"))] == ["reasoning", "tool_call"]
    assert [part.kind for part in full_parts(ParsedMessage("\n", "hm", (), "stop"))] == ["reasoning", "text"]


def test_without_a_parser_output_is_text() -> None:
    """Steps without text are not rendered, unless they have log-probabilities."""
    stream = PartStream(call_of(logprobs=True), Notes())
    scored = [ScoredPosition.of(ScoredToken(1, "a", -1.0, 1))]

    assert stream.shows_empty_deltas
    assert not PartStream(call_of(), Notes()).shows_empty_deltas
    assert stream.delta(0, "a", [1], None, scored) == b"0text[<a1>"
    assert stream.delta(0, "", [1], None) == b""
    assert stream.delta(0, "", [1], None, scored) == b"<1>"
    assert stream.delta(0, "", [1], STOP) == b""
    assert [*stream.closing(Usage(2, 4))] == [b"stop]", b" 1 4 None None"]


def test_usage_has_cached_and_reasoning_tokens() -> None:
    """The prompt's from the start, the reply's at its end."""
    stream = PartStream(call_of([reasoning_delta("hm"), text_delta("a")]), Notes())
    stream.prefilled(0, Prefill(1))

    assert list(stream.opening()) == [b"2/1 "]
    stream.delta(0, "", [1], None)
    stream.delta(0, "", [2], STOP)
    assert stream.closing(Usage(2, 2)) == b" 2 2 1 1"


def test_an_aborted_reply_ends_with_an_error() -> None:
    """Replies of a stopping worker do not look complete."""
    stream = PartStream(call_of(), Notes())

    stream.delta(0, "a", [1], Finish("abort"))

    closing = stream.closing(Usage(2, 1))
    assert isinstance(closing, bytes)
    assert closing.startswith(b"!The reply was aborted")
    assert isinstance(abort_error("abort"), WorkerLost)
    assert abort_error("stop") is None


async def test_many_tokens_of_a_message_are_parsed_in_a_thread() -> None:
    """In the midst of a stream, too: all other streams would wait for them."""
    call, threads = call_of([text_delta("a"), text_delta("b")]), list[int]()
    assert isinstance(call.plan, ScriptedPlan)
    call.plan.on_delta = lambda: threads.append(threading.get_ident())
    stream = PartStream(call, Notes())

    many = stream.delta(0, "", [1] * (MOST_INLINE + 1), None)

    assert isinstance(many, Coroutine)
    assert await many in rendered_parts(text_delta("a"), text_delta("b")).encode()
    assert [thread == threading.get_ident() for thread in threads] == [False]
