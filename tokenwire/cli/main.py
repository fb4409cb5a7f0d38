"""The `tokenwire` command: imports only the subcommand that runs."""

import importlib
import os
import sys

import click

from tokenwire import __version__
from tokenwire.errors import TokenwireError
from tokenwire.options import Section

SUMMARIES = {
    "serve": "Serve a model: a worker and a coordinator in one command.",
    "chat": "Talk to a model in the terminal, through any server of OpenAI's API.",
    "coordinator": "Run the text half: an HTTP server with OpenAI's API in front of workers.",
    "worker": "Run the token half: an engine with a gRPC port.",
}
"""What each command does. A command is in the module of its name."""


class LazyGroup(click.Group):
    """Imports a subcommand's module when it is used, so that coordinators do not load the worker."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, the most used first."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in SUMMARIES:
            return None
        command: click.Command = importlib.import_module(f"tokenwire.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


class SectionedOption(click.Option):
    """An option with a heading in help."""

    section = Section.GENERAL


class SectionedCommand(click.Command):
    """A command whose help groups options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of each section under its heading."""
        sections: dict[Section, list[tuple[str, str]]] = {section: [] for section in Section}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections[getattr(parameter, "section", Section.GENERAL)].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Every option can also be set in the environment; `tokenwire COMMAND --help` shows the variables.",
)
@click.version_option(__version__, prog_name="tokenwire")
def group() -> None:
    """Disaggregated LLM serving: coordinators handle text, workers handle token ids.

    \b
    Try:   tokenwire serve                              a small model, on the CPU
           tokenwire chat                               talk to it
           tokenwire serve Qwen/Qwen3-8B                any model that vLLM serves
    Scale: tokenwire worker MODEL --listen HOST:PORT    on every GPU
           tokenwire coordinator --worker HOST:PORT --worker HOST:PORT
    """


def main() -> None:
    """Run the command line; errors that users can fix are one line, not a traceback."""
    # For Python processes of libraries, such as vLLM's engine: nothing is imported from the working directory.
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
