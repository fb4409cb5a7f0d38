"""Shared by the coordinator and the worker: the protocol, errors, and the `tokenwire` command."""

__version__ = "0.1.0"
