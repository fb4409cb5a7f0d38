"""Pictures in the messages of drawn requests: bombs, broken ones, very many, and addresses that nobody may fetch."""

import base64
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.adversary.values import MIB, Value, list_of
from tests.coordinator.media import pictures

Urls = Callable[[], Sequence[str]]

_FRAME = b"\x21\xf9\x04\x00\x01\x00\x00\x00\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00"
_TEXT = {"type": "text", "text": "What is this?"}


def _data_url(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _large(size: int, number: int = 0) -> str:
    """Return a picture of so many bytes, most of them behind its end."""
    return _data_url(pictures.png(64, 64, number) + bytes([number]) * size)


def _animated(frames: int) -> str:
    """Return an animation of the smallest frames."""
    head = b"GIF89a\x01\x00\x01\x00\x80\x00\x00" + bytes(3) + b"\xff" * 3
    return _data_url(head + _FRAME * frames + b"\x3b", "gif")


def _half() -> str:
    whole = pictures.png(300, 300)
    return _data_url(whole[: len(whole) // 2])


_URLS: dict[str, Urls] = {
    "a picture that says it has 50,000 x 50,000 pixels": lambda: [_data_url(pictures.huge_png(50_000, 50_000))],
    "a bomb of 64 million pixels": lambda: [_data_url(pictures.png(8_000, 8_000))],
    "16 pictures of 1.3 MB": lambda: [_large(13 * MIB // 10, number) for number in range(16)],
    "a picture of 19 MB": lambda: [_large(19 * MIB)],
    "a picture of 22 MB": lambda: [_large(22 * MIB)],
    "half of a picture": lambda: [_half()],
    "an animation of 100,000 frames": lambda: [_animated(100_000)],
    "a text as a picture": lambda: ["data:text/plain;base64," + base64.b64encode(b"hello " * MIB).decode()],
    "20 MB that are not base64": lambda: ["data:image/png;base64," + "!" * (20 * MIB)],
    "16 times the same": lambda: [_data_url(pictures.png())] * 16,
    "50,000 pictures": lambda: [_data_url(pictures.png())] * 50_000,
    "1,000 private addresses": lambda: [f"https://10.0.{number // 256}.{number % 256}/" for number in range(1_000)],
    "16 names that nobody has": lambda: [f"https://n{number}.invalid/" for number in range(16)],
    "16 ports of this machine": lambda: [f"https://127.0.0.1:{8_000 + number}/" for number in range(16)],
    "a URL of 20 MB": lambda: ["https://example.org/" + "x" * (20 * MIB)],
}


def _message(parts: Sequence[Any]) -> str:
    return json.dumps([{"role": "user", "content": [*parts, _TEXT]}])


def _chat(urls: Urls) -> str:
    return _message([{"type": "image_url", "image_url": {"url": url}} for url in urls()])


def _named(url: str | None) -> str:
    image = None if url is None else {"url": url}
    return _message([{"type": "image_url", "image_url": image, "uuid": "u" * MIB}])


def _tensor(size: int) -> str:
    """Return so many bytes that begin as a tensor does."""
    return base64.b64encode(b"PK\x03\x04" + bytes(size)).decode()


_EMBEDS: dict[str, Callable[[], Sequence[Any]]] = {
    "embeddings of 19 MB": lambda: [_tensor(19 * MIB)],
    "embeddings of 8 fields of 2 MB": lambda: [{f"f{number}": _tensor(2 * MIB) for number in range(8)}],
    "16 embeddings of 1 MB": lambda: [_tensor(MIB + number) for number in range(16)],
    "embeddings of 20 MB that are not base64": lambda: ["!" * (20 * MIB)],
    "embeddings with 100,000 fields": lambda: [{f"f{number}": [1] for number in range(100_000)}],
    "embeddings with 1,000,000 numbers": lambda: [{"image_grid_thw": [1] * 1_000_000}],
    "20,000 embeddings": lambda: [_tensor(number % 99) for number in range(20_000)],
}


def _embedded(embeds: Callable[[], Sequence[Any]]) -> str:
    return _message([{"type": "image_embeds", "image_embeds": each} for each in embeds()])


def _nothing() -> str:
    part = json.dumps({"type": "image_url", "image_url": {"url": None}})
    return f'[{{"role":"user","content":{list_of(part, 20_000)}}}]'


def _input(urls: Urls) -> str:
    parts = [{"type": "input_image", "image_url": url} for url in urls()]
    return json.dumps([{"role": "user", "content": [*parts, {"type": "input_text", "text": "What?"}]}])


def _blocks(urls: Urls) -> list[dict[str, Any]]:
    return [{"type": "image", "source": _source(url)} for url in urls()]


def _pictured(urls: Urls) -> str:
    return _message(_blocks(urls))


def _source(url: str) -> dict[str, str]:
    head, comma, data = url.partition(";base64,")
    if not comma:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}


def _screenshots(urls: Urls) -> str:
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": _blocks(urls)}
    talk = (("user", "Look."), ("assistant", [use]), ("user", [result]))
    return json.dumps([{"role": role, "content": content} for role, content in talk])


CHATS = [
    *(Value(what, partial(_chat, urls)) for what, urls in _URLS.items()),
    *(Value(what, partial(_embedded, embeds)) for what, embeds in _EMBEDS.items()),
    Value("a picture with a name of 1 MB", lambda: _named(_data_url(pictures.png()))),
    Value("a name of 1 MB", lambda: _named(None)),
    Value("20,000 parts without a picture", _nothing),
]
"""Of chats, and of what takes their messages."""
LARGE = [value for value in CHATS if value.name.endswith("MB") or "base64" in value.name]
"""What takes most memory of them."""
INPUTS = [Value(what, partial(_input, urls)) for what, urls in _URLS.items()]
"""Of the Responses API."""
ANTHROPIC_CHATS = [
    *(Value(what, partial(_pictured, urls)) for what, urls in _URLS.items()),
    *(Value(f"{what}, of a tool", partial(_screenshots, urls)) for what, urls in _URLS.items()),
]
"""Of the Messages API."""
