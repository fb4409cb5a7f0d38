"""Failover: another worker generates the remainder of a lost worker's requests."""
