"""`python -m tokenwire` is the `tokenwire` command."""

from tokenwire.cli import main

if __name__ == "__main__":
    main()
