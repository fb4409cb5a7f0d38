"""The `tokenwire` command."""
