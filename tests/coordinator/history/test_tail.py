"""Tails of each kind of template after a reply, for each way in which it may have ended."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.history.dialogues import Dialogue
from tests.coordinator.history.models import (
    BREAKS,
    CALLS_FIRST,
    CHATML,
    LINES,
    MARKER,
    NAMES,
    OTHER_END,
    REJECTS,
    THINKING,
    TWICE,
    decoded,
    encoded,
    small_model,
)
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.history.tail import PLACEHOLDER, TailRenderer, Target
from tokenwire.coordinator.history.turns import Ending, Turn
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ServedModel

USER: ChatMessage = {"role": "user", "content": "One?"}
MORE: ChatMessage = {"role": "user", "content": "Two?"}
TOOL: ChatMessage = {"role": "tool", "tool_call_id": "1", "content": "rain"}
CALLS = [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "X"}'}}]


async def tail(
    template: str, text: str, ending: Ending, following: ChatMessage = MORE, **message: object
) -> tuple[str | None, PreparedPrompt]:
    """Return the text after a reply in the next prompt, None if the prompt was rendered by the template."""
    model = small_model(template)
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.prepare(USER), encoded(model, text), ending, **message or {"content": "Yes"})
    before = dialogue.ids
    prompt = await dialogue.prepare(following)
    if prompt.history is None or prompt.history.source is None:
        return None, prompt
    assert list(prompt.token_ids[: len(before)]) == before
    return decoded(model, list(prompt.token_ids[len(before) :])), prompt


TURN_END = "<|close|>text<|sep|><|close|>turn<|sep|>"
TURN_NEXT = "<|open|>user<|sep|>Two?" + TURN_END + "<|open|>assistant<|sep|>"
NEXT = "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "text", "ending", "expected"),
    [
        (CHATML, "Y\u200bes<|im_end|>", "token", "\n" + NEXT),
        (CHATML, "Yes", "cut", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes STOP", "stop", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes</tool_call>", "stop", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes<|im_start|>", "cut", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes<tool_call>", "token", "\n" + NEXT),
        (CHATML, "Yes<|im_end|>", "cut", "\n" + NEXT),
        (THINKING, "<think>So</think>Yes<|im_end|>", "token", "\n" + NEXT),
        (THINKING, "<think>So", "cut", "<|im_end|>\n" + NEXT),
        (MARKER, "Yes<|user|>", "token", "Two?<|assistant|>"),
        (MARKER, "Yes<|user|>", "unknown", "Two?<|assistant|>"),
        (MARKER, "Yes<|endoftext|>", "token", "<|user|>Two?<|assistant|>"),
        (MARKER, "Yes", "cut", "<|user|>Two?<|assistant|>"),
        (CHATML, "Yes\n", "stop", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes<tool_call>", "stop", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes<|im_end|>", "stop", "\n" + NEXT),
        (CHATML, "Yes<|im_start|>", "stop", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes<|im_start|>", "unknown", "<|im_end|>\n" + NEXT),
        (CHATML, "Yes<|im_start|>", "token", "\n" + NEXT),
        (CHATML, "Yes<|im_end|>\n", "cut", NEXT),
        (CHATML, "<tool_call>x<|im_end|>", "cut", "\n" + NEXT),
        (MARKER, "Yes<|user|>", "stop", "Two?<|assistant|>"),
        (MARKER, "Yes<|user|>", "cut", "<|user|>Two?<|assistant|>"),
        (TWICE, "Yes", "cut", TURN_END + TURN_NEXT),
        (TWICE, "Yes<|close|>", "cut", TURN_END.removeprefix("<|close|>") + TURN_NEXT),
        (TWICE, "Yes<|close|>text", "cut", TURN_END.removeprefix("<|close|>text") + TURN_NEXT),
        (TWICE, "Yes<|close|>text<|sep|>", "cut", "<|close|>turn<|sep|>" + TURN_NEXT),
        (TWICE, "Yes<|close|>text<|sep|><|close|>", "cut", "turn<|sep|>" + TURN_NEXT),
        (TWICE, "Yes" + TURN_END, "token", TURN_NEXT),
        (TWICE, "Yes<|close|>turn<|sep|>", "token", TURN_NEXT),
        (TWICE, "Yes<|close|>turn<|sep|>", "cut", TURN_END + TURN_NEXT),
        (TWICE, "<|open|>Yes<|close|>other<|sep|>", "cut", TURN_END + TURN_NEXT),
        (OTHER_END, "Yes<|end|>", "token", "<|start|>user<|message|>Two?<|end|><|start|>assistant"),
        (OTHER_END, "Yes", "cut", "<|end|><|start|>user<|message|>Two?<|end|><|start|>assistant"),
        (OTHER_END, "Yes<|return|>", "token", None),
        (LINES, "Yes<|user|>", "token", "Two?<|assistant|>"),
        (LINES, "Yes", "cut", None),
        (CALLS_FIRST, "Yes<|end|>", "stop", "<|start|>user<text>Two?</text><|end|><|start|>assistant"),
        (BREAKS, "Yes<|endoftext|>", "token", "<|user|>Two?\n<|assistant|>"),
        (REJECTS, "Yes<|im_end|>", "token", "\n" + NEXT),
        (REJECTS, "Yes<tool_call>", "token", None),
        (TWICE, "Yes<|im_end|>", "token", TURN_NEXT),
    ],
)
async def test_the_tail_completes_the_replys_closing(
    template: str, text: str, ending: Ending, expected: str | None
) -> None:
    """A closed reply is not closed again, an open one is; if that is not certain there is no tail."""
    assert (await tail(template, text, ending))[0] == expected


TOOL_NEXT = "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "text", "ending", "expected"),
    [
        (CHATML, "<tool_call>{ }</tool_call><|im_end|>", "token", "\n" + TOOL_NEXT),
        (CHATML, "<tool_call>{ }</tool_call>", "stop", "<|im_end|>\n" + TOOL_NEXT),
        (CHATML, "<tool_call>{ ", "cut", "<|im_end|>\n" + TOOL_NEXT),
        (MARKER, "<tool_call>{ }</tool_call><|observation|>", "token", "rain<|assistant|>"),
        (MARKER, "<tool_call>{ }</tool_call><|observation|>", "unknown", "rain<|assistant|>"),
        (MARKER, "<tool_call>{ ", "cut", "<|observation|>rain<|assistant|>"),
    ],
)
async def test_tool_calls_are_a_part_of_the_reply(template: str, text: str, ending: Ending, expected: str) -> None:
    """Only the text after tool calls matters, not how the template renders them."""
    assert (await tail(template, text, ending, TOOL, content=None, tool_calls=CALLS))[0] == expected


async def test_arguments_that_contain_an_end_token_do_not_end_the_reply() -> None:
    """Arguments may contain any text, even that of special tokens."""
    calls = [{"function": {"name": "f", "arguments": '{"a": "<|im_end|>\\n<|im_start|>user"}'}}]

    assert (await tail(CHATML, "x<|im_end|>", "token", TOOL, content=None, tool_calls=calls))[0] == "\n" + TOOL_NEXT


async def test_a_conversation_that_contains_the_placeholder_has_no_tail() -> None:
    """It would be ambiguous which placeholder is the reply's end."""
    found, prompt = await tail(CHATML, "Yes<|im_end|>", "token", {"role": "user", "content": PLACEHOLDER})

    assert found is None
    assert PLACEHOLDER in (prompt.text or "")


