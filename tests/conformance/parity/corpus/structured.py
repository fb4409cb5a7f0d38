"""Output that must have a form: JSON, regular expressions, choices, grammars, structural tags."""

import json

from tests.conformance.parity.corpus.prompts_used import COLORS, FRANCE, STORY, SUM
from tests.conformance.parity.request import chat, rejected, text

_CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "n"],
    "additionalProperties": False,
}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": _CITY}}
_GRAMMAR = 'root ::= "yes" | "no" [0-9]+'
_TAG = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<n>"],
        "tags": [{"begin": "<n>", "content": {"type": "json_schema", "json_schema": _CITY}, "end": "</n>"}],
        "at_least_one": True,
        "stop_after_first": True,
    },
}
_OLD_TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<n>", "schema": _CITY, "end": "</n>"}],
    "triggers": ["<n>"],
}
_DEEP: dict[str, object] = {"type": "object"}
for _ in range(80):
    _DEEP = {"type": "object", "properties": {"x": _DEEP}}

REQUESTS = {
    "format: text": chat(SUM, response_format={"type": "text"}, max_tokens=4),
    "format: JSON object": chat(COLORS, response_format={"type": "json_object"}, max_tokens=20),
    "format: JSON schema": chat(COLORS, response_format=_FORMAT, max_tokens=40),
    "format: JSON schema, strict": chat(
        COLORS,
        response_format={**_FORMAT, "json_schema": {"name": "c", "strict": True, "schema": _CITY}},
        max_tokens=40,
    ),
    "format: structural tag": chat(COLORS, response_format=_TAG, max_tokens=40),
    "format: structural tag of the old kind": chat(COLORS, response_format=_OLD_TAG, max_tokens=8),
    "text, format: JSON schema": text(FRANCE, response_format=_FORMAT, max_tokens=40),
    "json": chat(COLORS, structured_outputs={"json": _CITY}, max_tokens=40),
    "json as a string": chat(COLORS, structured_outputs={"json": json.dumps(_CITY)}, max_tokens=40),
    "json, sampled, with logprobs": chat(
        COLORS,
        structured_outputs={"json": _CITY},
        temperature=1.0,
        seed=5,
        logprobs=True,
        top_logprobs=2,
        max_tokens=30,
    ),
    "json without white space": chat(
        COLORS, structured_outputs={"json": _CITY, "disable_any_whitespace": True}, max_tokens=40
    ),
    "json without additional properties": chat(
        COLORS, structured_outputs={"json": _CITY, "disable_additional_properties": True}, max_tokens=40
    ),
    "json with a pattern of white space": chat(
        COLORS, structured_outputs={"json": _CITY, "whitespace_pattern": " ?"}, max_tokens=40
    ),
    "json object": chat(COLORS, structured_outputs={"json_object": True}, max_tokens=12),
    "regex": chat(SUM, structured_outputs={"regex": "[0-9]{3}"}),
    "regex of nothing": chat(SUM, structured_outputs={"regex": ""}, max_tokens=4),
    "choice": chat(SUM, structured_outputs={"choice": ["four", "five"]}),
    "text, choice": text(FRANCE, structured_outputs={"choice": ["Rome", "Paris"]}),
    "choice, two choices": chat(SUM, structured_outputs={"choice": ["a", "b", "c"]}, n=2, temperature=1, seed=3),
    "grammar": chat(SUM, structured_outputs={"grammar": _GRAMMAR}, max_tokens=6),
    "structural tag": chat(STORY, structured_outputs={"structural_tag": json.dumps(_TAG)}, max_tokens=40),
    "regex and a stop string": chat(SUM, ("stop", "b"), structured_outputs={"regex": "[ab]{6}ab"}, stop=["b"]),
    "choice with a format of text": chat(
        SUM, structured_outputs={"choice": ["four"]}, response_format={"type": "text"}
    ),
    "format: JSON schema missing": rejected(chat(SUM, response_format={"type": "json_schema"})),
    "format: JSON schema without a name": rejected(
        chat(SUM, response_format={"type": "json_schema", "json_schema": {"schema": _CITY}})
    ),
    "format: JSON schema without a schema": rejected(
        chat(SUM, response_format={"type": "json_schema", "json_schema": {"name": "x"}})
    ),
    "format: unknown": rejected(chat(SUM, response_format={"type": "xml"})),
    "format: no type": rejected(chat(SUM, response_format={})),
    "format: wrong type": rejected(text(FRANCE, response_format="json")),
    "format: a wrong schema": rejected(
        chat(SUM, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "cheese"}}})
    ),
    "format: a wrong structural tag": rejected(
        chat(SUM, response_format={"type": "structural_tag", "format": {"type": "x"}})
    ),
    "format and choice": rejected(
        chat(SUM, structured_outputs={"choice": ["four"]}, response_format={"type": "json_object"})
    ),
    "json that is no schema": rejected(chat(SUM, structured_outputs={"json": "{"})),
    "json empty": rejected(chat(SUM, structured_outputs={"json": ""})),
    "json, far too deep": rejected(chat(SUM, structured_outputs={"json": _DEEP})),
    "json object of false": rejected(chat(SUM, structured_outputs={"json_object": False})),
    "regex that is none": rejected(chat(SUM, structured_outputs={"regex": "["})),
    "regex with a NUL": rejected(text(FRANCE, structured_outputs={"regex": "a\0"})),
    "choice of nothing": rejected(chat(SUM, structured_outputs={"choice": []})),
    "choice of a wrong type": rejected(chat(SUM, structured_outputs={"choice": "four"})),
    "grammar that is none": rejected(chat(SUM, structured_outputs={"grammar": "root := ("})),
    "grammar empty": rejected(text(FRANCE, structured_outputs={"grammar": " "})),
    "structural tag that is none": rejected(chat(SUM, structured_outputs={"structural_tag": "{}"})),
    "structural tag empty": rejected(chat(SUM, structured_outputs={"structural_tag": ""})),
    "no constraint": rejected(chat(SUM, structured_outputs={})),
    "two constraints": rejected(chat(SUM, structured_outputs={"regex": "a", "choice": ["a"]})),
    "two other constraints": rejected(chat(SUM, structured_outputs={"regex": "a", "grammar": _GRAMMAR})),
    "constraints of a wrong type": rejected(chat(SUM, structured_outputs="json")),
}
