"""vLLM's own chat route over scripted token ids: its renderer, detokenizer, parsers and serving rules, no engine."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

from tests.coordinator.parsing.outputs import OutputCase


class VllmChatRoute:
    """One model's route."""

    def __init__(self, case: OutputCase, tokenizer: Any, model_type: str | None) -> None:
        from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
        from vllm.renderers.online_renderer import OnlineRenderer

        settings = case.settings
        self.tokenizer = tokenizer
        config = SimpleNamespace(
            model="model", hf_config=SimpleNamespace(model_type=model_type), multimodal_config=None,
            enable_prompt_embeds=False, max_model_len=100_000,
        )  # fmt: skip
        parsers: dict[str, Any] = {
            "tool_parser": settings.tool_call_parser,
            "reasoning_parser": settings.reasoning_parser,
            "enable_auto_tools": settings.enable_auto_tool_choice,
        }
        self.renderer = OnlineRenderer(
            config, _Renderer(tokenizer), request_logger=None, chat_template=None,
            chat_template_content_format="auto", **parsers,
        )  # fmt: skip
        # The server without an engine.
        serving = OpenAIServingChat.__new__(OpenAIServingChat)
        attributes = {
            "model_config": config, "parser_cls": self.renderer.parser, "enable_auto_tools": True,
            "response_role": "assistant", "chat_template": None, "chat_template_content_format": "auto",
            "default_chat_template_kwargs": {}, "enable_force_include_usage": False, "enable_log_outputs": False,
            "request_logger": None, "system_fingerprint": None, "enable_per_request_metrics": False,
            "enable_prompt_tokens_details": False, "_include_reasoning_tokens_details": bool(settings.reasoning_parser),
        }  # fmt: skip
        vars(serving).update(attributes)
        self.serving = serving

    async def render(self, body: Mapping[str, Any]) -> tuple[Any, list[int] | None]:
        """Return the request as vLLM's renderer adjusted it, and the prompt, if it is not a template's."""
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        request = ChatCompletionRequest.model_validate(json.loads(json.dumps(body)))
        result = await self.renderer.render_chat(request)
        if not isinstance(result, tuple):
            raise ValueError(result.error.message)
        ids = list(result[1][0]["prompt_token_ids"])
        return request, None if ids == _Renderer.prompt else ids

    def texts(self, request: Any, prompt: list[int], steps: Sequence[list[int]], eos: bool) -> list[str]:
        """Return the text of each step from vLLM's detokenizer."""
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest
        from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer

        params = SamplingParams(skip_special_tokens=request.skip_special_tokens, max_tokens=100_000)
        core = EngineCoreRequest("r", prompt, None, params, None, 0.0, None, None, None)
        detokenizer = FastIncrementalDetokenizer(self.tokenizer, core)
        texts = []
        for index, step in enumerate(steps):
            last = index == len(steps) - 1
            detokenizer.update(list(step), eos and last)
            texts.append(detokenizer.get_next_output_text(last, True))
        return texts

    async def stream(self, request: Any, prompt: list[int], steps: Sequence[list[int]], reason: str) -> dict[str, Any]:
        """Return the message joined from streamed chunks."""
        from vllm.entrypoints.generate.base.protocol import RequestResponseMetadata

        texts = self.texts(request, prompt, steps, reason == "stop")
        pairs = [(text, step) for text, step in zip(texts, steps, strict=True)]
        outputs = self._outputs(prompt, pairs, reason)
        request.stream = True
        request.stream_options = SimpleNamespace(include_usage=True, continuous_usage_stats=False)
        chunks = self.serving.chat_completion_stream_generator(
            request, outputs, "id", "model", [], self.tokenizer, RequestResponseMetadata(request_id="id"),
            chat_template_kwargs=self.serving._effective_chat_template_kwargs(request),
        )  # fmt: skip
        return add_up([json.loads(chunk[6:]) async for chunk in chunks if not chunk.startswith("data: [DONE]")])

    async def full(self, request: Any, prompt: list[int], ids: list[int], reason: str) -> dict[str, Any]:
        """Return the full message."""
        from vllm.entrypoints.generate.base.protocol import RequestResponseMetadata

        text = "".join(self.texts(request, prompt, [[token_id] for token_id in ids], reason == "stop"))
        parser = self.serving._make_parser(
            request, self.tokenizer, self.serving._effective_chat_template_kwargs(request)
        )
        response = await self.serving.chat_completion_full_generator(
            request, self._outputs(prompt, [(text, ids)], reason), "id", "model", [], self.tokenizer,
            RequestResponseMetadata(request_id="id"), parser=parser,
        )  # fmt: skip
        choice = response.model_dump()["choices"][0]
        details = response.usage.completion_tokens_details
        calls = choice["message"].get("tool_calls") or []
        return {
            "content": choice["message"]["content"],
            "reasoning": choice["message"]["reasoning"],
            "calls": [(call["function"]["name"], call["function"]["arguments"]) for call in calls],
            "finish": choice["finish_reason"],
            "reasoning_tokens": details.reasoning_tokens if details else None,
        }

    @staticmethod
    async def _outputs(prompt: list[int], steps: list[tuple[str, list[int]]], reason: str) -> AsyncIterator[Any]:
        from vllm.outputs import CompletionOutput, RequestOutput

        for index, (text, token_ids) in enumerate(steps):
            last = index == len(steps) - 1
            output = CompletionOutput(0, text, token_ids, None, None, finish_reason=reason if last else None)
            yield RequestOutput("id", None, prompt, None, [output], last)


class _Renderer:
    """Replaces the chat template."""

    prompt: ClassVar = [1, 2, 3]

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    async def render_chat_async(self, *_: Any, **__: Any) -> tuple[list[Any], list[Any]]:
        return [[]], [{"prompt_token_ids": list(self.prompt)}]


def add_up(chunks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join streamed chunks as a client would."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "finish": None, "reasoning_tokens": None}
    for chunk in chunks:
        assert "error" not in chunk, chunk
        details = (chunk.get("usage") or {}).get("completion_tokens_details")
        message["reasoning_tokens"] = details["reasoning_tokens"] if details else None
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or ():
                known = message["calls"].setdefault(call["index"], ["", ""])
                known[0] += call.get("function", {}).get("name") or ""
                known[1] += call.get("function", {}).get("arguments") or ""
            message["finish"] = choice["finish_reason"] or message["finish"]
    message["calls"] = [tuple(call) for _, call in sorted(message["calls"].items())]
    return message
