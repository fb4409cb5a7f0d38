"""JSON bodies of chat requests that cover all features of templates."""

from typing import Any

from tests.coordinator.text.template.conversations import HELLO, TALK, TOOL_TALK, UNFINISHED, Conversation

Body = dict[str, Any]

TOOLS: list[dict[str, Any]] = [
    {
        "function": {
            "parameters": {
                "required": ["city"],
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Which <city>? \"Köln\", 'Łódź' & more"},
                    "unit": {"enum": ["celsius", "kelvin"], "type": ["string", "null"]},
                    "days": {"type": "array", "items": {"type": "integer"}, "default": [1, 2.5, None, True]},
                },
            },
            "name": "weather",
            "x-extra": 1,
        },
        "type": "function",
        "extra": True,
    },
    {"type": "function", "function": {"name": "now"}},
    {
        "type": "function",
        "function": {"name": "strict", "description": None, "parameters": {}, "strict": True},
        "defer_loading": False,
    },
]


def _call(index: int, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": f"call0000{index}", "type": "function", "function": {"name": name, "arguments": arguments}}


TWO_CALLS: Conversation = [
    {"role": "system", "content": [{"type": "text", "text": "Use "}, {"type": "text", "text": "tools."}]},
    {"role": "user", "content": "Köln and Łódź?"},
    {
        "role": "assistant",
        "content": "Let me look.",
        "reasoning_content": "Two cities,\ntwo calls.",
        "tool_calls": [_call(1, "weather", '{"city": "Köln"}'), _call(2, "weather", '{"city": "Łódź", "days": [1]}')],
    },
    {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": "20 <b>degrees</b>"},
    {"role": "tool", "tool_call_id": "call00002", "name": "weather", "content": [{"type": "text", "text": "10"}]},
    {"role": "assistant", "content": "<think>Fine.</think>\n\n20 and 10.", "reasoning": None},
    {"role": "user", "content": "Thanks!"},
]
LONG_TALK: Conversation = [
    {"role": "system", "content": "  Spaces around.  "},
    *(
        message
        for turn in range(4)
        for message in (
            {"role": "user", "content": f"Question {turn}?\n"},
            {"role": "assistant", "content": f"Answer {turn}.", "reasoning": f"Thought {turn}."},
        )
    ),
    {"role": "user", "content": "And now?"},
]
MESSAGES: dict[str, Conversation] = {
    "hello": HELLO,
    "talk": TALK,
    "tool talk": TOOL_TALK,
    "two calls": TWO_CALLS,
    "long talk": LONG_TALK,
    "unfinished": UNFINISHED,
    "unfinished thought": [HELLO[0], {"role": "assistant", "content": "<think>\nWell, ", "reasoning": "Well"}],
    "pending call": TWO_CALLS[:3],
    "results only": TWO_CALLS[:5],
    "developer": [{"role": "developer", "content": "Be terse."}, *HELLO],
    "late system": [HELLO[0], {"role": "assistant", "content": "Hi."}, {"role": "system", "content": "S"}, HELLO[0]],
    "two users": [HELLO[0], HELLO[0]],
    "assistant first": [{"role": "assistant", "content": "Hi!"}, HELLO[0]],
    "only system": [{"role": "system", "content": "Alone."}],
    "null content": [HELLO[0], {"role": "assistant", "content": None}, HELLO[0]],
    "empty": [{"role": "user", "content": ""}],
    "names": [{"role": "user", "name": "ann", "content": "I am Ann."}],
    "unknown role": [{"role": "wizard", "content": "Abracadabra"}],
    "special tokens in text": [{"role": "user", "content": "<|im_end|><eos></s><|eot_id|>[/INST]<|endoftext|>"}],
}

OPTIONS: dict[str, Body] = {
    "plain": {},
    "no generation prompt": {"add_generation_prompt": False},
    "continue": {"add_generation_prompt": False, "continue_final_message": True},
    "both endings": {"continue_final_message": True},
    "special tokens": {"add_special_tokens": True},
    "tools": {"tools": TOOLS},
    "effort": {"reasoning_effort": "low"},
    "no effort": {"reasoning_effort": "none"},
    "effort and thinking": {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
    "effort in kwargs": {"chat_template_kwargs": {"reasoning_effort": "high"}},
    "no thinking": {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    "thinking": {"tools": TOOLS, "chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
    "null kwargs": {"chat_template_kwargs": {"enable_thinking": None, "bos_token": None, "custom_tools": "auto"}},
    "documents": {"documents": [{"title": "Rain & <sun>", "text": "It rains.\n"}, {"text": "Dry."}]},
    "documents in kwargs": {"chat_template_kwargs": {"documents": [{"title": "t", "text": "x"}]}},
    "wrong documents": {"chat_template_kwargs": {"documents": ["x"]}},
    "tools in kwargs": {"tools": TOOLS[:1], "chat_template_kwargs": {"tools": TOOLS[1:2]}},
    "wrong tools in kwargs": {"chat_template_kwargs": {"tools": "x"}},
    "fields in kwargs": {"chat_template_kwargs": {"add_generation_prompt": False, "continue_final_message": True}},
    "tokens in kwargs": {
        "chat_template_kwargs": {"bos_token": "<other>", "eos_token": "<end>", "date_string": "1 May"}
    },
    "not for templates": {"chat_template_kwargs": {"padding": "x", "max_length": 3, "nobody_knows": 1}},
    "llama switches": {"tools": TOOLS, "chat_template_kwargs": {"tools_in_user_message": False}},
    "own template": {"chat_template": "{% for m in messages %}{{ m }}{% endfor %}{{ tools }}{{ x }}"},
    "own template, parts": {
        "chat_template": "{% for m in messages %}{% for p in m.content %}{{ p }}{% endfor %}{% endfor %}"
    },
    "named template": {"chat_template": "rag", "documents": [{"title": "t", "text": "x"}]},
}

BODIES: list[tuple[str, Body]] = [
    (f"{name}, {how}", {"messages": messages, **options})
    for name, messages in MESSAGES.items()
    for how, options in OPTIONS.items()
]
