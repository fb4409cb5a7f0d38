"""`python -m gpu`: runs the steps on this machine's GPU, or dry on its CPU."""

import signal
import sys
import tempfile
from pathlib import Path

import click

from gpu.kit import DEVICES
from gpu.runner import FAILED, Planned, run_steps, table
from gpu.step import NAMES, describe_step, load_step

OUT = Path(tempfile.gettempdir()) / "tokenwire-gpu-out"
_SLOWER_ON_CPU = 5
_WITHIN_S = 1200.0
"""All steps together, on a GPU that is lent for half an hour."""


def _step_names(_context: click.Context, _option: click.Parameter, value: str) -> list[str]:
    names = [name for name in value.split(",") if name]
    if unknown := set(names) - set(NAMES):
        raise click.BadParameter(f"unknown: {', '.join(sorted(unknown))}")
    return names


@click.command(epilog="\b\nSteps:\n" + "\n".join(f"  {name:<14} {describe_step(name)}" for name in NAMES))
@click.option("--device", type=click.Choice(DEVICES), default="cuda", show_default=True, help="Where engines compute.")
@click.option("--steps", default=",".join(NAMES), callback=_step_names, show_default=True, help="Which, in this order.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, show_default=True, help="Results and logs.")
@click.option("--archive", type=click.Path(path_type=Path), help="Pack results and logs into this .tar.gz.")
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="The small model. [default: prepared]")
@click.option("--small", is_flag=True, help="Let the small model stand for the large ones.")
@click.option(
    "--within", type=float, help="Seconds for all steps; none goes on after them. [default: 1200 on CUDA, else no end]"
)
def main(
    device: str,
    steps: list[str],
    out: Path,
    archive: Path | None,
    model: Path | None,
    small: bool,
    within: float | None,
) -> None:
    """Run the steps one after the other, each within its limit; a step that fails does not stop the others."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended
    shared = ["--device", device, "--out", str(out.resolve())]
    shared += ["--model", str(model.resolve())] if model else []
    shared += ["--small"] if small else []
    factor = 1 if device == "cuda" else _SLOWER_ON_CPU
    planned = [
        Planned(name, [sys.executable, "-m", "gpu.run_step", name, *shared], load_step(name).LIMIT_S * factor)
        for name in steps
    ]
    within_s = within or (_WITHIN_S if device == "cuda" else float("inf"))
    outcomes = run_steps(planned, out, within_s=within_s, archive=archive, progress=click.echo)
    click.echo(f"\n{table(outcomes)}")
    sys.exit(any(outcome.status == FAILED for outcome in outcomes))


if __name__ == "__main__":
    main()
