"""The tools of agents that are written with a framework, and the loop of those that have none of their own."""

import subprocess
from pathlib import Path


def read_file(path: str) -> str:
    """Read a file."""
    return Path(path).read_text()


def edit_file(path: str, before: str, after: str) -> str:
    """Replace a text in a file."""
    text = Path(path).read_text()
    if before not in text:
        return f"Error: there is no text {before!r} in the file."
    Path(path).write_text(text.replace(before, after))
    return "It was replaced."


def run_command(command: str) -> str:
    """Run a command in a shell."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    return done.stdout + done.stderr


TOOLS = {tool.__name__: tool for tool in (read_file, edit_file, run_command)}


def schema_of(name: str) -> dict:
    """Return a tool as OpenAI's chat API has it."""
    tool = TOOLS[name]
    arguments = [argument for argument in tool.__annotations__ if argument != "return"]
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string"} for argument in arguments},
        "required": arguments,
    }
    return {"type": "function", "function": {"name": name, "description": tool.__doc__, "parameters": parameters}}
