"""Prompts equal vLLM's, from a request's JSON to the ids.

Parity with vLLM is of no single module; see also tests/coordinator/parsing/test_vllm_parity.py.
"""

import asyncio
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.coordinator.text import requests
from tests.coordinator.text.template.real_templates import real_templates
from tests.coordinator.text.template.vllm_renderer import VllmRenderer
from tests.tokenizers import npm_tokenizer_directory, tokenizer_in
from tokenwire.coordinator.api.fields.tools import parse_tools
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.template_options import TemplateOptions
from tokenwire.errors import InvalidRequest

pytestmark = [pytest.mark.ci, pytest.mark.engine, pytest.mark.filterwarnings("ignore")]

MODELS = (
    *("qwen3", "llama3_1", "gemma3", "deepseek_v3", "qwen2_5", "mistral_nemo", "llama3_2", "command_r_plus"),
    *("aya_expanse", "minicpm_v4_5"),
)

_FIELDS = ("add_generation_prompt", "continue_final_message", "documents", "reasoning_effort", "chat_template")


class InProcess:
    """Renders requests' own templates in this process, because these tests do not concern the sandbox."""

    async def render(self, template: str, job: Any) -> str:
        """Render a job."""
        own = ChatTemplate(template, job["special_tokens"], job["content_format"])
        return own.render_values(job["messages"], job["values"])


class Ours:
    """Our rendering of a chat request."""

    def __init__(self, folder: Path, source: str | None = None, exclude_tools: bool = False, **settings: Any) -> None:
        self.tokenizer = tokenizer_in(folder)
        self.template = ChatTemplate(
            source or self.tokenizer.chat_template, self.tokenizer.special_tokens, untrusted=InProcess(), **settings
        )
        self._exclude_tools = exclude_tools

    async def render(self, body: requests.Body) -> tuple[str, list[int]]:
        """Return a request's prompt as text and ids. Raises InvalidRequest."""
        options = TemplateOptions(
            tools=None if self._exclude_tools else parse_tools(body.get("tools")),
            kwargs=body.get("chat_template_kwargs") or {},
            **{name: body[name] for name in _FIELDS if name in body},
        )
        text = await self.template.render_messages_async(body["messages"], options)
        return text, self.tokenizer.encode(text, body.get("add_special_tokens", False))


async def compare_prompts(ours: Ours, theirs: VllmRenderer, bodies: Sequence[tuple[str, requests.Body]]) -> int:
    """Render requests by both, text or refusal; return how many rendered."""
    rendered = 0
    for name, body in bodies:
        try:
            expected = await asyncio.to_thread(theirs.render, copy.deepcopy(body))
        except Exception:
            with pytest.raises(InvalidRequest):
                await ours.render(copy.deepcopy(body))
        else:
            assert await ours.render(copy.deepcopy(body)) == expected, name
            rendered += 1
    return rendered


async def test_the_embedded_models_prompts_equal_vllms(smollm2_directory: Path) -> None:
    """Text and ids are equal for any request; requests that vLLM rejects are rejected."""
    assert await compare_prompts(Ours(smollm2_directory), VllmRenderer(smollm2_directory), requests.BODIES) > 400


@pytest.mark.npm
@pytest.mark.parametrize("name", MODELS)
async def test_prompts_of_real_models_equal_vllms(name: str) -> None:
    """With tools, reasoning effort, documents and all other fields."""
    folder = npm_tokenizer_directory(name)
    assert await compare_prompts(Ours(folder), VllmRenderer(folder), requests.BODIES[MODELS.index(name) % 3 :: 3]) > 60


@pytest.mark.npm
async def test_prompts_of_many_templates_equal_vllms(smollm2_directory: Path) -> None:
    """With the templates of dozens of other models, given by --chat-template."""
    bodies = [(name, body) for name, body in requests.BODIES if body.get("chat_template") != "rag"]
    rendered = 0
    for index, source in enumerate(real_templates().values()):
        # Each template gets other requests; over all templates every request is rendered several times.
        some = bodies[index % 32 :: 32]
        theirs = VllmRenderer(smollm2_directory, chat_template=source)
        rendered += await compare_prompts(Ours(smollm2_directory, source), theirs, some)
    assert rendered > 500


