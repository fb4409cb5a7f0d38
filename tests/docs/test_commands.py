"""Every command in the documents is known here: it is run, or its options are read, or there is a reason not to."""

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from tests.docs.arguments import refusals
from tests.docs.commands import PAGES, ROOT, Command, commands_of
from tests.docs.not_run import NOT_RUN
from tests.docs.test_guides import ELSEWHERE
from tests.docs.test_guides import PAGES as RUN
from tokenwire.cli.main import LazyGroup

CHECKED = {"cd", "make", "node", "python", "python3", "sh", "tokenwire"}
"""Programs whose commands are run or checked: here, in test_examples.py and test_programs.py."""
WITH_CURL = {"curl", "grep"}
"""Those of commands that start with curl, which test_examples.py runs whole. Pages of test_guides.py run all theirs."""
ALL = [each for path in PAGES for each in commands_of(str(path.relative_to(ROOT)), path.read_text())]
SHOWN = [each for each in ALL if not each.inline]
PYTHON = ("python", "python3")
ROUTES = set(re.findall(r"^### `(\w+ \S+)`", (ROOT / "docs" / "reference" / "http.md").read_text(), re.MULTILINE))
_URL = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1):\d+(/[^?]*)")
KNOWN = {text for texts in NOT_RUN.values() for text in texts}


def of(program: str) -> list[Command]:
    """Return what runs a program, by itself or within a pipe or list; each once, if only named in sentences."""
    found = {
        (each.text if each.inline else each, tuple(words)): Command(each.page, shlex.join(words), each.inline)
        for each in ALL
        for words in each.parts
        if Path(words[0]).name == program and each.normal not in KNOWN
    }
    return list(found.values())


def is_known(command: Command) -> bool:
    """Return whether a command is run, checked, or listed with a reason why not."""
    if command.normal in KNOWN:
        return True
    programs = {Path(words[0]).name for words in command.parts}
    if command.page in RUN and not command.inline and not programs & ELSEWHERE:
        return True
    return programs <= (WITH_CURL if command.program == "curl" else CHECKED)


def test_every_command_is_known() -> None:
    """A new one is run by a test, or listed with the reason why not."""
    assert [each for each in ALL if not is_known(each)] == []


def test_no_command_is_listed_that_no_page_shows() -> None:
    """What the documents drop, the list drops."""
    assert KNOWN - {each.normal for each in ALL} == set()


@pytest.mark.parametrize(
    "markdown",
    [
        "```sh\nhelm frobnicate demo\n```\n",
        "```sh\npip install no-such-package-xyz\n```\n",
        "```sh\ncurl http://127.0.0.1:8000/health | no-such-program\n```\n",
        "```sh\nmake serve && no-such-program\n```\n",
        "```console\n$ no-such-program --now\nits output\n```\n",
        "~~~bash\nno-such-program\n~~~\n",
        "1. A list:\n\n    ```shell\n    no-such-program\n    ```\n",
        "| run | `.venv/bin/no-such-program --now` |\n",
        "Then `kubectl logs --previous POD`, or `pip install nonsense`.\n",
        "```sh\ngrep foo nosuch.txt\n```\n",
        "```sh\nfor x in 1 2; do curl http://127.0.0.1:8000/health; done\n```\n",
        "```sh\nmake serve & curl http://127.0.0.1:8000/health\n```\n",
        "```sh\nKEY=`frobnicate`\n```\n",
        "Look at `journalctl -u x`.\n",
        "Or `sudo systemctl restart x`.\n",
        "Count them with `nvidia-smi -L`.\n",
        "Then `kill -9 PID`.\n",
    ],
)
def test_a_command_without_a_test_is_found(markdown: str) -> None:
    """In blocks of every kind, behind pipes, and in tables."""
    assert any(not is_known(each) for each in commands_of("README.md", markdown))


@pytest.mark.parametrize(
    "markdown",
    [
        "```zsh\nls\n```\n",
        "```\n$ ls\n```\n",
        "```\nmake serve\n```\n",
        "Like this:\n\n    vllm serve MODEL\n",
        "> Like this:\n>\n> ```sh\n> ls\n> ```\n",
    ],
)
def test_blocks_of_unknown_kinds_are_refused(markdown: str) -> None:
    """They may have commands: without the name of a shell, indented, in a quotation."""
    with pytest.raises(ValueError, match=r"README\.md: (a block named|commands without a fence)"):
        list(commands_of("README.md", markdown))


def test_wrong_targets_and_options_in_sentences_are_found() -> None:
    """They are commands too."""
    target, option = commands_of("README.md", "`make no-such-target`, or `tokenwire serve --no-such-option`")

    with pytest.raises(AssertionError, match="no-such-target"):
        test_targets_of_make_exist(target)
    with pytest.raises(click.NoSuchOption):
        test_the_options_of_commands_exist(option)


@pytest.mark.parametrize("command", of("tokenwire"), ids=lambda each: each.text)
def test_the_options_of_commands_exist(command: Command) -> None:
    """With values that they take, and arguments that are required."""
    if command.inline and len(command.words) == 1:
        return  # the program's name
    name, *rest = command.words[1:]
    group = LazyGroup("tokenwire")
    found = group.get_command(group.make_context("tokenwire", ["--help"], resilient_parsing=True), name)

    assert found is not None
    try:
        found.make_context(name, rest[: rest.index("--")] if "--" in rest else rest)
    except (click.MissingParameter, click.BadOptionUsage):  # an option or argument without its value
        if not command.inline:
            raise
    except click.BadParameter as error:
        if not error.message.endswith("does not exist."):  # a file of the reader's own
            raise


