"""Simulated workers with scripted replies that have reasoning and tool calls, behind one coordinator."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from tests.processes import Service, coordinator, simulated_worker, wait_models
from tokenwire.worker.simulated_engine.model import load_model

MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
PARSERS = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice", "--reasoning-parser", "qwen3")

WEATHER = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
PATCH = r"""<tool_call>
{"name": "apply_patch", "arguments": {"input": "*** a\n+“ü”\n\t\"b\""}}
</tool_call>"""
COMMAND = """<tool_call>
{"name": "local_shell", "arguments": {"command": ["ls", "-l"], "timeout_ms": 9}}
</tool_call>"""
REPLIES = {
    "thinks": "<think>\nTwo and two.\n</think>\n\nIt is “four”.",
    "calls": "<think>\n\n</think>\n\nSure.\n" + WEATHER,
    "calls-twice": f"<think>\nBoth, then.\n</think>\n\n{WEATHER}\n{TIME}",
    "only-calls": "<think>\n\n</think>\n\n" + WEATHER,
    "patches": "<think>\n\n</think>\n\n" + PATCH,
    "commands": "<think>\n\n</think>\n\n" + COMMAND,
    "silent": "<think>\n\n</think>\n\n",
}
"""Each model's output, by its name."""


def write_model(folder: Path, added: Sequence[str] = MARKS) -> Path:
    """Write a model directory: the simulated engine's own tokenizer and added tokens, by default those of parsers."""
    files = load_model(None, None).files
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in added])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_bytes(files["tokenizer_config.json"])
    return folder


@contextmanager
def scripted_service(folder: Path, replies: Mapping[str, str] = REPLIES, *options: str) -> Iterator[Service]:
    """Run a coordinator in front of one worker for each reply, whose model has the reply's name."""
    model = write_model(folder / "model")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    with ExitStack() as stack:
        started = []
        for name, text in replies.items():
            script = folder / f"{name}.json"
            script.write_text(json.dumps(tokenizer.encode(text + "<|im_end|>", add_special_tokens=False).ids))
            arguments = ("--sim-script", str(script), "--sim-step-ms", "1", "--served-model-name", name)
            started.append(stack.enter_context(simulated_worker(folder, str(model), *arguments, name=name)))
        addresses = [address for _, address in started]
        process, url = stack.enter_context(coordinator(folder, addresses, *PARSERS, *options, start_timeout_s=120))
        wait_models(url, replies)
        yield Service(process, url, [worker for worker, _ in started], addresses)
