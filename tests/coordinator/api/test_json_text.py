"""JSON of responses."""

import json
import math

import pytest

from tokenwire.coordinator.api.json_text import compact, json_bytes, replace_unpaired


def test_json_is_compact_and_unescaped() -> None:
    """Clients read UTF-8."""
    value = {"a": ["é", 1, -0.5], "b": None}
    assert compact(value) == '{"a":["é",1,-0.5],"b":null}' == json_bytes(value).decode()


def test_what_json_lacks_is_null() -> None:
    """Clients could not read a reply with NaN."""
    assert compact([math.nan, -math.inf]) == "[null,null]"


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        (r'"\ud800"', r'"\ufffd"'),
        (r'"\uDC00x"', r'"\ufffdx"'),
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d\ud83d\ude00"', r'"\ufffd\ud83d\ude00"'),
        (r'"\\ud800"', r'"\\ud800"'),
        (r'"\n\u00e9"', r'"\n\u00e9"'),
        (r'{"a": "\ud800', r'{"a": "\ufffd'),
    ],
)
def test_unpaired_surrogates_are_replaced(text: str, replaced: str) -> None:
    """Pairs and escaped backslashes stay; JSON may be incomplete."""
    assert replace_unpaired(text) == replaced
    if text.endswith('"'):
        json.loads(replace_unpaired(text)).encode()
