"""Identifiers of requests and conversations chosen by clients: bounded, because every chunk and choice repeats them."""

import re
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from tokenwire.errors import InvalidRequest

MAX_CHARS = 512
"""OpenAI's limit on request ids from clients."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters of ASCII and Latin-1, and other line separators."""


def checked_identifier(value: str, param: str) -> str:
    """Return an identifier that is safe in responses, logs and traces. Raises InvalidRequest."""
    if len(value) > MAX_CHARS:
        raise InvalidRequest(f"`{param}` has {len(value)} characters, more than {MAX_CHARS}.", param=param)
    if _CONTROL.search(value):
        raise InvalidRequest(f"`{param}` must not contain control characters or line separators.", param=param)
    return value


def _checked_field(value: str, info: ValidationInfo) -> str:
    return checked_identifier(value, info.field_name or "")


Identifier = Annotated[str, AfterValidator(_checked_field)]
"""The type of such a field."""
