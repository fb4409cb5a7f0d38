"""Turns of sessions, shared by tests."""

from array import array
from collections.abc import Sequence
from typing import Any

from tokenwire.coordinator.trajectories.events import RecordedChoice, RecordedTurn


def said_by_user(text: str) -> dict[str, str]:
    """Return a message of a user."""
    return {"role": "user", "content": text}


def assistant_message(text: str) -> dict[str, str]:
    """Return a message of the model."""
    return {"role": "assistant", "content": text}


def sampled_choice(node: str, token_ids: Sequence[int], **changes: Any) -> RecordedChoice:
    """Return a choice, whose log-probabilities are the negative ids."""
    fields: dict[str, Any] = {"index": 0, "finish": "stop", "message": assistant_message(node), **changes}
    logprobs = array("f", [-float(token_id) for token_id in token_ids])
    return RecordedChoice(**{"node": node, "token_ids": array("I", token_ids), "logprobs": logprobs, **fields})


def turn_of(prompt: Sequence[int], *choices: RecordedChoice, **changes: Any) -> RecordedTurn:
    """Return a turn with its whole prompt."""
    return RecordedTurn(
        **{"request_id": "r", "model": "m", "choices": [*choices], "prompt_ids": array("I", prompt), **changes}
    )
