"""Ask one question and print the answer: OpenAI's client, another base_url."""

import os
import sys

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000") + "/v1", api_key="none")
model = (client.models.list().data or sys.exit("The server serves no model yet."))[0].id

answer = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "What is the capital of France?"}],
    max_tokens=40,
    temperature=0,
)
print(answer.choices[0].message.content)
print(f"({answer.usage.prompt_tokens} tokens in, {answer.usage.completion_tokens} out)" if answer.usage else "")
