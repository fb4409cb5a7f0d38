"""The written requests: at least one for every field that vLLM has, valid and not; a module a topic."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from tests.conformance.parity.request import Request

TOPICS = (
    "endings",
    "sampling",
    "characters",
    "logprobs",
    "forms",
    "structured",
    "tools",
    "streaming",
    "identity",
    "malformed",
    "routes",
)
PARSER_TOPICS = ("parsers",)
"""For servers that parse the model's output."""


def corpus(topics: Sequence[str] = TOPICS, brief: bool = False) -> list[Request]:
    """Return every written request in every form in which it is sent, named "topic/name [form]"; brief: in one."""
    requests: list[Request] = []
    for topic in topics:
        written: dict[str, Request] = import_module(f"{__name__}.{topic}").REQUESTS
        for number, (name, request) in enumerate(written.items()):
            forms = _forms(replace(request, name=f"{topic}/{name}"))
            # full and streamed requests alternate; what is rejected is rejected alike.
            requests += [forms[0 if request.rejected else number % 2 % len(forms)]] if brief else forms
    return requests


def _forms(request: Request) -> list[Request]:
    """Return a request not streamed, streamed, and streamed with ids; a rejected one without the last."""
    if request.as_is or not isinstance(request.body, dict):
        return [request]
    if not request.has_choices:
        return [request, request.with_fields(" [streamed]", stream=True)]
    streamed = request.with_fields(" [streamed]", stream=True, stream_options={"include_usage": True})
    if request.rejected:
        return [request, streamed]
    full = request.with_fields(" [with ids]", return_token_ids=True)
    with_ids = streamed.with_fields(" [with ids]", return_token_ids=True)
    return [full, streamed, with_ids]
