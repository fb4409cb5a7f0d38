"""vLLM's own rendering of chat requests, without an engine."""

import asyncio
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


class VllmRenderer:
    """vLLM's OnlineRenderer and HfRenderer for a tokenizer's directory."""

    def __init__(
        self,
        folder: Path,
        *,
        chat_template: str | None = None,
        content_format: str = "auto",
        default_kwargs: dict[str, Any] | None = None,
        exclude_tools: bool = False,
        trust_request: bool = True,
    ) -> None:
        online = pytest.importorskip("vllm.renderers.online_renderer")
        self._tokenizer = transformers_tokenizer(folder)
        self._model_config = _model_config(folder)
        self._online = online.OnlineRenderer.__new__(online.OnlineRenderer)
        vars(self._online).update(
            model_config=self._model_config,
            renderer=SimpleNamespace(
                tokenizer=self._tokenizer, get_tokenizer=lambda: self._tokenizer, render_chat_async=self._render
            ),
            use_harmony=False,
            # Tools require a parser, but the requests of these tests do not call any.
            parser=SimpleNamespace(tool_parser_cls=object, reasoning_parser_cls=None, always_adjust_request=False),
            enable_auto_tools=True,
            exclude_tools_when_tool_choice_none=exclude_tools,
            chat_template=chat_template,
            chat_template_content_format=content_format,
            default_chat_template_kwargs=default_kwargs or {},
            trust_request_chat_template=trust_request,
            trust_request_mm_kwargs=False,
            log_error_stack=False,
        )

    def render(self, body: dict[str, Any]) -> tuple[str, list[int]]:
        """Return a request's prompt as text and ids. Raises vLLM's errors."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        request = ChatCompletionRequest.model_validate({"model": "m", "tool_choice": "none", **body})
        result = asyncio.run(self._online.render_chat(request))
        if not isinstance(result, tuple):
            raise ValueError(result.error.message)
        return result[1][0]  # type: ignore[no-any-return]

    async def _render(
        self, conversations: list[Any], chat_params: Any, tok_params: Any, **_: Any
    ) -> tuple[list[Any], list[tuple[str, list[int]]]]:
        from vllm.renderers.hf import HfRenderer

        renderer = SimpleNamespace(
            model_config=self._model_config, get_tokenizer=lambda: self._tokenizer, use_unified_vision_chunk=False
        )
        conversation, prompt = HfRenderer.render_messages(renderer, conversations[0], chat_params)
        ids = self._tokenizer(prompt["prompt"], add_special_tokens=tok_params.add_special_tokens)["input_ids"]
        return [conversation], [(prompt["prompt"], ids)]


@cache
def transformers_tokenizer(folder: Path) -> Any:
    """Load a tokenizer with transformers; cached, because it takes seconds."""
    return pytest.importorskip("transformers").PreTrainedTokenizerFast.from_pretrained(folder)


def _model_config(folder: Path) -> Any:
    return SimpleNamespace(
        model=str(folder),
        tokenizer=str(folder),
        revision=None,
        tokenizer_revision=None,
        code_revision=None,
        trust_remote_code=False,
        hf_config=SimpleNamespace(model_type="llama"),
        max_model_len=1_000_000,
        multimodal_config=None,
        enable_prompt_embeds=False,
        is_multimodal_model=False,
        allowed_local_media_path="",
        allowed_media_domains=None,
    )
