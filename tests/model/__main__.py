"""`python -m tests.model`: explores small models of the fleet whole, and prints how many states there were."""

import argparse
import logging
import sys
import time

from tests.model.scopes import ROWS


def main() -> int:
    """Print a line for each scope; return 1 if a statement does not hold in one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--long", action="store_true", help="explore the large scopes too: minutes")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failed = False
    sys.stdout.write("| scope | states | transitions | at rest | CPU seconds |\n|---|---|---|---|---|\n")
    for row in ROWS:
        if row.long and not arguments.long:
            continue
        began = time.process_time()
        found = row.run()
        seconds = time.process_time() - began
        counts = f"{found.states:,} | {found.transitions:,} | {found.final:,}"
        sys.stdout.write(f"| {row.name} | {counts} | {seconds:.1f} |\n")
        sys.stdout.flush()
        if found.violation is not None:
            failed = True
            sys.stdout.write(f"\n{found.violation}\n\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
