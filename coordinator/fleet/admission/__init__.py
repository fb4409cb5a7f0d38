"""Admission: the queues in front of the workers."""
