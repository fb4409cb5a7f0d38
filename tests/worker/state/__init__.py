"""The serving state."""
