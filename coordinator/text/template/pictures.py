"""Parts of messages that are pictures: as clients write them, and as templates get them once they are loaded."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenwire.errors import InvalidRequest

_URLS = ("image_url", "input_image")
_EMBEDS = "image_embeds"
_SOURCES = ("image_url", _EMBEDS)
PICTURE_TYPES = (*_URLS, _EMBEDS)


@dataclass(frozen=True, slots=True)
class PicturePart:
    """A picture in a message's content, in the place of the client's part once it is loaded."""

    placeholder: str
    """What stands for it where content is a string."""
    extra: Mapping[str, Any]
    """Other fields of the part, for the template."""
    digest: bytes
    """Of its bytes: what makes two conversations with pictures the same."""


@dataclass(frozen=True, slots=True)
class NamedPicture:
    """A picture as a client's part names it."""

    source: str | Mapping[str, Any] | None
    """A URL, or what its embeddings are; None: one that the client has named before."""
    uuid: str | None
    modality: str = "image"


def picture_of(part: object, where: str) -> NamedPicture | None:
    """Return what a part names that is a picture, or embeddings of one, as vLLM reads them; None for other parts.

    Raises InvalidRequest.
    """
    if not isinstance(part, Mapping):
        return None
    kind, uuid = part.get("type"), part.get("uuid")
    if kind == _EMBEDS or (kind is None and _EMBEDS in part and "image_url" not in part):
        source, modality = part.get(_EMBEDS), _EMBEDS
        wrong = f"{where}.{_EMBEDS} must be a base64 string, or an object of such."
    elif kind in _URLS or (kind is None and "image_url" in part):
        source, modality = part.get("image_url"), "image"
        source = source.get("url") if isinstance(source, Mapping) else source
        wrong = f"{where}.image_url must have a url, which is a string."
    else:
        return None
    if uuid is not None and not isinstance(uuid, str | int):
        raise InvalidRequest(f"{where}.uuid must be a string.", param="messages")
    takes = str if modality == "image" else str | Mapping
    if not isinstance(source, takes) and (source is not None or uuid is None):
        raise InvalidRequest(wrong, param="messages")
    return NamedPicture(source or None, None if uuid is None else str(uuid), modality)


def as_stored(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message as JSON, which has the digests of the bytes of its pictures, by which they can be found."""
    content = message.get("content")
    if not isinstance(content, list) or not any(isinstance(part, PicturePart) for part in content):
        return message
    parts = [
        {**part.extra, "type": "image", "sha256": part.digest.hex()} if isinstance(part, PicturePart) else part
        for part in content
    ]
    return {**message, "content": parts}


def without_pictures(messages: Iterable[Any]) -> list[Any]:
    """Return messages of whose pictures only the type is left, for what keeps them and has no use for these."""
    return [
        {**message, "content": [_without_picture(part) for part in message["content"]]}
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


def _without_picture(part: object) -> object:
    if isinstance(part, Mapping) and not part.keys().isdisjoint(_SOURCES):
        return {"type": part.get("type")}
    return part


def reject_pictures(messages: Iterable[object]) -> None:
    """Raise InvalidRequest if a message has a picture: ids that a request gives cannot stand for it."""
    for i, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        for j, part in enumerate(content if isinstance(content, list | tuple) else ()):
            where = f"messages[{i}].content[{j}]"
            if picture_of(part, where) is not None:
                raise InvalidRequest(
                    f"{where} is a picture, in a request that gives its prompt as ids.", param="messages"
                )
