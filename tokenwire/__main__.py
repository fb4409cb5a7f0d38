"""Runs the `tokenwire` command as `python -m tokenwire`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` prepends the working directory to sys.path. Remove it, so that nothing is imported from there, as with
    # the command itself, unless it contains this package.
    if not sys.flags.safe_path and Path(sys.path[0]).resolve() != Path(__file__).resolve().parents[1]:
        del sys.path[0]
    from tokenwire.cli.main import main

    main()
