"""The HTTP request of a script's request."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.http import HttpRequest
from tests.simulation.tenants import address_of, key_headers

if TYPE_CHECKING:
    from tests.simulation.client import SimulatedClient

SEEDED = ("seeded", "penalty")
"""Kinds of sampling with a seed."""


def http_request_of(spec: Mapping[str, Any], earlier: "SimulatedClient | None" = None) -> HttpRequest:
    """Return the HTTP request of a script's request, which may continue an earlier chat."""
    body: dict[str, Any] = {
        "max_tokens": spec["max_tokens"],
        "stream": spec["stream"],
        "n": spec["n"],
        "priority": spec["priority"],
        "temperature": 0.0 if spec["sampling"] == "greedy" else 1.0,
        "return_token_ids": True,
        "stop": spec["stop"],
    }
    if spec["stream"]:
        body["stream_options"] = {"include_usage": True}
    if spec["model"] is not None:
        body["model"] = spec["model"]
    if spec["sampling"] in SEEDED:
        body["seed"] = spec["seed"]
    if spec["sampling"] == "penalty":
        body["presence_penalty"] = 0.5
    if spec["route"] == "chat":
        messages = [*(() if earlier is None else earlier.messages), ("user", spec["prompt"])]
        body["messages"] = [{"role": role, "content": content} for role, content in messages]
        if spec["logprobs"] is not None:
            body |= {"logprobs": True, "top_logprobs": spec["logprobs"]}
    else:
        body["prompt"] = list(spec["prompt"].encode())
        body["logprobs"] = spec["logprobs"]
    headers = [(b"x-request-id", spec["id"].encode()), *key_headers(spec["key"])]
    path = "/v1/chat/completions" if spec["route"] == "chat" else "/v1/completions"
    sent = json.dumps({k: v for k, v in body.items() if v is not None}).encode()
    return HttpRequest(path, tuple(headers), sent, address=address_of(spec))
