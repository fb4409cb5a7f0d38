"""Conformance: tokenwire against what it claims to be equal to."""
