"""Stream a reply as it is generated; a stop string ends the computation too, not only the text."""

import os
import sys
import time

import httpx
from openai import OpenAI

url = os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000")
client = OpenAI(base_url=url + "/v1", api_key="none")
model = (client.models.list().data or sys.exit("The server serves no model yet."))[0].id

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

time.sleep(1)  # many steps of an engine that continues
for line in httpx.get(f"{url}/metrics").text.splitlines():
    if line.startswith("tokenwire_overshoot_tokens_total"):
        print(f"(computed after the ends of replies: {line})")
