"""Real clients, each in an environment of its own, against `tokenwire serve` with the real engine."""
