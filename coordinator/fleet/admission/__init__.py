"""Queues in front of the fleet."""
