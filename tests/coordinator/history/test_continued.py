"""Replies that go on with a message, and such that come back as more than one."""

import pytest

from tests.coordinator.history.dialogues import Dialogue, Message
from tests.coordinator.history.models import TWICE, decoded, encoded, small_model
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.text.template.options import TemplateOptions
from tokenwire.coordinator.types import ServedModel

USER: Message = {"role": "user", "content": "One?"}
MORE: Message = {"role": "user", "content": "Two?"}
OPEN = TemplateOptions(add_generation_prompt=False, continue_final_message=True)


@pytest.fixture
def model() -> ServedModel:
    """Return a model with a ChatML template."""
    return small_model()


async def test_a_reply_that_was_cut_goes_on_by_its_ids(model: ServedModel) -> None:
    """continue_final_message: one that was cut is the prompt as it is; one that has ended is rendered open."""
    for ending, expected in (("cut", True), ("stop", False), ("token", False)):
        dialogue = Dialogue(model)
        dialogue.answer(await dialogue.ask(USER), encoded(model, "Ye"), ending, content="Ye")  # type: ignore[arg-type]
        dialogue.options = TemplateOptions(add_generation_prompt=False, continue_final_message=True)
        prompt = await dialogue.ask()

        assert (list(prompt.token_ids) == dialogue.ids and prompt.reused > 0) == expected


async def test_a_message_that_was_continued_comes_back_as_one(model: ServedModel) -> None:
    """The client puts both parts together, and so does the history."""
    begun: Message = {"role": "assistant", "content": "Ye"}
    dialogue = Dialogue(model, messages=[USER, begun])
    dialogue.options = TemplateOptions(add_generation_prompt=False, continue_final_message=True)
    dialogue.answer(await dialogue.ask(), encoded(model, "s<|im_end|>"), content="s")
    dialogue.messages[1:] = [{"role": "assistant", "content": "Yes"}]
    dialogue.options = TemplateOptions()

    assert list((await dialogue.ask(MORE)).token_ids[: len(dialogue.ids)]) == dialogue.ids


async def cut_twice(dialogue: Dialogue) -> PreparedPrompt:
    """Ask, and go on twice with a reply that is cut; return the first prompt."""
    first = await dialogue.ask(MORE)
    dialogue.answer(first, encoded(dialogue.model, "<think>So"), "cut", content=None, reasoning="So")
    dialogue.options = OPEN
    for ids, more, whole in (
        (" be it</think>", {"content": None, "reasoning": " be it"}, {"content": "", "reasoning": "So be it"}),
        ("It", {"content": "It"}, {"content": "It", "reasoning": "So be it"}),
    ):
        dialogue.answer(await dialogue.ask(), encoded(dialogue.model, ids), "cut", **more)
        dialogue.messages[-2:] = [{"role": "assistant", **whole}]
    return first


async def test_a_closer_that_two_replies_began_is_begun_once() -> None:
    """A reply that was cut in the middle of its closer, and went on, and was cut there again."""
    model = small_model(TWICE)
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.ask(USER), encoded(model, "Yes<|close|>text"), "cut", content="Yes")
    dialogue.options = OPEN
    dialogue.answer(await dialogue.ask(), encoded(model, "<|sep|>"), "cut", content="")
    del dialogue.messages[-1]
    dialogue.options = TemplateOptions()

    prompt = await dialogue.ask(MORE)

    assert prompt.reused == len(dialogue.ids)
    assert decoded(model, list(prompt.token_ids[prompt.reused :])).startswith("<|close|>turn<|sep|><|open|>user")


@pytest.mark.parametrize("follows", [False, True])
async def test_a_message_that_goes_on_is_new_as_a_whole(model: ServedModel, follows: bool) -> None:
    """What it says so far tells whether it has thought, however often it was cut; what came before does not."""
    dialogue = Dialogue(model)
    if follows:
        dialogue.answer(await dialogue.ask(USER), encoded(model, "Yes<|im_end|>"), content="Yes", reasoning="before")
    first = await cut_twice(dialogue)

    prompt = await dialogue.ask()

    assert list(prompt.new_ids) == [*first.new_ids, *encoded(model, "<think>So be it</think>It")]
    assert list(prompt.token_ids[-len(prompt.new_ids) :]) == list(prompt.new_ids)
    assert (len(prompt.new_ids) < len(prompt.token_ids)) == follows


async def test_reasoning_of_a_message_that_went_on_is_all_of_it(model: ServedModel) -> None:
    """The next request has it as one text, or leaves it out; half of it is another message."""
    dialogue = Dialogue(model)
    await cut_twice(dialogue)
    for reasoning, expected in (("So be it", len(dialogue.ids)), (None, len(dialogue.ids)), ("So", 0)):
        messages = [dialogue.messages[0], {"role": "assistant", "content": "It", "reasoning": reasoning}]
        again = Dialogue(model, dialogue.history, messages=messages)
        assert (await again.ask(USER)).reused == expected, reasoning


