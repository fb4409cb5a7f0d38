"""The child process of renderer_process.py: renders jobs from standard input until it ends."""

import json
import resource
import sys
from collections.abc import Mapping
from typing import Any

from tokenwire.coordinator.text.template.budget import RenderLimits
from tokenwire.coordinator.text.template.chat_template import ChatTemplate
from tokenwire.coordinator.text.template.renderer_process import LENGTH, READY
from tokenwire.errors import InvalidRequest


def render(job: Mapping[str, Any], limits: RenderLimits) -> dict[str, Any]:
    """Render a job; return its text, or an error."""
    try:
        template = ChatTemplate(job["template"], job["special_tokens"], job["content_format"], limits=limits)
        return {"text": template.render_values(job["messages"], job["values"])}
    except InvalidRequest as error:
        return {"message": error.message, "param": error.param}
    except MemoryError:
        return {"message": "The chat template needed too much memory.", "param": "chat_template"}


def main(seconds: float, characters: int, memory_mb: int) -> None:
    """Render jobs from standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    limits = RenderLimits(seconds, characters)
    source = sys.stdin.buffer
    _write(READY)
    while head := source.read(LENGTH.size):
        (length,) = LENGTH.unpack(head)
        _write(json.dumps(render(json.loads(source.read(length)), limits)).encode())


def _write(message: bytes) -> None:
    sys.stdout.buffer.write(LENGTH.pack(len(message)) + message)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
