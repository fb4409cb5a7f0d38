"""Messages requests become chat requests."""

from typing import Any

import pytest

from tests.coordinator.api.anthropic.requests import HI, messages_chat
from tokenwire.coordinator.api.anthropic.request import MessagesRequest, messages_translator
from tokenwire.errors import InvalidRequest

TOOL = {"name": "f", "description": "d", "input_schema": {"properties": {}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0] is of type"),
        ({"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}, "only Anthropic's servers"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"thinking": {"type": "enabled"}}, "budget_tokens is required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "less than max_tokens"),
        ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, "only Anthropic's servers"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name is required"),
        ({"container": "x"}, "`container` is not supported"),
    ],
)
def test_unsupported_features_are_rejected_by_name(body: dict[str, Any], words: str) -> None:
    """Tools that Anthropic runs, and features that need its servers."""
    with pytest.raises(InvalidRequest) as raised:
        messages_chat(**body)

    assert words in raised.value.message


def test_tools_of_anthropics_servers_are_left_out() -> None:
    """Agents offer them in addition to their own and work without them."""
    body = MessagesRequest.model_validate({"model": "m", "max_tokens": 9, "messages": [HI], "tools": [SEARCH, TOOL]})
    request = body.to_chat(messages_translator())

    assert [tool["function"]["name"] for tool in request.tools or ()] == ["f"]
    assert body.left_out_tools == ["web_search_20250305"]
    assert messages_chat(tools=[SEARCH], tool_choice={"type": "auto"}).tool_choice is None


def test_mcp_servers_and_their_tools_are_left_out() -> None:
    """Only Anthropic's servers connect to them."""
    mcp = {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]}
    toolset = {"type": "mcp_toolset", "mcp_server_name": "x"}
    body = MessagesRequest.model_validate(
        {"model": "m", "max_tokens": 9, "messages": [HI], "tools": [TOOL, toolset], **mcp}
    )

    assert [tool["function"]["name"] for tool in body.to_chat(messages_translator()).tools or ()] == ["f"]
    assert body.left_out_tools == ["mcp_toolset", "mcp_servers"]


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
    request = messages_chat(tools=[TOOL], tool_choice=choice)

    function = {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}
    assert request.tools == [{"type": "function", "function": function}]
    assert request.tool_choice == chosen
    assert request.parallel_tool_calls
    assert not messages_chat(
        tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}
    ).parallel_tool_calls


def test_fields_have_their_counterparts_in_chat() -> None:
    """Every served field becomes chat's; vLLM's own are passed on."""
    schema = {"type": "json_schema", "schema": {"type": "object"}}
    request = messages_chat(
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
    enabled = messages_chat(thinking={"type": "enabled", "budget_tokens": 1024})
    disabled = messages_chat(thinking={"type": "disabled"}, output_config={"effort": "high"})
    adaptive = messages_chat(thinking={"type": "adaptive"}, chat_template_kwargs={"enable_thinking": False})

    assert (enabled.thinking_token_budget, enabled.chat_template_kwargs) == (1024, {"enable_thinking": True})
    assert (disabled.reasoning_effort, disabled.thinking_token_budget) == ("none", None)
    assert (adaptive.thinking_token_budget, adaptive.chat_template_kwargs) == (None, {"enable_thinking": False})
