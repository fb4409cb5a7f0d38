"""Replies in the markup of each of vLLM's parsers: well-formed, broken and drawn ones."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

from tests.coordinator.parsing import markups

_PARAMETERS: dict[str, dict[str, Any]] = {
    "write": {"path": {"type": "string"}, "text": {"type": "string"}, "mode": {"type": "integer"}},
    "get_weather": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "plan": {"options": {"type": "object"}},
    "ping": {},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in _PARAMETERS.items()
]
WEATHER: tuple[str, dict[str, Any]] = ("get_weather", {"city": "Zürich", "days": 2, "tags": ["a", "b"]})
CODE: tuple[str, dict[str, Any]] = (
    "write",
    {"path": "/tmp/a.py", "text": 'if x:\n\tprint("a \\"b\\"", \'c\')\n', "mode": 420},
)
UNICODE: tuple[str, dict[str, Any]] = ("write", {"path": "/é/東京", "text": "👩\u200d🚀 “né”"})
NESTED: tuple[str, dict[str, Any]] = ("plan", {"options": {"a": {"b": [1, {"c": "d"}], "e": True}, "f": []}})
EMPTY: tuple[str, dict[str, Any]] = ("ping", {})
CALLS: list[tuple[str, dict[str, Any]]] = [WEATHER, CODE, UNICODE, NESTED, EMPTY]
TEXTS = ["Sure, I will.\n", "Sure.", " Done.", "Just { text [1] <b>é</b>\n\nwith: lines.", ""]
THOUGHT = "I should\nlook <b>it</b> up: 1 < 2."


def replies(markup: markups.Markup) -> dict[str, str]:
    """Return replies in a markup: well-formed ones, and at last broken ones."""
    say, call = markup.answers.format, markup.writes
    found = {"text": say(TEXTS[3])}
    if call([EMPTY]):
        word = (markup.tokens or re.findall(r"\S+", call([WEATHER]))[0]).split(" ")[-1]
        found |= {
            "one": call([WEATHER]),
            "parallel": call([CODE, WEATHER]),
            "three": call([WEATHER, WEATHER, EMPTY]),
            "before": say(TEXTS[0]) + call([WEATHER]),
            "around": say(TEXTS[1]) + call([CODE]) + say(TEXTS[2]),
            "nested": call([NESTED]),
            "unicode": call([UNICODE]),
            "own markup": call([("write", {"path": "/x", "text": f"say {word} now"})]),
            "empty": call([EMPTY]),
            "empty first": call([EMPTY, WEATHER]),
        }
    if markup.thinks:
        found = {name: markup.thinks.format(THOUGHT) + text for name, text in found.items()}
    longest = found.get("parallel", found["text"])
    found |= {f"cut at {part}": longest[: int(len(longest) * part)] for part in (0.35, 0.6, 0.8, 0.97)}
    if "one" in found:
        found["two openings"] = found["one"][: len(found["one"]) // 3] + found["one"]
    return found


def forced_replies(markup: markups.Markup, named: bool, thinks: bool) -> Iterator[str]:
    """Yield replies to a request that requires calls or names a tool: as JSON and in a markup, many cut."""
    calls = [WEATHER] if named else [WEATHER, CODE]
    thought = markup.thinks.format(THOUGHT) if markup.thinks and thinks else ""
    called = [{"name": name, "parameters": arguments} for name, arguments in calls]
    for text in (_json(called), _json(WEATHER[1]), markup.writes(calls)):
        for end in (*range(0, len(text), 9), len(text)):
            yield thought + text[:end]


def drawn_reply(markup: markups.Markup, pick: random.Random) -> str:
    """Return a reply of random parts, often cut or with a part repeated."""
    parts = [markup.thinks.format(THOUGHT)] if markup.thinks and pick.random() < 0.8 else []
    parts.append(markup.answers.format(pick.choice(TEXTS)))
    if markup.writes([EMPTY]):
        parts.append(markup.writes([pick.choice(CALLS) for _ in range(pick.randint(1, 3))]))
        if pick.random() < 0.3:
            parts.append(markup.answers.format(pick.choice(TEXTS)))
    text = "".join(parts)
    if pick.random() < 0.4:
        text = text[: pick.randrange(len(text) + 1)]
    if pick.random() < 0.15:
        place = pick.randrange(len(text) + 1)
        text = text[:place] + text[pick.randrange(place + 1) :]
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
