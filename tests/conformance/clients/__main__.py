"""`make conformance`: runs clients' own code with a real engine, and reports which of them work."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from tests.conformance.clients.environments import CLIENTS, python_of
from tests.conformance.servers import running_service
from tokenwire.process.shared_options import default_cache_dir
from tokenwire.worker.vllm_engine.embedded_model import prepare_embedded_model

_SCRIPTS = Path(__file__).parent / "scripts"
_TIMEOUT_S = 600
_OPTIONS = ("--enable-rl", "--enable-trajectories")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(CLIENTS)))
@click.option("--url", help="A service that is running already, with the embedded model.")
def run_clients(names: tuple[str, ...], url: str | None) -> None:
    """Run clients, all unless NAMES are given, with tokenwire serve."""
    chosen = names or tuple(CLIENTS)
    pythons = {name: python_of(name) for name in chosen}
    model = prepare_embedded_model(default_cache_dir(), click.echo)
    if url is not None:
        failed = [name for name in chosen if not _works(name, pythons[name], url, model)]
    else:
        with tempfile.TemporaryDirectory() as folder, running_service(Path(folder), _OPTIONS) as service:
            failed = [name for name in chosen if not _works(name, pythons[name], service.url, model)]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


def _works(name: str, python: Path, url: str, model: Path) -> bool:
    """Run a client's script with the service's URL and the model's folder; it contains the assertions."""
    script = _SCRIPTS / CLIENTS[name].script
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    result = subprocess.run(
        [str(python), str(script), url, str(model)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    click.echo(f"{'ok    ' if result.returncode == 0 else 'FAILED'} {name}")
    if result.returncode:
        click.echo(result.stdout[-4000:] + result.stderr[-4000:])
    return result.returncode == 0


if __name__ == "__main__":
    run_clients()
