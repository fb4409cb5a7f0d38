"""Mutants that no test should kill, each with the reason: they change nothing that anybody is promised."""

EQUIVALENT: dict[str, str] = {}
"""Why, by what the mutant changes."""
