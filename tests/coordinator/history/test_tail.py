"""Tails: what each kind of template writes behind a reply, for each way in which it may have ended."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.history.dialogues import Dialogue, Message
from tests.coordinator.history.models import (
    BREAKS,
    CALLS_FIRST,
    CHATML,
    LINES,
    MARKER,
    NAMES,
    OTHER_END,
    REFUSES,
    THINKING,
    TWICE,
    decoded,
    encoded,
    small_model,
)
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.history.tail import MARK, TailRenderer, Target
from tokenwire.coordinator.history.turns import Ending, Turn
from tokenwire.coordinator.text.template.options import TemplateOptions
from tokenwire.coordinator.types import ServedModel

USER: Message = {"role": "user", "content": "One?"}
MORE: Message = {"role": "user", "content": "Two?"}
TOOL: Message = {"role": "tool", "tool_call_id": "1", "content": "rain"}
CALLS = [{"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "X"}'}}]


async def tail(
    template: str, said: str, ending: Ending, following: Message = MORE, **message: object
) -> tuple[str | None, PreparedPrompt]:
    """Return the text behind a reply in the next prompt, None where that was rendered anew."""
    model = small_model(template)
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.ask(USER), encoded(model, said), ending, **message or {"content": "Yes"})
    before = dialogue.ids
    prompt = await dialogue.ask(following)
    if prompt.conversation is None or prompt.conversation.source is None:
        return None, prompt
    assert list(prompt.token_ids[: len(before)]) == before
    return decoded(model, list(prompt.token_ids[len(before) :])), prompt


TURN_END = "<|close|>text<|sep|><|close|>turn<|sep|>"
TURN_NEXT = "<|open|>user<|sep|>Two?" + TURN_END + "<|open|>assistant<|sep|>"
NEXT = "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "said", "ending", "expected"),
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
        (CHATML, "Yes<|im_end|>\n", "cut", NEXT),
        (CHATML, "<tool_call>x<|im_end|>", "cut", "\n" + NEXT),
        (MARKER, "Yes<|user|>", "stop", "Two?<|assistant|>"),
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
        (REFUSES, "Yes<|im_end|>", "token", "\n" + NEXT),
        (REFUSES, "Yes<tool_call>", "token", None),
        (TWICE, "Yes<|im_end|>", "token", TURN_NEXT),
    ],
)
async def test_the_template_completes_what_the_reply_left_open(
    template: str, said: str, ending: Ending, expected: str | None
) -> None:
    """A closed reply is not closed again, an open one is; where that is not certain there is no tail."""
    assert (await tail(template, said, ending))[0] == expected


TOOL_NEXT = "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "said", "ending", "expected"),
    [
        (CHATML, "<tool_call>{ }</tool_call><|im_end|>", "token", "\n" + TOOL_NEXT),
        (CHATML, "<tool_call>{ }</tool_call>", "stop", "<|im_end|>\n" + TOOL_NEXT),
        (CHATML, "<tool_call>{ ", "cut", "<|im_end|>\n" + TOOL_NEXT),
        (MARKER, "<tool_call>{ }</tool_call><|observation|>", "token", "rain<|assistant|>"),
        (MARKER, "<tool_call>{ }</tool_call><|observation|>", "unknown", "rain<|assistant|>"),
        (MARKER, "<tool_call>{ ", "cut", "<|observation|>rain<|assistant|>"),
    ],
)
async def test_tool_calls_are_a_part_of_the_reply(template: str, said: str, ending: Ending, expected: str) -> None:
    """How the template writes calls makes no difference: only what comes behind them does."""
    assert (await tail(template, said, ending, TOOL, content=None, tool_calls=CALLS))[0] == expected


async def test_a_call_that_spells_the_end_does_not_end_the_reply() -> None:
    """Arguments may hold any text, also that of a template's marks."""
    calls = [{"function": {"name": "f", "arguments": '{"a": "<|im_end|>\\n<|im_start|>user"}'}}]

    assert (await tail(CHATML, "x<|im_end|>", "token", TOOL, content=None, tool_calls=calls))[0] == "\n" + TOOL_NEXT


async def test_a_conversation_that_spells_the_mark_is_rendered_anew() -> None:
    """There would be no telling which of the marks is the reply's end."""
    found, prompt = await tail(CHATML, "Yes<|im_end|>", "token", {"role": "user", "content": MARK})

    assert found is None
    assert MARK in (prompt.text or "")


async def test_a_template_that_hides_replies_has_no_tail() -> None:
    """Then nothing says where the reply would end."""
    template = "{% for m in messages if m.role == 'user' %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"

    assert (await tail(template, "Yes<|im_end|>", "token"))[0] is None


async def test_a_tail_that_begins_with_text_is_not_certain() -> None:
    """What stands before it might have become a part of its first token."""
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"

    assert (await tail(template, "Yes", "cut"))[0] is None


async def test_without_a_generation_prompt_the_tail_is_what_is_left() -> None:
    """The reply's own closer, and nothing else."""
    model = small_model()
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.ask(USER), encoded(model, "Yes<|im_end|>"), content="Yes")
    dialogue.options = TemplateOptions(add_generation_prompt=False)

    prompt = await dialogue.ask()

    assert decoded(model, list(prompt.token_ids[len(dialogue.ids) :])) == "\n"


async def test_a_tail_begins_with_a_token_that_nothing_before_it_changes() -> None:
    """One that swallows the blanks before it is not certain."""
    for swallows in (False, True):
        model = small_model(lstrip=swallows)
        dialogue = Dialogue(model)
        dialogue.answer(await dialogue.ask(USER), encoded(model, "Yes"), "cut", content="Yes")

        assert ((await dialogue.ask(MORE)).reused > 0) == (not swallows)


async def test_what_comes_behind_an_open_message_is_the_template_s_still() -> None:
    """A message that is continued has no closer; those before it have theirs."""
    model = small_model()
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.ask(USER), encoded(model, "Yes<tool_call>"), "token", content="Yes")
    dialogue.options = TemplateOptions(add_generation_prompt=False, continue_final_message=True)

    prompt = await dialogue.ask(MORE, {"role": "assistant", "content": "No"})

    assert decoded(model, list(prompt.token_ids[prompt.reused :])) == "\n" + NEXT + "No"


async def behind(renderer: TailRenderer, model: ServedModel, said: str, **reply: Any) -> str | None:
    """Return the text behind a reply that a token ended, told by this renderer."""
    target = Target(model, TemplateOptions(), b"template")
    messages = [USER, {"role": "assistant", **reply}, TOOL]
    ids = await renderer.ids_behind(Turn(array("I", encoded(model, said)), ending="token"), messages, 1, target)
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
    ids=["text behind calls", "calls behind text"],
)
async def test_what_one_reply_shows_behind_its_mark_is_not_another_s(
    template: str, replies: Sequence[Message], expected: str
) -> None:
    """The closer is remembered, and not what stands in front of it."""
    renderer, model = TailRenderer(), small_model(template)
    end = "<|calls|>" if template == CALLS_FIRST else "<|end|>"

    assert [await behind(renderer, model, f"x{end}", **reply) for reply in replies] == [expected] * len(replies)


async def test_closers_are_rendered_once_and_not_all_remembered() -> None:
    """A tail takes one rendering where the closer is known."""

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
        await behind(renderer, model, "x<|im_end|>", content="x", tool_calls=calls)
        taken.append(Counting.rendered - before)

    assert taken == [2, 1, 2, 1, 2]
