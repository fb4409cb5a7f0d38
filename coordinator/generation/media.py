"""Pictures of chats: finds them in messages, loads them, and has a worker expand the prompt that they are in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.media.content import MediaContent, MediaPrompt
from tokenwire.coordinator.media.loader import MediaLoader, MediaReference
from tokenwire.coordinator.text.template.messages import PicturePart, extra_fields, picture_of
from tokenwire.coordinator.types import ChatPrompt, ServedModel
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb

_IMAGE = "image"


class Expander(Protocol):
    """Has workers expand prompts; see MediaExpander."""

    async def expand(
        self,
        model: str,
        token_ids: Sequence[int],
        items: Sequence[MediaContent],
        options_json: str | None = None,
        placement: Placement = ...,
    ) -> tuple[Sequence[int], MediaPrompt]:
        """Return the expanded prompt, and what its workers get."""


class MediaPrompts:
    """Loads and expands the pictures of prompts."""

    def __init__(self, loader: MediaLoader, expander: Expander) -> None:
        self.loader = loader
        self._expander = expander

    async def load(self, prompt: ChatPrompt, model: ServedModel, tenant: str) -> tuple[ChatPrompt, list[MediaContent]]:
        """Return a chat with its pictures loaded, and these in their order. Raises what MediaLoader does."""
        kind = next((each for each in model.media if each.modality == _IMAGE), None)
        if kind is None:
            return prompt, []
        references: list[MediaReference] = []
        messages = [_replace(message, i, kind, references) for i, message in enumerate(prompt.messages)]
        if not references:
            return prompt, []
        _check(prompt, kind, len(references))
        # Each prompt with pictures is rendered as a whole: the ids that are kept for later turns are without any.
        loaded = replace(prompt, messages=messages, history=None)
        return loaded, await self.loader.load(references, tenant)

    async def expand(
        self, token_ids: Sequence[int], items: Sequence[MediaContent], model: ServedModel, options_json: str | None
    ) -> tuple[Sequence[int], MediaPrompt]:
        """Return the prompt as the engine sees it, and what workers get. Raises what MediaExpander does."""
        placement = Placement(revision=model.revision)
        return await self._expander.expand(model.base_model, token_ids, items, options_json, placement)


def _replace(
    message: Mapping[str, Any], number: int, kind: pb.MediaKind, references: list[MediaReference]
) -> Mapping[str, Any]:
    """Return a message with its pictures marked, and add these to the references."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list | tuple):
        return message
    parts: list[object] = []
    for position, part in enumerate(content):
        named = picture_of(part, f"messages[{number}].content[{position}]")
        if named is None:
            parts.append(part)
            continue
        placeholders = kind.placeholders
        text = placeholders[min(len(references), len(placeholders) - 1)] if placeholders else ""
        references.append(MediaReference(*named, position=len(references)))
        parts.append(PicturePart(text, extra_fields(part)))
    return {**message, "content": parts}


def _check(prompt: ChatPrompt, kind: pb.MediaKind, count: int) -> None:
    if count > kind.limit:
        raise InvalidRequest(f"At most {kind.limit} image(s) may be provided in one prompt.", param="messages")
    if prompt.options.chat_template is not None or "chat_template" in prompt.options.kwargs:
        raise InvalidRequest("A request with pictures cannot bring a chat template.", param="chat_template")
    if prompt.history is not None and prompt.history.prefix is not None and prompt.history.prefix.required:
        raise InvalidRequest(
            "The ids of a prompt with pictures cannot be given by the request.", param=prompt.history.prefix.param
        )