async def test_a_tail_that_no_context_has_room_for_is_not_tokenized() -> None:
    """The whole prompt is longer, and rejected for that."""
    found = [
        await after(TailRenderer(), replace(small_model(CHATML), max_model_len=length), "Yes<|im_end|>", content="Yes")
        for length in (100, 2)
    ]

    assert [each is None for each in found] == [False, True]


async def test_a_template_that_hides_replies_has_no_tail() -> None:
    """Then the end of the reply is unknown."""
    template = "{% for m in messages if m.role == 'user' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"

    assert (await tail(template, "Yes<|im_end|>", "token"))[0] is None


async def test_a_tail_that_begins_with_text_is_not_certain() -> None:
    """The text before it might become a part of its first token."""
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"

    assert (await tail(template, "Yes", "cut"))[0] is None


async def test_without_a_generation_prompt_the_tail_is_the_closing() -> None:
    """The reply's own closing, and nothing else."""
    model = small_model()
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.prepare(USER), encoded(model, "Yes<|im_end|>"), content="Yes")
    dialogue.options = TemplateOptions(add_generation_prompt=False)

    prompt = await dialogue.prepare()

    assert decoded(model, list(prompt.token_ids[len(dialogue.ids) :])) == "\n"


async def test_a_tail_begins_with_a_token_independent_of_earlier_text() -> None:
    """One that strips the blanks before it is not certain."""
    for swallows in (False, True):
        model = small_model(lstrip=swallows)
        dialogue = Dialogue(model)
        dialogue.answer(await dialogue.prepare(USER), encoded(model, "Yes"), "cut", content="Yes")

        assert ((await dialogue.prepare(MORE)).reused > 0) == (not swallows)


