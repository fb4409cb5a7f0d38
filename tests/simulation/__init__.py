"""Deterministic simulation: whole fleets in one process, in virtual time, under a seeded order of events."""
