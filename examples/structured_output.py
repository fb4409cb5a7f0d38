"""Get replies of an exact shape: a JSON schema, a choice among words, a regular expression."""

import json
import os
import sys
from typing import Any

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000") + "/v1", api_key="none")
model = (client.models.list().data or sys.exit("The server serves no model yet."))[0].id


def ask(question: str, **options: Any) -> str:
    """Return the reply to one question."""
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], max_tokens=80, temperature=0, **options
    )
    return answer.choices[0].message.content or ""


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
person = ask(
    "Invent a person.",
    response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}},
)
print("schema:", json.loads(person))

# vLLM's extension of the API: `structured_outputs` with one of json, regex, choice, grammar, structural_tag.
colour = ask("What colour is the sky?", extra_body={"structured_outputs": {"choice": ["green", "blue", "red"]}})
print("choice:", colour)

year = ask("When did Apollo 11 land?", extra_body={"structured_outputs": {"regex": "(19|20)[0-9]{2}"}})
print("regex: ", year)
