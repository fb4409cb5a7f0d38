"""litellm: a loop over streamed chats with tools."""

import json
import sys

import litellm
from tools import TOOLS, schema_of

url, model, prompt = sys.argv[1:]
litellm.telemetry = False
messages = [{"role": "user", "content": prompt}]
while True:
    stream = litellm.completion(
        model=f"openai/{model}",
        api_base=f"{url}/v1",
        api_key="unused",
        messages=messages,
        tools=[schema_of(name) for name in TOOLS],
        stream=True,
        stream_options={"include_usage": True},
    )
    reply = litellm.stream_chunk_builder(list(stream), messages=messages)
    message = reply.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    assert reply.usage.prompt_tokens > 0
    if not message.tool_calls:
        break
    assert reply.choices[0].finish_reason == "tool_calls"
    for made in message.tool_calls:
        result = TOOLS[made.function.name](**json.loads(made.function.arguments))
        messages.append({"role": "tool", "tool_call_id": made.id, "content": result})
print(message.content)
