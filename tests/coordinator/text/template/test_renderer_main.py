"""The child process that renders requests' own templates."""

import io
import json
import resource
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.coordinator.text.template.rendering import HELLO
from tokenwire.coordinator.text.template import renderer_main
from tokenwire.coordinator.text.template.budget import RenderLimits
from tokenwire.coordinator.text.template.renderer_process import LENGTH, READY

LIMITS = RenderLimits(seconds=0.2, characters=1000)


def job(template: str) -> dict[str, Any]:
    """Return a job with a template."""
    options = {"add_generation_prompt": True, "continue_final_message": False, "tools": None, "documents": None}
    return {
        "template": template,
        "special_tokens": {"bos_token": "<s>"},
        "content_format": "string",
        "messages": HELLO,
        "values": options,
    }


def test_a_job_becomes_text_or_an_error() -> None:
    """With the field that the error is about."""
    rendered = renderer_main.render(job("{{ bos_token }}{{ messages[0].content }}"), LIMITS)
    rejected = renderer_main.render(job("{{ 'x' * 2000 }}"), LIMITS)

    assert rendered == {"text": "<s>hi"}
    assert "created more than 1000 characters" in rejected["message"]
    assert rejected.keys() == {"message", "param"}


def test_jobs_are_rendered_until_the_input_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has one reply; before the first, the process reports that it has started, within its memory."""
    messages = [json.dumps(job(template)).encode() for template in ("one", "{% if %}")]
    sent = b"".join(LENGTH.pack(len(message)) + message for message in messages)
    written, limited = io.BytesIO(), list[Any]()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(sent)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=written))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: limited.append((kind, limits)))

    renderer_main.main(0.2, 1000, 64)

    replies, written = [], io.BytesIO(written.getvalue())
    while head := written.read(LENGTH.size):
        replies.append(written.read(*LENGTH.unpack(head)))
    assert replies[0] == READY
    assert json.loads(replies[1]) == {"text": "one"}
    assert "does not parse" in json.loads(replies[2])["message"]
    assert limited == [(resource.RLIMIT_AS, (64 << 20, 64 << 20))]