async def test_a_continued_message_after_the_tail_stays_open() -> None:
    """A message that is continued has no closing; those before it do."""
    model = small_model()
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.prepare(USER), encoded(model, "Yes<tool_call>"), "token", content="Yes")
    dialogue.options = TemplateOptions(add_generation_prompt=False, continue_final_message=True)

    prompt = await dialogue.prepare(MORE, {"role": "assistant", "content": "No"})

    assert decoded(model, list(prompt.token_ids[prompt.reused :])) == "\n" + NEXT + "No"


async def after(renderer: TailRenderer, model: ServedModel, text: str, **reply: Any) -> str | None:
    """Return this renderer's text after a reply that ended with a token."""
    target = Target(model, TemplateOptions(), b"template")
    messages = [USER, {"role": "assistant", **reply}, TOOL]
    ids = await renderer.ids_after(Turn(array("I", encoded(model, text)), ending="token"), messages, 1, target)
    return None if ids is None else decoded(model, ids)


@pytest.mark.parametrize(
    ("template", "replies", "expected"),
    [
        (
            CALLS_FIRST,
            [{"content": text, "tool_calls": CALLS} for text in ("Sure.", "Oh.", None)],
            "<|start|>tool<text>rain</text><|end|><|start|>assistant",
        ),
        (
            NAMES,
            [{"content": "Hm", "tool_calls": [{"function": {"name": name, "arguments": "{}"}}]} for name in "fgh"],
            "<|start|>tool<text>rain<|end|><|start|>assistant",
        ),
    ],
    ids=["text after calls", "calls after text"],
)
async def test_a_cached_closing_contains_nothing_of_its_reply(
    template: str, replies: Sequence[ChatMessage], expected: str
) -> None:
    """The closing is cached, without the reply's text before it."""
    renderer, model = TailRenderer(), small_model(template)
    end = "<|calls|>" if template == CALLS_FIRST else "<|end|>"

    assert [await after(renderer, model, f"x{end}", **reply) for reply in replies] == [expected] * len(replies)


async def test_closings_are_rendered_once_in_a_bounded_cache() -> None:
    """A tail takes one rendering if the closing is cached."""

    class Counting(type(small_model().template)):  # type: ignore[misc]
        rendered = 0

        async def render_messages_async(self, *given: Any) -> str:
            Counting.rendered += 1
            return str(await super().render_messages_async(*given))

    model = small_model()
    template = Counting(model.tokenizer.chat_template, model.tokenizer.special_tokens)
    renderer, model = TailRenderer(max_closings=1), replace(model, template=template)
    taken = []
    for calls in ([], [], CALLS, CALLS, []):
        before = Counting.rendered
        await after(renderer, model, "x<|im_end|>", content="x", tool_calls=calls)
        taken.append(Counting.rendered - before)

    assert taken == [2, 1, 2, 1, 2]
