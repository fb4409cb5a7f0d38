"""The worker: its engines, sessions and control plane."""
