"""Messages requests become chat requests."""

from typing import Any

import pytest

from tokenwire.coordinator.api.anthropic.request import MessagesRequest, messages_translator
from tokenwire.coordinator.api.openai.chat_request import ChatCompletionRequest
from tokenwire.errors import InvalidRequest

TOOL = {"name": "f", "description": "d", "input_schema": {"properties": {}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
KEEP_ALL = {"type": "clear_thinking_20251015", "keep": "all"}
HI = {"role": "user", "content": "Hi"}
HEADER = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=cli; cch=36ee5;"


def keeping(turns: int) -> dict[str, Any]:
    """Return an edit that keeps the thinking of this number of turns."""
    return {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": turns}}


def chat(*messages: Any, system_first: bool = False, **body: Any) -> ChatCompletionRequest:
    """Return the chat request that a request becomes."""
    request = MessagesRequest(model="m", max_tokens=2000, messages=list(messages or [HI]), **body)
    return request.to_chat(messages_translator(), system_first)


def blocks(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    """Return a message of content blocks."""
    return {"role": role, "content": list(content)}


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("Be brief.", "Be brief."),
        ([{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}], "Be brief."),
    ],
)
def test_system_prompts_come_first(system: Any, text: str) -> None:
    """As text or blocks."""
    assert chat(system=system).messages == [{"role": "system", "content": text}, HI]


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ([HEADER, "Be."], "Be."),
        ([HEADER + "\nBe brief.\nBe kind."], "Be brief.\nBe kind."),
        ([HEADER + "\nBe brief.", " Be kind."], "Be brief. Be kind."),
        (["Be brief.\n" + HEADER], "Be brief.\n" + HEADER),
        (HEADER + "\nBe brief.\nBe kind.", "Be brief.\nBe kind."),
    ],
)
@pytest.mark.parametrize("inline", [False, True])
def test_only_the_line_of_a_billing_header_is_removed(system: str | list[str], text: str, inline: bool) -> None:
    """It changes with every request. The rest stays, in text and blocks, of the system prompt and of messages."""
    content = system if isinstance(system, str) else [{"type": "text", "text": block} for block in system]
    request = chat(HI, {"role": "system", "content": content}) if inline else chat(system=content)

    assert [m["content"] for m in request.messages if m["role"] == "system"] == [text]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028", "\x85"])
def test_a_billing_header_ends_where_its_line_ends(end: str) -> None:
    """With any line separator."""
    assert chat(system=f"{HEADER}{end}Be brief.\nBe kind.").messages[0]["content"] == "Be brief.\nBe kind."


def test_a_similar_word_is_not_a_billing_header() -> None:
    """The header has a colon."""
    assert chat(system="x-anthropic-billing-headers are lines.").messages[0]["content"].startswith("x-anthropic")


@pytest.mark.parametrize("system", [HEADER, HEADER + "\n", [{"type": "text", "text": HEADER}]])
def test_a_billing_header_alone_is_not_a_system_prompt(system: Any) -> None:
    """No empty message is left."""
    assert chat(system=system).messages == [HI]
    assert chat(HI, {"role": "system", "content": system}).messages == [HI]


def test_system_messages_keep_their_place_if_the_template_supports_that() -> None:
    """Otherwise they are moved to the front."""
    reminder = {"role": "system", "content": " Be quick."}

    assert chat(HI, reminder, system="Be.").messages == [{"role": "system", "content": "Be."}, HI, reminder]
    assert chat(HI, reminder, system="Be.", system_first=True).messages == [
        {"role": "system", "content": "Be. Be quick."},
        HI,
    ]


