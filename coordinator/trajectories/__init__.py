"""Trajectories: every token that was sampled in a session, with what trainers need to know about it."""
