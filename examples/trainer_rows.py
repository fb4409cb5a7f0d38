"""An agent's session as TRL's trainers take it: the agent knows nothing of it, and the server recorded every token.

`rollouts` is what a `rollout_func` of TRL's GRPOTrainer returns for its prompts: one row for each of them.
"""

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import httpx
from openai import OpenAI

SERVER = os.environ.get("TOKENWIRE_URL", "http://127.0.0.1:8000")

Agent = Callable[[str, Any], float]
"""Works on a prompt with a server at a base URL; returns its reward."""


def rows_of_session(server: str, session: str) -> list[dict[str, Any]]:
    """Return the rows of a session, one for each of its lines; each sampled token is marked in exactly one."""
    response = httpx.get(f"{server}/sessions/{session}/export", params={"by": "path"}, timeout=60)
    response.raise_for_status()
    return [httpx.Response(200, text=line).json() for line in response.text.splitlines()]


def lost_nodes(server: str, session: str) -> int:
    """Return how many nodes of a session the server has lost: whoever trains on the rest misjudges it."""
    response = httpx.get(f"{server}/sessions/{session}", timeout=60)
    response.raise_for_status()
    return int(response.json()["lost"])


def trained_tokens(row: dict[str, Any]) -> int:
    """Return how many tokens of a row are trained on."""
    return sum(row["mask"])


def rollouts(server: str, prompts: Sequence[Any], agent: Agent) -> dict[str, list[Any]]:
    """Let an agent work on each prompt in a session of its own, reward it, and return the longest line of each."""
    found: list[dict[str, Any]] = []
    for prompt in prompts:
        session = uuid.uuid4().hex
        reward = agent(f"{server}/sessions/{session}/v1", prompt)
        httpx.put(f"{server}/sessions/{session}/rewards", json={"value": reward}).raise_for_status()
        row = max(rows_of_session(server, session), key=trained_tokens)
        lost = lost_nodes(server, session)
        if lost:
            print(f"Session {session} has lost {lost} nodes: nothing of it is trained on.", file=sys.stderr)
            row["mask"] = [0] * len(row["mask"])
        found.append(row)
    return {
        "prompt_ids": [row["prompt_ids"] for row in found],
        "completion_ids": [row["completion_ids"] for row in found],
        "logprobs": [[0.0 if each is None else each for each in row["logprobs"]] for row in found],
        "env_mask": [row["mask"] for row in found],  # TRL trains on what is 1 here
        "session_reward": [row["reward"] for row in found],  # passed on to reward functions
    }


def count_twice(base_url: str, prompt: Any) -> float:
    """An agent of two turns, as it might come from anywhere; it is rewarded for digits."""
    client = OpenAI(base_url=base_url, api_key="none")
    model = (client.models.list().data or sys.exit("The server serves no model yet."))[0].id
    messages: list[Any] = [{"role": "user", "content": prompt}]
    for question in ("Now backwards.", None):
        reply = client.chat.completions.create(model=model, messages=messages, max_tokens=24)
        messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        if question is not None:
            messages.append({"role": "user", "content": question})
    return float(any(character.isdigit() for message in messages for character in message["content"]))


if __name__ == "__main__":
    batch = rollouts(SERVER, ["Count from one to five.", "Count from six to nine."], count_twice)
    for mask, logprobs, reward in zip(batch["env_mask"], batch["logprobs"], batch["session_reward"], strict=True):
        mean = sum(logprobs) / (sum(mask) or 1)
        print(f"{len(mask)} tokens, {sum(mask)} to train on, mean log-probability {mean:.2f}, reward {reward}")
