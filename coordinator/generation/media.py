"""Pictures of chats: finds them in messages, loads them, and has a worker expand the prompt that they are in."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, Protocol

from tokenwire.coordinator.fleet.request_handle import Placement
from tokenwire.coordinator.generation.prompts import PreparedPrompt
from tokenwire.coordinator.http.backpressure import BodyMemory
from tokenwire.coordinator.media.content import IMAGE_EMBEDS, MediaContent, MediaFeatures, MediaPrompt
from tokenwire.coordinator.media.embeddings import encoded_chars
from tokenwire.coordinator.media.loader import MediaLoader, MediaReference
from tokenwire.coordinator.text.template.messages import extra_fields
from tokenwire.coordinator.text.template.pictures import NamedPicture, PicturePart, picture_of
from tokenwire.coordinator.types import ChatPrompt, ServedModel
from tokenwire.errors import InvalidRequest
from tokenwire.v1 import inference_pb2 as pb


class Expander(Protocol):
    """Has workers expand prompts; see MediaExpander."""

    async def expand(
        self,
        model: str,
        token_ids: Sequence[int],
        items: Sequence[MediaContent],
        options_json: str | None = None,
        placement: Placement = ...,
        max_token_ids: int = ...,
        cache_salt: str | None = None,
        max_token_id: int = ...,
    ) -> tuple[Sequence[int], MediaPrompt]:
        """Return the expanded prompt, and what its workers get."""

    async def features(self, model: str, media: MediaPrompt, mm_payload: str, placement: Placement = ...) -> bytes:
        """Return what a rendered request has of media."""


class MediaPrompts:
    """Loads and expands the pictures of prompts."""

    def __init__(self, loader: MediaLoader, expander: Expander) -> None:
        self.loader = loader
        self._expander = expander

    async def load(
        self, prompt: ChatPrompt, model: ServedModel, tenant: str, share: str = "", body: BodyMemory | None = None
    ) -> tuple[ChatPrompt, list[MediaContent]]:
        """Return a chat with its pictures loaded, and these in their order. Takes and raises what MediaLoader does.

        body: whose turn others get meanwhile; unless it is kept, the messages lose what their pictures are read from.
        """
        if not model.media:
            return prompt, []
        named = [_pictures_of(message, i) for i, message in enumerate(prompt.messages)]
        references = [
            MediaReference(each.source, each.uuid, each.modality, i)
            for i, each in enumerate(chain(*(of.values() for of in named)))
        ]
        if not references:
            return prompt, []
        kind = _kind_of(references, model.media)
        _check(prompt, kind, len(references))
        async with nullcontext() if body is None else body.out_of_turn():
            items = await self.loader.load(references, tenant, share)
        loaded = enumerate(items)
        messages = [
            _replace(message, of, kind, loaded) if of else message
            for message, of in zip(prompt.messages, named, strict=True)
        ]
        if body is not None and not body.is_kept:
            for message, of in zip(prompt.messages, named, strict=True):
                _drop(message, of)
            body.on_taken(sum(encoded_chars(each.source) for each in references if each.source is not None))
        # Ids from the client are expanded; those that are stored are not.
        history = prompt.history and replace(prompt.history, prefix=None)
        return replace(prompt, messages=messages, history=history), items

    async def expanded(
        self,
        prepared: PreparedPrompt,
        messages: Sequence[Mapping[str, Any]],
        items: Sequence[MediaContent],
        model: ServedModel,
        options_json: str | None,
        cache_salt: str | None = None,
        share: str = "",
    ) -> PreparedPrompt:
        """Return the prompt of these messages as the engine sees it. `share`: whose it is.

        Raises what MediaExpander does, and InvalidRequest if reused ids would get a picture that is not theirs.
        """
        placement = Placement(tenant=share, revision=model.revision)
        limits = model.max_model_len, cache_salt, model.max_token_id
        token_ids, media = await self._expander.expand(
            model.base_model, prepared.token_ids, items, options_json, placement, *limits
        )
        reused = prepared.reused
        if prepared.history is not None and reused:
            known = _pictures_in(messages[: prepared.history.position])
            reused = media.expanded_length(reused, known)
            # Workers look for placeholders from the left: one in a reply would take the next picture.
            if any(offset < reused for offset, _ in media.spans[known:]):
                raise InvalidRequest("A reply in this chat has a placeholder of pictures.", param="messages")
        return replace(prepared, token_ids=token_ids, media=media, reused=reused)

    async def features(self, media: MediaPrompt, model: ServedModel, mm_payload: str, share: str = "") -> MediaFeatures:
        """Return what a rendered request has of a prompt's media, by vLLM's `mm_payload`.

        Raises what MediaExpander does, and Overloaded if there is no memory for it.
        """
        placement = Placement(tenant=share, revision=model.revision)
        features = MediaFeatures(await self._expander.features(model.base_model, media, mm_payload, placement))
        self.loader.store.count(features, len(features.json), share)
        return features


def _pictures_in(messages: Iterable[Mapping[str, Any]]) -> int:
    """Return how many pictures messages have whose pictures are loaded."""
    contents = (message.get("content") for message in messages)
    return sum(isinstance(part, PicturePart) for content in contents if isinstance(content, list) for part in content)


def _pictures_of(message: Mapping[str, Any], number: int) -> dict[int, NamedPicture]:
    """Return a message's pictures by their places in it."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return {}
    found = ((i, picture_of(part, f"messages[{number}].content[{i}]")) for i, part in enumerate(content))
    return {i: named for i, named in found if named is not None}


def _replace(
    message: Mapping[str, Any], places: Collection[int], kind: pb.MediaKind, loaded: Iterator[tuple[int, MediaContent]]
) -> Mapping[str, Any]:
    """Return a message with the pictures at these places replaced by what the template gets."""
    placeholders = kind.placeholders
    parts = [*message["content"]]
    for place in places:
        number, item = next(loaded)
        text = placeholders[min(number, len(placeholders) - 1)] if placeholders else ""
        parts[place] = PicturePart(text, extra_fields(parts[place]), item.digest)
    return {**message, "content": parts}


def _drop(message: Mapping[str, Any], places: Collection[int]) -> None:
    """Leave nothing of the pictures at these places: encoded, they take more than all else of a request."""
    for place in places:
        message["content"][place] = {}


def _kind_of(references: Sequence[MediaReference], kinds: Sequence[pb.MediaKind]) -> pb.MediaKind:
    """Return the kind of all pictures of a request. Raises InvalidRequest."""
    modalities = {each.modality for each in references}
    if len(modalities) > 1:
        raise InvalidRequest("Mixing raw image and embedding inputs is not allowed", param=IMAGE_EMBEDS)
    # Another worker of the model may take what this announcement does not have.
    return next((kind for kind in kinds if kind.modality in modalities), kinds[0])


def _check(prompt: ChatPrompt, kind: pb.MediaKind, count: int) -> None:
    if count > kind.limit:
        # As vLLM says it, which clients may match.
        raise InvalidRequest(f"At most {kind.limit} image(s) may be provided in one prompt.", param="messages")
    if prompt.options.chat_template is not None or "chat_template" in prompt.options.kwargs:
        raise InvalidRequest("A request with pictures cannot bring a chat template.", param="chat_template")
    if prompt.history is not None and prompt.history.prefix is not None and prompt.history.prefix.required:
        raise InvalidRequest(
            "The ids of a prompt with pictures cannot be given by the request.", param=prompt.history.prefix.param
        )
