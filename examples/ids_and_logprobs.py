"""See the tokens: the ids of prompt and reply, and how likely each token was beside its alternatives."""

import math
import os
import sys

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000") + "/v1", api_key="none")
model = (client.models.list().data or sys.exit("The server serves no model yet."))[0].id

answer = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Name a colour."}],
    max_tokens=8,
    temperature=0,
    logprobs=True,
    top_logprobs=3,
    extra_body={"return_token_ids": True},
)
# Fields that OpenAI does not have are in model_extra.
choice = answer.choices[0]
print("prompt ids:", (answer.model_extra or {})["prompt_token_ids"])
print("reply ids: ", (choice.model_extra or {})["token_ids"])
assert choice.logprobs
for token in choice.logprobs.content or []:
    others = ", ".join(f"{other.token!r} {math.exp(other.logprob):.0%}" for other in token.top_logprobs)
    print(f"{token.token!r:>12}  {others}")
