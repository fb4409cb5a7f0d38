"""The turns that a request finds in the history, and those that it must never find."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.coordinator.history.dialogues import Dialogue, new_history
from tests.coordinator.history.models import CHATML, TWICE, decoded, encoded, small_model
from tokenwire.coordinator.history.token_history import TokenHistory
from tokenwire.coordinator.text.template.messages import ChatMessage
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.types import ExactHistory, KnownPrefix, ServedModel
from tokenwire.errors import InvalidRequest

USER: ChatMessage = {"role": "user", "content": "One?"}
MORE: ChatMessage = {"role": "user", "content": "Two?"}
REPLY = "Yes<|im_end|>"
TURN_NEXT = "<|open|>user<|sep|>Two?<|close|>text<|sep|><|close|>turn<|sep|><|open|>assistant<|sep|>"


async def held(model: ServedModel, history: TokenHistory | None = None, **reply: Any) -> Dialogue:
    """Return a dialogue of a question and a reply."""
    dialogue = Dialogue(model, history or new_history())
    dialogue.answer(await dialogue.prepare(USER), encoded(model, REPLY), **reply or {"content": "Yes"})
    return dialogue


async def test_a_reply_is_continued_by_its_ids(model: ServedModel) -> None:
    """The next prompt begins with the last prompt and completion, which are not rendered again."""
    dialogue = await held(model)

    prompt = await dialogue.prepare(MORE)

    assert prompt.reused == len(dialogue.ids)
    assert prompt.history is not None
    assert (prompt.history.source, prompt.history.is_stored) == ("stored", True)
    assert list(prompt.token_ids[: prompt.reused]) == dialogue.ids
    assert list(prompt.new_ids) == list(prompt.token_ids[prompt.reused :])


@pytest.mark.parametrize(("sent", "is_found"), [("false", True), ("true", False)])
async def test_a_call_may_come_back_with_its_tools_defaults(sent: str, is_found: bool) -> None:
    """As Claude Code sends its edits back: what it adds changes nothing, another value does."""
    schema = {"properties": {"all": {"type": "boolean", "default": False}}}
    tools = [{"type": "function", "function": {"name": "edit", "parameters": schema}}]
    dialogue = Dialogue(model := small_model(), options=TemplateOptions(tools=tools))
    call = {"id": "1", "type": "function", "function": {"name": "edit", "arguments": '{"file": "a"}'}}
    dialogue.answer(await dialogue.prepare(USER), encoded(model, REPLY), content="Yes", tool_calls=[call])
    back = {**call, "function": {"name": "edit", "arguments": f'{{"all": {sent}, "file": "a"}}'}}
    dialogue.messages[-1] = {"role": "assistant", "content": "Yes", "tool_calls": [back]}

    assert (await dialogue.prepare(MORE)).reused == is_found * len(dialogue.ids)


def _tenant(dialogue: Dialogue) -> None:
    dialogue.exact = replace(dialogue.exact, tenant="other")


def _salt(dialogue: Dialogue) -> None:
    dialogue.exact = replace(dialogue.exact, cache_salt="other")


def _session(dialogue: Dialogue) -> None:
    dialogue.exact = replace(dialogue.exact, conversation_id="other")


def _adapter(dialogue: Dialogue) -> None:
    dialogue.model = replace(dialogue.model, names=("adapter",))


def _tokenizer(dialogue: Dialogue) -> None:
    dialogue.model = replace(dialogue.model, tokenizer_digest="other")


def _template(dialogue: Dialogue) -> None:
    dialogue.model = replace(dialogue.model, template=small_model(CHATML + " ").template)


def _kwargs(dialogue: Dialogue) -> None:
    dialogue.options = TemplateOptions(kwargs={"enable_thinking": False})


def _tools(dialogue: Dialogue) -> None:
    dialogue.options = TemplateOptions(tools=[{"type": "function", "function": {"name": "f"}}])


def _documents(dialogue: Dialogue) -> None:
    dialogue.options = TemplateOptions(documents=[{"text": "d"}])


def _reasoning_effort(dialogue: Dialogue) -> None:
    dialogue.options = TemplateOptions(reasoning_effort="low")


def _edit(dialogue: Dialogue) -> None:
    dialogue.messages[-1] = {"role": "assistant", "content": "Yes."}


def _edit_of_the_question(dialogue: Dialogue) -> None:
    dialogue.messages[0] = {"role": "user", "content": "One!"}


def _made_up_reasoning(dialogue: Dialogue) -> None:
    dialogue.messages[-1] = {"role": "assistant", "content": "Yes", "reasoning": "because"}


@pytest.mark.parametrize(
    "change",
    [
        *(_tenant, _salt, _session, _adapter, _tokenizer, _template, _kwargs, _tools, _documents, _reasoning_effort),
        *(_edit, _edit_of_the_question, _made_up_reasoning),
    ],
)
async def test_any_difference_is_another_conversation(model: ServedModel, change: Callable[[Dialogue], None]) -> None:
    """A request that differs, or is another tenant's, gets none of the ids."""
    dialogue = await held(model)
    change(dialogue)

    assert (await dialogue.prepare(MORE)).reused == 0


