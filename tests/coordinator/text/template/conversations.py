"""Conversations and templates that tests share."""

from typing import Any

from tokenwire.errors import InvalidRequest

REJECTED = InvalidRequest

Conversation = list[dict[str, Any]]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a <city> & more: 'ünïcode'",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]

HELLO: Conversation = [{"role": "user", "content": "Hello <b>&amp;</b> 你好 🙂"}]
TALK: Conversation = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi\n there  "},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes?"},
    {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "text", "text": "1+1?"}]},
]
TOOL_TALK: Conversation = [
    {"role": "user", "content": "Weather in Köln?"},
    {
        "role": "assistant",
        "content": None,
        "reasoning": "I should look.",
        "tool_calls": [
            {
                "id": "call00001",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Köln", "n": 1.5, "x": [null, true]}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "content": '{"temperature": "<20>"}'},
]
UNFINISHED: Conversation = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "one, two, "}]

CASES: list[tuple[Conversation, dict[str, Any]]] = [
    (HELLO, {"add_generation_prompt": True}),
    (HELLO, {"add_generation_prompt": False}),
    (HELLO, {"add_generation_prompt": True, "tools": TOOLS}),
    (HELLO, {"add_generation_prompt": True, "enable_thinking": False}),
    (HELLO, {"add_generation_prompt": True, "bos_token": "<other>"}),
    (TALK, {"add_generation_prompt": True}),
    (TALK, {"add_generation_prompt": False, "tools": TOOLS}),
    (TOOL_TALK, {"add_generation_prompt": True, "tools": TOOLS}),
    (TOOL_TALK, {"add_generation_prompt": True}),
    (UNFINISHED, {"add_generation_prompt": False, "continue_final_message": True}),
    ([HELLO[0], HELLO[0]], {"add_generation_prompt": True}),
    ([{"role": "wizard", "content": "Abracadabra"}], {"add_generation_prompt": True}),
]

_LOOP = "{% for m in messages %}"
_PARTS = "{% for p in m.content %}{{ p.text }}{% endfor %}"
TEMPLATES = {
    "plain": _LOOP + "{{ m.role }}{{ m.content }}{% endfor %}",
    "parts": _LOOP + _PARTS + "{% endfor %}",
    "parts by key": _LOOP + "{% for p in m['content'] | list %}{{ p }}{% endfor %}{% endfor %}",
    "sliced": "{% for m in messages[1:] %}" + _PARTS + "{% endfor %}",
    "alias": "{% set a = messages %}{% set b = a[1:] %}{% for m in b %}" + _PARTS + "{% endfor %}",
    "alias of alias, backwards": "{% set b = a %}{% set a = messages %}{% for m in b %}" + _PARTS + "{% endfor %}",
    "own assignment": "{% set messages = messages[1:] %}" + _LOOP + _PARTS + "{% endfor %}",
    "filtered": "{% for m in messages | rejectattr('role', 'eq', 'x') %}" + _PARTS + "{% endfor %}",
    "content variable": _LOOP + "{% set content = m.content %}{% for p in content %}{{ p }}{% endfor %}{% endfor %}",
    "macro": "{% macro show(c) %}{% for p in c %}{{ p }}{% endfor %}{% endmacro %}"
    + _LOOP
    + "{{ show(m.content) }}{% endfor %}",
    "macro by keyword": "{% macro show(x, c) %}{% for p in c %}{{ p }}{% endfor %}{% endmacro %}"
    + _LOOP
    + "{{ show(1, c=m['content']) }}{% endfor %}",
    "macro of something else": "{% macro show(content) %}{% for p in content %}{{ p }}{% endfor %}{% endmacro %}"
    + _LOOP
    + "{{ show(m.tools) }}{% endfor %}",
    "loop over something else": _LOOP + "{% for p in m.tool_calls %}{{ p }}{% endfor %}{{ m.content }}{% endfor %}",
    "namespace": "{% set ns = namespace(x=messages) %}" + _LOOP + "{{ m.content }}{% endfor %}",
    "unclear assignment": "{% set ns = namespace() %}{% set ns.x = messages %}" + _LOOP + _PARTS + "{% endfor %}",
    "unclear loop": _LOOP + "{% for a, b in m.content %}{{ a }}{% endfor %}{% endfor %}",
    "unclear message": "{% for a, b in messages %}" + _PARTS + "{% endfor %}",
    "test": "{% set x = messages is defined %}{% for m in x %}" + _PARTS + "{% endfor %}",
    "index": "{% set first = messages[0] %}{% for p in first.content %}{{ p }}{% endfor %}",
    "generation": _LOOP + "{% generation %}" + _PARTS + "{% endgeneration %}{% endfor %}",
}

MESSAGES: list[Conversation] = [
    HELLO,
    TALK,
    TOOL_TALK,
    UNFINISHED,
    [{"role": "user"}],
    [{"role": "user", "content": ["a", {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]}],
    [{"role": "weird", "content": "x", "foo": 1}],
    [{"role": "assistant", "content": None}],
    [{"role": "assistant", "content": "", "tool_calls": []}],
    [{"role": "assistant", "content": "", "tool_calls": None}],
    [{"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "other", "prefix": True}],
    [{"role": "assistant", "content": "a", "reasoning_content": "r"}],
    [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}, {"type": "text", "text": "x"}]}],
    [{"role": "assistant", "content": "a", "refusal": "no", "audio": None}],
    [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "closed": True}]}],
    [{"role": "assistant", "content": [{"type": "output_text", "text": "x"}, {"type": "thinking", "thinking": "y"}]}],
    [{"role": "tool", "content": "r", "tool_call_id": "1", "name": "f"}],
    [{"role": "tool", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "tool_call_id": "1"}],
    [{"role": "tool", "content": [{"type": "tool_reference", "name": "a"}], "tool_call_id": "1"}],
    [{"role": "tool", "content": [], "tool_call_id": "1"}],
    [{"role": "developer", "content": "d", "tools": TOOLS}],
    [{"role": "developer", "content": [{"type": "text", "text": "a"}], "name": "n"}],
    [{"role": "system", "content": "x-anthropic-billing-header: 1\nreal"}],
    [
        {
            "role": "system",
            "content": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "b"}],
        }
    ],
    [{"role": "user", "content": "x-anthropic-billing-header: 1\nreal", "task": "t"}],
    [{"role": "function", "content": "hi", "name": "f"}],
    [{"role": "user", "content": ""}],
    *(
        [
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "type": "function",
                        "index": 0,
                        "id": "1",
                        "function": {"x": 2, "name": "f", "arguments": arguments},
                    }
                ],
            }
        ]
        for arguments in ('{"b": 1, "a": {"c": "é"}}', "", "not json", "[1]", "null", '"text"')
    ),
]


class TextModelConfig:
    """The fields of vLLM's ModelConfig that are needed for messages without media."""

    multimodal_config = None
    enable_prompt_embeds = False
    is_multimodal_model = False
    allowed_local_media_path = ""
    allowed_media_domains = None
