"""Names that clients give to their requests and sessions: bounded, since every chunk and every choice carries them."""

import re
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from tokenwire.errors import InvalidRequest

MAX_CHARS = 512
"""As OpenAI bounds the ids of requests that clients make up."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Those of ASCII and of Latin-1, and what else ends a line."""


def checked_identifier(value: str, param: str) -> str:
    """Return a name that can go into answers, logs and traces. Raises InvalidRequest."""
    if len(value) > MAX_CHARS:
        raise InvalidRequest(f"`{param}` has {len(value)} characters, more than {MAX_CHARS}.", param=param)
    if _CONTROL.search(value):
        raise InvalidRequest(f"`{param}` must not contain control characters or line separators.", param=param)
    return value


def _checked_field(value: str, info: ValidationInfo) -> str:
    return checked_identifier(value, info.field_name or "")


Identifier = Annotated[str, AfterValidator(_checked_field)]
"""The type of a field with such a name."""
