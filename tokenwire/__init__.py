"""What the coordinator and the worker share: the wire, its errors, and the `tokenwire` command."""

__version__ = "0.1.0"
