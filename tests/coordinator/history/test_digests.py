"""Keys are equal for equivalent conversations, and different for others."""

from collections.abc import Sequence
from typing import Any

import pytest

from tokenwire.coordinator.history.digests import Transcript, digest, message_text
from tokenwire.coordinator.text.template.pictures import PicturePart
from tokenwire.errors import InvalidRequest

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, "b": [2]}'}}
SCOPE = digest("scope")
PARAMETERS = {
    "type": "object",
    "properties": {
        "all": {"type": "boolean", "default": False},
        "most": {"type": "number", "default": 5.0},
        "tags": {"type": "array", "default": []},
        "at": {"type": "object", "properties": {"line": {"type": "integer", "default": 1}}},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"a": {"default": None}}}},
        "bare": True,
    },
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "g", "parameters": None}},
]


def key(
    message: dict[str, Any],
    form: Any = "string",
    scope: bytes = SCOPE,
    tools: Sequence[dict[str, Any]] | None = None,
) -> bytes:
    """Return the key of a conversation that ends with an assistant message."""
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", **message}]
    return Transcript(scope, messages, form, tools).key(1)


def message_with_call(**function: Any) -> dict[str, Any]:
    """Return a message with a call that differs from CALL."""
    return {"content": None, "tool_calls": [{**CALL, "function": {**CALL["function"], **function}}]}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"content": ""}, {"content": None}),
        ({"content": ""}, {}),
        ({"content": []}, {"content": None}),
        ({"content": "a"}, {"content": [{"type": "text", "text": "a"}]}),
        ({"content": "a"}, {"content": "a", "refusal": None, "audio": None, "annotations": None, "tool_calls": []}),
        ({"content": "a"}, {"content": "a", "prompt_token_ids": [1], "generation_token_ids": [2]}),
        ({"content": "a"}, {"content": "a", "reasoning": ""}),
        ({"content": "a", "reasoning": "r"}, {"content": "a", "reasoning_content": "r"}),
        (message_with_call(), {"tool_calls": [{**CALL, "id": "2", "index": 0}]}),
        (message_with_call(), message_with_call(arguments='{"b":[2],"a":1}')),
        (message_with_call(), message_with_call(arguments={"b": [2], "a": 1}, parsed_arguments=None)),
        (message_with_call(arguments=""), message_with_call(arguments="{}")),
        (message_with_call(arguments='{"a": 1, "b": [2]}'), message_with_call(arguments='{"a": 1.0, "b": [2.0]}')),
        (message_with_call(arguments='{"a": 100000000000000000000}'), message_with_call(arguments='{"a": 1e20}')),
        (message_with_call(arguments='{"a": 1e+300}'), message_with_call(arguments='{"a": 10.0E299}')),
    ],
)
def test_equivalent_messages_have_the_same_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Clients serialize the same reply differently."""
    assert key(one) == key(other)
    assert key(one, "openai") == key(other, "openai")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"content": "a"}, {"content": "a "}),
        ({"content": "a"}, {"content": "a", "name": "n"}),
        ({"content": "a"}, {"content": "a", "reasoning": "r"}),
        ({"content": "a", "reasoning": "r"}, {"content": "a", "reasoning": "R"}),
        (message_with_call(), message_with_call(name="g")),
        (message_with_call(), message_with_call(arguments='{"a": 1.5, "b": [2]}')),
        (message_with_call(), message_with_call(arguments='{"a": 1, "b": [2')),
        (message_with_call(arguments='{"a'), message_with_call(arguments='{"b')),
        (message_with_call(), {"tool_calls": [CALL, CALL]}),
        (message_with_call(), {**message_with_call(), "content": "a"}),
    ],
)
def test_edited_messages_have_another_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    """An edited reply is not the one that was generated."""
    assert key(one) != key(other)


@pytest.mark.parametrize(
    "added",
    [
        '"all": false',
        '"all": false, "most": 5, "tags": []',
        '"most": 5.0',
        '"at": {"line": 1}',
        '"parts": [{"a": null}, {"a": null}]',
    ],
)
def test_defaults_of_a_tools_schema_make_no_difference(added: str) -> None:
    """Some clients send calls back with them; only the tool's own schema says what they are."""
    empty = {"at": '"at": {}', "parts": '"parts": [{}, {}]'}.get(added.split('"')[1], "")
    before, after = (message_with_call(arguments=f"{{{given}}}") for given in (empty, added))

    assert key(after, tools=TOOLS) == key(before, tools=TOOLS)
    assert key(after) != key(before)
    assert key(after | {"content": "a"}, tools=TOOLS) != key(before, tools=TOOLS)


