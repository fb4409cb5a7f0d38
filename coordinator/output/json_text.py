"""Encodes JSON for responses: compact, without escaping non-ASCII text."""

import json
import re

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)

compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def replace_unpaired(text: str) -> str:
    """Return JSON, complete or not, with U+FFFD for escapes of unpaired surrogates, which no other JSON can contain."""
    return _ESCAPE.sub(lambda escape: r"\ufffd" if escape[1] else escape[0], text)
