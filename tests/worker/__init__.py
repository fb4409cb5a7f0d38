"""The worker: its engines, sessions and services."""