async def test_the_generation_prompt_makes_no_difference(model: ServedModel) -> None:
    """A prompt without a generation prompt continues the same ids."""
    dialogue = await held(model)
    dialogue.options = TemplateOptions(add_generation_prompt=False)

    assert (await dialogue.prepare(MORE)).reused == len(dialogue.ids)


async def test_branches_continue_from_where_they_diverge(model: ServedModel) -> None:
    """A retry of the last turn finds the turn before it; each choice of a request is found by its own text."""
    history = new_history()
    dialogue = await held(model, history)
    prompt = await dialogue.prepare(MORE)
    branches = {}
    for content in ("a", "b"):
        branch = Dialogue(model, history, messages=list(dialogue.messages))
        branch.answer(prompt, encoded(model, f"\u200b{content}<|im_end|>"), content=content)
        branches[content] = branch

    for branch in branches.values():
        assert list((await branch.prepare(MORE)).token_ids[: len(branch.ids)]) == branch.ids
    edited = Dialogue(model, history, messages=[*dialogue.messages, {"role": "assistant", "content": "c"}])
    assert (await edited.prepare(MORE)).reused == len(dialogue.ids)


async def test_conversation_ids_distinguish_equal_replies(model: ServedModel) -> None:
    """Two rollouts may have the same text in other tokens: each conversation continues its own."""
    history = new_history()
    for conversation, shown in (("a", "Yes<|im_end|>"), ("b", "\u200bYes<|im_end|>")):
        dialogue = Dialogue(model, history, ExactHistory(conversation_id=conversation))
        dialogue.answer(await dialogue.prepare(USER), encoded(model, shown), content="Yes")
        ids = dialogue.ids
        other = Dialogue(model, history, ExactHistory(conversation_id="c"), messages=list(dialogue.messages))

        assert list((await dialogue.prepare(MORE)).token_ids[: len(ids)]) == ids
        assert (await other.prepare(MORE)).reused == 0


async def test_reasoning_may_be_dropped_but_not_changed(model: ServedModel) -> None:
    """In any of the earlier turns; if one was changed, the turns before it are found."""
    dialogue = await held(model, content="Yes", reasoning="because")
    first = dialogue.ids
    dialogue.answer(await dialogue.prepare(MORE), encoded(model, REPLY), content="Yes", reasoning="so")
    both = dialogue.ids
    cases = {("because", "so"): both, (None, "so"): both, ("because", None): both, (None, None): both}
    cases |= {("because", "not"): first, ("not", "so"): [], ("not", None): [], ("so", "because"): []}

    for (one, two), expected in cases.items():
        messages = [dict(message) for message in dialogue.messages]
        messages[1]["reasoning"], messages[3]["reasoning"] = one, two
        again = Dialogue(model, dialogue.history, messages=messages)
        assert (await again.prepare(MORE)).reused == len(expected), (one, two)


async def test_reasoning_from_elsewhere_must_stay(model: ServedModel) -> None:
    """The template may have rendered it: without it, or with other reasoning, the conversation differs."""
    foreign: list[ChatMessage] = [USER, {"role": "assistant", "content": "No", "reasoning": "hm"}]
    dialogue = Dialogue(model, messages=foreign)
    dialogue.answer(await dialogue.prepare(MORE), encoded(model, REPLY), content="Yes")

    for reasoning, expected in (("hm", len(dialogue.ids)), ("ha", 0), (None, 0)):
        messages = [dict(message) for message in dialogue.messages]
        messages[1]["reasoning"] = reasoning
        again = Dialogue(model, dialogue.history, messages=messages)
        assert (await again.prepare(USER)).reused == expected


async def test_reasoning_from_elsewhere_must_stay_between_stored_turns(model: ServedModel) -> None:
    """A message of another model may follow a reply of this one."""
    dialogue = await held(model)
    foreign: ChatMessage = {"role": "assistant", "content": "No", "reasoning": "hm"}
    dialogue.answer(await dialogue.prepare(MORE, foreign, USER), encoded(model, REPLY), content="Yes")
    messages = [*dialogue.messages[:3], {"role": "assistant", "content": "No"}, *dialogue.messages[4:]]

    unchanged = await Dialogue(model, dialogue.history, messages=dialogue.messages).prepare(MORE)
    assert unchanged.reused == len(dialogue.ids)
    assert (await Dialogue(model, dialogue.history, messages=messages).prepare(MORE)).reused < len(dialogue.ids)


