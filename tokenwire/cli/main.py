"""The `tokenwire` command: loads only the half that was asked for."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from tokenwire import __version__
from tokenwire.errors import TokenwireError
from tokenwire.options import Section

Command = TypeVar("Command", bound=Callable[..., Any])

_COMMANDS = {
    "serve": ("tokenwire.cli.serve", "Serve a model: a worker and a coordinator in one command."),
    "chat": ("tokenwire.cli.chat", "Talk to a model in the terminal."),
    "coordinator": ("tokenwire.cli.coordinator", "Run the text half: HTTP in front, workers behind."),
    "worker": ("tokenwire.cli.worker", "Run the token half: one engine behind a gRPC port."),
}


class LazyGroup(click.Group):
    """Imports a subcommand's module when it is used: the coordinator must not pay for the worker."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which people need them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


class SectionedOption(click.Option):
    """An option that help shows under a heading."""

    def __init__(self, *arguments: Any, section: Section = Section.GENERAL, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose help has a heading for each section of its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what belongs together together."""
        sections: dict[Section, list[tuple[str, str]]] = {section: [] for section in Section}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[getattr(parameter, "section", Section.GENERAL)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    """`click.option` that can also be set as TOKENWIRE_<NAME>."""
    flag = names[0].split("/")[0].lstrip("-").replace("-", "_").upper()
    shown = {"show_envvar": True, "show_default": attributes.get("default") is not None}
    return click.option(*names, cls=SectionedOption, envvar=f"TOKENWIRE_{flag}", **{**shown, **attributes})


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Every option can be set in the environment too; `tokenwire COMMAND --help` names the variable.",
)
@click.version_option(__version__, prog_name="tokenwire")
def group() -> None:
    """Disaggregated LLM serving: coordinators own text, workers own token ids.

    \b
    Try:   tokenwire serve                              a small model, on the CPU
           tokenwire chat                               talk to it
           tokenwire serve Qwen/Qwen3-8B                any model that vLLM serves
    Scale: tokenwire worker MODEL --listen HOST:PORT    on every GPU
           tokenwire coordinator --worker HOST:PORT --worker HOST:PORT
    """


def main() -> None:
    """Run the command line; errors that a user can mend are one line, not a traceback."""
    # For every Python that a library starts, such as vLLM's engine: nothing is imported from the working directory.
    os.environ["PYTHONSAFEPATH"] = "1"
    arguments = sys.argv[1:]
    engine_arguments: list[str] = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, engine_arguments = arguments[:split], arguments[split + 1 :]
    try:
        group(arguments, obj=engine_arguments, prog_name="tokenwire")
    except TokenwireError as error:
        click.echo(f"tokenwire: {error.message}", err=True)
        sys.exit(1)
    except OSError as error:
        click.echo(f"tokenwire: {error.args[1] if len(error.args) > 1 else error}", err=True)
        sys.exit(1)
