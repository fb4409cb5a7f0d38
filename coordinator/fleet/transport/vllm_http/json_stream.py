"""Reads a long response of JSON as it comes, and hands on the elements of its long lists, so that none is held whole.

Parsed at once, 30 MB of log-probabilities would take hundreds of megabytes, and the event loop for most of a second.
"""

import asyncio
import codecs
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Union

LongParts = Mapping[str, Union["LongParts", Callable[[Any], object]]]
"""The long fields of an object, and of those in a list of them: what takes each element of a list, or what is long of
the field's own value. Elements that something takes are not part of the result.
"""

_SPACE = re.compile(r"[ \t\n\r]*")
_AFTER = frozenset(" \t\n\r,:]}")
_decode = json.JSONDecoder().raw_decode


async def read_json(pieces: AsyncIterator[bytes], parts: LongParts) -> Any:
    """Return a value, with a turn for others after each piece. Raises ValueError where it is no JSON."""
    reader = _JsonReader(pieces)
    value = await reader.value(parts)
    await reader.end()
    return value


class _JsonReader:
    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        """How far the text is read."""
        self._has_ended = False

    async def value(self, parts: LongParts) -> Any:
        """Read a value with long parts."""
        match await self._peek():
            case "{":
                return await self._object(parts)
            case "[":
                found: list[Any] = []

                async def keep() -> None:
                    found.append(await self.value(parts))

                await self._elements(keep)
                return found
        return await self._short()

    async def end(self) -> None:
        """Read to the end, where nothing else may be."""
        if await self._peek():
            raise self._error("Extra data")

    async def _object(self, parts: LongParts) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        if await self._peek() == "}":
            self._at += 1
            return found
        while True:
            name = await self._short()
            if not isinstance(name, str):
                raise self._error("Expecting a name in quotes before this")
            await self._next(":")
            part = parts.get(name)
            if part is None:
                found[name] = await self._short()
            elif isinstance(part, Mapping):
                found[name] = await self.value(part)
            else:
                found[name] = await self._taken(part)
            if await self._next(",}") == "}":
                return found

    async def _taken(self, take: Callable[[Any], object]) -> Any:
        """Hand on the elements of a list; return what is there in place of a list."""
        if await self._peek() != "[":
            return await self._short()

        async def hand_on() -> None:
            take(await self._short())

        await self._elements(hand_on)
        return []

    async def _elements(self, read: Callable[[], Any]) -> None:
        self._at += 1
        if await self._peek() == "]":
            self._at += 1
            return
        await read()
        while await self._next(",]") == ",":
            await read()

    async def _short(self) -> Any:
        """Read a value at once."""
        await self._peek()
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except ValueError:
                if self._has_ended:
                    raise
            else:
                if self._text[end : end + 1] in _AFTER or self._has_ended:  # else a number may go on
                    self._at = end
                    return value
            await self._more(2 * (len(self._text) - self._at))  # so all that is read in vain is less than the value

    async def _next(self, expected: str) -> str:
        found = await self._peek()
        if not found or found not in expected:
            raise self._error(f"Expecting one of {expected!r}")
        self._at += 1
        return found

    async def _peek(self) -> str:
        """Return the next character that is no space, "" at the end."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if self._has_ended:
                return ""
            await self._more(0)

    async def _more(self, enough: int) -> None:
        """Read on until more than so many characters are unread."""
        texts = [self._text[self._at :]]
        size = len(texts[0])
        while size <= enough and not self._has_ended:
            piece = await anext(self._pieces, None)
            self._has_ended = piece is None
            texts.append(self._decoder.decode(piece or b"", self._has_ended))
            size += len(texts[-1])
        self._text, self._at = "".join(texts), 0
        await asyncio.sleep(0)

    def _error(self, message: str) -> ValueError:
        return json.JSONDecodeError(message, self._text, self._at)
