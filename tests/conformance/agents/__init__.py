"""Unmodified coding agents with a coordinator whose workers have scripted replies."""
