"""`python -m gpu.run_step NAME DEVICE OUT [MODEL]`: one step, in the process that the runner starts for it."""

import argparse
import logging
import traceback
from pathlib import Path
from typing import Any

from gpu.kit import DEVICES, Kit
from gpu.machine import why_no_cuda
from gpu.runner import FAILED, PARTIAL, PASSED, SKIPPED, StepOutcome
from gpu.step import NAMES, Skipped, load_step

_LAST_CHARACTERS = 4000


def main() -> None:
    """Run the step and write what became of it."""
    parser = argparse.ArgumentParser(prog="python -m gpu.run_step", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--device", choices=DEVICES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    outcome_of(options.name, options).write(options.out)


def outcome_of(name: str, options: argparse.Namespace) -> StepOutcome:
    """Run a step; whatever it raises becomes an outcome."""
    try:
        if options.device == "cuda" and (reason := why_no_cuda()):
            raise Skipped(reason)
        kit = Kit.create(options.device, options.out / name, options.model, options.small)
        return judged(name, load_step(name).run(kit))
    except Skipped as skipped:
        return StepOutcome(name, SKIPPED, reason=str(skipped))
    except Exception as error:
        traceback.print_exc()
        return StepOutcome(name, FAILED, reason=f"{type(error).__name__}: {error}"[-_LAST_CHARACTERS:])


def judged(name: str, result: dict[str, Any]) -> StepOutcome:
    """Return a step's outcome: it has failed if one of its parts has, and is partial if one was skipped."""
    parts = result.get("parts", {})
    failed = [part for part, each in parts.items() if each["status"] == FAILED]
    skipped = [f"{part} skipped: {each['reason']}" for part, each in parts.items() if each["status"] == SKIPPED]
    status = FAILED if failed else PARTIAL if skipped else PASSED
    return StepOutcome(name, status, reason=", ".join(failed or skipped), result=result)


if __name__ == "__main__":
    main()
