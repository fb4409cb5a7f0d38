"""Fields of token-exact history, in requests and replies."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tokenwire.coordinator.api.fields.logprobs import LOGPROB_FLOOR
from tokenwire.coordinator.generation.service import PreparedRequest
from tokenwire.coordinator.parsing.request_model import RequestModel
from tokenwire.coordinator.text.logprobs import ScoredPosition
from tokenwire.coordinator.types import ChatPrompt, ExactHistory, KnownPrefix
from tokenwire.errors import InvalidRequest, Malformed

HistoryMode = Literal["auto", "exact", "template"]

_MESSAGE_IDS = ("prompt_token_ids", "generation_token_ids")
_MESSAGE_FIELDS = {*_MESSAGE_IDS, "generation_log_probs"}


class TokenHistoryFields(RequestModel):
    """Fields of requests with a conversation."""

    token_history: HistoryMode | None = None
    """exact: reuse the ids of earlier prompts and completions; template: render everything again, as vLLM does; auto:
    exact if ids matter to the client. Default: the server's."""
    required_prefix_token_ids: list[int] | None = None
    """The ids of an earlier prompt and its completion, with which this prompt must start."""

    def exact_history(
        self,
        messages: Sequence[Mapping[str, Any]],
        default: HistoryMode,
        *,
        tenant: str = "",
        wants_ids: bool = False,
        cache_salt: str | None = None,
        conversation_id: str | None = None,
        keeps: bool = True,
    ) -> ExactHistory | None:
        """Return how the prompt reuses ids; None: not at all. Raises InvalidRequest.

        default: the server's mode. wants_ids: whether the response has ids. keeps: whether replies are stored.
        """
        if self.token_history == "template":  # noqa: S105
            if self.required_prefix_token_ids:
                raise InvalidRequest(
                    "`required_prefix_token_ids` cannot be used with `token_history` 'template'.",
                    param="required_prefix_token_ids",
                )
            return None
        prefix = self._required(messages) or _carried(messages)
        mode = self.token_history or default
        if prefix is None and (mode == "template" or (mode == "auto" and not (wants_ids or conversation_id))):
            return None
        return ExactHistory(
            tenant=tenant, cache_salt=cache_salt, conversation_id=conversation_id, prefix=prefix, keeps=keeps
        )

    def _required(self, messages: Sequence[Mapping[str, Any]]) -> KnownPrefix | None:
        if not self.required_prefix_token_ids:
            return None
        replies = (i for i in reversed(range(len(messages))) if messages[i].get("role") == "assistant")
        return KnownPrefix(
            self.required_prefix_token_ids, next(replies, None), "required_prefix_token_ids", required=True
        )


def _carried(messages: Sequence[Mapping[str, Any]]) -> KnownPrefix | None:
    """Return the ids on the last assistant message that has ids."""
    for position in reversed(range(len(messages))):
        message = messages[position]
        if message.get("role") == "assistant" and all(message.get(name) is not None for name in _MESSAGE_IDS):
            where = f"messages[{position}]"
            ids = [token_id for name in _MESSAGE_IDS for token_id in _ids(message[name], f"{where}.{name}")]
            return KnownPrefix(ids, position, f"{where}.generation_token_ids")
    return None


def _ids(value: object, where: str) -> list[int]:
    if not isinstance(value, list) or any(type(item) is not int for item in value):
        raise Malformed(f"{where} must be a list of token ids.", param="messages")
    return value


def without_ids(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without their ids, for consumers that only handle messages."""
    return [{name: value for name, value in message.items() if name not in _MESSAGE_FIELDS} for message in messages]


def shown_history(prepared: PreparedRequest) -> dict[str, Any]:
    """Return the fields of how much the prompt reused; empty if it was rendered by the template."""
    prompt = prepared.request.prompts[0]
    if not isinstance(prompt, ChatPrompt) or prompt.history is None:
        return {}
    first = prepared.prompts[0]
    source = None if first.history is None or not first.reused else first.history.source
    return {"token_history": {"mode": "exact", "reused_tokens": first.reused, "source": source}}


def shown_message_ids(
    prepared: PreparedRequest, token_ids: list[int], logprobs: Sequence[ScoredPosition] | None
) -> dict[str, Any]:
    """Return the fields of a message for clients that keep ids on their messages; empty for others.

    logprobs: of the message; None if not requested.
    """
    prompt = prepared.request.prompts[0]
    if not isinstance(prompt, ChatPrompt) or prompt.history is None or prompt.history.prefix is None:
        return {}
    fields = {"prompt_token_ids": list(prepared.prompts[0].token_ids), "generation_token_ids": token_ids}
    if logprobs is None:
        return fields
    return {**fields, "generation_log_probs": [max(position[0].logprob, LOGPROB_FLOOR) for position in logprobs]}
