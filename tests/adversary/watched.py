"""Runs `tokenwire`, and writes the stacks of all threads into a file at each SIGUSR2: `watched FILE ARGUMENTS...`."""

import faulthandler
import signal
import sys
from pathlib import Path

from tokenwire.cli.main import main

if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    with path.open("w") as file:
        faulthandler.register(signal.SIGUSR2, file=file)
        main()
