"""A rollout of several turns, as an RL trainer runs it: the ids of every turn extend those of the turn before exactly.

The messages go back as text, as in any chat. The server continues from the ids that it generated; rendering and
tokenizing the text again would change some of them, and train the model on tokens that it never chose.
"""

import os
import sys
import uuid
from typing import Any

from openai import OpenAI

client = OpenAI(base_url=os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000") + "/v1", api_key="none")
model = (client.models.list().data or sys.exit("The server serves no model yet."))[0].id

OBSERVATIONS = ["Count from one to ten.", "Now backwards.", "Now only the even numbers.", "And their sum?"]
rollout = {"X-Session-ID": uuid.uuid4().hex}  # one conversation for each rollout: two may write the same text
messages: list[Any] = []
trajectory: list[int] = []  # every token of the rollout, in order
trained: list[bool] = []  # whether the model generated it
logprobs: list[float | None] = []

for observation in OBSERVATIONS:
    messages.append({"role": "user", "content": observation})
    answer = client.chat.completions.create(
        model=model,
        messages=messages,
        max_tokens=40,
        temperature=1.0,
        logprobs=True,
        extra_headers=rollout,
        extra_body={"return_token_ids": True},
    )
    choice = answer.choices[0]
    prompt: list[int] = (answer.model_extra or {})["prompt_token_ids"]
    generated: list[int] = (choice.model_extra or {})["token_ids"]
    assert prompt[: len(trajectory)] == trajectory, "the prompt does not extend the turns before"
    assert choice.logprobs
    scored = choice.logprobs.content or []
    assert len(scored) == len(generated)

    added = prompt[len(trajectory) :]
    trajectory += added + generated
    trained += [False] * len(added) + [True] * len(generated)
    logprobs += [None] * len(added) + [token.logprob for token in scored]
    messages.append({"role": "assistant", "content": choice.message.content})
    print(f"{len(prompt):4} prompt tokens, {len(prompt) - len(added):4} of them as generated; {len(generated):3} new")

print(f"{len(trajectory)} tokens in one sequence, {sum(trained)} of them to train on: exact in every turn")
