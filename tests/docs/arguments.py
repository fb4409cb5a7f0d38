"""Whether a program takes the arguments that the documents give it, by the program's own parser."""

import importlib.util
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.docs.commands import ROOT

# In a process of its own, which ends a program where it has parsed its arguments.
_PARSE = """
import argparse, click, contextlib, io, json, runpy, sys

def end(*_):
    raise SystemExit(0)

parse_args = argparse.ArgumentParser.parse_args
argparse.ArgumentParser.parse_args = lambda *given: end(parse_args(*given))
click.Command.invoke = end

def refusal(module, arguments):
    sys.argv[:] = [module, *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as ended:
            return said.getvalue() if ended.code else None

module, given = sys.argv[1:]
print(json.dumps([refusal(module, each) for each in json.loads(given)]))
"""


def refusals(commands: Iterable[tuple[str, list[str]]]) -> dict[str, str]:
    """Return what modules object to in their arguments, by the command; each module is imported once."""
    given: dict[str, list[list[str]]] = defaultdict(list)
    for module, arguments in commands:
        if arguments:
            given[module].append(arguments)
    found: dict[str, str] = {}
    for module, each in given.items():
        if not _has_a_parser(module):
            found |= {" ".join([module, *arguments]): "takes no arguments" for arguments in each}
            continue
        command = [sys.executable, "-c", _PARSE, module, json.dumps(each)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        for arguments, message in zip(each, json.loads(done.stdout.splitlines()[-1]), strict=True):
            if message is not None and not message.endswith("does not exist.\n"):  # a file of the reader's own
                found[" ".join([module, *arguments])] = message
    return found


def _has_a_parser(module: str) -> bool:
    found = importlib.util.find_spec(module)
    if found is not None and found.submodule_search_locations is not None:
        found = importlib.util.find_spec(f"{module}.__main__")
    source = Path(found.origin).read_text() if found is not None and found.origin is not None else ""
    return "argparse" in source or "click" in source