async def test_reasoning_that_a_client_began_with_has_to_stay(model: ServedModel) -> None:
    """It was not generated here, also where the rest of its message was."""
    begun: Message = {"role": "assistant", "content": "Ye", "reasoning": "hm"}
    dialogue = Dialogue(model, messages=[USER, begun], options=OPEN)
    dialogue.answer(await dialogue.ask(), encoded(model, "s<|im_end|>"), content="s")
    for reasoning, expected in (("hm", len(dialogue.ids)), (None, 0)):
        messages: list[Message] = [USER, {"role": "assistant", "content": "Yes", "reasoning": reasoning}]
        again = Dialogue(model, dialogue.history, messages=messages)
        assert (await again.ask(MORE)).reused == expected, reasoning


@pytest.mark.parametrize(
    "begun", [{"role": "user", "content": "Ye"}, {"role": "assistant", "content": [{"type": "text", "text": "Ye"}]}]
)
async def test_what_has_no_one_continuation_is_not_kept(model: ServedModel, begun: Message) -> None:
    """A message of another role, or one that is made of parts, does not come back as one."""
    dialogue = Dialogue(model, messages=[USER, begun], options=OPEN)
    dialogue.answer(await dialogue.ask(), encoded(model, "s<|im_end|>"), content="s")
    messages: list[Message] = [USER, {**begun, "content": "Yes"}]

    assert (await Dialogue(model, dialogue.history, messages=messages).ask(MORE)).reused == 0


async def test_a_reply_may_come_back_as_several_messages(model: ServedModel) -> None:
    """Some routes show text behind a call as another message: the last one ends the turn."""
    dialogue = Dialogue(model)
    prompt = await dialogue.ask(USER)
    reply: list[Message] = [
        {"role": "assistant", "content": "a", "reasoning": "so", "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "assistant", "content": "b"},
    ]
    ids = encoded(model, "ab<|im_end|>")
    assert prompt.conversation is not None
    prompt.conversation.record(prompt.token_ids, reply, ids, "token")

    for first, expected in (
        (reply[0], True),
        ({**reply[0], "reasoning": None}, True),
        ({**reply[0], "reasoning": "no"}, False),
    ):
        following = await Dialogue(model, dialogue.history, messages=[USER, first, reply[1]]).ask(MORE)
        assert (list(following.token_ids[: following.reused]) == [*prompt.token_ids, *ids]) == expected


async def test_a_message_that_was_continued_may_come_back_with_others(model: ServedModel) -> None:
    """The first of the reply's messages goes on with it. What the others thought was thought here."""
    begun: Message = {"role": "assistant", "content": "Ye", "reasoning": "hm"}
    dialogue = Dialogue(model, messages=[USER, begun], options=OPEN)
    prompt, ids = await dialogue.ask(), encoded(model, "s<|im_end|>")
    call = {"function": {"name": "f"}}
    reply: list[Message] = [
        {"role": "assistant", "content": "s", "tool_calls": [call]},
        {"role": "assistant", "content": "b", "reasoning": "so"},
    ]
    assert prompt.conversation is not None
    prompt.conversation.record(prompt.token_ids, reply, ids, "token")

    for reasoning in ("so", None):
        messages = [USER, {**begun, "content": "Yes", "tool_calls": [call]}, {**reply[1], "reasoning": reasoning}]
        following = await Dialogue(model, dialogue.history, messages=messages).ask(MORE)
        assert list(following.token_ids[: following.reused]) == [*prompt.token_ids, *ids], reasoning


async def test_reasoning_that_begins_in_the_rest_of_a_message_may_be_left_out(model: ServedModel) -> None:
    """The client began with a text only; what was thought behind that was thought here."""
    dialogue = Dialogue(model, messages=[USER, {"role": "assistant", "content": "Ye"}], options=OPEN)
    dialogue.answer(await dialogue.ask(), encoded(model, "s<|im_end|>"), content="s", reasoning="so")
    for reasoning in ("so", None):
        messages: list[Message] = [USER, {"role": "assistant", "content": "Yes", "reasoning": reasoning}]
        assert (await Dialogue(model, dialogue.history, messages=messages).ask(MORE)).reused == len(dialogue.ids)


async def test_reasoning_that_a_client_began_with_has_to_stay_behind_a_stored_turn(model: ServedModel) -> None:
    """That the conversation before it was generated here makes no difference."""
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.ask(USER), encoded(model, "Yes<|im_end|>"), content="Yes")
    first, dialogue.options = len(dialogue.ids), OPEN
    begun: Message = {"role": "assistant", "content": "N", "reasoning": "hm"}
    prompt = await dialogue.ask(MORE, begun)
    assert prompt.reused == first
    dialogue.answer(prompt, encoded(model, "o<|im_end|>"), content="o")
    for reasoning, expected in (("hm", len(dialogue.ids)), (None, first)):
        messages = [*dialogue.messages[:3], {"role": "assistant", "content": "No", "reasoning": reasoning}]
        assert (await Dialogue(model, dialogue.history, messages=messages).ask(USER)).reused == expected