@pytest.mark.parametrize(
    ("message", "messages"),
    [
        (blocks("user", {"type": "text", "text": "a"}), [{"role": "user", "content": "a"}]),
        (
            blocks("user", {"type": "text", "text": "a", "cache_control": {}}, {"type": "text", "text": "b"}),
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        ),
        (
            blocks(
                "assistant",
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "a"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}},
            ),
            [
                {
                    "role": "assistant",
                    "reasoning": "hm",
                    "content": "a",
                    "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
                }
            ],
        ),
        (
            blocks(
                "user",
                {"type": "tool_result", "tool_use_id": "t", "content": "42"},
                {"type": "tool_result", "tool_use_id": "u", "content": [{"type": "text", "text": "43"}]},
                {"type": "tool_result", "tool_use_id": "v"},
                {"type": "text", "text": "Well?"},
            ),
            [
                {"role": "tool", "tool_call_id": "t", "content": "42"},
                {"role": "tool", "tool_call_id": "u", "content": "43"},
                {"role": "tool", "tool_call_id": "v", "content": ""},
                {"role": "user", "content": "Well?"},
            ],
        ),
    ],
)
def test_blocks_become_messages(message: Any, messages: list[Any]) -> None:
    """Text, reasoning and calls are one message; tool results have their own."""
    assert chat(message).messages == messages


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (blocks("user", {"type": "image", "source": {}}), "messages[0].content[0] is of type 'image'"),
        (blocks("user", {"type": "document", "source": {}}), "takes text only"),
        (blocks("user", {"type": "tool_use", "id": "t", "name": "f", "input": {}}), "'tool_use', which is not"),
        (blocks("user", {"type": "server_tool_use"}), "'server_tool_use', which is not supported"),
        (blocks("user", {"type": "text"}), "messages[0].content[0].text is required"),
        (blocks("assistant", {"type": "tool_use", "id": "t", "name": "f"}), "input is required"),
        (
            blocks("user", {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}),
            "messages[0].content[0].content[0] is of type 'image'",
        ),
        (blocks("user", {"type": "tool_result", "content": "x"}), "tool_use_id is required"),
        ({"role": "user"}, "messages[0].content must be"),
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
    ],
)
def test_other_blocks_are_refused_by_name(message: Any, words: str) -> None:
    """The error names the position of a block that is not served or is invalid."""
    with pytest.raises(InvalidRequest) as raised:
        chat(message)

    assert words in raised.value.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0] is of type"),
        ({"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "only Anthropic's servers"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management.edits[0]"),
        ({"context_management": {"edits": [KEEP_ALL, {**KEEP_ALL, "keep": 1}]}}, "context_management.edits[1].keep"),
        ({"context_management": {"edits": [{**KEEP_ALL, "more": 1}]}}, "context_management.edits[0] is not"),
        ({"context_management": {"edits": [keeping(0)]}}, "context_management.edits[0].keep"),
        ({"context_management": {"edits": [KEEP_ALL, keeping(1)]}}, "context_management.edits[1] is a second"),
        ({"context_management": {"compact": True}}, "`context_management.compact`"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens is required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "less than max_tokens"),
        ({"mcp_servers": [{}]}, "`mcp_servers` is not supported"),
        ({"container": "x"}, "`container` is not supported"),
    ],
)
def test_unsupported_features_are_refused_by_name(body: dict[str, Any], words: str) -> None:
    """Tools that Anthropic runs, and features that need its servers."""
    with pytest.raises(InvalidRequest) as raised:
        chat(**body)

    assert words in raised.value.message


def thought(text: str, *more: dict[str, Any]) -> dict[str, Any]:
    """Return an assistant message that begins with thinking."""
    return blocks("assistant", {"type": "thinking", "thinking": text, "signature": ""}, *more)


CALL = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
RESULT = blocks("user", {"type": "tool_result", "tool_use_id": "c", "content": "42"})
OK = {"type": "text", "text": "ok"}
CONVERSATION = [
    *(HI, thought("one", CALL), RESULT, thought("two", OK)),  # one turn
    *(HI, blocks("assistant", OK)),  # one without thinking
    *(HI, thought("three", OK), HI),
]


