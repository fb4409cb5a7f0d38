"""Stream a reply as it is generated; a stop string ends the computation too, not only the text."""

import os

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000") + "/v1", api_key="none")
model = client.models.list().data[0].id

stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Write a story about a lighthouse."}],
    stop=["\n\n"],  # the first paragraph
    max_tokens=200,
    temperature=0,
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)
        if choice.finish_reason:
            print(f"\n(ended by: {choice.finish_reason})")
    if chunk.usage:
        print(f"({chunk.usage.completion_tokens} tokens)")