@pytest.mark.parametrize("content_format", ["string", "openai"])
async def test_a_configured_content_format_equals_vllms(smollm2_directory: Path, content_format: Any) -> None:
    """--chat-template-content-format overrides the detected format."""
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    theirs = VllmRenderer(smollm2_directory, chat_template=source, content_format=content_format)
    ours = Ours(smollm2_directory, source, content_format=content_format)
    assert await compare_prompts(ours, theirs, requests.BODIES[::4]) > 100


async def test_the_servers_default_kwargs_apply_as_in_vllm(smollm2_directory: Path) -> None:
    """--default-chat-template-kwargs applies if a request has no value, null or "auto"."""
    names = ("enable_thinking", "reasoning_effort", "thinking", "bos_token", "documents", "custom_tools", "date_string")
    source = "".join("{{ " + name + " }}|{{ " + name + " is defined }}\n" for name in (*names, "tools"))
    defaults = {"enable_thinking": True, "reasoning_effort": "medium", "custom_tools": None, "bos_token": "<d>"}
    defaults["documents"] = [{"text": "default"}]
    theirs = VllmRenderer(smollm2_directory, chat_template=source, default_kwargs=defaults)
    ours = Ours(smollm2_directory, source, default_kwargs=defaults)
    assert await compare_prompts(ours, theirs, [(n, b) for n, b in requests.BODIES if n.startswith("hello")]) > 15


async def test_tools_may_be_excluded_with_tool_choice_none(smollm2_directory: Path) -> None:
    """--exclude-tools-when-tool-choice-none equals passing no tools."""
    source = "{{ tools }}"
    theirs = VllmRenderer(smollm2_directory, chat_template=source, exclude_tools=True)
    ours = Ours(smollm2_directory, source, exclude_tools=True)
    assert await compare_prompts(ours, theirs, [(n, b) for n, b in requests.BODIES if n.startswith("hello")]) > 15


TOOL_LISTS: list[Any] = [
    None,
    [],
    {},
    "x",
    [1],
    [{}],
    [{"function": {}}],
    [{"function": {"name": 1}}],
    [{"type": "other", "function": {"name": "f"}}],
    [{"type": None, "function": {"name": "f"}}],
    [{"function": {"name": "f", "parameters": []}}],
    [{"function": {"name": "f", "parameters": {"b": 1, "a": {"d": 1, "c": None}}, "description": ""}}],
    [{"function": {"name": "f", "strict": "yes"}}],
    [{"function": {"name": "f", "strict": "perhaps"}}],
    [{"function": {"name": "f", "strict": None, "defer_loading": None}, "defer_loading": None}],
    [{"function": {"name": "f"}, "defer_loading": True}],
    [{"function": {"name": "f", "defer_loading": False}, "defer_loading": True}],
    [{"function": {"name": "f", "defer_loading": 1}, "x": 1}, {"function": {"name": "g", "y": 2}}],
    requests.TOOLS,
]


@pytest.mark.parametrize("tools", TOOL_LISTS)
def test_tools_are_converted_as_in_vllm(tools: Any) -> None:
    """Fields, their order, nulls and conversions are equal; the same tools are rejected, with the invalid field."""
    protocol = pytest.importorskip("vllm.entrypoints.openai.chat_completion.protocol")
    body = {"model": "m", "messages": [], "tools": tools, "tool_choice": "none"}
    try:
        theirs = protocol.ChatCompletionRequest.model_validate(copy.deepcopy(body)).tools
    except Exception:
        with pytest.raises(InvalidRequest, match=r"^`?tools") as caught:
            parse_tools(tools)
        assert caught.value.param == "tools"
    else:
        expected = None if theirs is None else [tool.model_dump() for tool in theirs]
        assert repr(parse_tools(tools)) == repr(expected)
