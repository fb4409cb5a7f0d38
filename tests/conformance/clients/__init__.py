"""Real clients in their own environments, with `tokenwire serve` and the real engine."""
