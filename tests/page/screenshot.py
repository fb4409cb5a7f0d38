"""Takes the screenshot of the status page in the documentation: python -m tests.page.screenshot [FILE]."""

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from tokenizers import Tokenizer

from tests.page.browser import chromium
from tests.processes import simulated_service
from tests.tokenizers import npm_tokenizer_directory

_SAID = (
    "The coordinator owns text and the workers own token ids: your prompt went up as ids, and each step of the engine "
    "comes down as one frame. "
)
_LOADS: list[dict[str, Any]] = [
    {"prompt": prompt, "n": n, "max_tokens": 20_000, "stream": True} for prompt, n in (("one", 60), ("two", 45))
]


def take(path: Path) -> None:
    """Start a small fleet under load, chat with it, and write a screenshot."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = npm_tokenizer_directory("qwen3")
        tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        (script := folder / "script.json").write_text(json.dumps(tokenizer.encode(_SAID).ids))
        options = [str(model), "--served-model-name", "qwen3", "--sim-step-ms", "25", "--sim-kv-tokens", "60000"]
        options += ["--sim-script", str(script)]
        with (
            simulated_service(folder, *options, workers=3, coordinator_options=["--enable-debug-headers"]) as service,
            chromium(folder) as page,
            ExitStack() as streams,
        ):
            for load in _LOADS:
                streams.enter_context(httpx.stream("POST", f"{service.url}/v1/completions", json=load))
            service.workers[2].stop()
            page.resize(1000, 1140)
            page.open(service.url)
            page.wait_for("document.querySelector('#history-line').points.length > 8")
            page.click("#chat-tokens")
            page.fill("#chat-max", str(len(tokenizer.encode(_SAID).ids) - 1))
            page.fill("#chat-text", "Who are you?")
            page.click("#chat-send")
            page.wait_for("document.querySelector('.assistant .note')")
            page.screenshot(path)


if __name__ == "__main__":
    take(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/status-page.png"))
