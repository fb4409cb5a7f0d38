"""`python -m tokenwire` is the `tokenwire` command."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` puts the working directory in front of everything installed. Nothing is imported from there, as with
    # the command itself, unless it is where this package is.
    if not sys.flags.safe_path and Path(sys.path[0]).resolve() != Path(__file__).resolve().parents[1]:
        del sys.path[0]
    from tokenwire.cli.main import main

    main()