@pytest.mark.parametrize(
    "management",
    [
        *(None, {}, {"edits": []}, {"edits": [KEEP_ALL]}, {"edits": [{**KEEP_ALL, "keep": {"type": "all"}}]}),
        *({"edits": [keeping(2)]}, {"edits": [keeping(9)]}),
    ],
)
def test_context_management_without_effect_passes(management: Any) -> None:
    """Claude Code asks to keep all thinking, in two spellings."""
    assert chat(*CONVERSATION, context_management=management).messages == chat(*CONVERSATION).messages


@pytest.mark.parametrize("edit", [keeping(1), {"type": "clear_thinking_20251015"}])
def test_old_thinking_is_removed_on_request(edit: Any) -> None:
    """Except of the last turns that have some, by default one. Tool results do not start a turn."""
    bare = [
        blocks("assistant", *message["content"][1:]) if i in (1, 3) else message
        for i, message in enumerate(CONVERSATION)
    ]

    assert chat(*CONVERSATION, context_management={"edits": [edit]}).messages == chat(*bare).messages
    assert "reasoning" in chat(*bare).messages[-2]


def test_tools_of_anthropics_servers_are_left_out() -> None:
    """Agents offer them in addition to their own and work without them."""
    body = MessagesRequest.model_validate({"model": "m", "max_tokens": 9, "messages": [HI], "tools": [SEARCH, TOOL]})
    request = body.to_chat(messages_translator())

    assert [tool["function"]["name"] for tool in request.tools or ()] == ["f"]
    assert body.left_out_tools == ["web_search_20250305"]
    assert chat(tools=[SEARCH], tool_choice={"type": "auto"}).tool_choice is None


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (None, "auto"),
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}),
    ],
)
def test_tools_and_their_choice(choice: Any, chosen: Any) -> None:
    """Tools become functions, and their choice chat's."""
    request = chat(tools=[TOOL], tool_choice=choice)

    function = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
    assert request.tools == [{"type": "function", "function": function}]
    assert request.tool_choice == chosen
    assert request.parallel_tool_calls
    assert not chat(tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}).parallel_tool_calls


def test_fields_have_their_counterparts_in_chat() -> None:
    """Every served field becomes chat's; vLLM's own are passed on."""
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    request = chat(
        temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["x"], stream=True, seed=1, ignore_eos=True,
        output_config={"effort": "high", "format": schema}, metadata={"user_id": "me"}, service_tier="auto",
    )  # fmt: skip

    assert (request.max_tokens, request.temperature, request.top_p, request.top_k) == (2000, 0.5, 0.9, 5)
    assert (request.stop, request.stream, request.seed, request.ignore_eos) == (["x"], True, 1, True)
    assert request.reasoning_effort == "high"
    assert request.response_format is not None
    assert request.response_format.constraint() == {"json": {"type": "object"}}


def test_thinking_turns_reasoning_on_and_off() -> None:
    """Enabled sets a budget and the template's variable, disabled an effort of none, adaptive neither."""
    enabled = chat(thinking={"type": "enabled", "budget_tokens": 1024})
    disabled = chat(thinking={"type": "disabled"}, output_config={"effort": "high"})
    adaptive = chat(thinking={"type": "adaptive"}, chat_template_kwargs={"enable_thinking": False})

    assert (enabled.thinking_token_budget, enabled.chat_template_kwargs) == (1024, {"enable_thinking": True})
    assert (disabled.reasoning_effort, disabled.thinking_token_budget) == ("none", None)
    assert (adaptive.thinking_token_budget, adaptive.chat_template_kwargs) == (None, {"enable_thinking": False})


def test_a_final_assistant_message_is_continued() -> None:
    """Clients prefill replies with it; after a call the turn is over."""
    request = chat(HI, {"role": "assistant", "content": "One,"})
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}

    assert request.continue_final_message
    assert not request.add_generation_prompt
    assert chat(HI, blocks("assistant", {"type": "text", "text": "a"}, call)).add_generation_prompt
