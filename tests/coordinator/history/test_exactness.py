"""Conversations with replies of arbitrary ids keep them, across all modules of the history, with real models."""

import json
from dataclasses import dataclass

import pytest

from tests.coordinator.history.dialogues import Babble, Dialogue, id_of, model_of
from tests.coordinator.history.models import CHATML, MARKER, THINKING, small_model
from tests.coordinator.text.template.conversations import TOOLS
from tests.tokenizers import npm_tokenizer_directory, tokenizer_in
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.history.turns import Ending
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ServedModel

CONVERSATIONS = 84
TURNS = 4


@dataclass(frozen=True)
class ConversationCase:
    """A model, and how its replies end."""

    tokenizer: str
    eos: str
    call_eos: str = ""
    """The end token of replies that call a tool, if it differs."""
    tools: bool = True
    thinks: bool = False
    closes: bool = True
    """Whether replies have an end token of their own, instead of ending with the next message's first token."""


CASES = [
    ConversationCase("qwen2_5", "<|im_end|>"),
    ConversationCase("qwen3", "<|im_end|>", thinks=True),
    ConversationCase("llama3_1", "<|eot_id|>", call_eos="<|end_of_text|>"),
    ConversationCase("mistral_nemo", "</s>", tools=False),
    ConversationCase("deepseek_v3", "<｜end▁of▁sentence｜>", tools=False),
    ConversationCase("gemma3", "<end_of_turn>", tools=False),
]


SMALL = {
    "default system prompt": (CHATML, ConversationCase("", "<|im_end|>")),
    "drops reasoning": (THINKING, ConversationCase("", "<|im_end|>", tools=False, thinks=True)),
    "ends with the next mark": (MARKER, ConversationCase("", "<|user|>", call_eos="<|observation|>", closes=False)),
}


@pytest.mark.npm
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.tokenizer)
async def test_every_prompt_keeps_the_ids_of_earlier_turns(case: ConversationCase) -> None:
    """Each prompt is exactly the last prompt and completion, followed by the template's text after them."""
    model = model_of(tokenizer_in(npm_tokenizer_directory(case.tokenizer)))

    assert await mismatches_of_templates(model, case) > 0.3, "templates alone should differ, or this shows nothing"


@pytest.mark.parametrize("name", SMALL)
async def test_every_prompt_keeps_the_ids_of_earlier_turns_with_small_models(name: str) -> None:
    """The same for each kind of template, with a tokenizer built here."""
    template, case = SMALL[name]
    await mismatches_of_templates(small_model(template, case.eos), case)


async def mismatches_of_templates(model: ServedModel, case: ConversationCase) -> float:
    """Hold conversations and check every prompt; return the share that the template alone would have mismatched."""
    mismatched = []
    for seed in range(CONVERSATIONS):
        babble = Babble(model, seed)
        tools = case.tools and seed % 3 == 0
        dialogue = Dialogue(model, options=TemplateOptions(tools=TOOLS if tools else None))
        if seed % 2:
            dialogue.messages.append({"role": "system", "content": babble.text(5)})
        message: ChatMessage = {"role": "user", "content": babble.text(8)}
        for _ in range(TURNS):
            before, prompt = dialogue.ids, await dialogue.prepare(message)
            if before:
                mismatched.append(not await follows(prompt, before, dialogue, case))
            message = reply_in_some_way(case, babble, dialogue, prompt, tools)
    assert len(mismatched) == CONVERSATIONS * (TURNS - 1)
    return sum(mismatched) / len(mismatched)


async def follows(prompt: PreparedPrompt, before: list[int], dialogue: Dialogue, case: ConversationCase) -> bool:
    """Check a prompt that continues ids; return whether the template's own prompt would have continued them too."""
    assert prompt.history is not None
    assert prompt.history.source == "stored"
    assert list(prompt.token_ids[: len(before)]) == before
    tail, rendered = list(prompt.token_ids[len(before) :]), await dialogue.rendered()
    assert rendered[-len(tail) :] == tail
    if case.closes:
        eos = id_of(dialogue.model, case.eos)
        assert eos in (tail[0], rendered[-len(tail) - 1]), "the reply has no end, or two"
        assert (tail[0] == eos) == (dialogue.ending != "token")
    return rendered[: len(before)] == before


def reply_in_some_way(
    case: ConversationCase, babble: Babble, dialogue: Dialogue, prompt: PreparedPrompt, tools: bool
) -> ChatMessage:
    """Reply in one of the ways of models; return the next message."""
    model, ids = dialogue.model, babble.ids(12)
    shown: ChatMessage = {"content": model.tokenizer.decode(ids)}
    following: ChatMessage = {"role": "user", "content": babble.text(8)}
    if case.thinks and babble.chance(0.7):
        ids = [id_of(model, "<think>"), *babble.ids(9), id_of(model, "</think>"), *ids]
        shown["reasoning"] = babble.text(9)
    calls = tools and babble.chance(0.5)
    if calls:
        arguments = {"city": babble.text(3), "n": 1.5}
        shown = {**shown, "content": None, "tool_calls": [replied_call("call00001", "weather", arguments)]}
        following = {"role": "tool", "tool_call_id": "call00001", "content": babble.text(5)}
    ending: Ending = "token" if calls and case.call_eos else babble.choice(["token", "token", "cut", "stop"])
    if ending == "token":
        ids.append(id_of(model, (calls and case.call_eos) or case.eos))
    dialogue.answer(prompt, ids, ending, **shown)
    if babble.chance(0.5):
        dialogue.messages[-1].pop("reasoning", None)  # as many clients do
    return following


def replied_call(call_id: str, name: str, arguments: ChatMessage) -> ChatMessage:
    """Return a tool call of a reply."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
