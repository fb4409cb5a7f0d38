"""Chats with one to three pictures in every place and format, as chat completions take them."""

import base64
import io
from typing import Any

from tests.lazily import Lazily

images = Lazily("PIL.Image")
draws = Lazily("PIL.ImageDraw")


def drawn_picture(
    kind: str, mode: str = "RGB", size: tuple[int, int] = (300, 200), seed: int = 1, **options: Any
) -> bytes:
    """Return a picture of a few shapes, as a file of a kind."""
    picture = images.new("RGBA", size, (seed * 40 % 255, 200, 90, 120))
    pen = draws.Draw(picture)
    for number in range(6):
        corner = (number * 37 * seed) % size[0], (number * 23 * seed) % size[1]
        pen.ellipse((*corner, corner[0] + 60, corner[1] + 40), fill=(number * 40, 255 - number * 30, seed * 20 % 255))
    target = io.BytesIO()
    picture.convert(mode).save(target, kind, **options)
    return target.getvalue()


def rotated() -> bytes:
    """Return a picture that says that it lies on its side."""
    exif = images.Exif()
    exif[0x0112] = 6
    return drawn_picture("JPEG", exif=exif)


def as_part(data: bytes) -> dict[str, Any]:
    """Return a picture as a part of a message."""
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(data).decode()}}


def user_message(*parts: str | bytes) -> dict[str, Any]:
    """Return a message of texts and pictures."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else as_part(part) for part in parts]
    return {"role": "user", "content": content}


def picture_chats() -> dict[str, list[dict[str, Any]]]:
    """Return chats by name."""
    jpeg, png = drawn_picture("JPEG"), drawn_picture("PNG", "RGBA", seed=2)
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    return {
        "jpeg before text": [user_message(jpeg, "What is this?")],
        "png with transparency behind text": [user_message("What is this?", png)],
        "gray between texts": [user_message("This ", drawn_picture("PNG", "L"), " is what?")],
        "palette": [user_message(drawn_picture("GIF", "P", seed=3), "?")],
        "webp": [user_message(drawn_picture("WEBP", seed=4), "?")],
        "bmp": [user_message(drawn_picture("BMP", size=(64, 48)), "?")],
        "rotated by exif": [user_message(rotated(), "?")],
        "tall": [user_message(drawn_picture("PNG", size=(60, 500)), "?")],
        "two": [user_message(jpeg, "and", png, "differ?")],
        "twice the same": [user_message(jpeg, jpeg, "Same?")],
        "three in three messages": [
            user_message(jpeg, "one"),
            {"role": "assistant", "content": "Yes."},
            user_message("two", png),
            {"role": "assistant", "content": "No."},
            user_message(drawn_picture("JPEG", seed=5), "three"),
        ],
        "in a system message": [
            {"role": "system", "content": user_message("Be like", jpeg)["content"]},
            user_message("Who?"),
        ],
        "in the result of a tool": [
            *asked,
            {"role": "tool", "tool_call_id": "1", "content": user_message(png)["content"]},
        ],
        "text alone": [user_message("No picture.")],
    }
