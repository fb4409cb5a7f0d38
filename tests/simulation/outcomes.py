"""How requests ended, each by a name: what a client read decides it."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.simulation.client import SimulatedClient

STOPPED, STOPPED_AS_POISON = "completed: stop string", "stopped as poison"
USED_UP = "refused: quota of tokens per minute, used up"
_ERRORS = {
    (400, "tokens per minute, and the request may use"): "refused: larger than its key's minute",
    (401, ""): "refused: no valid key",
    (403, ""): "refused: not a model of its key",
    (404, ""): "refused: no such adapter",
    (422, "is not retried, and rejected for"): "refused: known as poison",
    (422, ""): STOPPED_AS_POISON,
    (429, "the engine's queue is full"): "refused: an engine's backlog",
    (429, "requests at a time"): "refused: quota of requests at a time",
    (429, "requests per minute"): "refused: quota of requests per minute",
    (429, "The request may use"): "refused: quota of tokens per minute, by what it might use",
    (429, "tokens per minute"): USED_UP,
    (429, "All workers of"): "refused: the queue is full",
    (500, "a second run of the request differs"): "failed: a replay differs",
    (500, "a simulated fault crashed the engine"): "failed: its engine crashed",
    (503, "a simulated fault crashed the engine"): "failed: its engine crashed",
    (503, "No worker had capacity"): "refused: waited in the queue for too long",
    (503, "No worker has connected yet"): "refused: no worker has connected yet",
    (503, "The last worker of"): "failed: the last worker of its revision is gone",
    (503, "is draining"): "refused: workers drain",
    (503, "in revision"): "refused: no worker of its revision",
    (503, "No worker serves"): "refused: no worker",
    (503, "The worker that generated this reply was lost"): "failed: its worker was lost",
    (503, "This server shut down"): "failed: its coordinator shut down",
    (504, ""): "failed: timed out",
}
"""Names by the status and a part of the message: the first one that fits."""
_ENDS = {
    "stop": "completed: end of text",
    "length": "completed: length",
    "abort": "aborted",
    "left": "left by its client",
    "connection lost": "failed: connection lost",
    "connection refused": "refused: no coordinator",
}
OUTCOMES = tuple(dict.fromkeys((STOPPED, *_ENDS.values(), *_ERRORS.values())))
"""All that have a name."""


def outcomes_of(client: SimulatedClient) -> Iterator[str]:
    """Yield how a request ended, or each of its choices."""
    if client.error:
        yield _name(client.error)
    elif client.ending in _ENDS:
        yield _choice(client, 0, client.ending)
    elif client.ending:
        for index, finish in enumerate(client.ending.split(",")):
            yield _choice(client, index, finish)


def _choice(client: SimulatedClient, index: int, finish: str) -> str:
    if finish == "stop" and client.choices[index].visible_text()[1] is not None:
        return STOPPED
    return _ENDS.get(finish, f"ended: {finish}")


def _name(error: Mapping[str, Any]) -> str:
    code, message = error.get("code"), error.get("message", "")
    for (status, part), name in _ERRORS.items():
        if code == status and part in message:
            return name
    return f"failed: {code} without a name"
