"""Responses requests become chat requests."""

from typing import Any

import pytest

from tests.coordinator.api.replies import call_of
from tests.coordinator.api.responses.requests import CALL, PATCH, SHELL, TOOL, chat, namespace, user
from tokenwire.coordinator.api.api_request import InvalidBody
from tokenwire.coordinator.api.responses.request import ResponsesRequest, responses_translator
from tokenwire.coordinator.api.responses.response import ResponseObject
from tokenwire.errors import InvalidRequest


def test_text_is_a_user_message() -> None:
    """Input as a string, after the instructions."""
    assert chat("Hi", instructions="Be brief.").messages == [{"role": "system", "content": "Be brief."}, user("Hi")]


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ([user("a"), {"type": "message", **user([{"type": "input_text", "text": "b"}])}],
         [user("a"), user([{"type": "text", "text": "b"}])]),
        ([{"role": "developer", "content": "d"}, user("a")], [{"role": "developer", "content": "d"}, user("a")]),
        ([{"role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []},
                                             {"type": "output_text", "text": "b"}]}],
         [{"role": "assistant", "content": "ab"}]),
        ([{"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
          {"role": "assistant", "content": "a"}, CALL],
         [{"role": "assistant", "reasoning": "hm", "content": "a",
           "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]),
        ([{"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]}],
         [{"role": "assistant", "reasoning": "s"}]),
        ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
         [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]),
        ([{"type": "function_call_output", "call_id": "c", "output": "42"}],
         [{"role": "tool", "tool_call_id": "c", "content": "42"}]),
        ([{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "42"}]}],
         [{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"}]}]),
    ],
)  # fmt: skip
def test_items_become_messages(items: list[Any], messages: list[Any]) -> None:
    """Consecutive reasoning, text and calls are one assistant message."""
    assert chat(items).messages == messages


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "item_reference", "id": "x"}, "input[0] is an item_reference"),
        ({"type": "web_search_call", "id": "x"}, "unsupported type 'web_search_call'"),
        ({"type": ["message"]}, "unsupported type"),
        (user([{"type": "input_image", "image_url": "x"}]), "input[0].content[0] is of type 'input_image'"),
        (user([{"type": ["input_text"]}]), "input[0].content[0]"),
        (user(["text"]), "input[0].content[0]"),
        (user(None), "input[0].content must be"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, "encrypted_content"),
        ({"type": "reasoning", "summary": 3}, "input[0].summary"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "input[0].call_id"),
        ({**CALL, "arguments": {}}, "input[0].arguments"),
        ({"type": "function_call_output", "output": "x"}, "input[0].call_id"),
    ],
)
def test_other_items_are_refused_by_name(item: Any, words: str) -> None:
    """The error names the position of an item that is not served or is invalid."""
    with pytest.raises(InvalidRequest) as raised:
        chat([item])

    assert words in raised.value.message
    assert raised.value.param == "input"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "x"}, "previous_response_id"),
        ({"conversation": "x"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
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
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ],
)
def test_unsupported_fields_are_refused_by_name(body: dict[str, Any], param: str) -> None:
    """Fields that would need storage, or OpenAI's own servers."""
    with pytest.raises(InvalidRequest) as raised:
        chat(**body)

    assert raised.value.param == param


def test_namespaced_functions_have_longer_names_in_the_prompt() -> None:
    """Also in earlier calls."""
    call = {**CALL, "namespace": "n"}
    request = chat([user("Hi"), call], tools=[TOOL, namespace("n")])

    assert request.tools is not None
    assert [tool["function"]["name"] for tool in request.tools] == ["f", "n__f"]
    assert request.messages[1]["tool_calls"][0]["function"]["name"] == "n__f"


@pytest.mark.parametrize("name", ["f", "n__f"])
def test_a_namespaced_function_is_chosen_with_or_without_its_namespace(name: str) -> None:
    """If no other namespace has a function of that name."""
    request = chat(tools=[namespace("n")], tool_choice={"type": "function", "name": name})

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


def test_a_choice_among_no_tools_is_none() -> None:
    """A choice of "auto" if all tools are left out."""
    request = chat(tools=[{"type": "web_search"}], tool_choice="auto")

    assert request.tools is None
    assert request.tool_choice is None


def test_empty_input_is_refused() -> None:
    """There is nothing to reply to."""
    with pytest.raises(InvalidRequest, match="input"):
        chat([])


def test_harmless_fields_pass() -> None:
    """Fields without effect are accepted, because clients always send them."""
    chat(
        store=True, metadata={"a": "b"}, user="me", service_tier="auto", include=["reasoning.encrypted_content"],
        previous_response_id=None, background=False, parallel_tool_calls=True, truncation="disabled",
        reasoning={"effort": "low", "summary": "auto"}, prompt_cache_key="k", tool_choice="auto", tools=[],
    )  # fmt: skip


@pytest.mark.parametrize("verbosity", ["low", "medium", "high"])
def test_any_verbosity_passes(verbosity: str) -> None:
    """Agents send it by the model's name; templates do not support it."""
    assert chat(text={"verbosity": verbosity}).messages == chat().messages