@pytest.mark.parametrize(
    "added",
    [
        *('"all": true', '"all": 0', '"all": null', '"all": "false"', '"most": 6', '"tags": [1]', '"tags": {}'),
        *('"other": false', '"bare": false', '"at": {"line": 2}', '"at": {"all": false}', '"parts": [{"a": 1}]'),
    ],
)
def test_other_values_than_defaults_make_another_conversation(added: str) -> None:
    """They mean something else, or no schema says what they mean."""
    before, after = (message_with_call(arguments=f"{{{given}}}") for given in ("", added))

    assert key(after, tools=TOOLS) != key(before, tools=TOOLS)


@pytest.mark.parametrize("name", ["g", "h", 1, None])
def test_a_call_of_a_tool_without_a_schema_keeps_its_arguments(name: object) -> None:
    """Another tool's defaults are not its own."""
    before, after = (message_with_call(name=name, arguments=given) for given in ("{}", '{"all": false}'))

    assert key(after, tools=TOOLS) != key(before, tools=TOOLS)


def test_content_parts_are_digested_in_the_templates_format() -> None:
    """A template for text gets parts joined; one for parts may treat them differently."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    assert key({"content": parts}) == key({"content": "a\nb"})
    assert key({"content": parts}, "openai") != key({"content": "a\nb"}, "openai")
    assert key({"content": parts}, "openai") != key({"content": parts[::-1]}, "openai")


def test_a_key_depends_on_all_earlier_messages() -> None:
    """The same reply in another conversation or scope is another turn; no text can imitate two messages."""
    reply = {"role": "assistant", "content": "a"}
    conversations = [
        [{"role": "user", "content": "x"}, reply],
        [{"role": "user", "content": "y"}, reply],
        [{"role": "system", "content": "x"}, reply],
        [{"role": "user", "content": "x"}, reply, reply],
        [reply],
        [{"role": "user", "content": "x\nassistant:1:2:a"}, reply],
    ]
    keys = [Transcript(SCOPE, messages, "string").key(len(messages) - 1) for messages in conversations]
    keys.append(Transcript(digest("other"), conversations[0], "string").key(1))

    assert len(set(keys)) == len(keys)


def test_a_reply_is_found_with_and_without_its_reasoning() -> None:
    """Many clients drop reasoning; if they send it, it must be unchanged."""
    before = Transcript(SCOPE, [{"role": "user", "content": "Hi"}], "string")
    keys = before.reply_keys([{"role": "assistant", "content": "a", "reasoning": "r"}])

    assert key({"content": "a"}) in keys
    assert key({"content": "a", "reasoning": "r"}) in keys
    assert key({"content": "a", "reasoning": "R"}) not in keys
    assert [len(each) for each in keys] == [16, 16]


def test_a_billing_header_is_in_no_key() -> None:
    """It changes with every request."""
    keys = {
        Transcript(SCOPE, [{"role": "system", "content": header + "Be brief."}, {"role": "assistant"}], "string").key(1)
        for header in ("x-anthropic-billing-header: a\n", "x-anthropic-billing-header: b\n", "")
    }

    assert len(keys) == 1


@pytest.mark.parametrize("form", ["string", "openai"])
def test_invalid_content_is_named_by_its_position(form: Any) -> None:
    """As in the error of a request that is rendered."""
    with pytest.raises(InvalidRequest, match=r"messages\[1\]\.content"):
        key({"content": 5}, form)


def test_calls_of_any_type_have_a_key() -> None:
    """The template reports them better."""
    assert len({key({"tool_calls": calls}) for calls in (1, 2, "1", {"a": 1})}) == 4


def test_an_unpaired_surrogate_has_a_key() -> None:
    """JSON allows it in a message; the tokenizer rejects it later with an error."""
    assert key({"content": "\ud800"}) != key({"content": "?"})


def test_pictures_are_told_apart_by_their_bytes() -> None:
    """What templates render of them is equal."""
    keys = []
    for data in (b"cat", b"dog", b"cat"):
        content = ["What?", PicturePart("<image>", {}, data)]
        messages: list[dict[str, Any]] = [{"role": "user", "content": content}, {"role": "assistant", "content": "a"}]
        keys.append(tuple(Transcript(SCOPE, messages, form).key(1) for form in ("string", "openai")))
    assert keys[0] == keys[2]
    assert keys[0][0] != keys[1][0]
    assert keys[0][1] != keys[1][1]


def test_large_numbers_of_arguments_keep_their_exponent() -> None:
    """As an integer one would have 300 digits, and a text of some megabytes a million of them."""
    assert len(message_text({"role": "assistant", **message_with_call(arguments="[1e300]")}, 0, "string")) < 100