@pytest.mark.parametrize("command", of("make"), ids=lambda each: each.text)
def test_targets_of_make_exist(command: Command) -> None:
    """With their variables; ARGS are options of a program that is checked too."""
    given = [word for word in command.words[1:] if "=" in word]
    ran = ran_by_make(command)

    assert ran
    for name, _, value in (word.partition("=") for word in given):
        assert f"$({name})" in (ROOT / "Makefile").read_text(), name
        assert any(value in each.text and each.program in {"python", "tokenwire"} for each in ran), value
    for each in ran:
        if each.program == "tokenwire":
            test_the_options_of_commands_exist(each)


def ran_by_make(command: Command) -> list[Command]:
    """Return the commands that a target runs, with its variables."""
    shown = subprocess.run(["make", "--dry-run", *command.words[1:]], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return [Command(command.page, line) for line in shown.stdout.splitlines()]


def test_make_help_lists_the_targets_of_the_documents() -> None:
    """Each with what it does."""
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = {line.split()[0] for line in shown.splitlines() if len(line.split()) > 1}

    assert {each.words[1] for each in of("make") if len(each.words) > 1} <= listed


@pytest.mark.parametrize(
    "command", [each for name in PYTHON for each in of(name) if each.words[1] == "-m"], ids=lambda each: each.text
)
def test_modules_exist(command: Command) -> None:
    """Those that are run as programs."""
    assert importlib.util.find_spec(command.words[2]) is not None


@pytest.mark.slow
def test_programs_take_their_arguments() -> None:
    """Modules take the options and values that commands give them, by themselves and through make."""
    commands = [
        *(each for name in PYTHON for each in of(name)),
        *(each for made in of("make") for each in ran_by_make(made)),
    ]
    named = [words[2:] for each in commands for words in each.parts if words[1:2] == ["-m"]]
    own = [(module, arguments) for module, *arguments in named if (ROOT / module.partition(".")[0]).is_dir()]

    assert len(own) > 20
    assert refusals(own) == {}


@pytest.mark.slow
def test_wrong_arguments_of_programs_are_found() -> None:
    """Options, values and what a program without options gets."""
    given = ["benchmarks --only rooting", "tests.model --short", "gpu --steps lode", "scripts.dashboard --print"]

    assert list(refusals((module, arguments) for module, *arguments in map(str.split, given))) == given


@pytest.mark.parametrize(
    "command",
    [each for name in (*PYTHON, "node", "sh") for each in of(name) if each.words[1] != "-m"],
    ids=lambda each: each.text,
)
def test_scripts_exist(command: Command) -> None:
    """They are examples, each of which test_examples.py runs."""
    path = Path(command.words[1])

    assert path.parent == Path("examples")
    assert (ROOT / path).is_file()
    assert command.words[2:] == [], "examples take no arguments"


@pytest.mark.parametrize("command", of("curl"), ids=lambda each: each.text)
def test_routes_of_curl_exist(command: Command) -> None:
    """With their method, in the reference that is made from the OpenAPI document."""
    words = command.words
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if "-d" in words else "GET"
    (path,) = [found[1] for word in words if (found := _URL.match(word))]

    assert f"{method} {path}" in ROUTES


def test_wrong_scripts_and_routes_in_sentences_are_found() -> None:
    """They are commands too."""
    *scripts, route = commands_of(
        "README.md",
        "`node examples/no-such.mjs`, `python3 examples/nosuch.py`, `python foo.py`, "
        "`.venv/bin/python examples/chat.py --x`, or `curl -X POST localhost:8000/health`",
    )

    assert len(scripts) == 4
    for script in scripts:
        with pytest.raises(AssertionError):
            test_scripts_exist(script)
    with pytest.raises(AssertionError, match="POST /health"):
        test_routes_of_curl_exist(route)


@pytest.mark.parametrize(
    "command",
    [each for each in SHOWN if each.program in {"cd", "helm", "podman", "promtool"} and each.normal != "cd dist"],
    ids=lambda each: each.text,
)
def test_paths_of_commands_exist(command: Command) -> None:
    """Those of the repository, from its root or from where `cd` leads."""
    folders = [ROOT, *(ROOT / each.words[1] for each in SHOWN if each.page == command.page and each.program == "cd")]
    for word in command.words[1:]:
        if command.program == "cd" or re.match(r"(deploy|examples|docs|scripts)/", word):
            assert any((folder / word).exists() for folder in folders), word


def test_certificates_are_made_as_shown(tmp_path: Path) -> None:
    """The first block of openssl commands runs, and the certificates verify."""
    (block,) = re.findall(
        r"^```sh\n(openssl req -x509.*?)^```", (ROOT / "docs" / "guides" / "tls.md").read_text(), re.M | re.S
    )

    subprocess.run(["sh", "-euc", block], cwd=tmp_path, check=True, capture_output=True)

    for name in ("worker", "coordinator"):
        subprocess.run(["openssl", "verify", "-CAfile", "ca.crt", f"{name}.crt"], cwd=tmp_path, check=True)