def test_fields_have_their_counterparts_in_chat() -> None:
    """Every served field becomes chat's; vLLM's own are passed on."""
    request = chat(
        max_output_tokens=7, temperature=0.5, top_p=0.9, truncation="auto", stream=True, reasoning={"effort": "low"},
        include=["message.output_text.logprobs"], top_logprobs=3, tools=[TOOL], parallel_tool_calls=False,
        tool_choice={"type": "function", "name": "f"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {}}},
        top_k=5, seed=1, ignore_eos=True, stop=["x"], min_p=0.1, repetition_penalty=1.1,
    )  # fmt: skip

    assert request.model_dump(include={"max_completion_tokens", "temperature", "top_p", "truncate_prompt_tokens"}) == {
        "max_completion_tokens": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "truncate_prompt_tokens": -1,
    }
    assert (request.logprobs, request.top_logprobs, request.reasoning_effort, request.stream) == (True, 3, "low", True)
    assert request.tools == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": None}}
    ]
    assert request.tool_choice == {"type": "function", "function": {"name": "f"}}
    assert request.parallel_tool_calls is False
    assert request.response_format is not None
    assert request.response_format.constraint() == {"json": {}}
    assert (request.top_k, request.seed, request.ignore_eos, request.stop) == (5, 1, True, ["x"])


def test_a_truncated_reply_is_continued() -> None:
    """If the last item is an incomplete assistant message."""
    cut = {"role": "assistant", "status": "incomplete", "content": [{"type": "output_text", "text": "One,"}]}

    request = chat([user("Count."), cut])

    assert request.continue_final_message
    assert not request.add_generation_prompt
    assert chat([user("Count."), {**cut, "status": "completed"}]).add_generation_prompt


@pytest.mark.parametrize(
    ("status", "between", "contents"),
    [
        ("incomplete", [], ["One, two."]),
        ("completed", [], ["One,", " two."]),
        ("incomplete", [{"role": "user", "content": "?"}], ["One,", "?", " two."]),
    ],
)
def test_a_continued_message_is_one(status: str, between: list[Any], contents: list[str]) -> None:
    """An item after an incomplete one is its rest; other items are separate messages."""
    cut = {"role": "assistant", "status": status, "content": [{"type": "output_text", "text": "One,"}]}
    rest = {"type": "message", "role": "assistant", "status": "completed", "content": " two."}

    request = chat([user("Count."), cut, *between, rest, user("Thanks.")])

    assert [message["content"] for message in request.messages[1:-1]] == contents


def test_a_message_of_very_many_pieces_is_joined_once() -> None:
    """Joining after each piece would take a minute for this many."""
    piece = {"role": "assistant", "status": "incomplete", "content": "x" * 300}

    request = chat([user("Count."), *([piece] * 20_000)])

    assert request.messages[-1]["content"] == "x" * 300 * 20_000


def test_wrong_types_of_passed_fields_are_named() -> None:
    """Chat's own checks name the client's field."""
    with pytest.raises(InvalidBody) as raised:
        chat(top_k="many")

    assert raised.value.problems[0]["loc"] == ("body", "top_k")


def test_errors_name_the_fields_of_this_api() -> None:
    """Chat's names of fields are replaced by the client's."""
    with pytest.raises(InvalidRequest) as raised, responses_translator().named():
        raise InvalidRequest("max_completion_tokens=9 is too much for `messages`.", param="max_completion_tokens")

    assert raised.value.param == "max_output_tokens"
    assert raised.value.message == "max_output_tokens=9 is too much for `input`."


def test_custom_tools_and_the_shell_are_functions_in_the_prompt() -> None:
    """With one string, and with the parts of a command; a grammar is part of the description."""
    form = {"type": "grammar", "syntax": "regex", "definition": "a+"}
    tools = [PATCH, {**PATCH, "name": "match", "format": form}, SHELL, {**namespace("n"), "tools": [PATCH]}]
    request = chat(tools=tools, tool_choice={"type": "custom", "name": "match"})

    functions = [tool["function"] for tool in request.tools or ()]
    assert [function["name"] for function in functions] == ["patch", "match", "local_shell", "n__patch"]
    assert functions[0]["parameters"]["required"] == ["input"]
    assert functions[1]["description"] == "Patches.\n\nThe input has to follow a regular expression:\na+"
    assert functions[2]["parameters"]["required"] == ["command"]
    assert request.tool_choice == {"type": "function", "function": {"name": "match"}}


@pytest.mark.parametrize(
    "tools",
    [
        [{**PATCH, "format": {"type": "grammar", "syntax": "ebnf", "definition": "x"}}],
        [{**PATCH, "format": "text"}],
        [{**PATCH, "description": 1}],
        [{**PATCH, "name": None}],
        [PATCH, {**TOOL, "name": "patch"}],
        [{**TOOL, "name": "local_shell"}, SHELL],
    ],
)
def test_invalid_custom_tools_are_refused(tools: list[Any]) -> None:
    """So are two functions with one name."""
    with pytest.raises(InvalidRequest) as raised:
        chat(tools=tools)

    assert raised.value.param == "tools"
