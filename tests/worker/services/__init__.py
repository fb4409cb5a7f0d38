"""A worker's services."""
