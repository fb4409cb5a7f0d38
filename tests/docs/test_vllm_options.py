"""docs/guides/from-vllm-serve.md places every option of vLLM's server."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest

from tests.docs.commands import ROOT
from tokenwire.cli.coordinator import COORDINATOR_OPTIONS

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "guides" / "from-vllm-serve.md").read_text()
ENGINE, SERVER = PAGE.split("## Options of the engine")[1].split("## Options of the HTTP server")
SAME_NAME, OTHERS = SERVER.split("Another name, or another way:")
# In a process of its own, because importing vLLM changes this one's logging and signal handlers.
LIST = """
import json
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

def flags(parser):
    return [a.option_strings[0] for a in parser._actions if a.option_strings and a.dest != "help"]

engine, server = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()), make_arg_parser(FlexibleArgumentParser())
print(json.dumps([flags(engine), flags(server)]))
"""


def listed_options(text: str) -> list[str]:
    """Return the options in the first column of tables, or in a list."""
    cells = re.findall(r"^\| (`--.*?) \|", text, re.MULTILINE) or [text]
    return [option for cell in cells for option in re.findall(r"`(--[\w-]+)`", cell)]


@pytest.fixture(scope="module")
def options() -> tuple[set[str], set[str]]:
    """The options of vLLM's engine, and those of its server beyond them."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("could not import vllm")
    listed = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True, timeout=200)
    engine, server = (set(flags) for flags in json.loads(listed.stdout.splitlines()[-1]))
    return engine, server - engine


def test_every_option_of_the_server_is_placed_once(options: tuple[set[str], set[str]]) -> None:
    """A new one of vLLM's needs a row."""
    listed = [*listed_options(SAME_NAME), *listed_options(OTHERS)]

    assert sorted(listed) == sorted(options[1])


def test_exceptions_of_the_engine_exist(options: tuple[set[str], set[str]]) -> None:
    """All others go after `--`, unchanged."""
    assert set(listed_options(ENGINE)) <= options[0]


def test_options_with_the_same_name_exist_here() -> None:
    """On the coordinator, and so on `tokenwire serve`."""
    flags = {flag for each in COORDINATOR_OPTIONS.values() for flag in each.option.flag.split("/")}

    assert set(listed_options(SAME_NAME)) <= flags
