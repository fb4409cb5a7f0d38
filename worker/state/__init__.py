"""The serving state of a worker, and the operations that change it."""
