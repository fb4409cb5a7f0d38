"""The HTTP request of a script's request."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.http import HttpRequest
from tests.simulation.single_run import PENALIZED, SEEDED
from tests.simulation.tenants import address_of, key_headers

if TYPE_CHECKING:
    from tests.simulation.client import SimulatedClient

ID_PREFIXES = {"chat": "chatcmpl-", "completions": "cmpl-", "generate": "generate-tokens-"}
"""What the ids of responses begin with, by route."""
_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "generate": "/inference/v1/generate"}


def http_request_of(spec: Mapping[str, Any], earlier: "SimulatedClient | None" = None) -> HttpRequest:
    """Return the HTTP request of a script's request, which may continue an earlier chat."""
    sampling, body = _sampling(spec), _envelope(spec)
    if spec["route"] == "generate":
        body |= {"token_ids": list(spec["prompt"].encode()), "sampling_params": sampling}
        body["output_mode"] = "text" if spec.get("has_text", True) else "tokens"
    elif spec["route"] == "chat":
        messages = [*(() if earlier is None else earlier.messages), ("user", spec["prompt"])]
        body |= sampling | {"messages": [{"role": role, "content": content} for role, content in messages]}
        if spec["logprobs"] is not None:
            body |= {"logprobs": True, "top_logprobs": spec["logprobs"]}
    else:
        body |= sampling | {"prompt": list(spec["prompt"].encode())}
    headers = [(b"x-request-id", spec["id"].encode()), *key_headers(spec["key"])]
    return HttpRequest(_PATHS[spec["route"]], tuple(headers), json.dumps(body).encode(), address=address_of(spec))


def _envelope(spec: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"stream": spec["stream"], "priority": spec["priority"]}
    if spec.get("ids", True):
        body["return_token_ids"] = True
    if spec["stream"]:
        body["stream_options"] = {"include_usage": True}
    if spec.get("max_weight_lag") is not None:
        body["max_weight_lag"] = spec["max_weight_lag"]
    if spec["model"] is not None:
        body["model"] = spec["model"]
    return body


def _sampling(spec: Mapping[str, Any]) -> dict[str, Any]:
    sampling = {
        "max_tokens": spec["max_tokens"],
        "n": spec["n"],
        "temperature": 0.0 if spec["sampling"] == "greedy" else 1.0,
        "stop": spec["stop"],
        "seed": spec["seed"] if spec["sampling"] in SEEDED else None,
        "presence_penalty": 0.5 if spec["sampling"] in PENALIZED else None,
        "logprobs": None if spec["route"] == "chat" else spec["logprobs"],
        "include_stop_str_in_output": spec.get("include_stop"),
        **{name: spec.get(name) for name in ("min_tokens", "ignore_eos", "stop_token_ids", "prompt_logprobs")},
        **spec.get("parameters", {}),
    }
    return {name: value for name, value in sampling.items() if value is not None}
