"""Shared by routes that translate to chat requests and name their own fields in its errors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from tokenwire.coordinator.api.api_request import InvalidBody, UnsupportedFields
from tokenwire.coordinator.api.openai.chat_request import CHAT_NOT_SERVED, ChatCompletionRequest
from tokenwire.errors import InvalidRequest

# vLLM's own fields, which mean the same on all of these routes.
_PASSED_ON = frozenset(
    {
        *("allowed_token_ids", "bad_words", "cache_salt", "chat_template", "chat_template_kwargs", "documents"),
        *("ec_transfer_params", "frequency_penalty", "ignore_eos", "include_reasoning", "include_stop_str_in_output"),
        *("kv_transfer_params", "logit_bias", "min_p", "min_tokens", "presence_penalty", "priority"),
        *("repetition_detection", "repetition_penalty", "request_id", "seed", "session_id", "skip_special_tokens"),
        *("spaces_between_special_tokens", "stop", "stop_token_ids", "stream_interval", "structured_outputs"),
        *("thinking_token_budget", "token_history", "top_k", "truncate_prompt_tokens", "truncation_side", "vllm_xargs"),
        *("max_weight_lag", "min_weight_version", "watermarking", "mm_processor_kwargs", "media_io_kwargs"),
    }
)
# Chat's fields that these routes name differently, with the values that have no effect.
_CHAT_ONLY: dict[str, tuple[Any, ...]] = {
    **CHAT_NOT_SERVED,
    "add_generation_prompt": (None, True),
    "add_special_tokens": (None, False),
    "continue_final_message": (None, False),
    "echo": (None, False),
    "logprobs": (None, False),
    "max_completion_tokens": (None,),
    "n": (None, 1),
    "prompt_logprobs": (None,),
    "logprob_token_ids": (None,),
    "response_format": (None,),
    "required_prefix_token_ids": (None,),
    "return_token_ids": (None, False),
    "return_prompt_text": (None, False),
}


class ChatTranslator:
    """Makes chat requests for one route: passes vLLM's fields on and rejects those that are not served."""

    def __init__(self, not_served: Mapping[str, tuple[Any, ...]], names: Mapping[str, str]) -> None:
        """not_served: as for UnsupportedFields. names: the route's names of chat's fields."""
        self._unsupported = UnsupportedFields({**_CHAT_ONLY, **not_served})
        self._names = dict(names)

    def chat(self, fields: Mapping[str, Any], extra: dict[str, Any] | None) -> ChatCompletionRequest:
        """Make a chat request of the translated fields that are not None, and of the client's other fields, which are
        moved there: the body that has them is kept until its reply has been sent.

        Raises InvalidRequest or InvalidBody, which name the client's fields.
        """
        passed_on = {name: value for name, value in (extra or {}).items() if name in _PASSED_ON}
        self._unsupported.check({name: value for name, value in (extra or {}).items() if name not in _PASSED_ON})
        given = {name: value for name, value in fields.items() if value is not None}
        if extra:
            extra.clear()
        try:
            return ChatCompletionRequest.model_validate({**passed_on, **given})
        except ValidationError as error:
            raise InvalidBody([self._located(problem) for problem in error.errors()]) from error

    @contextmanager
    def named(self) -> Iterator[None]:
        """Rename chat's fields in errors to the client's."""
        try:
            yield
        except InvalidRequest as error:
            for chat_name, name in self._names.items():
                for before, after in (("`", "`"), ("", "=")):
                    error.message = error.message.replace(before + chat_name + after, before + name + after)
            error.param = self._names.get(error.param or "", error.param)
            raise

    def _located(self, problem: Any) -> dict[str, Any]:
        first, *rest = problem["loc"] or ("body",)
        return {**problem, "loc": ("body", self._names.get(first, first), *rest)}
