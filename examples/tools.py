"""Let the model call a function, run it, and let the model answer with its result.

The call is forced: `tool_choice` names the function, so a grammar holds the model to its schema. That makes even a very
small model write a valid call; leave it to a larger model (`tool_choice="auto"`) whether to call at all.
"""

import json
import os
import sys
from typing import Any

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000") + "/v1", api_key="none")
model = (client.models.list().data or sys.exit("The server serves no model yet."))[0].id


def get_weather(city: str) -> dict[str, Any]:
    """Return made-up weather."""
    return {"city": city, "sky": "sunny", "celsius": 21}


TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
messages: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]

asked = client.chat.completions.create(
    model=model,
    messages=messages,
    tools=[TOOL],
    tool_choice={"type": "function", "function": {"name": "get_weather"}},
    max_tokens=60,
    temperature=0,
)
reply = asked.choices[0].message
messages.append(reply)
for call in reply.tool_calls or []:
    if call.type == "function":
        result = get_weather(**json.loads(call.function.arguments))
        print(f"{call.function.name}({call.function.arguments}) -> {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})

answer = client.chat.completions.create(model=model, messages=messages, tools=[TOOL], max_tokens=60, temperature=0)
print(answer.choices[0].message.content)
