"""docs/guides/from-vllm-serve.md places every option of vLLM's server, and the engine takes what follows `--`."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass

import pytest

from tests.docs.commands import PAGES, ROOT, commands_of
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS

pytestmark = [pytest.mark.ci, pytest.mark.slow]

PAGE = (ROOT / "docs" / "guides" / "from-vllm-serve.md").read_text()
ENGINE, SERVER = PAGE.split("## Options of the engine")[1].split("## Options of the HTTP server")
SAME_NAME, OTHERS = SERVER.split("Another name, or another way:")
# In a process of its own, because importing vLLM changes this one's logging and signal handlers.
LIST = """
import json, sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

def flags(parser):
    return [a.option_strings[0] for a in parser._actions if a.option_strings and a.dest != "help"]

def takes(arguments):
    try:
        engine.parse_args(arguments)
    except SystemExit:
        return False
    return True

engine, server = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()), make_arg_parser(FlexibleArgumentParser())
wrong = [each for each in json.loads(sys.argv[1]) if not takes(each)]
print(json.dumps([flags(engine), flags(server), wrong]))
"""


def listed_options(text: str) -> list[str]:
    """Return the options in the first column of tables, or in a list."""
    cells = re.findall(r"^\| (`--.*?) \|", text, re.MULTILINE) or [text]
    return [option for cell in cells for option in re.findall(r"`(--[\w-]+)`", cell)]


def engine_arguments() -> list[list[str]]:
    """Return what follows `--` in the commands of all pages, also within ARGS of make."""
    found = []
    for path in PAGES:
        for command in commands_of(str(path.relative_to(ROOT)), path.read_text()):
            for words in command.parts:
                made = [part for word in words if word.startswith("ARGS=") for part in shlex.split(word[5:])]
                words = made or words
                if "--" in words and (made or "tokenwire" in words[0]):
                    found.append(words[words.index("--") + 1 :])
    return found


@dataclass(frozen=True)
class Options:
    """Those of vLLM's engine, those of its server beyond them, and the documents' arguments that the engine rejects."""

    engine: set[str]
    server: set[str]
    wrong: list[list[str]]


@pytest.fixture(scope="module")
def options() -> Options:
    """What vLLM's parsers know."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("could not import vllm")
    listed = subprocess.run(
        [sys.executable, "-c", LIST, json.dumps(engine_arguments())],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    engine, server, wrong = json.loads(listed.stdout.splitlines()[-1])
    return Options(set(engine), set(server) - set(engine), wrong)


def test_every_option_of_the_server_is_placed_once(options: Options) -> None:
    """A new one of vLLM's needs a row."""
    listed = [*listed_options(SAME_NAME), *listed_options(OTHERS)]

    assert sorted(listed) == sorted(options.server)


def test_exceptions_of_the_engine_exist(options: Options) -> None:
    """All others go after `--`, unchanged."""
    assert set(listed_options(ENGINE)) <= options.engine


def test_the_engine_takes_what_follows_two_dashes(options: Options) -> None:
    """In every command of the documents."""
    assert len(engine_arguments()) >= 7
    assert options.wrong == []


def test_options_with_the_same_name_exist_here() -> None:
    """On the coordinator, and so on `tokenwire serve`."""
    flags = {flag for each in COORDINATOR_OPTIONS.values() for flag in each.option.flag.split("/")}

    assert set(listed_options(SAME_NAME)) <= flags
