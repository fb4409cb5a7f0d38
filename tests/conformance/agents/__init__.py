"""Coding agents, unmodified, against a coordinator whose workers say what was written for them."""