async def test_reasoning_of_a_conversations_first_message_must_stay(model: ServedModel) -> None:
    """Clients may begin with an assistant message."""
    dialogue = Dialogue(model, messages=[{"role": "assistant", "content": "Hi", "reasoning": "hm"}])
    dialogue.answer(await dialogue.prepare(USER), encoded(model, REPLY), content="Yes")
    messages = [{"role": "assistant", "content": "Hi"}, *dialogue.messages[1:]]

    assert (await Dialogue(model, dialogue.history, messages=messages).prepare(MORE)).reused == 0


async def test_a_request_may_disable_storing(model: ServedModel) -> None:
    """Nothing is stored on request, or if the client keeps the ids itself; a new conversation has no source."""
    known = encoded(model, "<|im_start|>system\n")
    for exact, keeps in (
        (ExactHistory(), True),
        (ExactHistory(keeps=False), False),
        (ExactHistory(prefix=KnownPrefix(known, None, "prefix", required=False)), True),
        (ExactHistory(prefix=KnownPrefix(known, None, "prefix", required=True)), False),
    ):
        dialogue = Dialogue(model, exact=exact)
        prompt = await dialogue.prepare(USER)
        assert prompt.history is not None
        assert (prompt.history.source, prompt.history.is_stored) == (None, keeps)
        dialogue.answer(prompt, encoded(model, REPLY), content="Yes")
        assert ((await Dialogue(model, dialogue.history, messages=dialogue.messages).prepare(MORE)).reused > 0) == keeps


async def test_the_clients_ids_take_precedence_over_stored_ones(model: ServedModel) -> None:
    """The client's own ids of its conversation count."""
    dialogue = await held(model)
    known = encoded(model, "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>")
    for required, source in ((True, "required_prefix_token_ids"), (False, "message")):
        again = Dialogue(model, dialogue.history, messages=list(dialogue.messages))
        again.exact = ExactHistory(prefix=KnownPrefix(known, 1, "required_prefix_token_ids", required))
        prompt = await again.prepare(MORE)

        assert prompt.history is not None
        assert prompt.history.source == source
        assert list(prompt.token_ids[: len(known)]) == known


@pytest.mark.parametrize(
    ("end", "tail"),
    [("<|im_end|>", TURN_NEXT), ("<|close|>text<|sep|>", "<|close|>turn<|sep|>" + TURN_NEXT)],
    ids=["end of sequence", "another token"],
)
async def test_the_end_of_sequence_token_closes_the_clients_ids(end: str, tail: str) -> None:
    """Only what the template has behind its last closing token follows; after another token the closing does."""
    model = small_model(TWICE, "<|im_end|>")
    known = encoded(model, "Yes" + end)
    dialogue = Dialogue(model, messages=[USER, {"role": "assistant", "content": "Yes"}])
    dialogue.exact = ExactHistory(prefix=KnownPrefix(known, 1, "required_prefix_token_ids", required=True))

    prompt = await dialogue.prepare(MORE)

    assert decoded(model, list(prompt.token_ids[len(known) :])) == tail


async def test_a_missing_required_prefix_is_an_error(model: ServedModel) -> None:
    """Without an assistant message the template renders the prompt, which must begin with the prefix."""
    start = encoded(model, "<|im_start|>system\n")
    for ids, fits in ((start, True), ([*start, 7], False)):
        dialogue = Dialogue(model, exact=ExactHistory(prefix=KnownPrefix(ids, None, "required_prefix", required=True)))
        if fits:
            assert list((await dialogue.prepare(USER)).token_ids[: len(ids)]) == ids
        else:
            with pytest.raises(InvalidRequest, match=r"cannot begin with the .* ids of `required_prefix`"):
                await dialogue.prepare(USER)


async def test_the_clients_ids_are_checked(model: ServedModel) -> None:
    """An id outside the vocabulary may kill an engine."""
    for wrong in (-1, 10**12):
        prefix = KnownPrefix([1, wrong], 1, "messages[1].generation_token_ids")
        dialogue = Dialogue(model, exact=ExactHistory(prefix=prefix), messages=[USER, {"role": "assistant"}])
        with pytest.raises(InvalidRequest, match=str(wrong)):
            await dialogue.prepare(MORE)


async def test_an_empty_completion_is_not_stored(model: ServedModel) -> None:
    """A choice may be aborted before its first token."""
    dialogue = Dialogue(model)
    dialogue.answer(await dialogue.prepare(USER), [], "cut", content="")

    assert (await dialogue.prepare(MORE)).reused == 0


async def test_templates_do_not_receive_ids_of_messages() -> None:
    """They are for this service: a template that prints full messages prints no ids."""
    model = small_model("{% for m in messages %}<|im_start|>{{ m | tojson }}<|im_end|>{% endfor %}")
    carried = {"role": "assistant", "content": "Yes", "prompt_token_ids": [1], "generation_token_ids": [2]}
    dialogue = Dialogue(model, messages=[USER, {**carried, "generation_log_probs": [0.5]}])

    text = (await dialogue.prepare(MORE)).text

    assert text is not None
    assert "_ids" not in text
    assert "_probs" not in text
