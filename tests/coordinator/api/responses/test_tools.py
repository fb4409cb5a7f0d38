"""Tools and their choice become chat's."""

from typing import Any

import pytest

from tests.coordinator.api.replies import call_of
from tests.coordinator.api.responses.requests import CALL, PATCH, SHELL, TOOL, namespace, responses_chat, user
from tokenwire.coordinator.api.responses.request import ResponsesRequest, responses_translator
from tokenwire.coordinator.api.responses.response import ResponseObject
from tokenwire.errors import InvalidRequest

NAMED = {"type": "function", "name": "f"}
ALLOWED_SEARCH = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}


def test_namespaced_functions_have_longer_names_in_the_prompt() -> None:
    """Also in earlier calls."""
    call = {**CALL, "namespace": "n"}
    request = responses_chat([user("Hi"), call], tools=[TOOL, namespace("n")])

    assert request.tools is not None
    assert [tool["function"]["name"] for tool in request.tools] == ["f", "n__f"]
    assert request.messages[1]["tool_calls"][0]["function"]["name"] == "n__f"


@pytest.mark.parametrize("name", ["f", "n__f"])
def test_a_namespaced_function_is_chosen_with_or_without_its_namespace(name: str) -> None:
    """If no other namespace has a function of that name."""
    request = responses_chat(tools=[namespace("n")], tool_choice={"type": "function", "name": name})

    assert request.tool_choice == {"type": "function", "function": {"name": "n__f"}}


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_preview", "file_search", "code_interpreter", "mcp", "tool_search"]
)
def test_tools_of_openais_servers_are_left_out(kind: str) -> None:
    """Agents offer them in addition to their own; the response lists the remaining tools."""
    body = ResponsesRequest.model_validate({"input": "Hi", "tools": [TOOL, {"type": kind}], "tool_choice": "auto"})
    request = body.to_chat(responses_translator())

    assert [tool["function"]["name"] for tool in request.tools or ()] == ["f"]
    assert body.sorted_tools.left_out == [kind]
    assert ResponseObject(body, call_of()).in_progress()["tools"] == [TOOL]


def test_they_are_left_out_of_a_namespace_too() -> None:
    """The rest of the namespace is served."""
    mixed = {**namespace("n"), "tools": [{"type": "web_search"}, TOOL]}
    body = ResponsesRequest.model_validate({"input": "Hi", "tools": [mixed]})
    request = body.to_chat(responses_translator())

    assert [tool["function"]["name"] for tool in request.tools or ()] == ["n__f"]
    assert body.sorted_tools.left_out == ["web_search"]
    assert ResponseObject(body, call_of()).in_progress()["tools"] == [namespace("n")]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_choice_allows_some_tools_and_the_model_sees_no_others(mode: str) -> None:
    """The response has the tools and the choice as the client sent them."""
    tools = [TOOL, namespace("n"), SHELL, {"type": "web_search"}]
    allowed = [{"type": "function", "name": "n__f"}, {"type": "local_shell"}, {"type": "web_search"}]
    choice = {"type": "allowed_tools", "mode": mode, "tools": allowed}
    body = ResponsesRequest.model_validate({"input": "Hi", "tools": tools, "tool_choice": choice})
    request = body.to_chat(responses_translator())

    assert [tool["function"]["name"] for tool in request.tools or ()] == ["n__f", "local_shell"]
    assert request.tool_choice == mode
    shown = ResponseObject(body, call_of()).in_progress()
    assert shown["tools"] == tools[:-1]
    assert shown["tool_choice"] == choice


@pytest.mark.parametrize("choice", ["required", {"type": "web_search"}, ALLOWED_SEARCH])
def test_a_choice_that_forces_such_a_tool_says_so(choice: Any) -> None:
    """There were tools, so that there are none would be no help."""
    with pytest.raises(InvalidRequest, match=r"web_search'?, which only OpenAI's servers can run"):
        responses_chat(tools=[{"type": "web_search"}], tool_choice=choice)


def test_a_choice_among_no_tools_is_none() -> None:
    """A choice of "auto" if all tools are left out."""
    request = responses_chat(tools=[{"type": "web_search"}], tool_choice="auto")

    assert request.tools is None
    assert request.tool_choice is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tools": [{"type": "shell", "name": "f"}]}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n"}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": ["f"]}]}, "tools"),
        ({"tools": [{"type": "namespace", "tools": [TOOL]}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "shell", "name": "f"}]}]}, "tools"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [TOOL, TOOL]}]}, "tools"),
        ({"tools": [namespace("a"), namespace("b")], "tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "f"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [NAMED]}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": ["f"]}}, "tool_choice"),
        ({"tools": [PATCH], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]}}, "tool_choice"),
    ],
)
def test_other_tools_and_choices_are_rejected(body: dict[str, Any], param: str) -> None:
    """Tools that are invalid or not served, and choices of none of the tools."""
    with pytest.raises(InvalidRequest) as raised:
        responses_chat(**body)

    assert raised.value.param == param
